"""What llama-server allocates for its model, row by row, as its own log lines show after the start."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.facts import tensors
from orin_deploy.facts.architectures import KNOWN
from orin_deploy.facts.draft import MTP
from orin_deploy.facts.gguf_types import BY_NAME
from orin_deploy.facts.model import Model, Projected
from orin_deploy.intent.caches import (
    cache_bytes,
    cells_of,
    copies_for_speculation,
    state_bytes,
    window_cells,
)
from orin_deploy.intent.compute import Batch, ComputeBytes, compute_bytes
from orin_deploy.intent.rotation import rotation
from orin_deploy.intent.serving import Serving, batch_tokens, kind_text, mib

ENGINE_ROWS = ("weights", "KV cache", "recurrent state", "compute", "output")
"""Rows that the server's own log lines show after its start; a draft's are called the same with "draft " before."""

_CELL = 32  # elements of every type's block, to compare types by

FROM_HEADER, FROM_FILE = "the header's tensors", "the catalogue's file size"


@dataclass(frozen=True)
class Row:
    """One share of the pool: what it is for, bytes, and where the number comes from.

    `apart_bytes` of them lie in the draft's own process.
    """

    name: str
    bytes: int
    source: str
    apart_bytes: int = 0


def engine_rows(model: Model, serving: Serving) -> tuple[Row, ...]:
    """The target's own rows; the state's only where the model keeps one."""
    if model.projected:
        return _projected(model, model.projected, serving)
    batch = batch_of(model, serving)
    compute = compute_bytes(model, batch, gpu=serving.gpu)
    weights, said = weights_of(model, serving)
    cache = sum(cache_bytes(model, serving))
    copies = copies_for_speculation(model, serving)
    state = state_bytes(model, serving.parallel * (1 + copies))
    attention = "on" if serving.flash_attn else "off"
    kept = f"formula: {serving.parallel} sequences" + (f", each {1 + copies} times (speculation)" if copies else "")
    rows = (
        Row("weights", weights, said),
        Row("KV cache", cache, _cache_source(model, serving)),
        Row("recurrent state", state, kept),
        Row(
            "compute",
            compute.device + compute.host,
            compute_source(compute, f"{batch.tokens} tokens, flash attention {attention}"),
        ),
        _output(model, serving),
    )
    return tuple(row for row in rows if row.bytes or row.name != "recurrent state")


def compute_source(compute: ComputeBytes, what: str) -> str:
    """Where a compute buffer's size comes from: the engine's own graph, or that of its nearest relative."""
    return f"formula: {what}" if compute.exact else f"approximate, by a related architecture's graph: {what}"


def _projected(model: Model, said: Projected, serving: Serving) -> tuple[Row, ...]:
    """Rows of an architecture without rules here, from what its engine projects for one slot with an f16 cache."""
    source, (cells, streams) = "the engine's own projection (llama-fit-params)", cells_of(model, serving)
    half = 2 * BY_NAME["F16"].row_bytes(_CELL)
    share = sum(BY_NAME[kind.upper()].row_bytes(_CELL) for kind in (serving.cache_type_k, serving.cache_type_v)) / half
    rows = (
        Row("weights", said.weights, source),
        Row("KV cache", round(said.cell * cells * streams * share), source),
        Row("recurrent state", said.sequence * serving.parallel, source),
        Row("compute", said.compute, source),
        _output(model, serving),
    )
    return tuple(row for row in rows if row.bytes or row.name != "recurrent state")


def _cache_source(model: Model, serving: Serving) -> str:
    if model.architecture not in KNOWN:
        return f"assumed: plain attention; {model.architecture} is new, its engine is asked once it is built"
    return cache_source(serving, cells_of(model, serving))


def cache_source(serving: Serving, cells: tuple[int, int]) -> str:
    kind = kind_text((serving.cache_type_k, serving.cache_type_v))
    return f"formula: {cells[0] * cells[1]} cells, {kind}, layer by layer"


def weights_of(model: Model, serving: Serving, *, nextn: bool | None = None) -> tuple[int, str]:
    """Bytes of the weights and where the number comes from; `nextn`: with the blocks of multi-token prediction."""
    if nextn is None:
        nextn = serving.drafting is not None and serving.drafting.kind == MTP
    if model.tensors is None:
        again = model.token_embd_bytes if model.tied and serving.gpu else 0
        said = f"{FROM_FILE}{', mapped' if serving.mapped else ''}"
        return model.tensor_bytes + again, said + (", the token embedding twice (CPU and GPU)" if again else "")
    if serving.gpu:
        device, host = tensors.gpu_bytes(model.tensors, mapped=serving.mapped, nextn=nextn)
        again = model.tensors.tied
        return device + host, FROM_HEADER + (", the token embedding twice (CPU and GPU)" if again else "")
    plain, repacked = tensors.cpu_bytes(model.tensors, serving.cpu_features, mapped=serving.mapped, nextn=nextn)
    said = f"{FROM_HEADER}{', mapped' if serving.mapped else ''}"
    return plain + repacked, said + (f", {mib(repacked)} of them in the CPU's own layout" if repacked else "")


def batch_of(model: Model, serving: Serving, *, outputs: int | None = None) -> Batch:
    """The shape of the largest prompt graph: llama-context.cpp's constructor and sched_reserve.

    `outputs` are the rows of logits at once where they are not the target's.
    """
    n_ubatch = min(batch_tokens(model, serving), serving.ubatch_size)
    cells, streams = cells_of(model, serving)
    tokens = min(cells * streams, n_ubatch)
    drafting = serving.drafting
    return Batch(
        tokens=-(-tokens // serving.parallel) * serving.parallel,
        outputs=min(tokens, outputs or _outputs(serving)),
        cells=cells,
        cells_swa=window_cells(model, serving),
        flash_attn=serving.flash_attn,
        rotate_k=rotation(
            serving.cache_type_k, {layer.head_k for layer in model.layers if layer.n_head_kv}, largest=True
        ),
        rotate_v=rotation(serving.cache_type_v, {layer.head_v for layer in model.layers if layer.n_head_kv}),
        sequences=serving.parallel,
        streams=streams,
        snapshots=copies_for_speculation(model, serving),
        taps=drafting.model.target_layers if drafting and drafting.model else (),
        hidden=drafting is not None and drafting.kind == MTP,
        type_k=serving.cache_type_k,
        type_v=serving.cache_type_v,
    )


def _outputs(serving: Serving) -> int:
    """Rows of logits at once (server-context.cpp): each slot's token, and all that were speculated for it."""
    return min(serving.batch_size, serving.parallel * (1 + serving.n_draft))


def _output(model: Model, serving: Serving) -> Row:
    """llama_context::output_reserve: logits, and for a draft that reads them the inputs of some layers."""
    outputs = max(serving.parallel, _outputs(serving))
    said = f"formula: {outputs} x {model.n_vocab} logits"
    drafting = serving.drafting
    taps, width = len(drafting.model.target_layers) if drafting and drafting.model else 0, model.n_embd
    if drafting and drafting.kind == MTP:
        taps, width = 1, model.n_embd_out or model.n_embd  # the last layer's result, of every token of a batch
    n_batch = batch_tokens(model, serving)
    if taps:
        said += f", and {taps} x {n_batch} x {width} for the draft to read"
    if serving.n_draft:
        said += "; the server's log shows the start, with one row a slot"
    return Row("output", 4 * (outputs * model.n_vocab + taps * n_batch * width), said)
