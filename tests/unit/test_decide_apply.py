"""draft=auto within `up`, on a virtual board: when it is measured, and what becomes of the server that ran."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orin_deploy.actions import Run
from orin_deploy.deploy import decisions
from orin_deploy.deploy.apply import Events, apply
from orin_deploy.deploy.decisions import Kept
from orin_deploy.deploy.draft import draft, situation
from orin_deploy.deploy.plan import Plan
from orin_deploy.deploy.record import Record
from orin_deploy.errors import OrinError
from orin_deploy.intent.measured import Decision
from tests.unit.test_apply import Deployment, Silent, profiles  # noqa: F401
from tests.virtual_board import VirtualBoard

NONE = Decision("none", "measured 2026-11-30, bench record 1: ngram-mod 0.93 times none", record=1, date="2026-11-30")


class Speculating(VirtualBoard):
    """A board whose engine knows one kind of speculation."""

    def _llama_server(self, action: Run, *words: str) -> str:
        said = super()._llama_server(action, *words).splitlines()
        return "\n".join("--spec-type none,ngram-mod" if line.startswith("--spec-type") else line for line in said)


class SpeculatingSilent(Silent, Speculating):
    pass


class Auto(Deployment):
    """A deployment with draft=auto whose measuring is played by `measure`."""

    def go(
        self,
        *sets: str,
        measure: Callable[[VirtualBoard, Plan, Callable[[], None]], None],
        kind: type[VirtualBoard] = Speculating,
    ) -> VirtualBoard:
        host, wish = kind(self.folder), self.wish(*sets)
        now = situation(host, wish, elsewhere=False)

        def anew() -> Plan:
            return draft(host, wish, now, lambda fraction, text: None)

        def measured(plan: Plan, make_room: Callable[[], None]) -> str:
            host.moments.append("measuring")
            measure(host, plan, make_room)
            return "none"

        applied = apply(host, anew(), anew, Record(host, now.name, "up"), Events(), measured)
        assert applied.proof is not None, "what was measured for is proved anew"
        return host


@pytest.fixture(params=["systemd", "process"])
def board(request: pytest.FixtureRequest, tmp_path: Path, profiles: Path) -> Auto:  # noqa: F811
    return Auto(tmp_path / "board", profiles, request.param)


def decide(host: VirtualBoard, plan: Plan, make_room: Callable[[], None]) -> None:
    assert plan.key is not None
    decisions.keep(host, Kept(plan.key, NONE, 10_000))


def with_room(host: VirtualBoard, plan: Plan, make_room: Callable[[], None]) -> None:
    make_room()
    assert host.pids() == [], "there is room now"
    decide(host, plan, make_room)


def interrupted(host: VirtualBoard, plan: Plan, make_room: Callable[[], None]) -> None:
    make_room()
    raise KeyboardInterrupt


def context(board: Auto) -> str:
    host = VirtualBoard(board.folder)
    (pid,) = host.pids()
    return host.option(pid, "--ctx-size")


def test_it_is_measured_once_engine_and_weights_are_here_and_before_the_service(board: Auto) -> None:
    host = board.go(measure=decide)
    at = host.moments.index("measuring")
    assert any("ninja" in moment for moment in host.moments[:at])
    assert any("served.gguf" in moment for moment in host.moments[:at])
    assert not any("launch.json" in moment or "systemctl" in moment for moment in host.moments[:at])
    assert context(board)
    plan = board.plan(host=Speculating(board.folder))
    assert plan.measuring is None
    assert plan.spec.decision == NONE
    assert plan.spec.draft is None


def test_the_server_that_runs_goes_on_while_there_is_room_beside_it(board: Auto) -> None:
    board.go("speculation.measure_s=10", "ctx_size=2048", measure=decide)

    def look(host: VirtualBoard, plan: Plan, make_room: Callable[[], None]) -> None:
        assert len(host.pids()) == 1
        decide(host, plan, make_room)

    board.go("speculation.measure_s=20000", "ctx_size=2048", measure=look)
    assert context(board) == "2048"


def test_a_server_that_had_to_make_room_is_started_again(board: Auto) -> None:
    board.go("ctx_size=2048", measure=decide)
    board.go("speculation.measure_s=20000", "ctx_size=2048", measure=with_room)
    assert context(board) == "2048"


def test_ctrl_c_puts_back_the_server_that_made_room(board: Auto) -> None:
    board.go("ctx_size=2048", measure=decide)
    with pytest.raises(KeyboardInterrupt):
        board.go("speculation.measure_s=20000", "ctx_size=1024", measure=interrupted)
    assert context(board) == "2048"


def test_a_new_server_that_fails_gives_way_to_the_one_that_made_room(board: Auto) -> None:
    board.go("ctx_size=2048", measure=decide)
    with pytest.raises(OrinError, match="the completion is not whole"):
        board.go("speculation.measure_s=20000", "ctx_size=1024", measure=with_room, kind=SpeculatingSilent)
    assert context(board) == "2048"
