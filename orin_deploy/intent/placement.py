"""Which CPUs the server may use, and how many threads it runs on them."""

from __future__ import annotations

from collections.abc import Mapping

from orin_deploy.errors import Refused, UsageError
from orin_deploy.facts.device import Cpu
from orin_deploy.intent.spec import Placement, Setting


def cpu_list(text: str) -> tuple[int, ...]:
    """The CPU numbers of a list such as "0-3,6", as taskset and the kernel write it; raises UsageError."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or (dash and int(last) < int(first)):
            raise UsageError(f'"{text}" is not a list of CPUs', 'write it as in "0-3,6"')
        numbers.update(range(int(first), int(last or first) + 1))
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


def place(cpu: Cpu, values: Mapping[str, Setting]) -> Placement:
    """The CPUs asked for, or every usable CPU less those the profile leaves to the system.

    Raises Refused when a CPU that was asked for is absent, offline or not allowed here, or when none is left.
    """
    asked = str(values["placement.cpus"].value)
    reserve = int(values["placement.reserve_cpus"].value or 0)
    if asked != "auto":
        cpus = cpu_list(asked)
        missing = tuple(n for n in cpus if n not in cpu.usable)
        if missing:
            raise Refused(
                f"placement.cpus names CPU {cpu_text(missing)}, which cannot be used here; "
                f"usable are {cpu_text(cpu.usable)}",
                f"use --set placement.cpus={cpu_text(cpu.usable)}",
            )
        why = f"placement.cpus ({values['placement.cpus'].source})"
    else:
        # Interrupts are served by the lowest CPU unless someone moved them, so that one is left to the system first.
        cpus = cpu.usable[min(reserve, max(len(cpu.usable) - 1, 0)) :]
        why = (
            "every usable CPU" if len(cpus) == len(cpu.usable) else f"{len(cpu.usable) - len(cpus)} left to the system"
        )
    if not cpus:
        raise Refused("no CPU is both online and allowed to this process", "look at `orin-deploy facts`")
    threads = _threads(values, "threads", _cores(cpu, cpus), len(cpus))
    return Placement(cpus, threads, _threads(values, "threads_batch", threads, len(cpus)), why)


def _cores(cpu: Cpu, cpus: tuple[int, ...]) -> int:
    """How many physical cores CPUs belong to: two hardware threads of a core share the units that multiply."""
    whole = {sibling: group for group in cpu.thread_siblings for sibling in group}
    return len({whole.get(each, (each,)) for each in cpus})


def _threads(values: Mapping[str, Setting], key: str, automatic: int, most: int) -> int:
    setting = values.get(key)
    if setting is None or setting.value in (None, "auto", -1):
        return automatic
    count = int(str(setting.value))
    if count > most:
        raise Refused(
            f"{key}={count} ({setting.source}) is more than the {most} CPUs the server may use",
            f"use --set {key}={most}, or widen placement.cpus",
        )
    return count
