"""What `jetson_clocks --show` says, in the layouts of four generations, and when it counts as pinned."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.facts.clocks import Clock, locked, parse_show

R36 = """SOC family:tegra234  Machine:NVIDIA Jetson AGX Orin Developer Kit
Online CPUs: 0-1
cpu0:  Online=1 Governor=schedutil MinFreq=729600 MaxFreq=1728000 CurrentFreq=1420800 IdleStates: WFI=1 c7=1 
cpu1:  Online=1 Governor=schedutil MinFreq=729600 MaxFreq=1728000 CurrentFreq=729600 IdleStates: WFI=1 c7=1 
cpu10: Online=0 Governor=schedutil MinFreq=729600 MaxFreq=2201600 CurrentFreq=729600 IdleStates: WFI=1 c7=1 
GPU MinFreq=306000000 MaxFreq=612000000 CurrentFreq=306000000
Active GPU TPCs: 4
EMC MinFreq=204000000 MaxFreq=3199000000 CurrentFreq=3199000000 FreqOverride=0
DLA0_CORE:   Online=1 MinFreq=0 MaxFreq=1369600000 CurrentFreq=1369600000
FAN Dynamic Speed Control=nvfancontrol hwmon0_pwm1=48
NV Power Mode: MODE_30W
"""  # noqa: W291
PINNED = (
    R36.replace("MinFreq=729600 MaxFreq=1728000", "MinFreq=1728000 MaxFreq=1728000")
    .replace("MinFreq=306000000", "MinFreq=612000000")
    .replace("WFI=1 c7=1", "WFI=0 c7=0")
    .replace("FreqOverride=0", "FreqOverride=1")
)
R39 = """SOC family:tegra234  Machine:NVIDIA Jetson AGX Orin Developer Kit
Online CPUs: 0-1, Offline CPUs: 10-11
cpu0:  Governor=schedutil MinFreq=2201600 MaxFreq=2201600 CurrentFreq=2201600 IdleStates: WFI=0 c7=0 
cpu1:  Governor=schedutil MinFreq=2201600 MaxFreq=2201600 CurrentFreq=2188800 IdleStates: WFI=0 c7=0 
cpu10: Governor=schedutil MinFreq=729600 MaxFreq=2201600 CurrentFreq=729600 IdleStates: WFI=1 c7=1 
GPU MinFreq=1300500000 MaxFreq=1300500000 CurrentFreq=1300500000
EMC MinFreq=3199000000 MaxFreq=3199000000 CurrentFreq=3199000000
"""  # noqa: W291
THOR = """Online CPUs: 0-1, Offline CPUs:
cpu0:  Governor=schedutil MinFreq=2601000 MaxFreq=2601000 CurrentFreq=2601000 IdleStates: WFI=0 cc7=0
cpu1:  Governor=schedutil MinFreq=2601000 MaxFreq=2601000 CurrentFreq=2601000 IdleStates: WFI=0 cc7=0
gpu-gpc-0 MinFreq=1575000000 MaxFreq=1575000000 CurrentFreq=1575000000
gpu-nvd-0 MinFreq=1692000000 MaxFreq=1692000000 CurrentFreq=1692000000
EMC MinFreq=665600000 MaxFreq=4266000000 CurrentFreq=4266000000 FreqOverride=1
"""


def test_what_is_read() -> None:
    shown = parse_show(R36)
    assert list(shown.cpus) == [0, 1]
    cpu, gpu = shown.cpus[0], shown.gpu["GPU"]
    assert (cpu.low, cpu.high, cpu.now, cpu.idle) == (729_600, 1_728_000, 1_420_800, (True, True))
    assert (gpu.low, gpu.high, gpu.now) == (306_000_000, 612_000_000, 306_000_000)
    assert shown.emc is not None
    assert shown.emc.override is False
    assert list(parse_show(THOR).gpu) == ["gpu-gpc-0", "gpu-nvd-0"]
    assert list(parse_show(R39).cpus) == [0, 1]


@pytest.mark.parametrize(("text", "locked"), [(R36, False), (PINNED, True), (R39, True), (THOR, True), ("", None)])
def test_pinned_is_told_by_the_values(text: str, locked: bool | None) -> None:
    assert parse_show(text).locked is locked


@pytest.mark.parametrize(
    ("pinned", "free"),
    [
        ("MinFreq=1728000 MaxFreq=1728000", "MinFreq=729600 MaxFreq=1728000"),
        ("WFI=0 c7=0", "WFI=0 c7=1"),
        ("GPU MinFreq=612000000", "GPU MinFreq=306000000"),
        ("FreqOverride=1", "FreqOverride=0"),
    ],
)
def test_each_free_clock_counts(pinned: str, free: str) -> None:
    assert pinned in PINNED
    assert parse_show(PINNED.replace(pinned, free, 1)).locked is False


def test_a_mode_with_one_clock_is_not_pinned_by_itself() -> None:
    """MODE_10W of AGX Xavier has 1200 MHz for a floor and for a cap."""
    one = R36.replace("MinFreq=729600 MaxFreq=1728000", "MinFreq=1200000 MaxFreq=1200000")
    one = one.replace("GPU MinFreq=306000000", "GPU MinFreq=612000000").replace("FreqOverride=0", "FreqOverride=1")
    assert parse_show(one).locked is False


def test_memory_without_an_override_is_pinned_by_its_range() -> None:
    assert parse_show(R39.replace("EMC MinFreq=3199000000", "EMC MinFreq=204000000")).locked is False


ON, FREE = Clock(2035200, 2035200), Clock(729600, 2035200)


@pytest.mark.parametrize(
    ("cpus", "gpu", "emc", "is_locked"),
    [
        ([ON] * 4, [], None, True),
        ([ON] * 4, [ON], Clock(0, 0, override=True), True),
        ([ON, FREE], [ON], Clock(0, 0, override=True), False),
        ([ON], [ON, FREE], None, False),
        ([ON], [ON], Clock(0, 0, override=False), False),
        ([replace(ON, idle=(False, True))], [], None, False),
        ([], [ON], Clock(0, 0, override=True), None),
    ],
)
def test_what_is_not_told_does_not_count(
    cpus: list[Clock], gpu: list[Clock], emc: Clock | None, is_locked: bool | None
) -> None:
    assert locked(cpus, gpu, emc) is is_locked


@given(st.text(alphabet=st.sampled_from("cpu0:GEMC =123MinFreqMaxCurrent\n\t-"), max_size=300))
def test_any_text_is_survived(text: str) -> None:
    shown = parse_show(text)
    assert (shown.locked is None) == (not shown.cpus)
    assert replace(shown) == shown
