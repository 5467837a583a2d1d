"""Sources of samples: the kernel's files below a folder and on this machine, psutil, the shapes of jtop's client."""

from __future__ import annotations

import ast
import importlib.util
import math
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.facts.power import noted_mode, parse_conf
from orin_deploy.host import Host
from orin_deploy.host.machine import Machine
from orin_deploy.observe.telemetry import conditions, jtop, jtop_faults, sample
from orin_deploy.observe.telemetry.conditions import Conditions
from orin_deploy.observe.telemetry.portable import Portable
from orin_deploy.observe.telemetry.source import SourceFailed
from orin_deploy.observe.telemetry.sysfs import Sysfs, cpu_ticks, cpuinfo_mhz, loads

MIB = 1024 * 1024
GPU = "sys/class/devfreq/17000000.gpu"
ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)


def put(root: Path, files: dict[str, str | int]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """A four-core board with one core off, its GPU, memory clock, rails, zones and over-current counters."""
    put(tmp_path, {
        "proc/stat": stat({0: (900, 1000), 1: (0, 1000), 3: (500, 1000)}),
        "proc/meminfo": "MemTotal: 8000 kB\nMemAvailable: 6000 kB\nSwapTotal: 400 kB\nSwapFree: 300 kB",
        "sys/devices/system/cpu/present": "0-3",
        "sys/devices/system/cpu/online": "0-1,3",
        f"{GPU}/cur_freq": 612_000_000, f"{GPU}/min_freq": 306_000_000, f"{GPU}/max_freq": 612_000_000,
        f"{GPU}/device/load": 433, f"{GPU}/device/of_node/name": "gpu\0",
        "sys/kernel/debug/bpmp/debug/clk/emc/rate": 2_133_000_000,
        "sys/kernel/debug/bpmp/debug/clk/emc/mrq_rate_locked": 0,
        "sys/kernel/debug/cactmon/mc_all": 20 * 2_133_000,
        "sys/class/hwmon/hwmon1/name": "ina3221",
        "sys/class/hwmon/hwmon1/in1_label": "VDD_IN", "sys/class/hwmon/hwmon1/in1_input": 4984,
        "sys/class/hwmon/hwmon1/curr1_input": 1856,
        "sys/class/hwmon/hwmon1/in2_label": "NC", "sys/class/hwmon/hwmon1/in2_input": 1,
        "sys/class/hwmon/hwmon1/curr2_input": 1,
        "sys/class/hwmon/hwmon1/in7_label": "sum of shunt voltages", "sys/class/hwmon/hwmon1/in7_input": 680,
        "sys/class/hwmon/hwmon4/name": "ina238", "sys/class/hwmon/hwmon4/power1_input": 20_986_000,
        "sys/class/hwmon/hwmon3/name": "soctherm_oc",
        "sys/class/hwmon/hwmon3/oc1_event_cnt": 0, "sys/class/hwmon/hwmon3/oc2_event_cnt": 15,
        "sys/class/hwmon/hwmon3/oc3_event_cnt": 37, "sys/class/hwmon/hwmon3/oc3_throt_en": 1,
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal", "sys/class/thermal/thermal_zone0/temp": 49_468,
        "sys/class/thermal/thermal_zone2/type": "cv0-thermal", "sys/class/thermal/thermal_zone2/temp": -256_000,
        "sys/class/thermal/thermal_zone8/type": "tj-thermal", "sys/class/thermal/thermal_zone8/temp": 50_531,
        "sys/class/thermal/cooling_device0/type": "pwm-fan", "sys/class/thermal/cooling_device0/cur_state": 3,
        "sys/class/thermal/cooling_device1/type": "cpufreq-cpu0", "sys/class/thermal/cooling_device1/cur_state": 0,
        "var/lib/nvpmodel/status": "pmode:0001",
        "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=1 NAME=25W >\n< PM_CONFIG DEFAULT=1 >",
    })  # fmt: skip
    # A zone that cannot be read: a folder in its place fails as EAGAIN does.
    (tmp_path / "sys/class/thermal/thermal_zone3/temp").mkdir(parents=True)
    put(tmp_path, {"sys/class/thermal/thermal_zone3/type": "cv1-thermal"})
    for cpu in (0, 1, 3):
        folder = f"sys/devices/system/cpu/cpu{cpu}/cpufreq"
        put(tmp_path, {f"{folder}/scaling_cur_freq": 1_344_000, f"{folder}/scaling_min_freq": 729_600,
                       f"{folder}/scaling_max_freq": 1_344_000})  # fmt: skip
    return tmp_path


def stat(cpus: dict[int, tuple[int, int]]) -> str:
    """The text of /proc/stat with these idle and total ticks."""
    return "\n".join(
        [
            "cpu  1 1 1 1 1 1 1 0 0 0",
            *(f"cpu{cpu} {total - idle} 0 0 {idle} 0 0 0 0 0 0" for cpu, (idle, total) in cpus.items()),
            "intr 1 2",
        ]
    )


def test_the_kernels_files_below_any_root(board: Path) -> None:
    host = Host(board, {})
    source = Sysfs(host)
    source.open()
    put(board, {"proc/stat": stat({0: (950, 1100), 1: (0, 1100), 3: (600, 1100)})})
    found = sample.completed(source.read(), Conditions(host).read(0.0))
    assert found.source == "sysfs"
    assert found.cpu_percent == (50.0, 100.0, None, 0.0)
    assert found.cpu_mhz == (1344, 1344, None, 1344)
    assert (found.gpu_percent, found.gpu_mhz) == (43.3, 612)
    assert (found.emc_percent, found.emc_mhz) == (20, 2133)
    assert (found.ram_used_bytes, found.ram_total_bytes) == (2000 * 1024, 8000 * 1024)
    assert (found.swap_used_bytes, found.swap_total_bytes) == (100 * 1024, 400 * 1024)
    assert found.power_mw == {"VDD_IN": 4984 * 1856 // 1000, "VIN": 20986}
    assert found.temperature_c == {"cpu": 49.468, "tj": 50.531}
    assert found.over_current == {"oc1": 0, "oc2": 15, "oc3": 37}
    assert found.throttled_by == ()
    assert (found.mode, found.clocks_locked) == ("25W", False)
    assert found.gaps == ()


def test_conditions_follow_the_machine(board: Path) -> None:
    looked = Conditions(Machine(board, {}))
    assert looked.read(0.0).clocks_locked is False
    for cpu in (0, 1, 3):
        put(board, {f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_min_freq": 1_344_000})
    put(board, {
        f"{GPU}/min_freq": 612_000_000, "sys/kernel/debug/bpmp/debug/clk/emc/mrq_rate_locked": 1,
        "sys/class/thermal/cooling_device1/cur_state": 2, "var/lib/nvpmodel/status": "pmode:0000",
        "sys/class/hwmon/hwmon3/oc3_event_cnt": 45,
    })  # fmt: skip
    found = looked.read(60.0)
    assert found.clocks_locked is True, "an offline core has no limits and does not count"
    assert found.throttled_by == ("cpufreq-cpu0",)
    assert found.mode == "15W"
    put(board, {"sys/devices/system/cpu/cpu1/cpuidle/state1/disable": 0})
    assert looked.read(120.0).clocks_locked is False, "a mode may have one clock by itself: idle states tell"
    put(board, {"sys/devices/system/cpu/cpu1/cpuidle/state1/disable": 1})
    assert looked.read(180.0).clocks_locked is True
    assert found.over_current == {"oc1": 0, "oc2": 15, "oc3": 45}


def test_an_empty_machine_has_no_conditions_and_no_source(tmp_path: Path) -> None:
    host = Host(tmp_path, {})
    assert set(sample.completed(Conditions(host).read(0.0)).gaps) == set(sample.FIELDS)
    with pytest.raises(SourceFailed, match="/proc/stat"):
        Sysfs(host).open()
    with pytest.raises(SourceFailed, match="psutil"):
        Portable(host).open()
    assert host.meters() is None, "psutil knows this machine only"


@pytest.mark.parametrize("kind", [Sysfs, Portable])
def test_this_machine_for_real(kind: type[Sysfs] | type[Portable]) -> None:
    source = kind(Host())
    source.open()
    found = source.read()
    assert found.cpu_percent is not None
    known = [load for load in found.cpu_percent if load is not None]
    assert len(known) == os.cpu_count()
    assert all(0 <= load <= 100 for load in known)
    assert found.ram_total_bytes is not None
    assert found.ram_used_bytes is not None
    assert 16 * MIB < found.ram_used_bytes < found.ram_total_bytes


def test_a_busy_cpu_shows() -> None:
    source = Sysfs(Host())
    source.open()
    source.read()
    until = os.times().elapsed + 0.4
    while os.times().elapsed < until:
        pass
    found = source.read()
    assert max(load for load in found.cpu_percent or () if load is not None) > 30


@given(st.text(max_size=200) | st.builds("cpu{} {}".format, st.integers(), st.text("0123456789 ", max_size=60)))
def test_no_text_of_proc_raises(text: str) -> None:
    ticks = cpu_ticks(text)
    assert all(0 <= idle <= spent for idle, spent in ticks.values())
    cpuinfo_mhz(text)
    noted_mode(text, parse_conf(text, None))
    jtop_faults.group_names(text)
    jtop_faults.no_power_mode(text)
    jtop_faults.unknown_release(text, text)
    conditions.over_current({"oc1_event_cnt": text})


TICKS = st.dictionaries(st.integers(0, 8), st.tuples(st.integers(0, 1000), st.integers(0, 1000)))


@given(TICKS, TICKS)
def test_loads_stay_within_bounds(before: dict[int, tuple[int, int]], now: dict[int, tuple[int, int]]) -> None:
    found = loads(before, now)
    assert set(found) <= before.keys() & now.keys()
    assert all(0 <= load <= 100 for load in found.values())


def test_clocks_of_x86_come_from_cpuinfo() -> None:
    text = "processor\t: 0\nmodel name\t: x\ncpu MHz\t\t: 2596.992\n\nprocessor\t: 1\ncpu MHz\t\t: 1800.0\n"
    assert cpuinfo_mhz(text) == {0: 2596, 1: 1800}


# jtop. The shapes were observed with the real service and client of jetson-stats 7.2.2; the values are ours.

CPU = {"total": {"idle": 96.4}, "cpu": [
    {"online": True, "idle": 12.5, "freq": {"cur": 1344000, "max": 1728000, "min": 729600}, "governor": "schedutil"},
    {"online": False},
]}  # fmt: skip
UNIT = {
    "gpu": {
        "type": "integrated",
        "status": {"load": 43.3, "railgate": False},
        "freq": {"cur": 612000, "max": 1020000, "min": 306000},
    }
}
MEMORY = {
    "RAM": {"tot": 7802624, "used": 1048576, "free": 100, "lfb": 791}, "SWAP": {"tot": 0, "used": 0, "table": {}},
    "EMC": {"cur": 2133000, "max": 3199000, "min": 204000, "val": 20, "online": True, "override": 0},
}  # fmt: skip
POWER = {
    "rail": {"VDD_SOC": {"power": 1350, "avg": 1300, "online": True}},
    "tot": {"name": "VDD_IN", "power": 4500, "avg": 4400},
}
ZONES = {
    "cpu": {"online": True, "temp": 47.25},
    "CV0": {"online": False, "temp": -256},
    "tj": {"online": True, "temp": 48.5},
}


def test_jtops_shapes() -> None:
    found = jtop.sample_of(1.0, CPU, UNIT, MEMORY, POWER, ZONES, "25W")
    assert (found.cpu_percent, found.cpu_mhz) == ((87.5, None), (1344, None))
    assert (found.gpu_percent, found.gpu_mhz) == (43.3, 612)
    assert (found.emc_percent, found.emc_mhz) == (20, 2133)
    assert (found.ram_used_bytes, found.ram_total_bytes) == (1024 * MIB, 7802624 * 1024)
    assert (found.power_mw, found.power_total_mw) == ({"VDD_SOC": 1350, "VDD_IN": 4500}, 4500)
    assert found.temperature_c == {"cpu": 47.25, "tj": 48.5}
    assert found.mode == "25W"


def test_a_total_without_a_name_is_a_sum_and_no_rail() -> None:
    found = jtop.sample_of(1.0, CPU, UNIT, MEMORY, {**POWER, "tot": {"power": 1350}}, ZONES, None)
    assert (found.power_mw, found.power_total_mw, found.mode) == ({"VDD_SOC": 1350}, 1350, None)


def test_an_empty_gpu_is_a_gap() -> None:
    found = sample.completed(jtop.sample_of(1.0, CPU, {}, MEMORY, POWER, ZONES, "MAXN"))
    assert {"gpu_percent", "gpu_mhz"} <= set(found.gaps)


@given(
    *[st.dictionaries(st.sampled_from(["cpu", "gpu", "RAM", "EMC", "rail", "tot", "tj", "name"]), ANYTHING, max_size=4)]
    * 5,
    ANYTHING,
)
def test_no_shape_of_jtop_raises(cpu: Any, gpu: Any, memory: Any, power: Any, zones: Any, mode: Any) -> None:
    found = jtop.sample_of(1.0, cpu, gpu, memory, power, zones, mode)
    assert all(math.isfinite(value) for value in (found.temperature_c or {}).values())


def test_jtop_says_what_keeps_it(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    source = jtop.Jtop(Host(tmp_path, {}), 1.0)
    with pytest.raises(SourceFailed, match="does not run"):
        source.open()
    (tmp_path / "run/jtop.sock").mkdir()
    with pytest.raises(SourceFailed, match="directory"):
        source.open()
    (tmp_path / "run/jtop.sock").rmdir()
    source.close()


@pytest.mark.skipif(importlib.util.find_spec("jtop") is not None, reason="jetson-stats is installed here")
def test_jtop_is_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # an address of a socket is short
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("run/jtop.sock")
        with pytest.raises(SourceFailed, match="not installed"):
            jtop.Jtop(Host(tmp_path, {}), 1.0).open()


def test_only_one_module_imports_jtop() -> None:
    package = Path(jtop.__file__).parents[2]
    importers = [
        path
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "jtop" and node.level == 0)
        or (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "jtop" for alias in node.names))
    ]
    assert importers == [Path(jtop.__file__)]


def test_what_an_installation_of_jtop_lacks() -> None:
    groups = jtop_faults.group_names("video:x:44:edge\nrender:x:104:edge\n")
    own = jtop_faults.group_names("uid=1001(edge) gid=1001(edge) groups=1001(edge),44(video),104(render)")
    assert (groups, own) == (("video", "render"), ("edge", "video", "render"))
    fault = jtop_faults.installation_fault(False, groups, own)
    assert fault is not None
    assert "jtop group" in fault.what
    assert "fallback" in fault.what
    assert fault.values["missing"] == ["the unit jtop.service", "the jtop group", "this user in the jtop group"]
    assert jtop_faults.installation_fault(True, ("jtop",), ("edge", "jtop")) is None
    assert jtop_faults.installation_fault(None, None, None) is None


def test_gaps_make_a_measurement_worthless() -> None:
    assert sample.missing_ratio([7.9, 8.0, None, None, None]) == 0.6
    assert sample.missing_ratio([]) == 1
