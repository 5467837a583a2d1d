"""A virtual Jetson: a root folder with a board's files, and stub tools that keep their state in it.

The ordinary `Host` with this root and these tools on its PATH cannot tell it from a board, as far as public documents
and captures say. `build` makes one; `python -m tests.virtual BOARD` opens a shell on one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.virtual.jetson import VirtualJetson, build

__all__ = ["VirtualJetson", "build"]


def __getattr__(name: str) -> Any:
    """The board and its builder only when they are asked for: the stub tools start in half the time without."""
    if name not in __all__:
        raise AttributeError(name)
    from tests.virtual import jetson

    return getattr(jetson, name)
