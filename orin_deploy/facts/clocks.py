"""Clocks: what `jetson_clocks --show` says, and whether it has pinned them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orin_deploy.facts.cpu import parse_list


@dataclass(frozen=True)
class Clock:
    """One clock in the unit of its line: kHz for a CPU, Hz for the rest.

    `idle` are the switches of a CPU's idle states, `override` the memory clock's; empty and None where not told.
    """

    low: int
    high: int
    now: int
    idle: tuple[bool, ...] = ()
    override: bool | None = None

    @property
    def fixed(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True)
class Clocks:
    """Clocks of the online CPUs by number, of the GPU's parts, of the memory; `locked` is None when nothing is told."""

    cpus: dict[int, Clock]
    gpu: dict[str, Clock]
    emc: Clock | None
    locked: bool | None


_RANGE = r"MinFreq=(\d{1,19})[ \t]+MaxFreq=(\d{1,19})[ \t]+CurrentFreq=(\d{1,19})"
_CPU = re.compile(rf"^cpu(\d{{1,4}}):[ \t]+(?:Online=(\d)[ \t]+)?.*?{_RANGE}(?:[ \t]+IdleStates:(.*))?$", re.MULTILINE)
_GPU = re.compile(rf"^(GPU|gpu-[\w-]+)[ \t]+{_RANGE}", re.MULTILINE)
_EMC = re.compile(rf"^EMC[ \t]+{_RANGE}(?:[ \t]+FreqOverride=(\d))?", re.MULTILINE)
_OFFLINE = re.compile(r"Offline CPUs:[ \t]*([0-9,-]+)")


def parse_show(text: str) -> Clocks:
    """The clocks in the text of `jetson_clocks --show`, in the layouts of L4T 35, 36, 38 and 39."""
    offline = parse_list(match[1]) if (match := _OFFLINE.search(text)) else ()
    cpus = {
        int(number): Clock(int(low), int(high), int(now), tuple(mark == "1" for mark in re.findall(r"=(\d)", idle)))
        for number, online, low, high, now, idle in _CPU.findall(text)
        if online != "0" and int(number) not in offline
    }
    gpu = {name: Clock(int(low), int(high), int(now)) for name, low, high, now in _GPU.findall(text)}
    found = _EMC.search(text)
    emc = None
    if found:
        override = None if found[4] is None else found[4] == "1"
        emc = Clock(int(found[1]), int(found[2]), int(found[3]), override=override)
    return Clocks(cpus, gpu, emc, _locked(cpus, gpu, emc))


def _locked(cpus: dict[int, Clock], gpu: dict[str, Clock], emc: Clock | None) -> bool | None:
    """Whether every clock is pinned.

    A range of one value is not enough, as some modes have it by themselves: jetson_clocks also switches the idle
    states off, and the memory's override on where there is one. The clock of the moment is not asked: it is measured.
    """
    if not cpus:
        return None
    memory = emc is None or (emc.fixed if emc.override is None else emc.override)
    return memory and all(clock.fixed and not any(clock.idle) for clock in (*cpus.values(), *gpu.values()))
