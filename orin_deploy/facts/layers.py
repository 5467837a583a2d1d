"""What each layer of a model keeps of the past: keys and values, indexer keys, recurrent state.

The rules are those of llama_model_base::load_hparams (src/llama-model.cpp), each architecture's load_arch_hparams
(src/models/*.cpp) and llama_model::create_memory, llama.cpp 0c1e570.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from orin_deploy.facts import indexers, recurrent, windows
from orin_deploy.facts.gguf import Header
from orin_deploy.facts.not_a_model import NotAModel

MAX_LAYERS = 512  # LLAMA_MAX_LAYERS

# Their keys are compressed (multi-head latent attention) and values recomputed from them, where the header names the
# sizes before compression.
_MLA = frozenset(
    (
        "bailingmoe3",
        "deepseek2",
        "deepseek32",
        "dots3note",
        "glm-dsa",
        "glm5-next",
        "hy_v4",
        "kimi-k3",
        "kimi-linear",
        "mistral4",
    )
)
_WITHOUT_CACHE = frozenset({"dream", "llada", "llada-moe", "rnd1"})  # diffusion: nothing is kept between steps

# create_memory gives these no filter that leaves the blocks for multi-token prediction out of the target's cache.
NEXTN_IN_CACHE = frozenset(
    (
        "bailingmoe3",
        "falcon-h1",
        "granitehybrid",
        "graniteswitch",
        "hy_v4",
        "jamba",
        "kimi-k3",
        "kimi-linear",
        "lfm2",
        "lfm2moe",
        "minimax-m3",
        "nemotron_h",
        "nemotron_h_moe",
        "plamo2",
    )
)


@dataclass(frozen=True)
class Layer:
    """One block, in elements; no heads for keys and values means no KV cache here.

    `head_v` is 0 where only keys are kept. `index_k` and `index_v` are what a sparse-attention indexer keeps a token,
    `ratio` how many tokens a compressed cache of its own puts into one cell (0: none). `state` lists the F32 tensors
    that are kept a sequence instead of or besides them.
    """

    n_head_kv: int
    head_k: int
    head_v: int
    sliding: bool = False  # keeps only the model's sliding window
    index_k: int = 0
    index_v: int = 0
    ratio: int = 0
    state: tuple[int, ...] = ()


class Blocks(NamedTuple):
    """A model's layers, the blocks behind them that only predict further tokens, and the window of those that slide."""

    layers: tuple[Layer, ...]
    nextn: tuple[Layer, ...]
    window: int


def read_layers(header: Header, architecture: str, n_layer: int) -> Blocks:
    """One entry a block, in order; raises NotAModel for more blocks than llama.cpp can hold."""
    if n_layer > MAX_LAYERS:
        raise NotAModel("gguf.corrupt", f"{header.label} claims {n_layer} layers", "fetch the model again")
    attention = f"{architecture}.attention"
    heads = each(header, f"{attention}.head_count", n_layer, 0)
    heads_kv = each(header, f"{attention}.head_count_kv", n_layer, heads)
    n_ff = each(header, f"{architecture}.feed_forward_length", n_layer, 0)
    head_k, head_v = _head_sizes(header, architecture, heads[0])
    trunk = n_layer - _nextn(header, architecture, n_layer)
    is_recurrent = recurrent.which(header, architecture, heads_kv, n_ff, trunk)
    window = windows.size(header, architecture, trunk)
    sliding = windows.which(header, architecture, is_recurrent, trunk) if window else [False] * n_layer
    indexed = indexers.sizes(header, architecture, is_recurrent, trunk)
    ratios = indexers.ratios(header, architecture, n_layer)
    has_cache = _cached(header, architecture, is_recurrent, n_ff)
    with_values = not keeps_only_keys(header, architecture)
    layers = []
    for i in range(n_layer):
        k = header.number(f"{attention}.key_length_swa", head_k) if sliding[i] else head_k
        v = header.number(f"{attention}.value_length_swa", head_v) if sliding[i] else head_v
        v = max(0, v) if with_values else 0
        index_v = v if indexed[i] and architecture in indexers.WITH_VALUES else 0
        state = recurrent.state(header, architecture, heads[0], head_k, i) if is_recurrent[i] else ()
        state += indexers.compressor_state(ratios[i], k, indexed[i]) if i < trunk else ()
        kept = heads_kv[i] if has_cache[i] else 0
        layers.append(Layer(kept, max(0, k), v, sliding[i], indexed[i], index_v, ratios[i], state))
    loops = header.number("nanbeige.num_loops", 1) if architecture == "nanbeige" else 1
    looped = layers[:trunk] * min(MAX_LAYERS + 1, max(1, loops))
    if architecture == "graniteswitch":  # a block with one head that tells which adapter a token chose
        looped.append(Layer(1, head_k, head_v))
    if len(looped) > MAX_LAYERS:
        raise NotAModel("gguf.corrupt", f"{header.label} claims {len(looped)} layers", "fetch the model again")
    return Blocks(tuple(looped), tuple(layers[trunk:]), window)


def keeps_only_keys(header: Header, architecture: str) -> bool:
    """Multi-head latent attention by llama_hparams::is_mla, and DeepSeek 4's caches."""
    compressed = header.number(f"{architecture}.attention.key_length_mla", 0) > 0
    return architecture == "deepseek4" or (architecture in _MLA and compressed)


def each(header: Header, key: str, n_layer: int, default: int | list[int]) -> list[int]:
    """A number per layer, given once for all or as an array."""
    value = header.metadata.get(key)
    if isinstance(value, tuple) and len(value) >= n_layer and all(isinstance(item, int) for item in value):
        return [max(0, item) for item in value[:n_layer]]
    if isinstance(default, int):
        return [max(0, header.number(key, default))] * n_layer
    return default if value is None else [max(0, header.number(key, 0))] * n_layer


def _head_sizes(header: Header, architecture: str, first_heads: int) -> tuple[int, int]:
    """A model whose first layer has no heads has no head size; plamo2 reads it all the same."""
    if not first_heads and architecture != "plamo2":
        return 0, 0
    usual = header.number(f"{architecture}.embedding_length", 0) // first_heads if first_heads else 0
    keys = header.number(f"{architecture}.attention.key_length", usual)
    return max(0, keys), max(0, header.number(f"{architecture}.attention.value_length", usual))


def _nextn(header: Header, architecture: str, n_layer: int) -> int:
    """How many blocks at the end only predict further tokens; a model of nothing else is a draft, and has layers."""
    count = header.number(f"{architecture}.nextn_predict_layers", 0)
    if architecture == "deepseek4":
        probe = f"blk.{n_layer - count}.nextn.eh_proj.weight"
        count = count if any(tensor.name == probe for tensor in header.tensors) else 0
    return count if 0 < count < n_layer else 0


def _cached(header: Header, architecture: str, is_recurrent: list[bool], n_ff: list[int]) -> list[bool]:
    """Which blocks have keys and values of their own."""
    n_layer = len(is_recurrent)
    if architecture in _WITHOUT_CACHE or architecture in recurrent.PURE or architecture == "gemma4-assistant":
        return [False] * n_layer  # the assistant reads the target's
    if architecture == "gemma3n":
        return [i < 20 for i in range(n_layer)]
    if architecture == "gemma4":
        shared = header.number("gemma4.attention.shared_kv_layers", 0)
        return [i < n_layer - shared for i in range(n_layer)]
    if architecture in ("nemotron_h", "nemotron_h_moe"):
        return [not is_recurrent[i] and n_ff[i] == 0 for i in range(n_layer)]
    return [not past or architecture == "falcon-h1" for past in is_recurrent]
