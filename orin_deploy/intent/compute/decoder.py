"""The whole graph of a decoder, block after block: src/models/*.cpp, grouped by how they differ."""

from __future__ import annotations

from itertools import cycle

from orin_deploy.facts.blocks import Block
from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model
from orin_deploy.intent.compute.attention import attention
from orin_deploy.intent.compute.batch import Batch
from orin_deploy.intent.compute.feedforward import feed_forward
from orin_deploy.intent.compute.graph import I32, Tensor
from orin_deploy.intent.compute.inputs import Context
from orin_deploy.intent.compute.recurrent import recurrent

# Their last layer computes every token; the rows that are asked for are picked behind the last norm, or before it.
_ROWS_AFTER_NORM = frozenset(
    {
        "bailingmoe3",
        "cohere2moe",
        "gemma4",
        "hy_v3",
        "nemotron_h",
        "nemotron_h_moe",
        "qwen3next",
        "qwen35",
        "qwen35moe",
        "step35",
    }
)
_ROWS_BEFORE_NORM = frozenset(["gpt-oss"])
_NORMS_WITHOUT_WEIGHTS = frozenset(["hrm_text", "olmo", "talkie"])
_FFN_NORMS = ("ffn_norm", "attn_output_norm", "post_attention_norm")
_FIRST_SUM_FROM_RESIDUAL = frozenset(["jamba", "lfm2", "lfm2moe", "openelm"])
_SECOND_SUM_FROM_RESIDUAL = frozenset(["jamba", "lfm2", "lfm2moe", "phi3", "phimoe"])


def build_decoder(at: Context) -> None:
    """The prompt's graph of a model of its own."""
    pairs = _distinct(layers_of(at.model), at.batch)
    stream = _embedding(at)
    late = at.architecture in _ROWS_AFTER_NORM | _ROWS_BEFORE_NORM or at.batch.hidden
    for index, (layer, block, tapped) in enumerate(pairs):
        stream.kept |= tapped
        stream = block_graph(at, layer, block, stream, last=index == len(pairs) - 1 and not late)
    _head(at, stream, late)


def layers_of(model: Model) -> list[tuple[Layer, Block]]:
    """Layers with their blocks, which some models run through more than once; a catalogue entry's are a plain
    decoder's."""
    blocks = model.blocks[: len(model.blocks) - len(model.nextn)] or (Block(n_head=model.n_head),)
    return list(zip(model.layers, cycle(blocks), strict=False))


def _distinct(pairs: list[tuple[Layer, Block]], batch: Batch) -> list[tuple[Layer, Block, bool]]:
    """Runs of more than six equal layers cut to five or six, by parity: the allocator's state repeats by then, at the
    latest every second layer. A layer whose input is kept for a draft stays, as what is kept adds up."""
    kept: list[tuple[Layer, Block, bool]] = []
    for index, pair in enumerate(pairs):
        kept.append((*pair, index in batch.taps))
        if kept[-7:] == [(*pair, False)] * 7:
            del kept[-2:]
    return kept


def _embedding(at: Context) -> Tensor:
    """build_inp_embd: the slot for ready-made embeddings is reserved even where none come."""
    graph, batch, width = at.graph, at.batch, at.model.n_embd
    stream = graph.new((width, batch.tokens), graph.input(batch.tokens, width=I32))
    stream.on_host = True
    graph.expand(stream)
    graph.expand(graph.input(width, batch.tokens))
    return stream


def _head(at: Context, stream: Tensor, late: bool) -> None:
    graph = at.graph
    if at.architecture in _ROWS_BEFORE_NORM:
        stream.kept = True
        stream = graph.new((stream.shape[0], at.batch.outputs), stream, at.rows())
        late = False
    normed = graph.like(stream)
    normed.kept = True
    if late:
        normed = graph.new((stream.shape[0], at.batch.outputs), normed, at.rows())
        normed.kept = True
    logits = graph.matmul(at.model.n_vocab, normed)
    logits.kept = True
    graph.expand(logits)


def block_graph(at: Context, layer: Layer, block: Block, stream: Tensor, last: bool) -> Tensor:
    graph, parts = at.graph, block.parts
    unnormed = bool(parts) and "attn_norm.weight" not in parts and at.architecture not in _NORMS_WITHOUT_WEIGHTS
    normed = stream if unnormed else graph.like(stream)
    mixed = _mixed(at, layer, block, stream, normed)
    if mixed is None:  # nemotron_h gives the feed-forward network a layer of its own
        return graph.like(*_picked(at, last, feed_forward(at, block, normed), stream))
    if parts and "ffn_down.weight" not in parts and block.experts is None:
        return graph.like(*_picked(at, last, mixed, stream))
    if block.mixer is not None and block.attends:
        (stream,) = _picked(at, last, graph.like(mixed, stream))
        return graph.like(feed_forward(at, block, graph.like(stream)), stream)
    norm = next((name for name in _FFN_NORMS if f"{name}.weight" in parts), None)
    if parts and norm is None and not unnormed and at.architecture not in _NORMS_WITHOUT_WEIGHTS:
        mixed, residual, normed = _picked(at, last, mixed, stream, normed)  # both networks read the same norm
        return graph.like(graph.like(feed_forward(at, block, normed), residual), mixed)
    mixed, residual = _picked(at, last, mixed, stream)
    if "post_attention_norm.weight" in parts and norm != "post_attention_norm":
        mixed = graph.like(mixed)
    stream = _sum(at, mixed, residual, _FIRST_SUM_FROM_RESIDUAL)
    normed = stream if unnormed else graph.like(stream)
    out = feed_forward(at, block, normed)
    if "post_ffw_norm.weight" in parts:
        out = graph.like(out)
    return _sum(at, out, stream, _SECOND_SUM_FROM_RESIDUAL)


def _sum(at: Context, new: Tensor, residual: Tensor, reversed_by: frozenset[str]) -> Tensor:
    """Sums go in place of their first source that nothing else needs."""
    return at.graph.like(residual, new) if at.architecture in reversed_by else at.graph.like(new, residual)


def _mixed(at: Context, layer: Layer, block: Block, stream: Tensor, normed: Tensor) -> Tensor | None:
    """What attention or a recurrent mixer makes of the tokens, the sum of both where a block has both (falcon-h1)."""
    if block.mixer is None:
        return attention(at, block, layer, normed) if block.attends or not block.parts else None
    if not block.attends:
        return recurrent(at, block, block.mixer, normed)
    attended = attention(at, block, layer, normed)
    return at.graph.like(attended, recurrent(at, block, block.mixer, at.graph.like(stream)))


def _picked(at: Context, last: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Of the last layer, only the rows whose logits are asked for."""
    if not last:
        return tensors
    return tuple(at.graph.new((tensor.shape[0], at.batch.outputs), tensor, at.rows()) for tensor in tensors)
