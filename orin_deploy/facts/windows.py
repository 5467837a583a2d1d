"""Sliding windows: which layers keep only the last tokens, and how many (src/models/*.cpp, set_swa_pattern).

Anything that is not named here keeps the whole context, whatever its header says: so does llama.cpp.
"""

from __future__ import annotations

from orin_deploy.facts.gguf import Header

# Layers alternate: of `period` layers the last sees everything (the first with dense_first). The header may say
# another period, or list the layers.
_PERIODS: dict[str, tuple[int, bool]] = {
    "afmoe": (4, False),
    "cohere2": (4, False),
    "cohere2moe": (4, True),
    "exaone-moe": (4, False),
    "exaone4": (4, False),
    "gemma2": (2, False),
    "gemma3": (6, False),
    "gemma3n": (5, False),
    "gpt-oss": (2, False),
    "laguna": (4, True),
    "llama4": (4, False),
    "mellum": (4, False),
    "muse-glimmer": (4, False),
    "olmo2": (4, False),
    "plamo3": (8, False),
    "smallthinker": (4, True),
}
_LISTED = frozenset(
    ("dflash", "dots3note", "gemma4", "gemma4-assistant", "granite_swa", "maple", "mimo2", "spark2_5", "step35")
)
_ALL = frozenset({"deepseek4", "lfm2"})  # every layer with attention
_DEFAULTS = {"exaone-moe": 128, "exaone4": 4096, "gemma2": 4096}
_FIXED = {"llama4": 8192, "smallthinker": 4096}


def size(header: Header, architecture: str, n_layer: int) -> int:
    """Tokens of the window, 0 for a model without; `n_layer` counts no blocks for multi-token prediction."""
    if architecture not in _PERIODS and architecture not in _LISTED and architecture not in _ALL:
        return 0
    if architecture == "exaone4" and n_layer != 64:
        return 0
    told = header.number(f"{architecture}.attention.sliding_window", _DEFAULTS.get(architecture, 0))
    if architecture == "llama4" and f"{architecture}.attention.sliding_window" not in header.metadata:
        told = _FIXED["llama4"]
    return _FIXED.get(architecture, told) if told > 0 else 0


def which(header: Header, architecture: str, is_recurrent: list[bool], n_layer: int) -> list[bool]:
    """For each block whether it slides; the first `n_layer` of them are the model's layers."""
    blocks = len(is_recurrent)
    told = header.metadata.get(f"{architecture}.attention.sliding_window_pattern")
    dsv4_draft = architecture == "dflash" and header.number("dflash.hyper_connection.count", 0) > 0
    if architecture in _ALL or dsv4_draft:
        return [not past for past in is_recurrent]
    if isinstance(told, tuple):
        return [i < len(told) and bool(told[i]) for i in range(blocks)]
    if architecture in _LISTED:
        return [False] * blocks
    period, dense_first = _PERIODS[architecture]
    if isinstance(told, int) and not isinstance(told, bool):
        period = told
    if period <= 0:
        return [i < n_layer for i in range(blocks)]
    dense = 0 if dense_first else period - 1
    return [i < n_layer and i % period != dense for i in range(blocks)]
