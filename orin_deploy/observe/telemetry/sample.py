"""A sample: what the machine does at one moment. Unknown is None, and named in `gaps`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

TRUSTED_MISSING = 0.2
"""The share of missing samples beyond which what was measured meanwhile proves nothing."""

# Rails that carry all that the module takes: Orin Nano, Orin NX and Xavier NX; older modules; Thor's input (an ina238).
_INPUTS = ("VDD_IN", "POM_5V_IN", "VIN")
# AGX Orin's second chip measures a part of what VIN_SYS_5V0 already counts.
_CONTAINED = frozenset({"VDDQ_VDD2_1V8AO"})


@dataclass(frozen=True)
class Sample:
    """One moment of a machine. `time` is in seconds since the epoch, `source` where the values come from.

    Tuples over CPUs are indexed by CPU number and hold None for a CPU that is off. `ram_used_bytes` is what cannot be
    given back (MemTotal less MemAvailable; tegrastats counts nearly the same). Rails and zones have the board's own
    names, zones in lower case and without those that are gated. Counters are cumulative since boot: take differences.
    """

    time: float
    source: str
    gaps: tuple[str, ...] = ()
    cpu_percent: tuple[float | None, ...] | None = None
    cpu_mhz: tuple[int | None, ...] | None = None
    gpu_percent: float | None = None
    gpu_mhz: int | None = None
    emc_percent: float | None = None
    emc_mhz: int | None = None
    ram_used_bytes: int | None = None
    ram_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_total_bytes: int | None = None
    power_mw: Mapping[str, int] | None = None
    power_total_mw: int | None = None
    temperature_c: Mapping[str, float] | None = None
    over_current: Mapping[str, int] | None = None  # events by soctherm_oc counter: "oc1", "oc2", "oc3"
    throttled_by: tuple[str, ...] | None = None  # cooling devices that slow something down now; a fan is none
    mode: str | None = None
    clocks_locked: bool | None = None

    @property
    def cpu_mean_percent(self) -> float | None:
        """The load of the CPUs that are on."""
        known = [load for load in self.cpu_percent or () if load is not None]
        return sum(known) / len(known) if known else None


FIELDS = tuple(field.name for field in dataclasses.fields(Sample) if field.name not in ("time", "source", "gaps"))


def completed(sample: Sample, other: Sample | None = None) -> Sample:
    """A sample with what it lacks taken from another of the same moment, and its gaps named."""
    known = {name: getattr(sample, name) for name in FIELDS if getattr(sample, name) is not None}
    if other is not None:
        known = {name: value for name in FIELDS if (value := getattr(other, name)) is not None} | known
    return Sample(sample.time, sample.source, tuple(name for name in FIELDS if name not in known), **known)


def total_power(rails: Mapping[str, int]) -> int | None:
    """The module's power in mW: the input rail where the board has one, else the sum of the rails (AGX boards)."""
    for name in _INPUTS:
        if name in rails:
            return rails[name]
    return sum(power for name, power in rails.items() if name not in _CONTAINED) if rails else None


def zone_name(text: str) -> str | None:
    """A thermal zone's name as a sample has it; None for a zone without a sensor.

    PMIC zones of Xavier modules say 100 °C at any load.
    """
    name = text.strip().lower().removesuffix("-thermal").removesuffix("-therm")
    return None if not name or name.startswith("pmic") else name


def zone_celsius(celsius: float) -> float | None:
    """A zone's temperature, or None for what a gated zone says (-256 °C) and any other value no sensor can mean."""
    return celsius if -60 < celsius < 200 else None


def missing_ratio(values: Sequence[object]) -> float:
    """The share of samples in which a value is missing (None); 1 when there are no samples."""
    return sum(value is None for value in values) / len(values) if values else 1.0
