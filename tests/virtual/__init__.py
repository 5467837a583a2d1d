"""A virtual Jetson: a root folder with a board's files, and stub tools that keep their state in it.

The ordinary `Host` with this root and these tools on its PATH cannot tell it from a board, as far as public documents
and captures say. `build` makes one; `python -m tests.virtual BOARD` opens a shell on one.
"""

from tests.virtual.jetson import VirtualJetson, build

__all__ = ["VirtualJetson", "build"]
