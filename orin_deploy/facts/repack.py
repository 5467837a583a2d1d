"""Which weights llama.cpp's CPU backend copies into a layout of its own (ggml/src/ggml-cpu/repack.cpp, ggml 0.25)."""

from __future__ import annotations

from collections.abc import Set

from orin_deploy.facts.gguf_types import Tensor

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


def can_repack(tensor: Tensor, features: Set[str] | None) -> bool:
    """Whether a CPU with these features repacks a matrix; None asks whether any CPU does."""
    return any(
        tensor.dims[1] % rows == 0 and (features is None or needed <= features)
        for needed, rows in _LAYOUTS.get(tensor.type, ())
    )
