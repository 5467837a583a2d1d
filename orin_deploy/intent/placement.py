"""Which CPUs the server and its draft's process may use, and how many threads they run on them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from orin_deploy.errors import Refused, UsageError
from orin_deploy.facts.device import Cpu
from orin_deploy.intent.spec import Placement, Setting


def cpu_list(text: str) -> tuple[int, ...]:
    """The CPU numbers of a list such as "0-3,6", as taskset and the kernel write it; raises UsageError."""
    numbers: set[int] = set()
    for part in text.split(","):
        # The kernel's own limit has four digits (NR_CPUS 8192); a longer range would fill the memory.
        match = re.fullmatch(r"([0-9]{1,4})(?:-([0-9]{1,4}))?", part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f'"{text}" is not a list of CPUs', 'write it as in "0-3,6"')
        numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(numbers))


def cpu_text(cpus: tuple[int, ...]) -> str:
    """CPU numbers in the kernel's short form: (0, 1, 2, 3, 6) is "0-3,6"."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def place(cpu: Cpu, values: Mapping[str, Setting], *, draft: bool = False) -> Placement:
    """The CPUs asked for, or every usable CPU less those the profile leaves to the system.

    `cpu` is as it will be in the power mode that will be active. With `draft` a process of its own for the draft gets
    CPUs too: another cluster than the server's where there are two, and never the larger share. Raises Refused when a
    CPU that was asked for is absent, offline or not allowed here, or when none is left.
    """
    usable = cpu.usable
    if not usable:
        raise Refused("no CPU is both online and allowed to this process", "look at `orin-deploy facts`")
    server, drafting = _cpus(cpu, values, usable) if draft else (_server_cpus(values, usable), ())
    threads = _threads(values, "threads", "placement.cpus", _cores(cpu, server), len(server))
    return Placement(
        cpus=server,
        threads=threads,
        threads_batch=_threads(values, "threads_batch", "placement.cpus", threads, len(server)),
        why=_why(values["placement.cpus"], usable, server, drafting),
        draft_cpus=drafting,
        draft_threads=_threads(
            values, "spec_draft_threads", "placement.draft_cpus", _cores(cpu, drafting), len(drafting)
        )
        if drafting
        else 0,
    )


def _server_cpus(values: Mapping[str, Setting], usable: tuple[int, ...]) -> tuple[int, ...]:
    return _asked(values, "placement.cpus", usable) or _unreserved(values, usable, 1)


def _cpus(cpu: Cpu, values: Mapping[str, Setting], usable: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The CPUs of the server and of its draft's process, no CPU in both."""
    server, drafting = _asked(values, "placement.cpus", usable), _asked(values, "placement.draft_cpus", usable)
    if both := tuple(n for n in server if n in drafting):
        raise Refused(
            f"placement.cpus and placement.draft_cpus both name CPU {cpu_text(both)}",
            "give each process CPUs of its own, or leave placement.draft_cpus at auto",
        )
    free = _unreserved(values, usable, 2)
    if not server and not drafting:
        server, drafting = _split(cpu, free)
    elif not server:
        server = _without(free, drafting) or _without(usable, drafting)
    elif not drafting:
        drafting = _without(free, server) or _without(usable, server)
    if not server or not drafting:
        raise Refused(
            f"the server and its draft's process need CPUs of their own, and usable are {cpu_text(usable)}",
            "leave the other one a CPU, or --set placement.draft_cpus=none: the draft then runs inside the server",
        )
    return server, drafting


def _asked(values: Mapping[str, Setting], key: str, usable: tuple[int, ...]) -> tuple[int, ...]:
    """The CPUs that an option names; none for auto, nor for the none that leaves the draft to placement.draft."""
    if values[key].value in ("auto", "none"):
        return ()
    cpus = cpu_list(str(values[key].value))
    if missing := _without(cpus, usable):
        raise Refused(
            f"{key} names CPU {cpu_text(missing)}, which cannot be used here; usable are {cpu_text(usable)}",
            f"use --set {key}={cpu_text(usable)}",
        )
    return cpus


def _unreserved(values: Mapping[str, Setting], usable: tuple[int, ...], least: int) -> tuple[int, ...]:
    """The usable CPUs less those left to the system, who gives way where fewer than `least` would remain.

    Interrupts are served by the lowest CPU unless someone moved them, so that one is left to the system first.
    """
    reserve = int(values["placement.reserve_cpus"].value or 0)
    return usable[min(reserve, max(len(usable) - least, 0)) :]


def _split(cpu: Cpu, free: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The larger share, for the server, and the draft's: the smallest cluster of two or more, the last of equal ones.

    Where there is one cluster the draft gets a quarter of its cores, whole ones, and at least one.
    """
    groups = _groups([cluster.cpus for cluster in cpu.clusters], free)
    if len(groups) == 1:
        cores = _cores_of(cpu, free)
        cores = cores if len(cores) > 1 else [(n,) for n in free]
        groups = sorted(cores, key=len, reverse=True)
        drafting = tuple(sorted(n for core in groups[-max(len(groups) // 4, 1) :] for n in core))
    else:
        small = [group for group in groups if len(group) > 1 and 2 * len(group) <= len(free)] or groups
        drafting = sorted(small, key=len, reverse=True)[-1]
    return _without(free, drafting), drafting


def _groups(clusters: list[tuple[int, ...]], free: tuple[int, ...]) -> list[tuple[int, ...]]:
    """What is free of each cluster; clusters of which one CPU is left, and CPUs that are in none, make one together."""
    homes = [tuple(n for n in free if n in cluster) for cluster in clusters]
    whole = [home for home in homes if len(home) > 1]
    rest = _without(free, tuple(n for home in whole for n in home))
    return whole + ([rest] if rest else [])


def _without(cpus: tuple[int, ...], others: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in cpus if n not in others)


def _why(asked: Setting, usable: tuple[int, ...], server: tuple[int, ...], drafting: tuple[int, ...]) -> str:
    left = len(_without(usable, (*server, *drafting)))
    why = f"{left} left to the system" if left else "every usable CPU"
    why = why if asked.value == "auto" else f"placement.cpus ({asked.source})"
    return f"{why}, CPU {cpu_text(drafting)} for the draft's process" if drafting else why


def _cores(cpu: Cpu, cpus: tuple[int, ...]) -> int:
    """How many physical cores CPUs belong to: two hardware threads of a core share the units that multiply."""
    return len(_cores_of(cpu, cpus))


def _cores_of(cpu: Cpu, cpus: tuple[int, ...]) -> list[tuple[int, ...]]:
    """CPUs by the physical core they belong to, in the order of each core's first CPU."""
    whole = {sibling: group for group in cpu.thread_siblings for sibling in group}
    cores: dict[tuple[int, ...], list[int]] = {}
    for each in cpus:
        cores.setdefault(whole.get(each, (each,)), []).append(each)
    return [tuple(core) for core in cores.values()]


def _threads(values: Mapping[str, Setting], key: str, mask: str, automatic: int, most: int) -> int:
    """The threads that an option asks for, or the automatic number; `most` is how many CPUs the option `mask` gives."""
    setting = values.get(key)
    if setting is None or setting.value in (None, "auto", -1):
        return automatic
    count = int(str(setting.value))
    if count > most:
        raise Refused(
            f"{key}={count} ({setting.source}) is more than the {most} CPUs it may use",
            f"use --set {key}={most}, or widen {mask}",
        )
    return count
