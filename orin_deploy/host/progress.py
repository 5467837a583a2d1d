"""Reading a command's progress from its words."""

from __future__ import annotations

import re
from collections.abc import Callable

_NINJA = re.compile(r"^\[(\d+)/(\d+)\] (.*)")


def reader(kind: str | None, report: Callable[[float | None, str], None]) -> Callable[[str], None]:
    """A function that takes a command's lines and reports progress: by Ninja's counter, else by the last line."""
    return (lambda line: _ninja(line, report)) if kind == "ninja" else (lambda line: report(None, line.strip()))


def _ninja(line: str, report: Callable[[float | None, str], None]) -> None:
    if match := _NINJA.match(line):
        done, total, what = int(match[1]), int(match[2]), match[3]
        report(done / total if total else None, f"{done}/{total} {what.rsplit('/', 1)[-1]}")
