"""Down: which deployment is meant, what it removes, what another one still uses, and a lost undo file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.actions import Remove, Stop, Write
from orin_deploy.deploy.down import choose, down
from orin_deploy.deploy.record import Record, deployments, known, pending_undo, plain, remember_undo
from orin_deploy.errors import OrinError, UsageError
from orin_deploy.host import Host
from orin_deploy.intent.spec import WeightFile, Weights
from tests.specs import make_spec


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(environ={"ORIN_DEPLOY_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "PATH": ""})


def deploy(host: Host, name: str, engine: str, model: str, outcome: str = "done") -> None:
    """A deployment as `up` leaves it: record, undo actions, an engine and a model on disk."""
    folder, file = host.data / "engines" / engine, host.data / "models/hf/owner/repo" / model
    for path in (folder / "build/bin/llama-server", file):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(1000))
    spec = make_spec(host.data, folder, file, 8080)
    build = replace(spec.build, folder=str(folder), engine=None)
    spec = replace(spec, name=name, build=build, weights=Weights("hf:x", (WeightFile("hf:x", str(file)),)))
    launch = str(host.data / "deployments" / name / "launch.json")
    remember_undo(host, name, (Stop(name, launch), Remove(launch)))
    host.do(Write(launch, "{}"))
    record = Record(host, name, "up")
    record.update(spec=plain(spec))
    record.finish(outcome)


def test_purge_keeps_the_notes_beside_a_used_file(host: Host) -> None:
    deploy(host, "a", "e1", "m1.gguf")
    deploy(host, "b", "e1", "m.gguf")
    folder = host.data / "models/hf/owner/repo"
    for name in ("m.gguf.verified.json", ".m1.gguf.part", "m1.gguf.verified.json"):
        (folder / name).write_text("{}")
    down(host, "a", purge=True)
    assert {path.name for path in folder.iterdir()} == {"m.gguf", "m.gguf.verified.json"}


def left(host: Host) -> set[str]:
    return {
        *(path.name for path in (host.data / "engines").glob("*")),
        *(path.name for path in (host.data / "models").rglob("*.gguf")),
    }


def test_engines_and_models_stay_unless_purged(host: Host) -> None:
    deploy(host, "a", "e1", "m1.gguf")
    done = down(host, "a")
    assert [type(action) for action in done.actions] == [Stop, Remove]
    assert (done.removed, done.freed_bytes) == ((), 0)
    assert left(host) == {"e1", "m1.gguf"}
    assert (deployments(host), known(host)) == ((), ("a",))


def test_purge_removes_what_nothing_uses(host: Host) -> None:
    deploy(host, "a", "e1", "m1.gguf")
    (host.cache / "downloads").mkdir(parents=True)
    (host.cache / "downloads/x").write_bytes(bytes(500))
    learned = [host.data / name for name in ("bench/0001.json", "decisions.json", "learned.json")]
    for path in learned:
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    done = down(host, "a", purge=True)
    assert left(host) == set()
    assert not any(path.exists() for path in learned)
    assert not host.cache.exists()
    assert done.freed_bytes >= 2500
    assert known(host) == ()


@pytest.mark.parametrize(
    ("engine", "model", "stays"),
    [
        ("e1", "m1.gguf", {"e1", "m1.gguf"}),
        ("e1", "m2.gguf", {"e1", "m2.gguf"}),  # both models lie in one repository's folder
        ("e2", "m1.gguf", {"e2", "m1.gguf"}),
    ],
)
def test_purge_keeps_what_another_deployment_uses(host: Host, engine: str, model: str, stays: set[str]) -> None:
    deploy(host, "a", "e1", "m1.gguf")
    deploy(host, "b", engine, model)
    (host.data / "learned.json").write_text("{}")
    down(host, "a", purge=True)
    assert left(host) == stays
    assert (host.data / "learned.json").exists()
    assert deployments(host) == known(host) == ("b",)
    assert pending_undo(host, "b")


def test_purge_keeps_what_a_deployment_used_before_an_up_that_failed(host: Host) -> None:
    """Its service may still be the one of the last run that went well."""
    deploy(host, "a", "e1", "m1.gguf")
    deploy(host, "b", "e1", "m1.gguf")
    deploy(host, "b", "e2", "m2.gguf", outcome="failed")
    down(host, "a", purge=True)
    assert left(host) == {"e1", "m1.gguf", "e2", "m2.gguf"}


@pytest.mark.parametrize("lost", [False, True], ids=["damaged", "lost"])
def test_purge_keeps_engines_and_models_while_it_is_not_known_what_another_one_uses(host: Host, lost: bool) -> None:
    deploy(host, "a", "e1", "m1.gguf")
    deploy(host, "b", "e1", "m1.gguf")
    deploy(host, "b", "e2", "m2.gguf")
    for record in (host.data / "deployments/b/records").glob("*.json" if lost else "0002.json"):
        record.unlink() if lost else record.write_text("{")
    done = down(host, "a", purge=True)
    assert left(host) == {"e1", "m1.gguf", "e2", "m2.gguf"}
    assert done.kept_for == ("b",)
    assert not (host.data / "deployments/a").exists()
    deploy(host, "b", "e2", "m2.gguf")
    assert down(host, "a", purge=True).kept_for == ()
    assert left(host) == {"e2", "m2.gguf"}


def test_which_deployment_is_meant(host: Host) -> None:
    with pytest.raises(UsageError, match="nothing was ever deployed"):
        choose(host, None)
    deploy(host, "a", "e1", "m1.gguf")
    assert choose(host, None) == choose(host, "a") == "a"
    deploy(host, "b", "e1", "m1.gguf")
    with pytest.raises(UsageError, match="there are 2 deployments: a, b"):
        choose(host, None)
    with pytest.raises(UsageError, match="no deployment named c"):
        choose(host, "c")
    down(host, "a")
    assert choose(host, None) == "b", "the only one that is up"
    assert choose(host, "a") == "a", "what was up once can be named"
    down(host, "b")
    with pytest.raises(UsageError, match="2 deployments"):
        choose(host, None)


def test_down_twice_does_nothing_the_second_time(host: Host) -> None:
    deploy(host, "a", "e1", "m1.gguf")
    down(host, "a")
    assert down(host, "a").actions == ()


@pytest.mark.parametrize("text", ["", "{", '{"undo": 5}', '{"undo": [{"do": "explode"}]}', None])
def test_a_lost_undo_file_leaves_no_service_behind(host: Host, text: str | None) -> None:
    deploy(host, "a", "e1", "m1.gguf")
    undo = host.data / "deployments/a/undo.json"
    undo.unlink() if text is None else undo.write_text(text)
    done = down(host, "a")
    assert [type(action) for action in done.actions] == [Stop, Remove]
    assert not (host.data / "deployments/a/launch.json").exists()
    assert deployments(host) == ()


@pytest.mark.parametrize("text", ["", '{"undo": 5}', None])
def test_a_lost_undo_file_is_written_anew_with_what_was_done_before(host: Host, text: str | None) -> None:
    deploy(host, "a", "e1", "m1.gguf")
    undo = host.data / "deployments/a/undo.json"
    undo.unlink() if text is None else undo.write_text(text)
    remember_undo(host, "a", (Remove("/nothing"),))
    assert [type(action) for action in pending_undo(host, "a")] == [Remove, Stop, Remove]


@pytest.mark.parametrize("text", ["", '{"undo": 5}', None])
def test_a_lost_undo_file_is_written_anew_although_it_tells_no_more_than_the_files_do(
    host: Host, text: str | None
) -> None:
    deploy(host, "a", "e1", "m1.gguf")
    before, undo = pending_undo(host, "a"), host.data / "deployments/a/undo.json"
    undo.unlink() if text is None else undo.write_text(text)
    remember_undo(host, "a", before)
    (host.data / "deployments/a/launch.json").unlink()  # what is known without the list goes with it
    assert pending_undo(host, "a") == before != ()


class Stubborn(Host):
    """A host on which one path cannot be removed."""

    stubborn = True

    def do(self, action: Any, *rest: Any) -> None:
        if self.stubborn and isinstance(action, Remove) and action.path.endswith("launch.json"):
            raise OrinError("it cannot be removed")
        super().do(action, *rest)


def test_after_a_failure_the_undo_actions_are_still_known(tmp_path: Path) -> None:
    host = Stubborn(environ={"ORIN_DEPLOY_HOME": str(tmp_path)})
    deploy(host, "a", "e1", "m1.gguf")
    with pytest.raises(OrinError):
        down(host, "a")
    assert len(pending_undo(host, "a")) == 2
    assert left(host) == {"e1", "m1.gguf"}
    host.stubborn = False
    down(host, "a")
    assert deployments(host) == ()
