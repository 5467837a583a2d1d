"""Sparse attention: the keys an indexer keeps to choose tokens by, and DeepSeek 4's compressed caches.

src/llama-kv-cache-{dsa,msa,dsv4}.cpp, src/llama-memory-hybrid-idx.cpp and create_memory in src/llama-model.cpp.
"""

from __future__ import annotations

from orin_deploy.facts.gguf import Header

_LONG = 1048576  # glm-dsa models trained for this much share indexers by a pattern of their own

# Their indexer's cache is a model's own cache with one head, and keeps values unless that model's keeps none.
WITH_VALUES = frozenset(("deepseek32", "dots3note", "glm-dsa", "hy_v4", "minimax-m3"))
_ARCHITECTURES = frozenset(
    ("deepseek32", "deepseek4", "dots3note", "glm-dsa", "glm5-next", "hy_v4", "minimax-m3", "qwen4exp")
)


def sizes(header: Header, architecture: str, is_recurrent: list[bool], n_layer: int) -> list[int]:
    """For each block the elements its indexer keeps a token; 0 where it has none or uses an earlier layer's.

    `n_layer` counts no blocks for multi-token prediction.
    """
    blocks = range(len(is_recurrent))
    size = header.number(f"{architecture}.attention.indexer.key_length", 0)
    if architecture not in _ARCHITECTURES or size <= 0:
        return [0 for _ in blocks]
    if architecture == "hy_v4" and header.number("hy_v4.attention.indexer.top_k", 0) == 0:
        return [0 for _ in blocks]
    if architecture == "minimax-m3":
        lead = header.number("minimax-m3.leading_dense_block_count", 0)
        return [size if i >= lead else 0 for i in blocks]
    pooled = 3 if architecture == "glm5-next" else 1  # key, gate and pooled value
    full = _owners(header, architecture, n_layer)
    owns = [i < n_layer and not is_recurrent[i] and full[i] for i in blocks]
    # Blocks for multi-token prediction have an indexer in glm5-next alone.
    return [pooled * size if owns[i] or (i >= n_layer and architecture == "glm5-next") else 0 for i in blocks]


def ratios(header: Header, architecture: str, blocks: int) -> list[int]:
    """For each block how many tokens its compressed cache puts into a cell; 0 for none."""
    told = header.metadata.get(f"{architecture}.attention.compress_ratios")
    if architecture != "deepseek4" or not isinstance(told, tuple):
        return [0] * blocks
    return [told[i] if i < len(told) and told[i] in (4, 128) else 0 for i in range(blocks)]


def compressor_state(ratio: int, head_k: int, index: int) -> tuple[int, ...]:
    """Elements of the tensors that DeepSeek 4's compressors keep a sequence (llama_dsv4_comp_state)."""
    if ratio == 4:
        keys, indexed = 2 * head_k * 2 * ratio, 2 * index * 2 * ratio
        return keys, keys, indexed, indexed
    return (head_k * ratio, head_k * ratio) if ratio else ()


def _owners(header: Header, architecture: str, n_layer: int) -> list[bool]:
    """For each layer whether it has an indexer of its own."""
    told = header.metadata.get(f"{architecture}.attention.indexer.types")
    if architecture in ("deepseek32", "deepseek4", "qwen4exp"):
        return [True] * n_layer
    if isinstance(told, tuple):
        return [i < len(told) and bool(told[i]) for i in range(n_layer)]
    if isinstance(told, int):
        return [bool(told)] * n_layer
    if architecture == "glm-dsa" and header.number("glm-dsa.context_length", 0) >= _LONG:
        return [i < 2 or i % 4 == 2 for i in range(n_layer)]
    return [architecture in ("glm-dsa", "glm5-next")] * n_layer
