"""The limit: what bounds it, what is said of it, and the warnings that bear on a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import Exit, Refused
from orin_deploy.facts.device import MIB, Device, Jetson, Memory, Tenant
from orin_deploy.intent.budget import AVAILABLE, GROUP, SET, Budget, estimate
from orin_deploy.intent.engine_rows import Row
from orin_deploy.intent.limit import FILE_COPY, LEARNED, file_copy, limit, warnings
from orin_deploy.intent.serving import Serving
from orin_deploy.intent.spec import Setting
from tests.specs import make_device
from tests.unit.test_budget import MINICPM5

GIB = 1024 * MIB
SIZES = st.integers(0, 2**40)


def values(limit_mib: object = "auto", manager: str = "auto") -> dict[str, Setting]:
    return {"memory.limit_mib": Setting(limit_mib, "--set"), "service.manager": Setting(manager, "default")}  # type: ignore[arg-type]


def device(tenants: tuple[Tenant, ...] = (), *, systemd: bool = False, l4t: str | None = None, **memory: Any) -> Device:
    found = replace(Memory(total=64 * GIB, available=60 * GIB, free=50 * GIB), **memory)
    jetson = Jetson("Orin", (), "p3767-0003", l4t, None, None) if l4t else None
    return replace(make_device(), memory=found, tenants=tenants, systemd=systemd, jetson=jetson)


def budget(kind: str = AVAILABLE, **rows: int) -> Budget:
    listed = tuple(Row(name.replace("_", " "), size, "said") for name, size in rows.items())
    return Budget(listed, 60 * GIB, "a test", kind)


def test_memory_that_is_not_told_is_refused_unless_somebody_sets_it() -> None:
    unknown = device(total=0, available=0, free=0, doubts=("/proc/meminfo gives no MemTotal: it is not known",))
    with pytest.raises(Refused, match="MemTotal") as caught:
        limit(unknown, values(), 0)
    assert caught.value.code == Exit.REFUSED
    assert "memory.limit_mib" in str(caught.value.hint)
    assert limit(unknown, values(4096), 0) == (4 * GIB, "memory.limit_mib (--set)", SET)


def test_a_service_is_bound_by_the_group_it_will_run_in() -> None:
    here = device(
        systemd=True, cgroup_limit=2 * GIB, service_limit=8 * GIB, service_used=GIB, service_group="/system.slice"
    )
    assert limit(here, values(), 0) == (7 * GIB, "system.slice's limit less its use", GROUP)
    assert limit(here, values(manager="process"), 0) == (2 * GIB, "the cgroup's limit less its use", GROUP)


@given(total=SIZES, available=SIZES, group=SIZES, used=st.none() | SIZES, own=SIZES, promised=SIZES)
def test_the_limit_is_never_negative_and_never_more_than_any_bound(
    total: int, available: int, group: int, used: int | None, own: int, promised: int
) -> None:
    there = (Tenant("deployment", "other", 0, promised_bytes=promised),)
    here = device(there, total=total + 1, available=available, cgroup_limit=group, cgroup_used=used)
    found, source, kind = limit(here, values(), own)
    assert 0 <= found <= max(available + own - promised, 0)
    assert found <= max(group - (used or 0) + own, 0)
    assert source
    assert kind in (AVAILABLE, GROUP)


def test_what_another_deployment_is_still_to_take_is_not_to_be_had() -> None:
    there = (Tenant("deployment", "chat", GIB, promised_bytes=5 * GIB), Tenant("gpu", "vision", GIB))
    assert limit(device(there), values(), 0) == (55 * GIB, "MemAvailable less 5,120 MiB promised to chat", AVAILABLE)


def test_a_board_not_at_hand_has_what_its_profile_says() -> None:
    elsewhere = replace(device(), assumed="profile nano8")
    assert limit(elsewhere, values(), 0) == (60 * GIB, "MemTotal less idle use (profile nano8)", AVAILABLE)


def test_the_second_copy_is_a_row_only_where_there_is_one() -> None:
    gpu = Serving(gpu=True)
    (row,) = file_copy(MINICPM5, replace(gpu, load_mode="mmap"))
    assert (row.name, row.bytes) == (FILE_COPY, MINICPM5.file_bytes)
    assert "load_mode=mmap" in row.source
    assert file_copy(MINICPM5, gpu) == ()  # auto
    assert file_copy(MINICPM5, replace(gpu, load_mode="none")) == ()
    assert file_copy(MINICPM5, Serving(load_mode="mmap")) == ()  # on the CPU the pages are the weights
    with_copy = estimate(MINICPM5, gpu, extra=(row,))
    assert with_copy.total_bytes == estimate(MINICPM5, gpu).total_bytes + MINICPM5.file_bytes
    assert "load_mode=auto" in " ".join(warnings(device(), with_copy, cuda=True))


def test_a_sound_machine_gets_no_warning() -> None:
    whole = device(l4t="36.5.0", largest_block=4 * MIB, zram_total=4 * GIB)
    assert warnings(whole, budget(weights=20 * GIB, KV_cache=GIB, learned=GIB), cuda=True) == ()


@pytest.mark.parametrize(
    ("l4t", "cuda", "weights", "cache", "warned"),
    [
        ("36.4.7", True, 4 * GIB, GIB, "weights are one buffer of 4,096 MiB"),
        ("36.4.7", True, GIB, 5 * GIB, "KV cache are one buffer of 5,120 MiB"),
        ("36.4.7", True, 3 * GIB, 3 * GIB, None),  # measured: works
        ("36.4.7", False, 4 * GIB, GIB, None),
        ("36.4.4", True, 4 * GIB, GIB, None),
        ("36.5.0", True, 4 * GIB, GIB, None),
    ],
)
def test_the_fault_of_one_release(l4t: str, cuda: bool, weights: int, cache: int, warned: str | None) -> None:
    found = warnings(device(l4t=l4t), budget(weights=weights, KV_cache=cache), cuda=cuda)
    assert len(found) == (warned is not None)
    if warned is not None:
        assert warned in found[0]
        assert "5602402" in found[0]
        assert "vm.drop_caches=3" in found[0]
        assert "36.5" in found[0]


@pytest.mark.parametrize(
    ("memory", "word"),
    [
        ({"largest_block": 512 * 1024}, "lfb) is 512 KiB"),
        ({"hugepages_total": 2 * GIB, "hugepages_free": GIB}, "vm.nr_hugepages=0"),
        ({"zram_total": 3 * GIB, "zram_used": 2 * GIB}, "adds none"),
        ({"doubts": ("MemFree cannot be",)}, "MemFree cannot be"),
    ],
)
def test_each_trap_is_named_with_what_helps(memory: dict[str, Any], word: str) -> None:
    (said,) = warnings(device(l4t="36.4.4", **memory), budget(weights=GIB), cuda=True)
    assert word in said


def test_a_control_group_does_not_count_what_cuda_takes() -> None:
    told = budget(GROUP, weights=GIB)
    assert "does not count what CUDA takes" in " ".join(warnings(device(), told, cuda=True))
    assert warnings(device(), told, cuda=False) == ()


def test_much_learned_is_said() -> None:
    much = budget(weights=10 * GIB, learned=GIB + 1, reserve=50 * GIB)
    (said,) = warnings(device(), much, cuda=False)
    assert LEARNED in said
    assert "10%" in said
    assert warnings(device(), budget(weights=10 * GIB, learned=GIB), cuda=False) == ()
