"""Relief: what would free memory, how much it gives, and that it gives as much as it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.facts.device import MIB, Device, Memory, Tenant
from orin_deploy.intent.budget import GROUP, SET
from orin_deploy.intent.relief import Relief, enough, of_machine, relief
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import Serving
from tests.specs import make_device
from tests.unit.test_budget import MINICPM5
from tests.unit.test_limit import device

GIB = 1024 * MIB
ROOM = Room(4 * GIB, "a test", 512 * MIB)
TENANTS = (
    Tenant("deployment", "chat two", 2 * GIB, promised_bytes=GIB, pids=(5,)),
    Tenant("container", "detector", 900 * MIB, unit="docker"),
    Tenant("container", "0123456789ab", 800 * MIB, unit="kubernetes"),
    Tenant("desktop", "desktop (gnome-shell, Xorg)", 700 * MIB, pids=(1, 2)),
    Tenant("gpu", "vision", 600 * MIB, gpu_bytes=500 * MIB, pids=(7,), unit="vision.service"),
    Tenant("process", "firefox", 500 * MIB, pids=(8, 9)),
    Tenant("process", "systemd-journal", 400 * MIB, pids=(3,), unit="systemd-journald.service"),
    Tenant("process", "tiny", MIB, pids=(10,)),
)


def test_everything_that_can_be_had_back_with_its_size_and_command() -> None:
    found = of_machine(ROOM, device(TENANTS, hugepages_total=GIB, hugepages_free=GIB))
    assert [(each.bytes // MIB, each.command) for each in found] == [
        (1024, "sudo sysctl vm.nr_hugepages=0"),
        (700, "sudo systemctl isolate multi-user.target"),
        (3072, "orin-deploy down --name 'chat two'"),
        (900, "docker stop detector"),
        (800, "end it by what runs it (kubernetes)"),
        (600, "sudo systemctl stop vision.service"),
        (500, "kill 8 9"),
    ]


def test_dropping_caches_is_named_only_where_it_helps() -> None:
    def dropping(here: Device) -> list[Relief]:
        return [each for each in of_machine(ROOM, here) if "drop_caches" in each.command]

    assert [each.bytes for each in dropping(device(l4t="36.4.4", largest_block=MIB))] == [0]
    assert dropping(device(l4t="36.4.4", largest_block=4 * MIB)) == []
    assert dropping(device(largest_block=MIB)) == []  # no Jetson: nothing needs large blocks there


def test_nothing_is_to_be_had_on_a_board_that_is_not_at_hand() -> None:
    assert of_machine(ROOM, replace(device(TENANTS, hugepages_free=GIB), assumed="profile nano8")) == ()


SERVINGS = st.builds(
    Serving,
    ctx_size=st.sampled_from([2048, 32_768]),
    parallel=st.integers(1, 4),
    ubatch_size=st.sampled_from([128, 512, 2048]),
    cache_type_k=st.sampled_from(["f16", "q8_0"]),
    cache_type_v=st.sampled_from(["f16", "q8_0"]),
    cache_ram_mib=st.sampled_from([0, 2048]),
    gpu=st.booleans(),
)


def typed(serving: Serving, command: str) -> Serving:
    """The serving once the words of a relief are added to the command."""
    words = dict(word.split("=", 1) for word in command.split() if word != "--set")
    fields = {"cache_ram_mib" if key == "cache_ram" else key: value for key, value in words.items()}
    changes: dict[str, Any] = {key: int(value) if value.isdigit() else value for key, value in fields.items()}
    return replace(serving, **changes)


@given(SERVINGS)
def test_settings_stand_between_what_costs_nothing_and_what_somebody_misses(serving: Serving) -> None:
    found = relief(MINICPM5, serving, ROOM, device(TENANTS, hugepages_free=GIB))
    settings = [each for each in found if each.command.startswith(("--set", "--draft"))]
    assert found == (*found[:1], *settings, *of_machine(ROOM, device(TENANTS)))
    total = ROOM.budget(MINICPM5, serving).total_bytes
    for each in settings:
        assert each.bytes == total - ROOM.budget(MINICPM5, typed(serving, each.command)).total_bytes >= 16 * MIB
    if serving.cache_ram_mib and not ROOM.budget(MINICPM5, serving).fits:
        assert any("cache_ram=" in each.command for each in settings)
    if serving.ctx_size > 30_000 and serving.cache_type_k == "f16":
        assert any("cache_type_k=q8_0" in each.command for each in settings)


@pytest.mark.parametrize("kind", [SET, GROUP])
def test_where_the_limit_is_fixed_only_the_settings_help(kind: str) -> None:
    fixed, serving, here = replace(ROOM, limit_kind=kind), Serving(32_768), device(TENANTS, hugepages_free=GIB)
    found = relief(MINICPM5, serving, fixed, here)
    assert found == tuple(each for each in relief(MINICPM5, serving, ROOM, here) if each.command.startswith("--"))
    assert of_machine(fixed, here) == ()


@given(st.lists(st.integers(0, 4096), max_size=8), st.integers(1, 8192))
def test_enough_is_enough_and_no_more_than_it_takes(sizes: list[int], missing: int) -> None:
    reliefs = [Relief(f"{number}", size, "x") for number, size in enumerate(sizes)]
    chosen = enough(reliefs, missing)
    most = sum(sorted(sizes, reverse=True)[:3])
    assert bool(chosen) == (most >= missing)
    if chosen:
        assert sum(each.bytes for each in chosen) >= missing
        fewer = sum(sorted(sizes, reverse=True)[: len(chosen) - 1])
        assert fewer < missing
        assert all(each.bytes for each in chosen)


def test_the_first_that_is_enough_by_itself_is_taken() -> None:
    reliefs = [Relief("desktop", 700, "a"), Relief("X", 5000, "b"), Relief("Y", 900, "c")]
    assert [each.what for each in enough(reliefs, 600)] == ["desktop"]
    assert [each.what for each in enough(reliefs, 800)] == ["X"]
    assert [each.what for each in enough(reliefs, 5500)] == ["desktop", "X"]
    assert enough(reliefs, 7000) == ()


@pytest.mark.parametrize("memory", [Memory(0, 0, 0), Memory(1, 1, 1)])
def test_a_machine_that_tells_nothing_frees_nothing(memory: Memory) -> None:
    assert of_machine(ROOM, replace(make_device(), memory=memory)) == ()
