"""Memory: what /proc says the machine has, and what the process's control groups leave of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orin_deploy.facts import cgroup
from orin_deploy.facts.device import Memory
from orin_deploy.host.machine import Machine

KIB = 1024

_LIMIT_FILES = ("memory.max", "memory.high", "memory.limit_in_bytes")
_USAGE_FILES = ("memory.current", "memory.usage_in_bytes")


def read(machine: Machine) -> Memory:
    """The machine's memory in bytes; all zero where /proc/meminfo cannot be read."""
    info = meminfo(machine.read("/proc/meminfo") or "")
    total = info.get("MemTotal", 0)
    limit, used = tightest(_levels(machine), total)
    huge_page = info.get("Hugepagesize", 0)
    return Memory(
        total=total,
        available=available(info),
        free=info.get("MemFree", 0),
        swap_total=info.get("SwapTotal", 0),
        swap_free=info.get("SwapFree", 0),
        zram_total=zram_bytes(machine.read("/proc/swaps") or ""),
        # "Hugetlb" (Linux 4.20) counts every page size, the two counters only the default one.
        hugepages_total=info.get("Hugetlb", info.get("HugePages_Total", 0) * huge_page),
        hugepages_free=info.get("HugePages_Free", 0) * huge_page,
        cgroup_limit=limit,
        cgroup_used=used,
    )


def meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo by name: bytes, and the HugePages_ counters as they are; lines that make no sense are left out."""
    pairs = re.findall(r"^([\w()]+):[ \t]+([0-9]{1,18}) kB$", text, re.MULTILINE)
    counters = re.findall(r"^(HugePages_\w+):[ \t]+([0-9]{1,18})$", text, re.MULTILINE)
    return {name: int(number) * KIB for name, number in pairs} | {name: int(number) for name, number in counters}


def available(info: dict[str, int]) -> int:
    """MemAvailable, or an estimate where the kernel does not give it (before 3.14, some containers).

    The estimate is the kernel's own without its low watermarks: free, page cache and slabs that can be given back.
    """
    if "MemAvailable" in info:
        return info["MemAvailable"]
    cache = info.get("Cached", 0) + info.get("Buffers", 0) - info.get("Shmem", 0)
    estimate = info.get("MemFree", 0) + max(cache, 0) + info.get("SReclaimable", 0)
    return min(estimate, info.get("MemTotal", 0))


def zram_bytes(swaps: str) -> int:
    """The bytes of swap that lie on zram, that is in the same memory, from the text of /proc/swaps."""
    sizes = re.findall(r"^\S*/zram\d+\s+\S+\s+([0-9]{1,18})\s", swaps, re.MULTILINE)
    return sum(int(size) * KIB for size in sizes)


def tightest(levels: Iterable[tuple[int, int | None]], total: int) -> tuple[int | None, int | None]:
    """Of (limit, used) pairs the one that leaves least; limits of the machine's size or more are none."""
    binding = [(limit, used) for limit, used in levels if limit < total]
    return min(binding, key=lambda level: level[0] - (level[1] or 0), default=(None, None))


def used_bytes(usage: int, stat: str) -> int:
    """A group's use without its page cache, which the kernel gives back on demand just as MemAvailable counts it.

    `stat` is the text of memory.stat; version 1 has the sums over child groups under names with "total_".
    """
    values = {name: int(number) for name, number in re.findall(r"^(\w+) ([0-9]{1,18})$", stat, re.MULTILINE)}
    cache = sum(values.get(f"total_{name}", values.get(name, 0)) for name in ("active_file", "inactive_file"))
    return max(usage - cache, 0)


def _levels(machine: Machine) -> list[tuple[int, int | None]]:
    levels: list[tuple[int, int | None]] = []
    for folder in cgroup.own_folders(machine, "memory"):
        limits = _numbers(machine, folder, _LIMIT_FILES)
        if not limits:
            continue
        usage = _numbers(machine, folder, _USAGE_FILES)
        stat = machine.read(f"{folder}/memory.stat") or ""
        levels.append((min(limits), used_bytes(usage[0], stat) if usage else None))
    return levels


def _numbers(machine: Machine, folder: str, names: tuple[str, ...]) -> list[int]:
    texts = (machine.read(f"{folder}/{name}") or "" for name in names)
    return [int(text) for text in texts if re.fullmatch(r"[0-9]{1,19}", text)]  # "max" is no number
