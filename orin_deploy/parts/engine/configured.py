"""Run as a program after cmake: fails when cmake was given a variable that the project does not use.

cmake itself only warns, and the build then lacks what was asked for. Words that switch off what a revision does not
have are harmless.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_UNUSED = re.compile(
    r"Manually-specified variables were not used by the project:[ \t]*\n\s*?\n((?:[ \t]+\S+[ \t]*\n?)+)"
)


def unused_variables(text: str) -> tuple[str, ...]:
    """The variables that cmake was given and that the project did not use, from what cmake printed."""
    return tuple(name for block in _UNUSED.findall(text) for name in block.split())


def main(report: str, *harmless: str) -> None:
    unused = [name for name in unused_variables(Path(report).read_text(errors="replace")) if name not in harmless]
    if unused:
        names = "".join(f"    {name}\n" for name in unused)
        sys.exit(f"Manually-specified variables were not used by the project:\n\n{names}")


if __name__ == "__main__":
    main(*sys.argv[1:])
