"""The kernel's own files as a source: /proc and /sys, below any root; works on every Linux."""

from __future__ import annotations

import re
from collections.abc import Mapping

from orin_deploy.facts import memory
from orin_deploy.facts.clocks import EMC
from orin_deploy.facts.cpu import SYSFS, parse_list
from orin_deploy.host import Host
from orin_deploy.host.machine import Machine
from orin_deploy.observe.telemetry.conditions import gpu_folder, number
from orin_deploy.observe.telemetry.sample import Sample, total_power, zone_celsius, zone_name
from orin_deploy.observe.telemetry.source import SourceFailed

# The memory's load in percent times its clock in kHz (jetson_stats reads it so, after NVIDIA's forum thread 107479).
_EMC_LOADS = ("/sys/kernel/debug/cactmon/mc_all", "/sys/kernel/debug/bpmp/debug/actmon/mc_all_avg_activity")
_FIRST_LOOK_S = 0.2  # a load is a difference: so long apart are the first two readings

Ticks = Mapping[int, tuple[int, int]]
"""Clock ticks by CPU: idle ones and all."""


def cpu_ticks(stat: str) -> dict[int, tuple[int, int]]:
    """The ticks of the CPUs that are on, from the text of /proc/stat; waiting for a disk is idle."""
    ticks = {}
    for line in stat.splitlines():
        match = re.match(r"cpu([0-9]{1,4})((?: [0-9]{1,18}){5,10})", line, re.ASCII)
        if match:
            # user nice system idle iowait irq softirq steal; guest and guest_nice are within user and nice.
            values = [int(word) for word in match[2].split()[:8]]
            ticks[int(match[1])] = values[3] + values[4], sum(values)
    return ticks


def loads(before: Ticks, now: Ticks) -> dict[int, float]:
    """Percent busy by CPU between two readings; a CPU that came on between them is left out."""
    found = {}
    for cpu in before.keys() & now.keys():
        idle, spent = now[cpu][0] - before[cpu][0], now[cpu][1] - before[cpu][1]
        if spent > 0:  # idle counters go back a little on some kernels
            found[cpu] = round(min(max(100.0 * (spent - idle) / spent, 0.0), 100.0), 1)
    return found


def cpuinfo_mhz(text: str) -> dict[int, int]:
    """Clocks by CPU from /proc/cpuinfo, which says them on x86."""
    pairs = re.findall(r"^processor\s*:\s*([0-9]{1,4})$(?:\n.+)*?\ncpu MHz\s*:\s*([0-9]{1,5})", text, re.MULTILINE)
    return {int(cpu): int(mhz) for cpu, mhz in pairs}


def rail_power(folder: str, machine: Machine) -> dict[str, str | tuple[str, str]]:
    """The rails of a power monitor by name: the file that says microwatts, or those of millivolts and milliamperes.

    ina3221 has three shunts and, from JetPack 5 on, a channel that sums their voltages and carries no current.
    """
    found: dict[str, str | tuple[str, str]] = {}
    if machine.exists(f"{folder}/power1_input"):
        found[machine.read(f"{folder}/label") or "VIN"] = f"{folder}/power1_input"
    for channel in range(1, 9):
        label = machine.read(f"{folder}/in{channel}_label")
        current = f"{folder}/curr{channel}_input"
        if label and label != "NC" and machine.exists(current):
            found[label] = f"{folder}/in{channel}_input", current
    return found


