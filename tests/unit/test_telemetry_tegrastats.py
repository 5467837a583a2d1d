"""tegrastats: captured lines of four generations, any line put together from values, and any text at all."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.facts.device import MIB
from orin_deploy.observe.telemetry.sample import Sample, completed
from orin_deploy.observe.telemetry.tegrastats import parse_line

# What the tool printed on boards, from public captures; nothing in them is of an owner.
XAVIER_JP4 = (
    "RAM 721/31927MB (lfb 7291x4MB) SWAP 0/15963MB (cached 0MB) CPU [2%@1190,0%@1190,0%@1190,0%@1190,off,off,off,off]"
    " EMC_FREQ 0%@665 GR3D_FREQ 0%@318 APE 150 MTS fg 0% bg 0% AO@37.5C GPU@37.5C Tdiode@40C PMIC@100C AUX@36C"
    " CPU@37.5C thermal@36.9C Tboard@37C GPU 18401/18525 CPU 311/311 SOC 932/932 CV 0/0 VDDRQ 621/621 SYS5V 1482/1482"
)
AGX_ORIN_JP5 = (
    "04-24-2023 00:01:24 RAM 1282/62795MB (lfb 15152x4MB) SWAP 0/31398MB (cached 0MB) CPU [0%@729,0%@729,0%@729,0%@729,"
    "0%@729,0%@729,0%@729,0%@729,0%@729,0%@729,0%@729,0%@729] EMC_FREQ 0%@2133 GR3D_FREQ 0%@0 GR3D2_FREQ 0%@0 VIC_FREQ"
    " 729 APE 174 CV0@-256C CPU@42.593C Tboard@32C SOC2@39.343C Tdiode@33.25C SOC0@39.375C CV1@-256C GPU@-256C"
    " tj@42.593C SOC1@40.468C CV2@-256C VDD_GPU_SOC 2399mW/2399mW VDD_CPU_CV 400mW/400mW VIN_SYS_5V0 4032mW/4032mW"
    " NC 0mW/0mW VDDQ_VDD2_1V8AO 301mW/301mW NC 0mW/0mW"
)
NANO_JP6 = (
    "09-17-2026 02:10:16 RAM 1483/7620MB (lfb 105x4MB) SWAP 253/12002MB (cached 2MB) CPU [0%@729,0%@729,0%@729,0%@729,"
    "0%@729,0%@729] GR3D_FREQ 62%@612 cpu@47.75C soc2@46.718C soc0@47.25C gpu@50C tj@50C soc1@48.093C"
    " VDD_IN 4541mW/4541mW VDD_CPU_GPU_CV 521mW/521mW VDD_SOC 1446mW/1473mW"
)
NANO_JP6_ROOT = (
    "10-08-2026 04:35:02 RAM 6712/7620MB (lfb 12x4MB) SWAP 369/3810MB (cached 8MB) CPU [38%@1497,2%@729,1%@729,0%@729,"
    "1%@729,0%@729] EMC_FREQ 61%@2133 GR3D_FREQ 99%@[612] NVDEC off NVJPG off VIC off OFA off APE 200 cpu@57.125C"
    " soc2@55.093C soc0@56.625C gpu@58.625C tj@58.312C soc1@55.937C VDD_IN 16321mW/11204mW VDD_CPU_GPU_CV 7104mW/4944mW"
    " VDD_SOC 3120mW/3659mW"
)
AGX_ORIN_JP7 = (
    "07-25-2026 09:08:28 RAM 20642/62817MB (lfb 1x2MB) CPU [23%@2201,10%@2201] EMC_FREQ 3%@3199 GR3D_FREQ"
    " 12%@[1300,1300] NVENC0 off VIC off OFA off APE 174 cpu@52.968C/52.968C gpu@47.625C/48.1C VDD_GPU_SOC"
    " 5139mW/5140mW/5141mW VDD_CPU_CV 3268mW/3268mW/3268mW VIN_SYS_5V0 5500mW/5500mW/5500mW"
)
THOR_JP7 = (
    "04-21-2026 15:50:52 RAM 105265/125772MB (lfb 34x4MB) CPU [0%@972,8%@972] EMC_FREQ 0%@2750 GR3D_FREQ"
    " @[314,314,314] NVENC0_FREQ @314 VIC off OFA_FREQ @315 PVA0_FREQ off APE 300 cpu@37.343C tj@38.875C soc012@37.468C"
    " gpu@38.875C VDD_GPU 1962mW/1962mW VDD_CPU_SOC_MSS 5887mW/5887mW VIN_SYS_5V0 5635mW/5635mW VIN 19780mW/19780mW"
)
LINES = (XAVIER_JP4, AGX_ORIN_JP5, NANO_JP6, NANO_JP6_ROOT, AGX_ORIN_JP7, THOR_JP7)


def parsed(line: str) -> Sample:
    sample = parse_line(line)
    assert sample is not None
    return sample


def test_jetpack_4_has_bare_milliwatts_and_offline_cores() -> None:
    sample = parsed(XAVIER_JP4)
    assert sample.cpu_percent == (2, 0, 0, 0, None, None, None, None)
    assert sample.cpu_mhz == (1190, 1190, 1190, 1190, None, None, None, None)
    assert (sample.gpu_percent, sample.gpu_mhz, sample.emc_percent, sample.emc_mhz) == (0, 318, 0, 665)
    assert sample.power_mw == {"GPU": 18401, "CPU": 311, "SOC": 932, "CV": 0, "VDDRQ": 621, "SYS5V": 1482}
    assert sample.power_total_mw == 18401 + 311 + 932 + 621 + 1482
    assert sample.temperature_c is not None
    assert sample.temperature_c["gpu"] == 37.5
    assert "pmic" not in sample.temperature_c, "a zone that says 100 °C at any load"


def test_jetpack_5_gated_zones_and_unconnected_rails_are_absent() -> None:
    sample = parsed(AGX_ORIN_JP5)
    assert sample.temperature_c == {
        "cpu": 42.593, "tboard": 32, "soc2": 39.343, "tdiode": 33.25, "soc0": 39.375, "tj": 42.593, "soc1": 40.468,
    }  # fmt: skip
    assert sample.power_mw == {"VDD_GPU_SOC": 2399, "VDD_CPU_CV": 400, "VIN_SYS_5V0": 4032, "VDDQ_VDD2_1V8AO": 301}
    assert sample.power_total_mw == 2399 + 400 + 4032, "the memory's rail is a part of the 5 V rail"


def test_jetpack_6_as_ordinary_user_has_no_memory_clock() -> None:
    sample = parsed(NANO_JP6)
    assert (sample.gpu_percent, sample.gpu_mhz) == (62, 612)
    assert {"emc_percent", "emc_mhz", "mode", "over_current", "clocks_locked"} <= set(completed(sample).gaps)
    assert (sample.ram_used_bytes, sample.ram_total_bytes) == (1483 * MIB, 7620 * MIB)
    assert (sample.swap_used_bytes, sample.swap_total_bytes) == (253 * MIB, 12002 * MIB)
    assert sample.power_total_mw == 4541, "VDD_IN is the whole module"


def test_jetpack_6_as_root_takes_the_current_value_not_the_average() -> None:
    sample = parsed(NANO_JP6_ROOT)
    assert (sample.gpu_percent, sample.gpu_mhz, sample.emc_percent, sample.emc_mhz) == (99, 612, 61, 2133)
    assert sample.power_mw == {"VDD_IN": 16321, "VDD_CPU_GPU_CV": 7104, "VDD_SOC": 3120}


def test_jetpack_7_has_triples_pairs_and_no_swap() -> None:
    sample = parsed(AGX_ORIN_JP7)
    assert sample.power_mw == {"VDD_GPU_SOC": 5139, "VDD_CPU_CV": 3268, "VIN_SYS_5V0": 5500}
    assert sample.temperature_c == {"cpu": 52.968, "gpu": 47.625}
    assert (sample.swap_used_bytes, sample.swap_total_bytes) == (0, 0)
    assert (sample.gpu_percent, sample.gpu_mhz) == (12, 1300)


def test_thor_says_the_clock_of_the_gpu_but_not_its_load() -> None:
    sample = parsed(THOR_JP7)
    assert (sample.gpu_percent, sample.gpu_mhz) == (None, 314)
    assert sample.power_total_mw == 19780, "VIN is the whole module"
    assert "gpu_percent" in completed(sample).gaps


@pytest.mark.parametrize(
    "line", ["", "RAM 1/2MB", "CPU [0%@1]", "Filesystem 1K-blocks Used", "RAM 1/2GB CPU [0%@1]", "RAM one/2MB CPU []"]
)
def test_another_line_is_none(line: str) -> None:
    assert parse_line(line) is None


@given(st.text(max_size=400))
def test_no_text_raises(text: str) -> None:
    parse_line(text)


@given(st.sampled_from(LINES), st.integers(0, 700), st.integers(0, 40), st.text(max_size=12))
def test_no_damaged_line_raises(line: str, at: int, length: int, put: str) -> None:
    sample = parse_line(line[:at] + put + line[at + length :])
    if sample is not None:
        assert completed(sample).ram_total_bytes is not None
        assert all(-60 < celsius < 200 for celsius in (sample.temperature_c or {}).values())


@dataclass(frozen=True)
class Values:
    """What a line may say."""

    ram: tuple[int, int]
    cpus: list[tuple[int, int] | None]
    gpu: tuple[int, int]
    emc: tuple[int, int]
    zones: dict[str, float]
    rails: dict[str, int]


VALUES = st.builds(
    Values,
    ram=st.tuples(st.integers(0, 130_000), st.integers(1, 130_000)),
    cpus=st.lists(st.none() | st.tuples(st.integers(0, 100), st.integers(115, 2601)), min_size=1, max_size=14),
    gpu=st.tuples(st.integers(0, 100), st.integers(0, 1575)),
    emc=st.tuples(st.integers(0, 100), st.integers(204, 3199)),
    zones=st.dictionaries(
        st.sampled_from(["cpu", "gpu", "tj", "soc0", "soc1", "soc012"]), st.integers(-20, 110).map(float)
    ),
    rails=st.dictionaries(st.sampled_from(["VDD_IN", "VDD_SOC", "VDD_CPU_GPU_CV"]), st.integers(0, 60_000)),
)


def line_of(values: Values, release: int) -> str:
    """The line that a release's tool would print of these values, from the layouts that are documented."""
    words = [] if release < 5 else ["01-01-2026 00:00:00"]
    words.append(f"RAM {values.ram[0]}/{values.ram[1]}MB (lfb 2x4MB)")
    if release < 7:
        words.append("SWAP 3/4MB (cached 0MB)")
    words.append("CPU [" + ",".join("off" if cpu is None else f"{cpu[0]}%@{cpu[1]}" for cpu in values.cpus) + "]")
    words.append(f"EMC_FREQ {values.emc[0]}%@{values.emc[1]}")
    words.append(f"GR3D_FREQ {values.gpu[0]}%@" + (f"[{values.gpu[1]}]" if release > 5 else str(values.gpu[1])))
    words += ["VIC off", "APE 200", "MTS fg 0% bg 0%" if release < 5 else "NVENC off"]
    for name, celsius in values.zones.items():
        words.append(
            f"{name.upper() if release < 6 else name}@{celsius:g}C" + (f"/{celsius:g}C" if release > 6 else "")
        )
    unit, times = ("" if release < 5 else "mW"), (3 if release > 6 else 2)
    words += [
        f"{name} " + "/".join([f"{power}{unit}", *[f"{power + 1}{unit}"] * (times - 1)])
        for name, power in values.rails.items()
    ]
    return " ".join(words)


@given(VALUES, st.sampled_from([4, 5, 6, 7]))
def test_what_a_line_says_is_read_back(values: Values, release: int) -> None:
    sample = parsed(line_of(values, release))
    assert sample.ram_used_bytes == values.ram[0] * MIB
    assert sample.cpu_percent == tuple(None if cpu is None else cpu[0] for cpu in values.cpus)
    assert sample.cpu_mhz == tuple(None if cpu is None else cpu[1] for cpu in values.cpus)
    assert (sample.gpu_percent, sample.gpu_mhz) == values.gpu
    assert (sample.emc_percent, sample.emc_mhz) == values.emc
    assert (sample.temperature_c or {}) == values.zones
    assert (sample.power_mw or {}) == values.rails
