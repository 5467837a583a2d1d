"""What llama-server allocates for one model, row by row, as its own log lines show after the start."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.facts.gguf_types import BY_NAME
from orin_deploy.facts.model import Model, repacked_bytes
from orin_deploy.intent.compute import Batch, compute_bytes
from orin_deploy.intent.serving import Serving, kind_text, mib, padded, total_cells

ENGINE_ROWS = ("weights", "KV cache", "compute", "output")  # rows that the server's own log lines show after start


@dataclass(frozen=True)
class Row:
    """One share of the pool: what it is for, bytes, and where the number comes from."""

    name: str
    bytes: int
    source: str


def engine_rows(model: Model, serving: Serving) -> tuple[Row, ...]:
    batch = batch_of(model, serving)
    compute = compute_bytes(model, batch, gpu=serving.gpu)
    outputs = max(serving.parallel, _outputs(serving))
    weights, said = _weights(model, serving)
    full, sliding = cache_bytes(model, serving, batch)
    kind = kind_text((serving.cache_type_k, serving.cache_type_v))
    attention = "on" if serving.flash_attn else "off"
    return (
        Row("weights", weights, said),
        Row("KV cache", full + sliding, f"formula: {batch.cells * serving.slots} cells, {kind}, layer by layer"),
        Row("compute", compute.device + compute.host, f"formula: {batch.tokens} tokens, flash attention {attention}"),
        Row("output", outputs * model.n_vocab * 4, f"formula: {outputs} x {model.n_vocab} logits"),
    )


def _weights(model: Model, serving: Serving) -> tuple[int, str]:
    origin = "the header's tensors" if model.known_from == "header" else "the catalogue's file size"
    if serving.gpu:
        again = model.token_embd_bytes if model.tied else 0
        return model.tensor_bytes + again, f"{origin}{', the token embedding twice (CPU and GPU)' if again else ''}"
    if serving.mapped:
        again = repacked_bytes(model, serving.cpu_features, ("looked up", "mapped"))
        return model.tensor_bytes + again, f"{origin}, mapped{f', and {mib(again)} repacked' if again else ''}"
    again = repacked_bytes(model, serving.cpu_features, ("looked up",))
    return model.tensor_bytes + again, f"{origin}{', the token embedding twice (repacked)' if again else ''}"


def cache_bytes(model: Model, serving: Serving, batch: Batch) -> tuple[int, int]:
    """Bytes of the whole-context and of the sliding layers (llama-kv-cache.cpp).

    Without flash attention every layer's values are padded to the widest.
    """
    type_k, type_v = BY_NAME[serving.cache_type_k.upper()], BY_NAME[serving.cache_type_v.upper()]
    widest = max((layer.n_head_kv * layer.head_v for layer in model.layers), default=0)
    sizes = {False: 0, True: 0}
    for layer in model.layers:
        if layer.n_head_kv:
            values = layer.n_head_kv * layer.head_v if serving.flash_attn else widest
            row = type_k.row_bytes(layer.n_head_kv * layer.head_k) + type_v.row_bytes(values)
            sizes[layer.sliding] += row * (batch.cells_swa if layer.sliding else batch.cells) * serving.slots
    return sizes[False], sizes[True]


def batch_of(model: Model, serving: Serving) -> Batch:
    """The shape of the largest prompt graph: llama-context.cpp's constructor and sched_reserve."""
    n_batch = min(serving.ctx_size or model.n_ctx_train, serving.batch_size)
    n_ubatch = min(n_batch, serving.ubatch_size)
    cells = total_cells(model, serving) // serving.slots
    tokens = min(cells * serving.slots, n_ubatch)
    window = model.sliding_window * (serving.parallel if serving.kv_unified else 1) + n_ubatch
    return Batch(
        tokens=-(-tokens // serving.parallel) * serving.parallel,
        outputs=min(tokens, _outputs(serving)),
        cells=cells,
        cells_swa=cells if serving.swa_full else padded(min(cells, window)),
        flash_attn=serving.flash_attn,
        rotate_k=_rotation(
            serving.cache_type_k, {layer.head_k for layer in model.layers if layer.n_head_kv}, largest=True
        ),
        rotate_v=_rotation(serving.cache_type_v, {layer.head_v for layer in model.layers if layer.n_head_kv}),
    )


def _rotation(cache_type: str, heads: set[int], *, largest: bool = False) -> int:
    """Rows of the Hadamard matrix for a quantised cache (llama-kv-cache.cpp); 0 where heads differ or are no multiple.

    Keys take the largest power of two that divides the head, values always 64.
    """
    head = next(iter(heads), 0)
    if BY_NAME[cache_type.upper()].block == 1 or len(heads) != 1 or head == 0 or head % 64:
        return 0
    return head & -head if largest else 64


def _outputs(serving: Serving) -> int:
    """Rows of logits at once (server-context.cpp): each slot's token, and all that were speculated for it."""
    return min(serving.batch_size, serving.parallel * (1 + serving.n_draft))
