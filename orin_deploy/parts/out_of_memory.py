"""How an engine's log says that memory could not be had: one table for all who read it. Pure."""

from __future__ import annotations

import re

from orin_deploy.facts.device import MIB

GPU = r"cudaMalloc failed: out of memory|CUDA error: out of memory|NvMapMemAlloc\w*: .*error 12"
"""What CUDA and NvMap say: the GPU's memory, which has to lie in large blocks."""

# Two that look alike are harmless and said for debugging: a graph is laid out anew, an upload goes unpinned.
BUFFERS = (
    r"unable to allocate \S+ buffer|failed to allocate buffer (?:for|of size)|failed to reserve initial output buffer"
    r"|failed to allocate (?:compute|graph(?!, reserving)|(?!host buffer for async)\S+ buffer)"
)
"""What llama.cpp and ggml say of a buffer, the GPU's or the CPU's, mostly after the words of whoever refused it."""

PROGRAM = r"std::bad_alloc"
"""What the program's own allocations end with."""

ANY = f"{GPU}|{BUFFERS}|{PROGRAM}"

_MIB = r"\(requested ([0-9]{1,9})(?:\.[0-9]+)? MiB\)|allocating ([0-9]{1,9})(?:\.[0-9]+)? MiB"
_BYTES = r"buffer of size ([0-9]{1,15})(?![0-9.])"


def requested_bytes(text: str) -> int | None:
    """The last allocation whose size a log tells, CUDA's in whole MiB; None where it tells none."""
    sizes = re.findall(f"{_MIB}|{_BYTES}", text)
    if not sizes:
        return None
    requested, allocating, size = sizes[-1]
    return int(size) if size else int(requested or allocating) * MIB
