"""Which weights llama.cpp's CPU backend copies into a layout of its own (ggml/src/ggml-cpu/repack.cpp, ggml 0.25)."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

KEPT = ("looked up", "mapped", "dropped")


@dataclass(frozen=True)
class Matrices:
    """Weights of one tensor type; `rows` is 8, 4 or 1: the largest of these that divides their number of rows.

    `kept` says what becomes of the copy in the file once they are repacked: "looked up" (the token embedding that is
    the output matrix too needs both layouts), "mapped" (it lies between others that stay), "dropped" (it lies at the
    file's edge and leaves the mapping).
    """

    type: str
    rows: int
    kept: str
    bytes: int


_INT8, _DOTPROD = frozenset({"NEON", "MATMUL_INT8"}), frozenset({"NEON", "DOTPROD"})
_AVX2, _AVX512 = frozenset({"AVX2"}), frozenset({"AVX512"})

# Per type: sets of CPU features (ggml's names), each enough by itself, with the number its rows must be a multiple of.
_LAYOUTS: dict[str, tuple[tuple[frozenset[str], int], ...]] = {
    "Q4_0": ((_AVX2, 8), (_INT8, 4), (_DOTPROD, 4)),
    "Q4_K": ((_AVX2, 8), (_INT8, 8), (_DOTPROD, 8)),
    "Q2_K": ((_AVX512, 8),),
    "Q5_K": ((_INT8, 8), (_DOTPROD, 8)),
    "Q6_K": ((_INT8, 8), (_DOTPROD, 8)),
    "IQ4_NL": ((_AVX2, 8), (_DOTPROD, 4)),
    "MXFP4": ((_AVX2, 8), (_DOTPROD, 4)),
    "Q8_0": ((_INT8, 4), (_DOTPROD, 4)),
    "Q1_0": ((_INT8, 4), (_DOTPROD, 4)),
}


def can_repack(matrices: Matrices, features: Set[str] | None) -> bool:
    """Whether a CPU with these features repacks them; None asks whether any CPU does."""
    return any(
        matrices.rows % rows == 0 and (features is None or needed <= features)
        for needed, rows in _LAYOUTS.get(matrices.type, ())
    )
