"""Why values are missing from a sample, in words."""

from __future__ import annotations

from collections.abc import Mapping

from orin_deploy.observe.telemetry.sample import Sample

_SUBJECTS = {
    "cpu_percent": "CPU load",
    "cpu_mhz": "CPU clocks",
    "gpu_percent": "GPU load",
    "gpu_mhz": "GPU clock",
    "emc_percent": "memory load",
    "emc_mhz": "memory clock",
    "ram_used_bytes": "memory",
    "swap_used_bytes": "swap",
    "power_mw": "power",
    "temperature_c": "temperatures",
    "over_current": "over-current",
    "throttled_by": "throttling",
    "mode": "power mode",
    "clocks_locked": "clocks locked",
}


def reasons(sample: Sample, jetson: bool, root: bool, refused: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Reasons, each with the subjects it explains; `refused` says why better sources are not used."""
    found: dict[str, list[str]] = {}
    for field, subject in _SUBJECTS.items():
        if field in sample.gaps:
            found.setdefault(_reason(field, sample, jetson, root, refused), []).append(subject)
    return {reason: tuple(subjects) for reason, subjects in found.items()}


def _reason(field: str, sample: Sample, jetson: bool, root: bool, refused: Mapping[str, str]) -> str:
    if sample.source == "none":
        return "; ".join(refused.values()) or "no source of telemetry answers"
    if field in ("clocks_locked", "cpu_mhz"):
        return "this system has no cpufreq"
    if field == "temperature_c":
        return "this system shows no thermal zones"
    if field == "throttled_by":
        return "this system shows no cooling devices"
    if not jetson:
        return "not a Jetson"
    if field.startswith("emc") and not root:
        return "only root is shown it"
    if field == "gpu_percent" and sample.source != "jtop":
        return f"{sample.source} does not say; jtop may: {refused.get('jtop', 'it is not running')}"
    if field == "mode":
        return "nvpmodel has not noted one"
    return "the board does not show it"
