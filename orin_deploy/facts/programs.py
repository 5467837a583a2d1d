"""Programs: what a process is called, an interpreter by what it runs, and which processes this command itself is in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from orin_deploy.host.machine import Machine

_SHELL = r"(?:ba|da|z|k|fi|c|tc|a)?sh"
_INTERPRETER = re.compile(
    rf"(?:python[\d.]*|pypy[\d.]*|node|nodejs|deno|bun|java|perl[\d.]*|ruby[\d.]*|php[\w.-]*|lua[\w.]*|Rscript|dotnet|"
    rf"mono|busybox|{_SHELL})$"
)
_RENAMED = re.compile(r"(?:node-)?MainThread$")  # what newer Nodes call their main thread
_WITH_VALUE = frozenset(("-W", "-X", "-r", "--require", "--import", "-cp", "-classpath", "--class-path"))
_NAMES_IT = frozenset(("-m", "-jar"))
_INLINE = frozenset(("-c", "-e", "--eval", "-p"))
_MOST_CHARS, _MOST_ANCESTORS = 40, 64


def name_of(machine: Machine, number: str) -> tuple[str | None, bool]:
    """The name of a process's program and whether it is an interpreter, whose name says nothing of what it does.

    A Python that runs orin-deploy, as each supervisor does, goes by that.
    """
    name = machine.read(f"/proc/{number}/comm")
    raw = machine.read_bytes(f"/proc/{number}/cmdline", 4096) or b""
    words = raw.decode("utf-8", "replace").rstrip("\0").split("\0")
    first = PurePosixPath(words[0].lstrip("-")).name  # a login shell's begins with a dash
    own = name is None or is_interpreter(name) or _RENAMED.match(name)
    runs = next((word for word in (name or "", first) if is_interpreter(word)), None)
    if runs is None:
        return name, False
    if runs.startswith("python") and _script(words).partition(".")[0] == "orin_deploy":
        return "orin-deploy", False
    return (f"{runs} {_script(words)}".rstrip() if own else name), True


def is_interpreter(name: str) -> bool:
    return _INTERPRETER.match(name) is not None


def _script(words: Sequence[str]) -> str:
    """What an interpreter runs, by its own words: a module as it is called, a file without its folder; else nothing."""
    rest = iter(words[1:])
    for word in rest:
        if word in _INLINE:
            break
        if word in _NAMES_IT:
            word = next(rest, "")
        elif word in _WITH_VALUE:
            next(rest, None)
            continue
        elif word.startswith("-"):
            continue
        return "".join(filter(str.isprintable, PurePosixPath(word).name))[:_MOST_CHARS]
    return ""


def ancestors(machine: Machine) -> frozenset[int]:
    """The processes that this one is in: the shell, the session, what logged in, the first; they end with it or it
    with them. Empty where /proc does not tell."""
    found: list[int] = []
    number = machine.link_target("/proc/self")
    while number is not None and number.isdecimal() and int(number) not in (0, *found):
        found.append(int(number))
        stat = machine.read(f"/proc/{number}/stat") or ""
        parent = re.search(r"\) \S ([0-9]{1,9}) ", stat[stat.rfind(")") :])
        number = parent[1] if parent and len(found) < _MOST_ANCESTORS else None
    return frozenset(found)
