"""The server's log, by the deployment's name: our own file, or the journal where systemd keeps the server running."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from orin_deploy.host import Host
from orin_deploy.parts.service.where import Where, manager, where

_TAIL_BYTES = 2 * 1024 * 1024
_LINES = 5000  # enough for a start at verbosity 4, about 200 lines, and much after it
_POLL_S = 0.3
_CURSOR = "-- cursor: "


def log_lines(host: Host, name: str, count: int = _LINES) -> tuple[str, ...]:
    """The last lines of the log, oldest first; empty when there is none or it may not be read."""
    place = where(host, name)
    if manager(host, place) == "systemd":
        return tuple(_journal(host, place, "-n", str(count)))
    _, size = _identity(host, place)
    tail = _read(host, place, max(size - _TAIL_BYTES, 0))
    return tuple(tail.decode("utf-8", "replace").splitlines()[-count:])


def follow_log(host: Host, name: str) -> Iterator[str]:
    """Each line that is added to the log from now on, until the caller stops."""
    place = where(host, name)
    follow = _follow_journal if manager(host, place) == "systemd" else _follow_file
    for lines in follow(host, place):
        yield from lines
        host.sleep(_POLL_S)


def _follow_journal(host: Host, place: Where) -> Iterator[Sequence[str]]:
    since = ("-n", "0")
    while True:
        said = _journal(host, place, *since, "--show-cursor")
        if said and said[-1].startswith(_CURSOR):
            since = ("--after-cursor", said[-1].removeprefix(_CURSOR))
            yield said[:-1]
        else:
            yield ()


def _follow_file(host: Host, place: Where) -> Iterator[Sequence[str]]:
    """The lines added since the last look; a rotated file is read from its beginning, the end of the old one lost."""
    file, position = _identity(host, place)
    rest = b""
    while True:
        now, size = _identity(host, place)
        if now != file:
            file, position = now, 0
        added = _read(host, place, position) if size > position else b""
        position += len(added)
        *lines, rest = (rest + added).split(b"\n")
        yield tuple(line.decode("utf-8", "replace") for line in lines)


def _identity(host: Host, place: Where) -> tuple[int | None, int]:
    """The log file's inode and size; None and 0 while there is none."""
    try:
        status = _file(host, place).stat()
    except OSError:
        return None, 0
    return status.st_ino, status.st_size


def _read(host: Host, place: Where, position: int) -> bytes:
    try:
        with _file(host, place).open("rb") as file:
            file.seek(position)
            return file.read()
    except OSError:
        return b""


def _file(host: Host, place: Where) -> Path:
    """The log the launch file names; without a launch file, where it would be."""
    try:
        return Path(json.loads(host.read(place.launch) or "")["log"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return Path(place.launch).with_name("server.log")


def _journal(host: Host, place: Where, *words: str) -> list[str]:
    said = host.ask(
        *place.journalctl, "-u", place.unit, "-u", place.draft_unit, "-o", "cat", "--no-pager", "-q", *words
    )
    return (said or "").splitlines()
