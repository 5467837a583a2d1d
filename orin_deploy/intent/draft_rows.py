"""What a draft takes beside its target: a model and a context of its own, in the server or in a process beside it.

common/speculative.cpp: common_base_params_to_speculative, common_speculative_init_result and the kinds' constructors.
A draft that brings no token embedding or output matrix uses its target's; multi-token prediction runs on blocks of the
target's own file, whose weights are counted with the target.
"""

from __future__ import annotations

from dataclasses import replace

from orin_deploy.facts import tensors
from orin_deploy.facts.device import MIB
from orin_deploy.facts.draft import DFLASH, DSPARK, EAGLE3, MTP
from orin_deploy.facts.model import Model
from orin_deploy.intent.caches import cache_bytes, cells_of, nextn_bytes, state_bytes
from orin_deploy.intent.compute import compute_bytes
from orin_deploy.intent.engine_rows import (
    FROM_FILE,
    FROM_HEADER,
    Row,
    batch_of,
    cache_source,
    compute_source,
    weights_of,
)
from orin_deploy.intent.serving import Drafting, Serving, total_cells

_BLOCK_KINDS = (DFLASH, DSPARK)  # they draft a whole block in one pass
_HANDS_ON = (MTP, EAGLE3, *_BLOCK_KINDS)  # they read what their own last layer gave
# ggml-rpc-server 0c1e570 on x86 beyond the buffers that it holds for the draft, after a long prompt: 3.4 MiB of its
# own and 5.7 MiB of program, whatever the model's size.
_RPC_BYTES = 10 * MIB


def draft_rows(model: Model, serving: Serving) -> tuple[Row, ...]:
    """The draft's rows, none where tokens are drafted without a model."""
    drafting = serving.drafting
    if drafting is None or (drafting.model is None and drafting.kind != MTP):
        return ()
    draft, ahead = drafting.model or model, drafting.kind == MTP
    own = _as_draft(model, serving, drafting)
    blocks = serving.parallel * (drafting.n_max + 1 if drafting.kind in _BLOCK_KINDS else 1)
    runs = replace(draft, layers=draft.nextn or draft.layers, nextn=()) if ahead else draft
    batch = replace(batch_of(runs, own, outputs=blocks), predicts=ahead)
    compute = compute_bytes(draft, batch, gpu=own.gpu or drafting.apart, cuda=own.gpu)
    cache = nextn_bytes(draft, own) if ahead else sum(cache_bytes(draft, own))
    state = 0 if ahead else state_bytes(draft, serving.parallel)
    rows = (
        _weights(drafting, own),
        Row("draft KV cache", cache, cache_source(own, cells_of(draft, own))),
        Row("draft recurrent state", state, f"formula: {serving.parallel} sequences"),
        Row("draft compute", compute.device + compute.host, compute_source(compute, f"{batch.tokens} tokens")),
        _output(draft, drafting, blocks),
    )
    present = tuple(row for row in rows if row.bytes or row.name != "draft recurrent state")
    if not drafting.apart:
        return present
    in_server = {"draft weights": _embedding(draft, own), "draft compute": compute.host}
    said = "measured here: ggml-rpc-server beyond the draft's buffers"
    return (
        *(_apart(row, in_server.get(row.name, 0)) for row in present),
        Row("draft process", _RPC_BYTES, said, _RPC_BYTES),
    )


def _apart(row: Row, in_server: int) -> Row:
    """A row of a draft in its own process: what it reads out lies in the server, else all but so many bytes there."""
    return row if row.name == "draft output" else replace(row, apart_bytes=max(row.bytes - in_server, 0))


def _embedding(draft: Model, own: Serving) -> int:
    """Bytes of a draft's weights that stay in the server whatever computes them: its token embedding."""
    if draft.tensors is None:
        return draft.token_embd_bytes
    return tensors.gpu_bytes(draft.tensors, mapped=own.mapped, cuda=own.gpu)[1]


def _as_draft(model: Model, serving: Serving, drafting: Drafting) -> Serving:
    """The draft's context: the target's, with cache types of its own."""
    return replace(
        serving,
        ctx_size=total_cells(model, serving),
        cache_type_k=drafting.cache_type_k,
        cache_type_v=drafting.cache_type_v,
        gpu=drafting.gpu,
        drafting=None,
    )


def _weights(drafting: Drafting, own: Serving) -> Row:
    draft = drafting.model
    if draft is None:
        return Row("draft weights", 0, "blocks of the target's own file, counted there")
    if draft.tensors is None:
        again = draft.token_embd_bytes if draft.tied and drafting.apart else 0
        return Row("draft weights", weights_of(draft, own)[0] + again, FROM_FILE)
    nextn = drafting.kind == MTP
    if drafting.apart and not drafting.gpu:
        device, host = tensors.gpu_bytes(draft.tensors, mapped=own.mapped, nextn=nextn, cuda=False)
        return Row("draft weights", device + host, f"{FROM_HEADER}, its embedding in the server")
    return Row("draft weights", *weights_of(draft, own, nextn=nextn))


def _output(draft: Model, drafting: Drafting, outputs: int) -> Row:
    handed = (draft.n_embd_out or draft.n_embd) if drafting.kind in _HANDS_ON else 0
    said = f"formula: {outputs} x {draft.n_vocab} logits"
    return Row("draft output", 4 * outputs * (draft.n_vocab + handed), said)
