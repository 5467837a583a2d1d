"""Memory: what /proc says the machine has, and what the process's control groups leave of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence

from orin_deploy.facts import cgroup
from orin_deploy.facts.device import MIB, Memory
from orin_deploy.host.machine import Machine

KIB = 1024
COMPACT = "sync; sudo sysctl -w vm.drop_caches=3 vm.compact_memory=1"
"""What makes larger free blocks of fragmented memory."""

_LIMIT_FILES = ("memory.max", "memory.high", "memory.limit_in_bytes")
_USAGE_FILES = ("memory.current", "memory.usage_in_bytes")
_PARTS = ("MemAvailable", "MemFree", "Cached", "Buffers", "Hugetlb")  # of MemTotal


def read(machine: Machine) -> Memory:
    """The machine's memory in bytes; all zero, and a doubt that says so, where /proc/meminfo cannot be read."""
    info, doubts = plausible(meminfo(machine.read("/proc/meminfo") or ""))
    total = info.get("MemTotal", 0)
    limit, used = tightest(levels(machine, cgroup.own_folders(machine, "memory")), total)
    group = cgroup.service_folders(machine, "memory")
    service_limit, service_used = tightest(levels(machine, group), total)
    huge_page = info.get("Hugepagesize", 0)
    swaps = machine.read("/proc/swaps") or ""
    blocks = largest_blocks(machine.read("/proc/buddyinfo") or "", page_bytes(machine))
    return Memory(
        total=total,
        available=min(available(info), total),
        free=info.get("MemFree", 0),
        swap_total=info.get("SwapTotal", 0),
        swap_free=info.get("SwapFree", 0),
        zram_total=zram_bytes(swaps),
        # "Hugetlb" (Linux 4.20) counts every page size, the two counters only the default one.
        hugepages_total=min(info.get("Hugetlb", info.get("HugePages_Total", 0) * huge_page), total),
        hugepages_free=min(info.get("HugePages_Free", 0) * huge_page, total),
        cgroup_limit=limit,
        cgroup_used=used,
        cached=max(info.get("Cached", 0) + info.get("Buffers", 0) - info.get("Shmem", 0), 0),
        zram_used=zram_bytes(swaps, used=True),
        largest_block=blocks[0],
        largest_blocks=blocks[1],
        service_group=group[0].removeprefix(cgroup.ROOT) if service_limit is not None else None,
        service_limit=service_limit,
        service_used=service_used,
        doubts=doubts,
    )


def meminfo(text: str) -> dict[str, int]:
    """/proc/meminfo by name: bytes, and the HugePages_ counters as they are; lines that make no sense are left out."""
    pairs = re.findall(r"^([\w()]+):[ \t]+([0-9]{1,18}) kB$", text, re.MULTILINE)
    counters = re.findall(r"^(HugePages_\w+):[ \t]+([0-9]{1,18})$", text, re.MULTILINE)
    return {name: int(number) * KIB for name, number in pairs} | {name: int(number) for name, number in counters}


def plausible(info: Mapping[str, int]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Readings cut to what can be, and in words each that was missing or could not be."""
    total, clipped, doubts = info.get("MemTotal", 0), dict(info), []
    if total == 0:
        return {}, ("/proc/meminfo gives no MemTotal: how much memory there is, is not known",)
    for name, whole in (*((name, "MemTotal") for name in _PARTS), ("SwapFree", "SwapTotal")):
        most = info.get(whole, 0)
        if info.get(name, 0) <= most:
            continue
        told = f"/proc/meminfo gives {name} {info[name] // MIB} MiB of {whole} {most // MIB} MiB, which cannot be"
        if name == "MemAvailable":  # all of it would be the one wrong guess that costs: it is estimated below
            del clipped[name]
            doubts.append(told)
        else:
            clipped[name] = most
            doubts.append(f"{told}: {most // MIB} MiB is taken")
    if "MemAvailable" not in clipped:
        told = doubts.pop(0) if "MemAvailable" in info else "/proc/meminfo gives no MemAvailable"
        doubts.append(
            f"{told}: {min(available(clipped), total) // MIB} MiB is estimated from free memory and page cache"
        )
    return clipped, tuple(doubts)


def available(info: Mapping[str, int]) -> int:
    """MemAvailable, or an estimate where the kernel does not give it (before 3.14, some containers).

    The estimate is the kernel's own without its low watermarks: free, page cache and slabs that can be given back.
    """
    if "MemAvailable" in info:
        return info["MemAvailable"]
    cache = info.get("Cached", 0) + info.get("Buffers", 0) - info.get("Shmem", 0)
    estimate = info.get("MemFree", 0) + max(cache, 0) + info.get("SReclaimable", 0)
    return min(estimate, info.get("MemTotal", 0))


def zram_bytes(swaps: str, *, used: bool = False) -> int:
    """The bytes of swap that lie on zram, that is in the same memory, from the text of /proc/swaps; all or in use."""
    sizes = re.findall(r"^\S*/zram\d+\s+\S+\s+([0-9]{1,18})(?:\s+([0-9]{1,18}))?\s", swaps, re.MULTILINE)
    return sum(int((inside if used else size) or 0) * KIB for size, inside in sizes)


def largest_blocks(buddyinfo: str, page: int) -> tuple[int | None, int]:
    """The largest free block in /proc/buddyinfo in bytes and how many there are, as tegrastats' lfb; None when full."""
    best: tuple[int | None, int] = (None, 0)
    zones = re.findall(r"^Node +\d+, +zone +\S+((?: +[0-9]{1,12}){4,32}) *$", buddyinfo, re.MULTILINE)
    for counts in zones:
        free = [(page << order, int(count)) for order, count in enumerate(counts.split()) if int(count)]
        if free and (best[0] is None or free[-1][0] >= best[0]):
            again = best[1] if free[-1][0] == best[0] else 0
            best = (free[-1][0], free[-1][1] + again)
    return best


def page_bytes(machine: Machine) -> int:
    """The size of a page; below another root that of every Jetson kernel."""
    return os.sysconf("SC_PAGE_SIZE") if str(machine.root) == "/" else 4 * KIB


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


def levels(machine: Machine, folders: Sequence[str]) -> list[tuple[int, int | None]]:
    """Limit and use of each control group that has a limit; a limit of nothing is none, for somebody runs in it."""
    found: list[tuple[int, int | None]] = []
    for folder in folders:
        limits = [limit for limit in _numbers(machine, folder, _LIMIT_FILES) if limit > 0]
        if not limits:
            continue
        usage = _numbers(machine, folder, _USAGE_FILES)
        stat = machine.read(f"{folder}/memory.stat") or ""
        found.append((min(limits), used_bytes(usage[0], stat) if usage else None))
    return found


def _numbers(machine: Machine, folder: str, names: tuple[str, ...]) -> list[int]:
    texts = (machine.read(f"{folder}/{name}") or "" for name in names)
    return [int(text) for text in texts if re.fullmatch(r"[0-9]{1,19}", text)]  # "max" is no number
