"""The power part on virtual Jetsons: modes switch, clocks are pinned, all is put back, wherever a run breaks off."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orin_deploy.actions import Action, Reboot, Remove
from orin_deploy.deploy.apply import Applied, Events, apply
from orin_deploy.deploy.down import down
from orin_deploy.deploy.plan import Plan
from orin_deploy.deploy.record import Record, remember_undo
from orin_deploy.errors import Exit, OrinError, Rebooting, RebootNeeded, UsageError
from orin_deploy.facts.inspect import inspect
from orin_deploy.host import Host, Progress
from orin_deploy.intent.power import resolve
from orin_deploy.intent.spec import Setting, Spec
from orin_deploy.parts import power
from orin_deploy.parts.step import Step
from tests.specs import make_spec
from tests.virtual import VirtualJetson, build
from tests.virtual.boards_table import BOARDS

NAME = "test"
KEEP = {"power.mode": "keep", "power.clocks": "keep", "power.fan": "keep"}
MAX = {"power.mode": "max", "power.clocks": "on"}
GENERATIONS = [
    (board, l4t)
    for board, table in BOARDS.items()
    for l4t in {release.partition(".")[0]: release for release in table.releases}.values()
]
# A kill at every action takes half a minute a board: one board of each generation and kind here, and all of them with
# ORIN_TEST_EVERY_BOARD=1.
ONE_OF_EACH = [("agx32", "35.4.1"), ("nano8", "36.5.0"), ("thor-t5000", "38.4.0"), ("nx16", "39.2.0")]
BROKEN_OFF = GENERATIONS if os.environ.get("ORIN_TEST_EVERY_BOARD") else ONE_OF_EACH


class Killed(BaseException):
    pass


class Breaking(Host):
    """A host that ends before its action number `at`, or right after it when `after`."""

    at, after, count = 0, False, 0

    def do(self, action: Action, progress: Progress = lambda fraction, text: None) -> None:
        self.count += 1
        if self.count == self.at and not self.after:
            raise Killed
        super().do(action, progress)
        if self.count == self.at:
            raise Killed


class Powered:
    """One virtual board and what is wanted of it; every run has a host of its own."""

    def __init__(self, jetson: VirtualJetson, **wanted: str) -> None:
        self.jetson, self.wanted = jetson, {**KEEP, **MAX, **{f"power.{key}": value for key, value in wanted.items()}}

    def host(self, at: int = 0, after: bool = False, user: str = "root") -> Breaking:
        host = Breaking(self.jetson.root, self.jetson.environ(user=user))
        host.is_root, host.at, host.after = user == "root", at, after
        return host

    def spec(self, host: Host, reboot: bool) -> Spec:
        device = inspect(host)
        values = {key: Setting(value, "--set") for key, value in self.wanted.items()}
        whole = make_spec(host.data, Path("/engine"), Path("/model.gguf"), 8080, manager="systemd")
        wanted = resolve(device, values, is_root=host.is_root, reboot=reboot)
        return replace(whole, device=device, power=wanted)

    def plan(self, host: Host, reboot: bool = False) -> Plan:
        spec = self.spec(host, reboot)
        return self._plan(host, spec)

    def _plan(self, host: Host, spec: Spec) -> Plan:
        steps = power.plan(spec, power.inspect(host, spec))
        return Plan(spec, steps, False, Step("verify", "prove", ""))

    def up(self, host: Breaking | None = None, reboot: bool = False) -> Applied:
        host = host or self.host()
        plan = self.plan(host, reboot)
        record = Record(Host(host.root, host.environ), NAME, "orin-deploy up")
        return apply(host, plan, lambda: self._plan(host, plan.spec), record, Events())

    def down(self, reboot: bool = False) -> None:
        down(self.host(), NAME, reboot=reboot)

    def settings(self) -> dict[str, str]:
        """Every file below /sys that a mode or jetson_clocks sets."""
        names = ("online", "scaling_min_freq", "scaling_max_freq", "disable", "min_freq", "max_freq", "min_rate")
        paths = [path for path in self.jetson.root.joinpath("sys").rglob("*") if path.is_file()]
        kept = [path for path in paths if path.name in (*names, "mrq_rate_locked") or path.name.endswith("pg_mask")]
        found = {str(path.relative_to(self.jetson.root)): path.read_text() for path in kept}
        assert len(found) > 20
        return found | {"mode": self.jetson.mode}

    def left(self) -> list[str]:
        """Files of the deployment and of systemd; records tell of the way."""
        own = (self.jetson.root / "var/lib/orin-deploy/deployments", self.jetson.root / "etc/systemd/system")
        paths = [path for folder in own for path in folder.rglob("*") if path.is_file() or path.is_symlink()]
        return [str(path) for path in paths if "/records/" not in str(path) and "orin-deploy" in path.name + str(path)]


Make = Callable[..., Powered]


@pytest.fixture(scope="session")
def flashed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """A freshly flashed board below a folder of its own; made anew each time, its path is in its tools."""

    def make(board: str, l4t: str) -> Path:
        return build(tmp_path_factory.mktemp("jetson") / "root", board, l4t).root

    return make


@pytest.fixture
def make(flashed: Callable[[str, str], Path]) -> Make:
    def board(name: str = "nano8", l4t: str = "36.4.3", **wanted: str) -> Powered:
        return Powered(VirtualJetson(flashed(name, l4t)), **wanted)

    return board


@pytest.mark.parametrize(("board", "l4t"), GENERATIONS)
def test_up_then_nothing_to_do_then_down(make: Make, board: str, l4t: str) -> None:
    each = make(board, l4t)
    before = each.settings()
    plan = each.plan(each.host())
    wanted = plan.spec.power
    assert wanted is not None
    if wanted.reboot_needed:
        with pytest.raises(RebootNeeded) as caught:
            each.up()
        assert caught.value.code == Exit.REBOOT
        assert "--reboot" in (caught.value.hint or "")
        assert "power.mode=keep" in (caught.value.hint or "")
        assert each.settings() == before
        assert not each.left()
        with pytest.raises(Rebooting):
            each.up(reboot=True)
    each.up(reboot=wanted.reboot_needed)
    assert (each.jetson.mode, each.jetson.online()) == (wanted.mode, wanted.cores)
    locked = power.inspect(each.host(), each.plan(each.host()).spec).clocks
    assert locked is not None
    assert locked.locked
    assert each.plan(each.host()).empty
    if wanted.reboot_needed:
        with pytest.raises(RebootNeeded, match="comes back only with a reboot"):
            each.down()
        with pytest.raises(Rebooting):
            each.down(reboot=True)
    each.down()
    assert each.settings() == before
    assert not each.left()


def finish_up(each: Powered) -> None:
    """`up --reboot`, typed again after each reboot."""
    for _ in range(3):
        try:
            each.up(reboot=True)
            return
        except Rebooting:
            continue
    raise AssertionError("it reboots for ever")


def finish_down(each: Powered) -> None:
    for _ in range(3):
        try:
            each.down(reboot=True)
            return
        except Rebooting:
            continue
    raise AssertionError("it reboots for ever")


def reboot_first(each: Powered) -> None:
    with pytest.raises(Rebooting):
        each.up(reboot=True)


@pytest.mark.parametrize(("board", "l4t"), BROKEN_OFF)
def test_wherever_a_run_breaks_off_down_restores_and_up_finishes(make: Make, board: str, l4t: str) -> None:
    each = make(board, l4t)
    before = each.settings()
    reboots = reboot_needed(each)
    finish_up(each)
    wanted = each.settings()
    finish_down(each)
    assert each.settings() == before
    # A board that must reboot for its mode has two runs that can break off: up to the reboot, and from it on.
    for prepare in (None, reboot_first) if reboots else (None,):
        for at in itertools.count(1):
            if prepare is not None:
                prepare(each)
            try:
                each.up(each.host(at), reboot=True)
                whole = True
            except Killed:
                whole = False
            except Rebooting:
                whole = True
            if at % 2:
                finish_up(each)
                assert each.settings() == wanted, at
                assert each.plan(each.host()).empty, at
            finish_down(each)
            assert each.settings() == before, at
            assert not each.left(), at
            if whole:
                assert at > 5
                break


def reboot_needed(each: Powered) -> bool:
    wanted = each.plan(each.host()).spec.power
    return wanted is not None and wanted.reboot_needed


def test_wherever_down_breaks_off_the_next_one_finishes(make: Make) -> None:
    each = make("nx16")
    before = each.settings()
    each.up()
    host = each.host()
    down(host, NAME)
    total = host.count
    for at in range(1, total, 2):
        each.up()
        with pytest.raises(Killed):
            down(each.host(at, after=True), NAME)
        each.down()
        assert each.settings() == before, at
        assert not each.left(), at


def test_a_second_change_still_goes_back_to_the_first_state(make: Make) -> None:
    each = make(mode="15W", clocks="keep")
    before = each.settings()
    each.up()
    assert each.jetson.mode == "15W"
    assert each.plan(each.host()).empty
    each.wanted |= MAX
    each.up()
    assert each.jetson.mode == "MAXN_SUPER"
    each.down()
    assert each.settings() == before
    assert not each.left()


def test_clocks_alone_leave_the_mode(make: Make) -> None:
    each = make(mode="keep")
    before = each.settings()
    each.up()
    assert each.jetson.mode == before["mode"]
    assert each.settings() != before
    each.down()
    assert each.settings() == before


def test_clocks_that_were_pinned_before_stay_pinned(make: Make) -> None:
    each = make()
    assert each.host().ask("jetson_clocks") is not None
    before = each.settings()
    each.up()
    each.down()
    assert each.settings() == before


def test_power_is_set_again_at_boot(make: Make) -> None:
    each = make()
    each.up()
    wanted = each.settings()
    each.jetson.reboot()
    assert each.settings() == wanted
    assert each.plan(each.host()).empty


def test_going_headless_unpins_and_the_next_up_pins(make: Make) -> None:
    each = make()
    each.up()
    wanted = each.settings()
    each.host().ask("nvpmodel", "-m", "2")  # what nvpmodel.service does when it is run again
    assert each.settings() != wanted
    plan = each.plan(each.host())
    assert [bool(step.actions) for step in plan.steps] == [False, True, False]
    each.up()
    assert each.settings() == wanted


def test_a_question_that_no_mask_foretold_puts_the_old_mode_back(make: Make) -> None:
    """The masks in the table are equal, and nvpmodel asks all the same; its exit code says that all went well."""
    each = make()
    tool, real = each.jetson.bin / "nvpmodel", each.jetson.bin / "nvpmodel.real"
    shutil.move(tool, real)
    tool.write_text(
        f'#!/bin/sh\n[ "$1" = -m ] || exec {real} "$@"\n'
        "echo 'NVPM WARN: Reboot required for changing to this power mode: 2'\n"
        "echo 'NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:'\n"
        "echo 'NVPM ERROR: optMask is 1, no request for power mode'\n"
    )
    tool.chmod(0o755)
    before = each.settings()
    with pytest.raises(RebootNeeded, match="the mode from before is back"):
        each.up()
    assert each.settings() == before
    each.down()
    assert not each.left()


def test_a_mode_that_is_only_a_name_is_not_believed(make: Make) -> None:
    """The query says MAXN_SUPER, and the limits are still those of 15W."""
    each = make()
    each.host().ask("nvpmodel", "-m", "0")
    query = each.jetson.bin / "nvpmodel"
    query.write_text("#!/bin/sh\nprintf 'NV Power Mode: MAXN_SUPER\\n2\\n'\n")
    with pytest.raises(OrinError, match=r"did not take effect: CPU 0 is limited to 1497\.6 MHz, 1728 in MAXN_SUPER"):
        each.up()


def test_not_root_is_one_line_before_anything(make: Make) -> None:
    each = make()
    before = each.settings()
    host = each.host(user="nobody")
    plan = each.plan(host)
    assert plan.spec.power is not None
    assert any("needs root" in warning for warning in plan.spec.power.warnings)
    with pytest.raises(OrinError, match="needs root") as caught:
        each.up(host)
    assert caught.value.hint == "sudo orin-deploy up; or add --no-power"
    assert each.settings() == before
    assert not each.left()


def test_a_container_is_told_what_cannot_work(make: Make) -> None:
    each = make()
    (each.jetson.root / ".dockerenv").write_text("")
    plan = each.plan(each.host())
    assert plan.spec.power is not None
    assert plan.spec.power.mode is None
    assert not plan.steps
    assert any("in a container (docker) nvpmodel changes nothing" in text for text in plan.spec.power.warnings)
    each.wanted["power.mode"] = "15W"
    with pytest.raises(UsageError, match="cannot be set: in a container"):
        each.plan(each.host())


def test_consent_reboots_only_when_it_is_asked_for(make: Make) -> None:
    each = make()
    plan = each.plan(each.host(), reboot=True)
    assert any(isinstance(action, Reboot) for step in plan.steps for action in step.actions)
    each.up(reboot=True)
    assert each.jetson.mode == "MAXN_SUPER"
    assert each.jetson.kernel.data["boots"] <= 1


def test_the_fan_profile_is_set_and_put_back(make: Make) -> None:
    each = make(mode="keep", clocks="keep", fan="cool")
    conf = each.jetson.root / "etc/nvfancontrol.conf"
    text = (
        "FAN 1 {\n\tFAN_PROFILE cool {\n\t\t0 0 255\n\t}\n\tFAN_PROFILE quiet {\n\t}\n\tFAN_DEFAULT_PROFILE quiet\n}\n"
    )
    conf.write_text(text)
    each.up()
    assert "\tFAN_DEFAULT_PROFILE cool\n" in conf.read_text()
    assert each.plan(each.host()).empty
    each.down()
    assert conf.read_text() == text
    each.wanted["power.fan"] = "loud"
    with pytest.raises(UsageError, match="no fan profile loud"):
        each.plan(each.host())


@pytest.mark.parametrize("goes_on", [False, True], ids=["then down", "then another step, then down"])
def test_a_lost_list_of_what_to_undo_is_made_up_for(make: Make, goes_on: bool) -> None:
    each = make()
    before = each.settings()
    each.up()
    (each.jetson.root / f"var/lib/orin-deploy/deployments/{NAME}/undo.json").write_text("{")
    if goes_on:  # as where only the server is to be started anew: its own undo is not all there is
        remember_undo(each.host(), NAME, (Remove("/nothing"),))
    each.down()
    assert each.settings() == before
    assert not each.left()
