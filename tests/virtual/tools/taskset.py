"""taskset: records the CPUs that the board was asked for, and runs the program on CPUs that this machine has."""

from __future__ import annotations

import os
import sys

from tests.virtual.kernel import Kernel
from tests.virtual.show import cpu_list
from tests.virtual.tasks import numbers, record, recorded


def main(kernel: Kernel, words: list[str]) -> int:
    options = []
    while words and words[0].startswith("-"):
        options.append(words.pop(0))
    flags = "".join(option.lstrip("-")[:1] if option.startswith("--") else option[1:] for option in options)
    cpus = words.pop(0) if words else ""
    if "p" in flags:
        pid, cpus = (int(words[0]), cpus) if words else (int(cpus), "")
        return _of_process(kernel, pid, cpus, "c" in flags)
    wanted = _cpus(cpus, "c" in flags)
    if not wanted or not words:
        return _fail(f"failed to parse CPU {'list' if 'c' in flags else 'mask'}: {cpus}")
    if not set(wanted) & set(kernel.online()):
        return _fail("failed to set pid 0's affinity: Invalid argument")
    record(kernel.root, os.getpid(), cpu_list(tuple(cpu for cpu in wanted if cpu in kernel.online())))
    here = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {here[cpu % len(here)] for cpu in wanted})
    try:
        os.execvp(words[0], words)
    except OSError as error:
        return _fail(f"failed to execute {words[0]}: {error.strerror}", 127)


def _of_process(kernel: Kernel, pid: int, cpus: str, as_list: bool) -> int:
    now = recorded(kernel.root, pid) or cpu_list(kernel.online())
    shown = now if as_list else f"{sum(1 << cpu for cpu in numbers(now)):x}"
    kind = "list" if as_list else "mask"
    print(f"pid {pid}'s current affinity {kind}: {shown}")
    if cpus:
        record(kernel.root, pid, cpu_list(_cpus(cpus, as_list)))
        print(f"pid {pid}'s new affinity {kind}: {cpus}")
    return 0


def _cpus(text: str, as_list: bool) -> tuple[int, ...]:
    try:
        mask = 0 if as_list else int(text, 16)
        return numbers(text) if as_list else tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
    except ValueError:
        return ()


def _fail(text: str, code: int = 1) -> int:
    print(f"taskset: {text}", file=sys.stderr)
    return code
