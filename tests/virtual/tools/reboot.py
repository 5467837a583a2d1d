"""reboot: the board goes down and comes up again, at once."""

from __future__ import annotations

import sys

from tests.virtual.kernel import Kernel
from tests.virtual.tools import is_root


def main(kernel: Kernel, words: list[str]) -> int:
    if not is_root():
        print("Failed to set wall message, ignoring: Interactive authentication required.", file=sys.stderr)
        return 1
    kernel.reboot()
    return 0
