"""Keys, values and recurrent state in bytes: llama-kv-cache*.cpp, llama-memory-*.cpp and create_memory of llama.cpp."""

from __future__ import annotations

from collections import Counter

from orin_deploy.facts.draft import DFLASH, DSPARK, EAGLE3, MTP
from orin_deploy.facts.gguf_types import BY_NAME
from orin_deploy.facts.layers import NEXTN_IN_CACHE, Layer
from orin_deploy.facts.model import Model
from orin_deploy.facts.recurrent import ROLLBACK
from orin_deploy.facts.tensors import CPU_ALIGNMENT
from orin_deploy.intent.serving import Serving, batch_tokens, cells_per_slot, padded

_F32 = 4
_SNAPSHOTS = (MTP, EAGLE3, DFLASH, DSPARK)  # common.h, need_n_rs_seq


def cells_of(model: Model, serving: Serving) -> tuple[int, int]:
    """Cells of each stream of the cache and how many streams there are: one a slot, or one for all when unified.

    DeepSeek 4's streams stay apart even then, each of them with the whole context.
    """
    cells = cells_per_slot(
        model.n_ctx_train, ctx_size=serving.ctx_size, parallel=serving.parallel, kv_unified=serving.kv_unified
    )
    return cells, serving.parallel if model.architecture == "deepseek4" else serving.slots


def window_cells(model: Model, serving: Serving) -> int:
    """Cells of a stream of the sliding layers' cache (llama-kv-cache-iswa.cpp)."""
    cells, streams = cells_of(model, serving)
    if serving.swa_full:
        return cells
    n_ubatch = min(batch_tokens(model, serving), serving.ubatch_size)
    return padded(min(cells, model.sliding_window * (serving.parallel if streams == 1 else 1) + n_ubatch))


def cache_bytes(model: Model, serving: Serving) -> tuple[int, int]:
    """Bytes of the layers that keep the whole context and of those that slide.

    Indexers and compressed caches count with the first. Without flash attention every layer's values are padded to
    the widest.
    """
    layers = model.layers + (model.nextn if model.architecture in NEXTN_IN_CACHE else ())
    return _bytes(model, layers, serving)


def nextn_bytes(model: Model, serving: Serving) -> int:
    """Bytes of the cache that multi-token prediction adds for the blocks that predict."""
    whole, sliding = _bytes(model, model.nextn or model.layers, serving)
    return whole + sliding


def copies_for_speculation(model: Model, serving: Serving) -> int:
    """How many earlier states a sequence keeps, to go back to when drafted tokens are refused."""
    drafting = serving.drafting
    return drafting.n_max if drafting and drafting.kind in _SNAPSHOTS and model.architecture in ROLLBACK else 0


def state_bytes(model: Model, sequences: int) -> int:
    """Bytes of recurrent state; states kept for speculation count as sequences (llama-memory-recurrent.cpp)."""
    kept = Counter(size for layer in model.layers for size in layer.state)
    return sum(count * _aligned(_F32 * size * sequences) for size, count in kept.items())


def _bytes(model: Model, layers: tuple[Layer, ...], serving: Serving) -> tuple[int, int]:
    type_k, type_v = BY_NAME[serving.cache_type_k.upper()], BY_NAME[serving.cache_type_v.upper()]
    every = model.layers + model.nextn
    widest = max((layer.n_head_kv * layer.head_v for layer in every), default=0)
    widest_index = max((layer.index_v for layer in every), default=0)
    cells, streams = cells_of(model, serving)
    window = window_cells(model, serving)
    sizes = {False: 0, True: 0}

    def add(keys: int, values: int, padded_to: int, rows: int, sliding: bool = False) -> None:
        kept = padded_to if values and not serving.flash_attn else values
        sizes[sliding] += rows * streams * (type_k.row_bytes(keys) + type_v.row_bytes(kept))

    for layer, count in Counter(layers).items():
        keys = layer.n_head_kv * layer.head_k
        add(keys, layer.n_head_kv * layer.head_v, widest, count * (window if layer.sliding else cells), layer.sliding)
        if layer.ratio:  # a cell for so many tokens, for keys and for the indexer's (llama-kv-cache-dsv4.cpp)
            add(keys, 0, 0, count * padded(-(-cells // layer.ratio)))
            add(layer.index_k, 0, 0, count * padded(-(-cells // layer.ratio)) if layer.ratio == 4 else 0)
        elif layer.index_k and model.architecture != "deepseek4":
            add(layer.index_k, layer.index_v, widest_index, count * cells)
    return sizes[False], sizes[True]


def _aligned(size: int) -> int:
    return -(-size // CPU_ALIGNMENT) * CPU_ALIGNMENT
