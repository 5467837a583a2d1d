"""A board at hand or not: which profile is for which machine, what stands in, and that nothing real is touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from orin_deploy.actions import Remove
from orin_deploy.deploy.draft import situation
from orin_deploy.deploy.lookup import profile_folders
from orin_deploy.errors import Refused
from orin_deploy.facts.device import MIB, Device
from orin_deploy.facts.inspect import inspect
from orin_deploy.host import Host
from orin_deploy.intent import board, profile
from orin_deploy.intent.profile import Profile
from orin_deploy.intent.request import Request
from tests.boards.capture import Capture
from tests.planning import PROFILES, WORKSTATION, Untouched, planned

SEARCH = (PROFILES,)
EVERY = {name: profile.load(name, SEARCH) for name, _ in profile.names(SEARCH)}
BOARDS = {name: each for name, each in EVERY.items() if each.board is not None and each.board.modules}
CAPTURED = Path(__file__).parents[1] / "boards"


@pytest.mark.parametrize("name", BOARDS)
def test_what_stands_in_is_what_the_profile_says(name: str) -> None:
    chosen, device = BOARDS[name], board.stand_in(BOARDS[name])
    facts = chosen.board
    assert facts is not None
    assert device.assumed == f"profile {name}"
    assert device.memory.total == facts.memory_total_mib * MIB
    assert device.memory.available == (facts.memory_total_mib - facts.memory_idle_mib) * MIB
    assert [cluster.cpus for cluster in device.cpu.clusters] == list(facts.clusters)
    assert device.jetson is not None
    assert device.jetson.module == facts.modules[0]
    assert board.is_at_hand(chosen, device)
    assert board.disagreements(chosen, device) == ()


@pytest.mark.parametrize("name", BOARDS)
def test_a_plan_for_a_board_that_is_not_at_hand_touches_nothing_here(name: str) -> None:
    """The host of `planned` fails the test when anything is run, requested or changed."""
    plan = planned(name)
    assert plan.spec.device.assumed == f"profile {name}"
    assert any(f"no {name} board is at hand" in text for text in plan.spec.warnings)
    assert all(step.actions for step in plan.steps_of("service"))


def test_that_witness_can_fail() -> None:
    host = Untouched()
    with pytest.raises(AssertionError):
        host.ask("uname")
    with pytest.raises(AssertionError):
        host.http("GET", "http://127.0.0.1/")
    with pytest.raises(AssertionError):
        host.do(Remove("/x"))


@pytest.mark.parametrize("name", BOARDS)
def test_up_refuses_a_profile_for_another_board(name: str) -> None:
    with pytest.raises(Refused, match=f"profile {name} is for module"):
        situation(Untouched(), Request(name, profiles_folder=str(PROFILES)), elsewhere=False)
    forced = situation(Untouched(), Request(name, profiles_folder=str(PROFILES), force=True), elsewhere=False)
    assert forced.device.assumed is None


@pytest.mark.parametrize("name", BOARDS)
def test_a_board_is_at_hand_for_no_other_profile(name: str) -> None:
    modules = BOARDS[name].board.modules  # type: ignore[union-attr]
    device = board.stand_in(BOARDS[name])
    others = {other for other, each in BOARDS.items() if set(each.board.modules) & set(modules)}  # type: ignore[union-attr]
    assert {other for other in BOARDS if board.is_at_hand(BOARDS[other], device)} == others
    assert board.is_at_hand(EVERY["host"], device), "the host profile is for any machine"
    assert not board.is_at_hand(BOARDS[name], WORKSTATION)


def at_hand(chosen: Profile) -> Device:
    return replace(board.stand_in(chosen), assumed=None)


def test_the_device_wins_and_the_plan_says_where_they_differ() -> None:
    chosen = EVERY["agx32"]
    device = at_hand(chosen)
    assert board.disagreements(chosen, device) == ()
    fewer = replace(device, cpu=replace(device.cpu, present=device.cpu.present[:6]))
    assert board.disagreements(chosen, fewer) == ("this board has 6 CPUs where profile agx32 says 8",)
    total = yaml.safe_load((PROFILES / "agx32.yaml").read_text())["board"]["memory_total_mib"]
    for factor, count in ((0.8, 1), (0.95, 0), (1.05, 0), (1.2, 1)):
        memory = replace(device.memory, total=int(total * factor) * MIB)
        assert len(board.disagreements(chosen, replace(device, memory=memory))) == count, factor
    unknown = replace(device, memory=replace(device.memory, total=0))
    assert board.disagreements(chosen, unknown) == ()
    assert board.disagreements(EVERY["host"], fewer) == ()
    assert board.disagreements(EVERY["agx64"], fewer) == (), "another board's profile says nothing of this one"


@pytest.mark.parametrize("name", ["agx32", "agx64"])
def test_the_captured_board_agrees_with_its_profile(name: str) -> None:
    device = inspect(Capture(CAPTURED / f"{name}-r36"))
    assert board.is_at_hand(EVERY[name], device)
    assert board.disagreements(EVERY[name], device) == ()
    assert profile.board_profile(device.jetson.module if device.jetson else None, SEARCH) == name


def test_a_site_s_profiles_are_those_of_the_machine_that_is_looked_at(tmp_path: Path) -> None:
    host = Host(tmp_path, {"HOME": "/home/somebody", "ORIN_DEPLOY_HOME": str(tmp_path / "data")})
    assert profile_folders(host, None)[0] == tmp_path / "etc/orin-deploy/profiles"
