"""Which of a machine's units are ours, and what of a service that runs is put back after a change that failed."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.actions import Action, Write
from orin_deploy.host import Host
from orin_deploy.intent.spec import Draft, Placement, Spec
from orin_deploy.parts import service
from orin_deploy.parts.service.state import Server, ServiceState
from orin_deploy.parts.service.steps import wanted_draft_text, wanted_text
from orin_deploy.parts.service.unit import argv, unit_text
from orin_deploy.parts.service.where import where
from tests.specs import make_spec
from tests.unprivileged import common_folder, unprivileged

FOLDERS = ("/orin", "/mnt/orin", "/orin/deployments/a", "/50%/orin", "/50%%/orin", "/my orin", '/my "orin"', "/my")


def machine(root: Path, data: str) -> Host:
    host = Host(root, {"ORIN_DEPLOY_HOME": data})
    host.is_root = True
    return host


@pytest.mark.parametrize("data", FOLDERS)
def test_a_unit_is_told_by_the_very_data_folder_it_serves_out_of(tmp_path: Path, data: str) -> None:
    ours = machine(tmp_path, data)
    spec = make_spec(Path(data), Path("/engine"), Path("/m.gguf"), 8080, manager="systemd", user="orin-deploy")
    place = where(ours, "test")
    file = ours.path(place.unit_file)
    file.parent.mkdir(parents=True)
    file.write_text(unit_text(spec, place, "/usr/bin/taskset", ()))
    assert {other for other in FOLDERS if service.kept(machine(tmp_path, other))} == {data}
    assert service.kept(ours) == {"test"}


def test_a_home_folder_that_may_not_be_entered_holds_no_unit_of_ours() -> None:
    with common_folder() as folder:
        home = folder / "home"
        (home / ".config/systemd/user").mkdir(parents=True)
        host = Host("/", {"HOME": str(home), "ORIN_DEPLOY_HOME": str(folder / "data")})
        host.is_root = False
        home.chmod(0)
        with unprivileged():
            assert host.glob(f"{home}/.config/*") == ()
            assert service.kept(host) == frozenset()


def served(manager: str, *, draft: bool = True) -> Spec:
    user = "orin-deploy" if manager == "systemd" else None
    process = Draft("draft-simple", None, device="CPU", port=50052, argv=("/engine/ggml-rpc-server",))
    placement = Placement((0,), 1, 1, "test", (1,), 1) if draft else Placement((0,), 1, 1, "test")
    changes: dict[str, Any] = {"draft": process if draft else None, "placement": placement}
    return make_spec(
        Path("/data"), Path("/engine"), Path("/m.gguf"), 8080, manager=manager, user=user, env=(), **changes
    )


def put_back(monkeypatch: pytest.MonkeyPatch, spec: Spec, **changes: Any) -> tuple[tuple[Action, ...], ...]:
    """What is written to put the service back, without the spec that was proved and with it."""
    host = machine(Path("/"), "/data")
    state = ServiceState(where=where(host, spec.name), taskset="/usr/bin/taskset", manager=spec.service.manager)
    state = replace(state, text=wanted_text(spec, state), draft_text=wanted_draft_text(spec, state))
    state = replace(state, server=Server(argv(spec), (), False, ()), **changes)
    monkeypatch.setattr(sys.modules[service.snapshot.__module__], "inspect", lambda host, spec: state)
    found = (service.snapshot(host, spec), service.snapshot(host, spec, spec))
    return tuple(() if one is None else tuple(_writes(service.restore(spec, one))) for one in found)


def _writes(actions: tuple[Action, ...]) -> list[Action]:
    return [action for action in actions if isinstance(action, Write)]


LAUNCHES = {
    "empty": "", "torn": '{"argv": ["/usr/bin/tas', "no object": "[]", "a text for words": '{"argv": "x"}',
    "no words": '{"argv": []}', "numbers for words": '{"argv": [5]}',
    "no list of companions": '{"argv": ["x"], "companions": 5}',
    "companions without words": '{"argv": ["x"], "companions": [{"name": "x"}]}',
}  # fmt: skip


@pytest.mark.parametrize("text", LAUNCHES.values(), ids=LAUNCHES.keys())
def test_a_damaged_launch_file_is_not_put_back(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    spec = served("process")
    (whole,), same = put_back(monkeypatch, spec)
    assert same == (whole,)
    assert isinstance(whole, Write)
    if text.startswith("{") and text.endswith("}"):
        text = json.dumps(json.loads(whole.text) | json.loads(text))
    assert put_back(monkeypatch, spec, text=text) == ((), (whole,))
    alone = json.dumps({"argv": ["x"]})
    assert put_back(monkeypatch, spec, text=alone) == ((), (whole,)), "without an environment it does not start"


@pytest.mark.parametrize("draft", [False, True], ids=["alone", "with a draft process"])
def test_a_torn_unit_is_not_put_back(monkeypatch: pytest.MonkeyPatch, draft: bool) -> None:
    spec = served("systemd", draft=draft)
    whole, same = put_back(monkeypatch, spec)
    assert same == whole
    assert len(whole) == (2 if draft else 1)
    for write, field in zip(whole, ("draft_text", "text") if draft else ("text",), strict=True):
        assert isinstance(write, Write)
        lines = write.text.splitlines(keepends=True)
        torn = {"".join(lines[:number]) for number in range(len(lines))} | {write.text[:-1], ""}
        for text in torn:
            assert put_back(monkeypatch, spec, **{field: text}) == ((), whole), (field, text)
    if draft:
        assert put_back(monkeypatch, spec, draft_text=None) == ((), whole)
