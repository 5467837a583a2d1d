"""What texts and documents tell of power modes, clocks, threads and telemetry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from orin_deploy.doctor.evidence import Claims, Core, Sampled, Trial
from orin_deploy.facts import clocks, cpu, power
from orin_deploy.facts.power import PowerMode, PowerTable

_CPUS = r"\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?)*"
_THREAD = re.compile(rf"^(?:TID|tid|Tid) +(\d+):? +Cpus_allowed_list:?\s+({_CPUS})$", re.MULTILINE)
_STATUS = re.compile(
    rf"^Name:\s+(llama-\S+|ggml-rpc-\S+)$(?:\n(?!Name:).*)*?\nCpus_allowed_list:\s+({_CPUS})$", re.MULTILINE
)
_NUMBERED = re.compile(r"^\d{1,4}$")
_MIN_GPU_HZ = 10**8  # devfreq speaks of Hz; cpufreq's kHz stay below this


def of_text(text: str) -> Claims:
    """What nvpmodel, its file, jetson_clocks, sysfs and /proc say, each known by its own lines."""
    whole = text.strip()
    found: Claims = _power(text)
    if re.fullmatch(_CPUS, whole) and not whole.isdigit():
        found["cpus"] = cpu.parse_list(whole)
    if re.fullmatch(r"\d+(?:\s+\d+)+", whole) and (steps := [int(word) for word in whole.split()])[0] >= _MIN_GPU_HZ:
        found["gpu_steps_hz"] = tuple(steps)
    if masks := [(name, cpu.parse_list(cpus)) for name, cpus in (*_THREAD.findall(text), *_STATUS.findall(text))]:
        found["masks"] = tuple(masks)
    if re.search(r"^cpu\d+: .*\bMinFreq=\d+ MaxFreq=\d+", text, re.MULTILINE):
        shown = clocks.parse_show(text)
        found |= {"clocks_locked": shown.locked, "cpus": tuple(sorted(shown.cpus))}
    return found


def _power(text: str) -> Claims:
    found: Claims = {}
    if re.search(r"^<\s*POWER_MODEL\b", text, re.MULTILINE):
        found["power_table"] = power.parse_conf(text, None)
    if re.search(r"^NV Power Mode:", text, re.MULTILINE):
        found["power_mode"] = power.current_mode(text) or ""
    return found


def of_list(items: list[Any]) -> Claims:
    """A list of trials (mode, speed, power) or of samples in time."""
    tables = [item for item in items if isinstance(item, Mapping)]
    trials = [
        Trial(str(item["mode"]), float(item["tps"]), float(item["watt"]))
        for item in tables
        if _are_numbers(item, "tps", "watt") and isinstance(item.get("mode"), str)
    ]
    samples = [
        Sampled(float(item["t"]), _number(item[key]))
        for item in tables
        if _are_numbers(item, "t") and (key := next((name for name in item if name != "t"), None)) is not None
    ]
    return ({"trials": tuple(trials)} if trials else {}) | ({"samples": tuple(samples)} if samples else {})


def of_table(document: Mapping[Any, Any]) -> Claims:
    """A table of CPUs: `cpus` with clocks, or limits by CPU number; or a GPU of which nothing is told."""
    if not document or document.get("gpu") == {}:
        return {"no_gpu_told": True}
    limits = {
        int(key): (int(value["min"]), int(value["max"]))
        for key, value in document.items()
        if isinstance(key, str) and _NUMBERED.match(key) and isinstance(value, Mapping)
        and _are_numbers(value, "min", "max")
    }  # fmt: skip
    offline = document.get("offline")
    off = {item for item in offline if isinstance(item, int)} if isinstance(offline, list) else set()
    cores = document.get("cpus")
    table = [
        Core(item["id"], item["max_khz"])
        for item in (cores if isinstance(cores, list) else ())
        if isinstance(item, Mapping) and _are_whole(item, "id", "max_khz")
    ]
    on = {number: pair for number, pair in limits.items() if number not in off}
    found: Claims = {"cpu_limits": on} if limits else {}
    return found | ({"core_table": tuple(table)} if table else {})


def of_power(state: Mapping[str, Any]) -> Claims:
    """Our own inspection of a board's power: the modes there are and the active one."""
    told = state.get("table")
    table = told if isinstance(told, Mapping) else {}
    listed = table.get("modes")
    modes = [
        mode for item in (listed if isinstance(listed, (list, tuple)) else ()) if (mode := _mode(item)) is not None
    ]
    found: Claims = {"power_mode": state["current"]} if isinstance(state.get("current"), str) else {}
    if modes and isinstance(table.get("path"), str):
        default = table.get("default_id")
        found["power_table"] = PowerTable(table["path"], tuple(modes), default if isinstance(default, int) else None)
    return found


def _mode(told: Any) -> PowerMode | None:
    """A mode as it is read back: what the rules do not ask about is left out."""
    if not isinstance(told, Mapping) or not _are_whole(told, "id") or not isinstance(told.get("name"), str):
        return None
    cores = told.get("cores")
    gpu = told.get("gpu_max_hz")
    return PowerMode(
        id=told["id"],
        name=told["name"],
        cores=tuple(core for core in cores if isinstance(core, int)) if isinstance(cores, (list, tuple)) else (),
        cpu_max_khz={},
        gpu_max_hz=gpu if isinstance(gpu, int) else None,
        emc_max_hz=None,
        gpu_mask=(),
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _are_numbers(table: Mapping[Any, Any], *keys: str) -> bool:
    return all(_number(table.get(key)) is not None for key in keys)


def _are_whole(table: Mapping[Any, Any], *keys: str) -> bool:
    return all(isinstance(table.get(key), int) for key in keys)
