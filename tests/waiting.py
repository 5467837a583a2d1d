"""Waiting for what other processes do: long enough for a busy machine, and no longer than it takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 300.0


def until(check: Callable[[], Any], seconds: float = PATIENCE_S) -> Any:
    """The first true value of `check`."""
    deadline = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
    return value
