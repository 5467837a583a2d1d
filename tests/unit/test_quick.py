"""What keeps the verbs quick on a slow board, where every import costs: told without a clock, by what they load and
how often they read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from orin_deploy.cli import main
from orin_deploy.intent.profile import search_path
from tests.accounted import Account, accounted
from tests.ggufs import Shape

# What takes tens of milliseconds to import, and of ours what only other verbs need.
HEAVY = {"jsonschema", "referencing", "attr", "rich", "huggingface_hub", "urllib3", "requests", "numpy"}
OTHER_VERBS = {
    "orin_deploy.doctor", "orin_deploy.tune", "orin_deploy.observe.bench",
    "orin_deploy.observe.telemetry", "orin_deploy.host.fetch", "orin_deploy.host.fetch_http",
    "tarfile",
}  # fmt: skip
HELP = {"orin_deploy", "orin_deploy.errors"} | {
    f"orin_deploy.{name}" for name in ("cli", "cli.main", "cli.arguments", "cli.ending")
}


def run(*words: str, home: Path) -> Account:
    done = accounted(*words, folder=home, environ={"ORIN_DEPLOY_HOME": str(home)})
    assert done.code == 0, done.err
    return done


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Shape().write(tmp_path / "m.gguf")


def test_help_loads_the_command_line_alone(tmp_path: Path) -> None:
    loaded = run("--help", home=tmp_path).modules
    assert {name for name in loaded if name.startswith("orin_deploy")} == HELP
    assert not (HEAVY | {"yaml", "plumbum"}) & loaded


def test_typer_has_no_annotation_to_evaluate() -> None:
    """It evaluates one that is a text twice, for each of a hundred options: a fifth of --help."""
    callbacks = [command.callback for app in (main.app, main.profiles_app) for command in app.registered_commands]
    said = [annotation for each in callbacks if each for annotation in each.__annotations__.values()]
    assert len(said) > 100
    assert not any(isinstance(annotation, str) for annotation in said)


def test_plan_loads_what_a_plan_needs(tmp_path: Path, model: Path) -> None:
    words = ("plan", "--profile", "agx32", "--model", str(model), "--set", "parallel=2", "--set", "power.mode=keep")
    loaded = run(*words, home=tmp_path).modules
    assert not (HEAVY | OTHER_VERBS) & loaded
    assert {"yaml", "orin_deploy.intent.resolve"} <= loaded, "or what is asserted above says nothing"


@pytest.mark.parametrize(
    "words",
    [
        ("version",),
        ("status",),
        ("facts",),
        ("logs",),
        ("profiles", "list"),
        ("profiles", "show", "agx32"),
        ("fit", "--profile", "agx32"),
    ],
    ids=lambda words: words[0],
)
def test_every_look_does_without_what_is_heavy(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = accounted(*words, folder=tmp_path, environ={"ORIN_DEPLOY_HOME": str(tmp_path)})
    assert done.code == (2 if words == ("logs",) else 0), done.err  # nothing was ever deployed
    assert not HEAVY & done.modules


def test_a_model_is_shown_without_what_is_heavy(tmp_path: Path, model: Path) -> None:
    assert not HEAVY & run("gguf", str(model), home=tmp_path).modules


def test_a_profile_with_a_fault_is_still_looked_at_whole(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("model: smollm2-135m\nport: 0\n")
    done = accounted("profiles", "check", str(tmp_path / "bad.yaml"), folder=tmp_path, environ={})
    assert done.code == 2
    assert "jsonschema" in done.modules


def test_plan_reads_each_of_its_inputs_once(tmp_path: Path, model: Path) -> None:
    done = run("plan", "--profile", "agx32", "--model", str(model), home=tmp_path)
    assert done.times_opened(model) == 1
    read = Counter(path for path in done.opened if path.endswith((".yaml", ".yml")))
    assert read[str(search_path(None, {})[-1] / "agx32.yaml")] == 1
    assert set(read.values()) == {1}
    assert set(Counter(done.started).values()) <= {1}, "a program is asked one thing twice"
