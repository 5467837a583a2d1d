"""Attention layer by layer, as far as the KV cache depends on it (llama.cpp src/llama-hparams.cpp, src/models/)."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.facts.gguf import Header
from orin_deploy.facts.not_a_model import NotAModel

MAX_LAYERS = 512  # LLAMA_MAX_LAYERS

# Architectures whose layers alternate between a sliding window and the whole context: of `period` layers the last
# sees everything (the first with dense_first). Others say it layer by layer in the header. exaone4 is left out: only
# its 64-layer model slides, and counting whole layers errs on the safe side.
_PERIODS: dict[str, tuple[int, bool]] = {
    "afmoe": (4, False),
    "cohere2": (4, False),
    "cohere2moe": (4, True),
    "exaone-moe": (4, False),
    "gemma2": (2, False),
    "gemma3": (6, False),
    "gemma3n": (5, False),
    "gpt-oss": (2, False),
    "laguna": (4, True),
    "mellum": (4, False),
    "muse-glimmer": (4, False),
    "olmo2": (4, False),
    "plamo3": (8, False),
    "smallthinker": (4, True),
}


@dataclass(frozen=True)
class Layer:
    """Attention of one layer: key and value heads and their sizes (elements); no heads means no KV cache here."""

    n_head_kv: int
    head_k: int
    head_v: int
    sliding: bool = False  # keeps only the model's sliding window


def read_layers(header: Header, architecture: str, n_layer: int) -> tuple[Layer, ...]:
    """One entry a block, in order; raises NotAModel for more blocks than llama.cpp can hold."""
    if n_layer > MAX_LAYERS:
        raise NotAModel("gguf.corrupt", f"{header.label} claims {n_layer} layers", "fetch the model again")
    attention = f"{architecture}.attention"
    heads = _each(header, f"{attention}.head_count", n_layer, 0)
    heads_kv = _each(header, f"{attention}.head_count_kv", n_layer, heads)
    usual = header.number(f"{architecture}.embedding_length", 0) // heads[0] if heads[0] else 0
    head_k = _size(header, f"{attention}.key_length", usual)
    head_v = _size(header, f"{attention}.value_length", usual)
    if f"{attention}.key_length_mla" in header.metadata:  # values are recomputed from the compressed keys
        head_v = 0
    sliding = _sliding(header, architecture, n_layer)
    with_cache = _layers_with_cache(header, architecture, n_layer)
    return tuple(
        Layer(
            heads_kv[index] if index < with_cache else 0,
            _size(header, f"{attention}.key_length_swa", head_k) if sliding[index] else head_k,
            _size(header, f"{attention}.value_length_swa", head_v) if sliding[index] else head_v,
            sliding[index],
        )
        for index in range(n_layer)
    )


def _size(header: Header, key: str, default: int) -> int:
    return max(0, header.number(key, default))


def _each(header: Header, key: str, n_layer: int, default: int | list[int]) -> list[int]:
    """A number per layer, given once for all or as an array."""
    value = header.metadata.get(key)
    if isinstance(value, tuple) and len(value) >= n_layer and all(isinstance(item, int) for item in value):
        return [max(0, item) for item in value[:n_layer]]
    if isinstance(default, int):
        return [max(0, header.number(key, default))] * n_layer
    return default if value is None else [max(0, header.number(key, 0))] * n_layer


def _sliding(header: Header, architecture: str, n_layer: int) -> list[bool]:
    window = header.number(f"{architecture}.attention.sliding_window", 0)
    pattern = header.metadata.get(f"{architecture}.attention.sliding_window_pattern")
    if window > 0 and isinstance(pattern, tuple) and len(pattern) >= n_layer:
        return [bool(item) for item in pattern[:n_layer]]
    if window <= 0 or architecture not in _PERIODS:
        return [False] * n_layer
    period, dense_first = _PERIODS[architecture]
    if isinstance(pattern, int) and not isinstance(pattern, bool):
        period = pattern
    if period <= 0:
        return [True] * n_layer
    dense = 0 if dense_first else period - 1
    return [index % period != dense for index in range(n_layer)]


def _layers_with_cache(header: Header, architecture: str, n_layer: int) -> int:
    """The later layers of gemma3n and gemma4 use an earlier layer's keys and values."""
    if architecture == "gemma3n":
        return min(20, n_layer)
    return n_layer - min(n_layer, max(0, header.number(f"{architecture}.attention.shared_kv_layers", 0)))
