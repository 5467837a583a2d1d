"""What psutil tells of this machine, where the kernel's files cannot be read by ourselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Meters:
    """Loads in percent since the last reading, clocks in MHz, memory in bytes, temperatures in degrees Celsius."""

    cpu_percent: tuple[float, ...]
    cpu_mhz: tuple[int, ...]
    ram_used: int
    ram_total: int
    swap_used: int
    swap_total: int
    temperature_c: dict[str, float]


def read() -> Meters | None:
    """One reading; None when psutil cannot read this machine at all. The first loads of a process are all zero."""
    import psutil

    try:
        ram = psutil.virtual_memory()
        swap = psutil.swap_memory()
        loads = tuple(psutil.cpu_percent(percpu=True))
        clocks = tuple(round(each.current) for each in _or_nothing("cpu_freq", percpu=True) or ())
        sensors = _or_nothing("sensors_temperatures") or {}
    except (OSError, psutil.Error, NotImplementedError):
        return None
    zones = {entry.label or name: entry.current for name, entries in sensors.items() for entry in entries}
    return Meters(loads, clocks, ram.total - ram.available, ram.total, swap.used, swap.total, zones)


def _or_nothing(function: str, **options: bool) -> Any:
    """The answer of a psutil function that some systems lack or cannot fulfil."""
    import psutil

    try:
        return getattr(psutil, function)(**options)
    except (AttributeError, OSError, RuntimeError, NotImplementedError):
        return None
