"""Clocks: what `jetson_clocks --show` and the kernel's files say of them, and whether they are pinned."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from orin_deploy.facts.cpu import SYSFS, parse_list
from orin_deploy.host.machine import Machine

EMC = "/sys/kernel/debug/bpmp/debug/clk/emc"
"""The memory's clock, for root alone."""


@dataclass(frozen=True)
class Clock:
    """One clock: the lowest and highest allowed, and that of the moment, in kHz for a CPU and Hz for the rest.

    `idle` are the switches of a CPU's idle states, `override` the memory clock's; empty and None where not told.
    """

    low: int
    high: int
    now: int | None = None
    idle: tuple[bool, ...] = ()
    override: bool | None = None

    @property
    def fixed(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True)
class Clocks:
    """Clocks of the online CPUs by number, of the GPU's parts, of the memory."""

    cpus: dict[int, Clock]
    gpu: dict[str, Clock]
    emc: Clock | None

    @property
    def locked(self) -> bool | None:
        return locked(self.cpus.values(), self.gpu.values(), self.emc)


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
    return Clocks(cpus, gpu, emc)


def read(machine: Machine, gpu: Iterable[str]) -> Clocks:
    """The clocks by the kernel's files; `gpu` are the devfreq folders of the GPU's parts."""

    def clock(folder: str, low: str, high: str, idle: tuple[bool, ...] = ()) -> Clock | None:
        first, last = (_number(machine.read(f"{folder}/{name}")) for name in (low, high))
        return None if first is None or last is None else Clock(first, last, idle=idle)

    cpus = {}
    for cpu in parse_list(machine.read(f"{SYSFS}/online") or ""):
        folder = f"{SYSFS}/cpu{cpu}"
        switches = map(machine.read, machine.glob(f"{folder}/cpuidle/state*/disable"))
        idle = tuple(switch == "0" for switch in switches if switch is not None)
        if (found := clock(f"{folder}/cpufreq", "scaling_min_freq", "scaling_max_freq", idle)) is not None:
            cpus[cpu] = found
    parts = {folder.rpartition("/")[2]: clock(folder, "min_freq", "max_freq") for folder in gpu}
    held, rate = machine.read(f"{EMC}/mrq_rate_locked"), _number(machine.read(f"{EMC}/rate")) or 0
    emc = None if held is None else Clock(rate, rate, rate, override=held == "1")
    return Clocks(cpus, {name: each for name, each in parts.items() if each is not None}, emc)


def locked(cpus: Iterable[Clock], gpu: Iterable[Clock] = (), emc: Clock | None = None) -> bool | None:
    """Whether every clock is pinned, as far as it is told; None where no CPU's is.

    A range of one value is not enough, as some modes have it by themselves: jetson_clocks also switches the idle
    states off, and the memory's override on where there is one. The clock of the moment is not asked: it is measured.
    """
    cpus = tuple(cpus)
    if not cpus:
        return None
    memory = emc is None or (emc.fixed if emc.override is None else emc.override)
    return memory and all(clock.fixed and not any(clock.idle) for clock in (*cpus, *gpu))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,18}", text) else None
