"""What the kernel tells of a process: its words, its surroundings, its threads' CPUs, its memory, its ports.

`proc` is where the machine's /proc lies: for a virtual machine below its root.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"
_ENDING_LOOKS = 20
MAX_CPUS = 8192  # the most a Linux kernel is configured for (CONFIG_NR_CPUS)
PROC = Path("/proc")


def command(pid: int, proc: Path = PROC) -> tuple[str, ...] | None:
    """A process's words, or None when it is gone or another user's."""
    return _words(proc / str(pid) / "cmdline")


def environment(pid: int, proc: Path = PROC) -> dict[str, str] | None:
    """The environment a process was started with, or None when it is gone or another user's."""
    words = _words(proc / str(pid) / "environ")
    return None if words is None else dict(word.split("=", 1) for word in words if "=" in word)


def program(pid: int, proc: Path = PROC) -> str | None:
    """The file a process executes, " (deleted)" behind it when that was replaced; None when it cannot be known."""
    try:
        return os.readlink(proc / str(pid) / "exe")
    except OSError:
        return None


def cgroup(pid: int, proc: Path = PROC) -> str:
    """The control groups a process is in, as the kernel lists them; empty when it is gone."""
    try:
        return (proc / str(pid) / "cgroup").read_text()
    except OSError:
        return ""


def parse_list(text: str) -> tuple[int, ...]:
    """The CPU numbers of a kernel list: "0-3,5" (most files) or "0 1 2 3" (cpufreq). What is no number is left out."""
    numbers: set[int] = set()
    for word in re.split(r"[,\s]+", text):
        if match := re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", word):
            first, last = int(match[1]), int(match[2] or match[1])
            numbers.update(range(first, min(last + 1, MAX_CPUS)))
    return tuple(sorted(numbers))


def threads(pid: int, proc: Path = PROC) -> dict[int, tuple[int, ...]]:
    """The CPUs each thread of a process may run on, by thread number; empty when the process is gone."""
    allowed = {}
    for status in (proc / str(pid) / "task").glob("*/status"):
        try:
            text = status.read_text()
        except OSError:  # a thread that ended meanwhile
            continue
        if match := re.search(r"^Cpus_allowed_list:[ \t]*(\S+)", text, re.MULTILINE):
            allowed[int(status.parent.name)] = parse_list(match[1])
    return allowed


def memory(pid: int, proc: Path = PROC) -> dict[str, int]:
    """Resident bytes of a process: `anon` its own, `file` mapped files (a model under mmap), `shmem` shared."""
    try:
        text = (proc / str(pid) / "status").read_text()
    except OSError:
        return {}
    return {kind.lower(): int(kib) * 1024 for kind, kib in re.findall(r"^Rss(\w+):\s*(\d+) kB", text, re.MULTILINE)}


def port_holder(
    port: int, host: str = "127.0.0.1", likely: int | None = None, proc: Path = PROC
) -> tuple[int | None, str] | None:
    """Who listens where a server on `host` and `port` would: process number and words, or None when it is free.

    The process `likely` is asked first: looking into every process takes a while. The number is None for a process
    that this user may not look into.
    """
    first = () if likely is None else (str(likely),)
    for _ in range(_ENDING_LOOKS):
        sockets = {f"socket:[{inode}]" for address, inode in _listeners(port, proc) if _collide(address, host)}
        if not sockets:
            return None
        hidden = False
        for number in (*first, *(name for name in os.listdir(proc) if name.isdecimal())):
            files = _open_files(proc / number)
            if files is None:
                hidden = True
            elif not sockets.isdisjoint(files):
                return int(number), " ".join(command(int(number), proc) or ("an unnamed program",))
        if hidden:
            break
        time.sleep(0.1)  # nobody has it: a process that is ending closes its files before its sockets are gone
    return None, "a program that cannot be looked into from here"


def _open_files(process: Path) -> set[str] | None:
    """What a process has open; nothing of one that has ended, None where this user may not look."""
    found = set()
    try:
        for name in os.listdir(process / "fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found.add(os.readlink(process / "fd" / name))
    except PermissionError:
        return None
    except OSError:
        pass
    return found


def _words(file: Path) -> tuple[str, ...] | None:
    try:
        raw = file.read_bytes()
    except OSError:
        return None
    return (
        tuple(word.decode("utf-8", "surrogateescape") for word in raw.removesuffix(b"\0").split(b"\0")) if raw else None
    )


def _listeners(port: int, proc: Path) -> Iterator[tuple[str, str]]:
    """Address and socket inode of every listener on a TCP port."""
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            lines = (proc / "net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            address, _, number = fields[1].partition(":")
            if fields[3] == _LISTENING and int(number, 16) == port:
                # The kernel prints each 32-bit word in the machine's own byte order.
                words = [bytes.fromhex(address[i : i + 8]) for i in range(0, len(address), 8)]
                packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
                yield socket.inet_ntop(family, packed), fields[9]


def _collide(one: str, other: str) -> bool:
    everywhere = ("0.0.0.0", "::")
    names = {"localhost": "127.0.0.1"}
    return one in everywhere or other in everywhere or one.removeprefix("::ffff:") == names.get(other, other)
