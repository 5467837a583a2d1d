"""tegrastats: its lines in the layouts of JetPack 4 to 7, and the program followed as a child process.

Layouts (public captures of the tool's output): before JetPack 5 no time and power without a unit ("VDD_IN 4067/4067");
JetPack 5 upper-case zones, -256 °C for a gated one; JetPack 6 lower-case zones, gated ones absent, EMC and GPU clocks
only as root; JetPack 7 temperatures current/most and power current/average/most. Thor's GR3D_FREQ has no percent.
"""

from __future__ import annotations

import re

from orin_deploy.facts.device import MIB
from orin_deploy.host import Host
from orin_deploy.host.stream import Lines
from orin_deploy.observe.telemetry.sample import Sample, total_power, zone_celsius, zone_name
from orin_deploy.observe.telemetry.source import SourceFailed

_MEMORY = re.compile(r"\b(RAM|SWAP) ([0-9]{1,8})/([0-9]{1,8})MB\b")
_CPUS = re.compile(r"\bCPU \[([^\]]{0,4000})\]")
_CPU = re.compile(r"([0-9]{1,3})%(?:@([0-9]{1,5}))?")
# "61%@2133", "0%", "62%@612", "12%@[1300,1300]", "@[314,314,314]"
_UNIT = r"(?: ([0-9]{1,3})%)?(?: ?@\[?([0-9]{1,5}))?"
_GPU = re.compile(rf"\bGR3D_FREQ{_UNIT}")
_EMC = re.compile(rf"\bEMC_FREQ{_UNIT}")
_ZONE = re.compile(r"(?:^| )([A-Za-z][\w-]{0,40})@(-?[0-9]{1,4}(?:\.[0-9]{1,6})?)C\b")
# A rail's name never ends in a clock's: "APE 150" has no slash, "RAM 1/2MB" another unit.
_RAIL = re.compile(r"(?:^| )([A-Z][A-Z0-9_]{0,40}) ([0-9]{1,7})(?:mW)?/[0-9]{1,7}(?:mW)?(?:/[0-9]{1,7}mW)?(?= |$)")


def parse_line(line: str, time: float = 0.0) -> Sample | None:
    """The sample in a line of tegrastats; None for a line without memory and CPUs, which is none of them."""
    memory = {name: (int(used) * MIB, int(total) * MIB) for name, used, total in _MEMORY.findall(line)}
    cpus = _CPUS.search(line)
    if "RAM" not in memory or cpus is None:
        return None
    words = [_CPU.fullmatch(word.strip()) for word in cpus[1].split(",")]
    gpu, emc = _unit(_GPU, line), _unit(_EMC, line)
    rails = {name: int(power) for name, power in _RAIL.findall(line) if name != "NC"}  # not connected
    zones = {name: celsius for name, celsius in map(_zone, _ZONE.findall(line)) if name and celsius is not None}
    swap = memory.get("SWAP", (0, 0))  # JetPack 7 leaves it out where there is none
    return Sample(
        time=time,
        source="tegrastats",
        cpu_percent=tuple(None if word is None else float(word[1]) for word in words),
        cpu_mhz=tuple(None if word is None or word[2] is None else int(word[2]) for word in words),
        gpu_percent=gpu[0],
        gpu_mhz=gpu[1],
        emc_percent=emc[0],
        emc_mhz=emc[1],
        ram_used_bytes=memory["RAM"][0],
        ram_total_bytes=memory["RAM"][1],
        swap_used_bytes=swap[0],
        swap_total_bytes=swap[1],
        power_mw=rails or None,
        power_total_mw=total_power(rails),
        temperature_c=zones or None,
    )


def _unit(pattern: re.Pattern[str], line: str) -> tuple[float | None, int | None]:
    """Load in percent and clock in MHz of a unit, each None where the line does not say."""
    found = pattern.search(line)
    if found is None:
        return None, None
    return None if found[1] is None else float(found[1]), None if found[2] is None else int(found[2])


def _zone(found: tuple[str, str]) -> tuple[str | None, float | None]:
    return zone_name(found[0]), zone_celsius(float(found[1]))


class Tegrastats:
    """The tool as a source. Lines that do not parse twice in a row, silence, and its end are failures."""

    name = "tegrastats"

    def __init__(self, host: Host, interval_s: float) -> None:
        self.host = host
        self.interval_s = interval_s
        self.lines: Lines | None = None

    def open(self) -> None:
        if self.host.which("tegrastats") is None:
            raise SourceFailed("tegrastats is not on this machine")
        self.lines = self.host.lines("tegrastats", "--interval", str(max(round(self.interval_s * 1000), 1)))

    def read(self) -> Sample:
        line = ""
        for _ in range(2):
            line = self._next()
            sample = parse_line(line, self.host.time())
            if sample is not None:
                return sample
        raise SourceFailed(f"tegrastats prints lines of an unknown kind: {line[:60]}")

    def _next(self) -> str:
        assert self.lines is not None
        line = self.lines.newest(self.interval_s + 1)
        if line is None:
            raise SourceFailed("tegrastats has ended" if self.lines.ended else "tegrastats has gone quiet")
        return line

    def close(self) -> None:
        if self.lines is not None:
            self.lines.close()
