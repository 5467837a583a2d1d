"""The flags that a built binary knows, as its captured --help shows them. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orin_deploy.intent.option_table import split_negated


@dataclass(frozen=True)
class HelpFlag:
    """A flag as a binary's --help shows it: its names, those that turn it off, and what its value looks like."""

    names: tuple[str, ...]
    negative: tuple[str, ...] = ()
    value: str | None = None

    @property
    def choices(self) -> tuple[str, ...]:
        """The values the help lists, as in [on|off|auto]; empty where it lists none."""
        inner = (self.value or "").strip("[]{}<>")
        return tuple(re.split(r"[|,]", inner)) if re.fullmatch(r"[a-z0-9][\w-]*([|,][a-z0-9][\w-]*)+", inner) else ()


def flags_in(help_text: str) -> dict[str, HelpFlag]:
    """The flags that a captured --help lists, by every one of their names; those it calls removed are left out."""
    entries: list[tuple[HelpFlag, str]] = []
    for line in help_text.splitlines():
        if match := re.match(r"((?:--?[A-Za-z][\w.-]*,\s*)*--?[A-Za-z][\w.-]*)(?: (\S+(?: \S+)*))?(?=\s\s|\s*$)", line):
            on, off = split_negated(tuple(re.split(r",\s*", match[1])))
            entries.append((HelpFlag(on, off, match[2]), line[match.end() :]))
        elif entries:
            entries[-1] = (entries[-1][0], f"{entries[-1][1]} {line.strip()}")
    current = [flag for flag, text in entries if "argument has been removed" not in text]
    return {name: flag for flag in current for name in (*flag.names, *flag.negative)}
