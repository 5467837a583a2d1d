"""The matrices that quantised keys and values are turned by before they are stored (llama-kv-cache.cpp)."""

from __future__ import annotations

from orin_deploy.facts.gguf_types import BY_NAME


def rotation(cache_type: str, heads: set[int], *, largest: bool = False) -> int:
    """Rows of the Hadamard matrix for a quantised cache; 0 where heads differ or are no multiple of 64.

    Keys take the largest power of two that divides the head, values always 64.
    """
    head = next(iter(heads), 0)
    if BY_NAME[cache_type.upper()].block == 1 or len(heads) != 1 or head == 0 or head % 64:
        return 0
    return head & -head if largest else 64