class Sysfs:
    """Loads are means since the last reading. The GPU's clock is among the conditions; see there."""

    name = "sysfs"

    def __init__(self, host: Host) -> None:
        self.host = host

    def open(self) -> None:
        host = self.host
        self.before = cpu_ticks(host.read("/proc/stat") or "")
        if not self.before:
            raise SourceFailed("/proc/stat cannot be read")
        self.gpu = gpu_folder(host)
        self.rails: dict[str, str | tuple[str, str]] = {}
        for folder in host.glob("/sys/class/hwmon/hwmon*"):
            if host.read(f"{folder}/name") in ("ina3221", "ina238"):
                self.rails |= rail_power(folder, host)
        zones = ((zone_name(host.read(f"{each}/type") or ""), each) for each in _zones(host))
        self.zones = {name: f"{folder}/temp" for name, folder in zones if name is not None}
        self.since = host.monotonic()

    def read(self) -> Sample:
        host = self.host
        host.sleep(max(self.since + _FIRST_LOOK_S - host.monotonic(), 0))
        now = cpu_ticks(host.read("/proc/stat") or "")
        if not now:
            raise SourceFailed("/proc/stat cannot be read any more")
        busy, self.before, self.since = loads(self.before, now), now, host.monotonic()
        cpus = range(max(*now, *parse_list(host.read(f"{SYSFS}/present") or "")) + 1)
        clocks = self._clocks(now)
        info = memory.meminfo(host.read("/proc/meminfo") or "")
        emc = number(host.read(f"{EMC}/rate"))
        power = self._power()
        return Sample(
            time=host.time(),
            source=self.name,
            cpu_percent=tuple(busy.get(cpu) for cpu in cpus),
            cpu_mhz=tuple(clocks.get(cpu) for cpu in cpus) if clocks else None,
            gpu_percent=self._gpu_load(),
            emc_percent=self._emc_load(emc),
            emc_mhz=None if emc is None else emc // 1_000_000,
            ram_used_bytes=info["MemTotal"] - memory.available(info) if "MemTotal" in info else None,
            ram_total_bytes=info.get("MemTotal"),
            swap_used_bytes=info["SwapTotal"] - info.get("SwapFree", 0) if "SwapTotal" in info else None,
            swap_total_bytes=info.get("SwapTotal"),
            power_mw=power or None,
            power_total_mw=total_power(power),
            temperature_c=self._temperatures() or None,
        )

    def close(self) -> None:
        pass

    def _clocks(self, online: Ticks) -> dict[int, int]:
        found = {
            cpu: khz // 1000
            for cpu in online
            if (khz := number(self.host.read(f"{SYSFS}/cpu{cpu}/cpufreq/scaling_cur_freq"))) is not None
        }
        return found or cpuinfo_mhz(self.host.read("/proc/cpuinfo") or "")

    def _gpu_load(self) -> float | None:
        """Percent; the file says per mille. Thor's kernel has no such file."""
        load = number(self.host.read(f"{self.gpu}/device/load")) if self.gpu else None
        return None if load is None else load / 10

    def _emc_load(self, rate: int | None) -> float | None:
        moved = next((each for path in _EMC_LOADS if (each := number(self.host.read(path))) is not None), None)
        return None if moved is None or not rate or rate < 1000 else min(float(moved // (rate // 1000)), 100.0)

    def _power(self) -> dict[str, int]:
        found = {}
        for name, where in self.rails.items():
            if isinstance(where, str):
                microwatts = number(self.host.read(where))
                power = None if microwatts is None else microwatts // 1000
            else:
                volts, amperes = (number(self.host.read(path)) for path in where)
                power = None if volts is None or amperes is None else volts * amperes // 1000
            if power is not None:
                found[name] = power
        return found

    def _temperatures(self) -> dict[str, float]:
        """By zone; reading a gated one fails with EAGAIN (CV engines that are off)."""
        found = {}
        for name, path in self.zones.items():
            millidegrees = number(self.host.read(path))
            celsius = None if millidegrees is None else zone_celsius(millidegrees / 1000)
            if celsius is not None:
                found[name] = celsius
        return found


def _zones(machine: Machine) -> list[str]:
    """Thermal zones in the order of their numbers."""
    folders = machine.glob("/sys/class/thermal/thermal_zone*")
    return sorted(folders, key=lambda folder: (len(folder), folder))
