"""The conditions of a measurement, and why two measurements cannot be compared."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from orin_deploy.deploy.verify import context_per_slot
from orin_deploy.host import Host
from orin_deploy.intent.spec import Spec
from orin_deploy.observe.bench.agenda import Agenda
from orin_deploy.observe.bench.watch import Moment

COMPARED: tuple[tuple[str, str], ...] = (
    ("module", "module"),
    ("machine", "machine"),
    ("l4t", "L4T release"),
    ("mode", "power mode"),
    ("clocks_locked", "clocks locked"),
    ("engine", "engine"),
    ("build", "build flags"),
    ("model", "model file"),
    ("quant", "quantisation"),
    ("cpus", "CPUs"),
    ("slots", "slots"),
    ("ctx_per_slot", "context"),
    ("cache_types", "KV cache types"),
    ("workloads", "workloads"),
)
"""What must be alike, by its key in the conditions, and its name."""

_OURS = ("port", "host", "metrics", "alias", "model")  # of the settings, what makes no server faster


def conditions(host: Host, specs: Mapping[str, Spec], agenda: Agenda, moments: Sequence[Moment]) -> dict[str, Any]:
    """Under which conditions the arms were measured; unknown is None."""
    spec = next(iter(specs.values()))
    device, build = spec.device, spec.build
    file = spec.weights.files[0]
    source = build.source
    telemetry = [moment.sample for moment in moments]
    hottest = [max(sample.temperature_c.values()) for sample in telemetry if sample.temperature_c]
    last = telemetry[-1] if telemetry else None
    types = {key: spec.settings[key].value for key in ("cache_type_k", "cache_type_v") if key in spec.settings}
    return {
        "module": device.jetson.module if device.jetson else None,
        "machine": f"{device.machine} {device.cpu.model}",
        "l4t": device.jetson.l4t if device.jetson else None,
        "mode": last.mode if last else None,
        "clocks_locked": last.clocks_locked if last else None,
        "engine": source.commit or source.version or build.key,
        "build": list(build.cmake),
        "model": file.sha256 or f"{spec.model.name} of {spec.model.file_bytes} bytes",
        "quant": spec.model.file_type,
        "cpus": list(spec.placement.cpus),
        "slots": spec.settings["parallel"].value if "parallel" in spec.settings else None,
        "ctx_per_slot": context_per_slot(spec),
        "cache_types": types,
        "workloads": workloads_key(agenda),
        "sampling": {"preset": agenda.preset, **agenda.sampling},
        "arms": {arm: _settings(each) for arm, each in specs.items()},
        "temperature_c": {"first": hottest[0], "highest": max(hottest)} if hottest else None,
        "power_mw": _mean([sample.power_total_mw for sample in telemetry if sample.power_total_mw is not None]),
        "over_current": dict(last.over_current) if last and last.over_current else None,
        "load_average": (host.read("/proc/loadavg") or "").split()[:3],
    }


def workloads_key(agenda: Agenda) -> str:
    """A key of all that the workloads ask: the first prompts of each and the length of its answers."""
    told = [
        (case.workload, case.language, workload.tokens, [workload.prompt(case.language, number) for number in range(3)])
        for case in agenda.cases
        for workload in (agenda.workload(case),)
    ]
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def comparable(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, ...]:
    """In what two records differ that forbids comparing their speeds, each a sentence; empty when nothing does.

    They are records of `bench`, or their `conditions` alone; what either does not know counts as a difference where
    the other does know it.
    """
    first, second = (document.get("conditions") or document for document in (one, other))
    found = []
    for key, name in COMPARED:
        left, right = first.get(key), second.get(key)
        if left != right:
            found.append(f"{name}: {_shown(left)} and {_shown(right)}")
    return tuple(found)


def _settings(spec: Spec) -> dict[str, Any]:
    """The settings of an arm that can change its speed."""
    return {key: setting.value for key, setting in spec.settings.items() if key not in _OURS}


def _mean(values: Sequence[float]) -> int | None:
    return round(sum(values) / len(values)) if values else None


def _shown(value: Any) -> str:
    if value is None:
        return "unknown"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
