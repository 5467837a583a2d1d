"""Supervisors as the processes themselves tell of them, for when what is on disk is damaged, lost, or of another one.

A supervisor is told by its own words, which name its launch file. They are believed only where that file lies in our
very folder as that process sees the disk: a container may have the same path and another deployment below it. Where
we may not look through its eyes, as another user, we look through our own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from orin_deploy.host import procfs
from orin_deploy.host.procfs import PROC

COMPANION = "ORIN_DEPLOY_COMPANION"
"""The variable by which a process that a supervisor starts beside its server is told from the server."""

_MODULE = "orin_deploy.host.supervise"


def command(launch: Path) -> list[str]:
    """The words that start the supervisor of a launch file, and by which it is found again."""
    return [sys.executable, "-m", _MODULE, str(launch)]


def of(launch: Path, proc: Path = PROC) -> tuple[int, ...]:
    """The process numbers of a launch file's supervisors: one, or more where its folder was removed in between."""
    return tuple(pid for pid, theirs in _all(proc) if _same_place(pid, theirs, launch, proc))


def names(folder: Path, proc: Path = PROC) -> frozenset[str]:
    """The deployments in `folder` that a supervisor runs for, also those of which no file is left."""
    found = ((pid, theirs, folder / theirs.parent.name / theirs.name) for pid, theirs in _all(proc))
    return frozenset(ours.parent.name for pid, theirs, ours in found if _same_place(pid, theirs, ours, proc))


def is_of_another(pid: int, launch: Path, proc: Path = PROC) -> bool:
    """Whether a process is the supervisor of another launch file, one whose folder is still there."""
    theirs = _launch(pid, proc)
    return theirs is not None and _status(theirs.parent) is not None and not _same_place(pid, theirs, launch, proc)


def children(pid: int, proc: Path = PROC) -> tuple[int, ...]:
    """The processes that a process has started itself, the first one first."""
    found = ((stat(each, proc), each) for each in _numbers(proc))
    begun = sorted((int(fields[19]), each) for fields, each in found if fields[1:2] == [str(pid)])
    return tuple(number for _, number in begun)


def is_companion(pid: int, proc: Path = PROC) -> bool:
    """Whether a supervisor's child is one of the companions; another user's is not known as one."""
    return COMPANION in (procfs.environment(pid, proc) or {})


def stat(pid: int, proc: Path = PROC) -> list[str]:
    """The fields of a process's stat from its state on; empty when it is gone."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(") ")[2].split()  # the name before it may hold spaces and parentheses


def _all(proc: Path) -> Iterator[tuple[int, Path]]:
    """Every supervisor that runs, and the launch file that its words name."""
    for pid in _numbers(proc):
        if (launch := _launch(pid, proc)) is not None:
            yield pid, launch


def _launch(pid: int, proc: Path) -> Path | None:
    """The launch file of a supervisor; None for every other process, and the one that is about to become one."""
    words = procfs.command(pid, proc) or ()
    if words[1:3] != ("-m", _MODULE) or len(words) != 4 or not words[3].startswith("/"):
        return None
    return Path(words[3]) if stat(pid, proc)[3:4] == [str(pid)] else None  # it leads its session


def _same_place(pid: int, theirs: Path, ours: Path, proc: Path) -> bool:
    """Whether the folder of `theirs`, as the process sees it, is the one of `ours`; of removed ones, their parents."""
    seen = _root(pid, proc)
    while True:
        theirs, ours, same_name = theirs.parent, ours.parent, theirs.parent.name == ours.parent.name
        status, other = _status(ours), _status(seen / str(theirs).lstrip("/"))
        if status is not None and other is not None:
            return os.path.samestat(status, other)
        if status is not None or other is not None or not same_name or ours == ours.parent:
            return False


def _root(pid: int, proc: Path) -> Path:
    """The disk as a process sees it; as we do where we may not look: another user's is told, for ending it to fail."""
    root = proc / str(pid) / "root"
    try:
        root.stat()
    except PermissionError:
        return Path("/")
    except OSError:  # it ended meanwhile
        pass
    return root


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _numbers(proc: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(proc) if name.isdecimal())
    except OSError:
        return []
