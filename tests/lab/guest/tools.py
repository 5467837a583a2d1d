"""The vendor's tools inside a board: those of the virtual boards, acting on the real kernel's CPU files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module

from tests.lab.guest.kernel import LabKernel
from tests.virtual.kernel import Kernel
from tests.virtual.tools import USER


def run(tool: str) -> None:
    """Run a tool with the process's own words, as the user who it really is."""
    os.environ[USER] = "root" if os.geteuid() == 0 else "user"
    main: Callable[[Kernel, list[str]], int] = import_module(f"tests.virtual.tools.{tool}").main
    try:
        code = main(LabKernel(), sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
