"""The stub tools of a virtual Jetson. Each is `main(kernel, words)`, called by a script in its bin folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

USER = "VIRTUAL_JETSON_USER"


def is_root() -> bool:
    """Who calls is simulated: anybody but "root" in VIRTUAL_JETSON_USER may not change the board."""
    return os.environ.get(USER, "root") == "root"


def run(tool: str, root: str) -> None:
    """Run a tool on the board at `root` with the process's own words."""
    from tests.virtual.kernel import Kernel

    main: Callable[[Kernel, list[str]], int] = import_module(f"tests.virtual.tools.{tool}").main
    try:
        code = main(Kernel(Path(root)), sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
