"""Under which conditions the machine runs, from the kernel's files: what slows it down, its mode, its clocks' limits.

No other source tells these well: tegrastats none of them, and jtop takes the clocks for free where some CPUs are off
(jetson_stats issue 187).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from orin_deploy.facts import clocks, power
from orin_deploy.host.machine import Machine
from orin_deploy.observe.telemetry.sample import Sample

_GPU_NAMES = frozenset({"gv11b", "ga10b", "gpu"})
_KEPT_S = 5.0  # limits and mode are read again after this: people change them, loads do not


def over_current(counters: Mapping[str, str | None]) -> dict[str, int] | None:
    """Over-current events since boot by counter, of soctherm_oc's files ("oc1_event_cnt"); None without any."""
    found = {
        name.removesuffix("_event_cnt"): int(text)
        for name, text in counters.items()
        if text is not None and re.fullmatch(r"[0-9]{1,18}", text)
    }
    return found or None


def throttles(devices: Iterable[tuple[str | None, str | None]]) -> tuple[str, ...] | None:
    """Cooling devices that slow something down now, of their types and states; None where there are none at all.

    A fan cools without slowing down; an alert of a hot surface only warns.
    """
    brakes = [(kind, state) for kind, state in devices if kind and not re.search(r"fan|hot-surface", kind)]
    if not brakes:
        return None
    return tuple(dict.fromkeys(kind for kind, state in brakes if state not in (None, "0")))


class Conditions:
    """Reads them; where the files lie is looked up once."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.gpu = gpu_folder(machine)
        # Thor's has two: jetson_clocks pins both.
        self._gpu_parts = machine.glob("/sys/class/devfreq/gpu-*") or ((self.gpu,) if self.gpu else ())
        folders = machine.glob("/sys/class/hwmon/hwmon*")
        self._counters = tuple(
            path
            for folder in folders
            if machine.read(f"{folder}/name") == "soctherm_oc"
            for path in machine.glob(f"{folder}/oc*_event_cnt")
        )
        self._cooling = tuple(
            (machine.read(f"{folder}/type"), f"{folder}/cur_state")
            for folder in machine.glob("/sys/class/thermal/cooling_device*")
        )
        self._kept: tuple[str | None, bool | None] = None, None
        self._kept_until = float("-inf")

    def read(self, now: float) -> Sample:
        """The conditions at `now`, a time that never goes back; the other fields stay unknown."""
        if now >= self._kept_until:
            self._kept = self._mode(), clocks.read(self.machine, self._gpu_parts).locked
            self._kept_until = now + _KEPT_S
        read = self.machine.read
        clock = number(read(f"{self.gpu}/cur_freq")) if self.gpu else None
        return Sample(
            time=now,
            source="",
            gpu_mhz=None if clock is None else clock // 1_000_000,
            over_current=over_current({path.rsplit("/", 1)[-1]: read(path) for path in self._counters}),
            throttled_by=throttles((kind, read(path)) for kind, path in self._cooling),
            mode=self._kept[0],
            clocks_locked=self._kept[1],
        )

    def _mode(self) -> str | None:
        # Asking `nvpmodel -q` instead would start a program at every look.
        table = power.parse_conf(self.machine.read(power.CONF) or "", None)
        return power.noted_mode(self.machine.read(power.STATUS) or "", table)


def gpu_folder(machine: Machine) -> str | None:
    """The GPU's devfreq folder: "17000000.gpu" (JetPack 6), "17000000.ga10b" (5), "gpu-gpc-0" (Thor); None without."""
    for folder in machine.glob("/sys/class/devfreq/*"):
        name = folder.rsplit("/", 1)[-1]
        node = machine.read(f"{folder}/device/of_node/name")
        if node in _GPU_NAMES or name == "gpu-gpc-0" or name.rsplit(".", 1)[-1] in _GPU_NAMES:
            return folder
    return None


def number(text: str | None) -> int | None:
    """A whole number as sysfs writes it, None for anything else."""
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]{1,18}", text) else None
