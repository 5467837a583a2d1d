"""The graphs of drafts that share their target's work: multi-token prediction, EAGLE-3, and DFlash with its kin.

EAGLE-3 and DFlash compute the logits of every token, so theirs grow with the micro-batch times the vocabulary.
"""

from __future__ import annotations

from orin_deploy.facts.model import Model
from orin_deploy.intent.compute.attention import attention
from orin_deploy.intent.compute.decoder import block_graph, layers_of
from orin_deploy.intent.compute.feedforward import feed_forward
from orin_deploy.intent.compute.graph import I32, Tensor
from orin_deploy.intent.compute.inputs import Context


def build_predictor(at: Context) -> None:
    """graph_mtp of src/models/*.cpp: one more block on the target's last layer and the next token's embedding."""
    graph, tokens, width = at.graph, at.batch.tokens, at.model.n_embd
    embedded = _looked_up(at)
    hidden = graph.input(width, tokens)
    joined = graph.new((2 * width, tokens), graph.like(embedded), graph.like(hidden))
    stream = graph.matmul(width, joined)
    blocks = [block for block in at.model.blocks if block.drafts] or list(at.model.blocks[-1:])
    for layer, block in list(zip(at.model.nextn, blocks, strict=False))[:1]:
        stream = block_graph(at, layer, block, stream, last=False)
    normed = graph.like(stream)
    normed.kept = True
    _logits(at, graph.new((width, at.batch.outputs), normed, at.rows()), at.model.n_vocab)


def build_eagle3(at: Context) -> None:
    """src/models/eagle3.cpp, the decoder: one layer that attends to the embedding beside the target's features."""
    graph, tokens, width = at.graph, at.batch.tokens, at.model.n_embd
    embedded, features = _looked_up(at), graph.input(width, tokens)
    joined = graph.new((2 * width, tokens), graph.like(embedded), graph.like(features))
    layer, block = layers_of(at.model)[0]
    stream = graph.like(attention(at, block, layer, joined), features)
    stream = graph.like(feed_forward(at, block, graph.like(stream)), stream)
    stream.kept = True
    _logits(at, graph.like(stream), own_vocabulary(at.model))


def build_dflash(at: Context) -> None:
    """src/models/dflash.cpp, the decoder of a block of guesses; DSpark's head sits out blocks beyond its own size."""
    stream = _looked_up(at)
    for layer, block in layers_of(at.model):
        stream = block_graph(at, layer, block, stream, last=False)
    normed = at.graph.like(stream)
    normed.kept = True
    _logits(at, normed, own_vocabulary(at.model), draws=replays(at.model))


def own_vocabulary(model: Model) -> int:
    """Tokens a draft can guess: the rows of its output matrix, which may be fewer than the target's."""
    if model.tensors is not None:
        for tensor in model.tensors.all():
            if tensor.name == "d2t":
                return tensor.dims[0]
    return model.n_vocab


def replays(model: Model) -> bool:
    """The plain kinds are; DFlash 2's selector and convolutions and DeepSeek 4's blocks are left out."""
    names = {tensor.name for tensor in model.tensors.all()} if model.tensors else set()
    return not {"selector_hidden.weight", "hc_head_fn.weight"} & names


def _looked_up(at: Context) -> Tensor:
    embedded = at.graph.new((at.model.n_embd, at.batch.tokens), at.graph.input(at.batch.tokens, width=I32))
    embedded.on_host = True
    return embedded


def _logits(at: Context, stream: Tensor, rows: int, draws: bool = True) -> None:
    """Logits of the draft's own tokens are spread over the target's, where its vocabulary is a part of that. The
    backend picks the likeliest of them (`draws`)."""
    graph = at.graph
    logits = graph.matmul(rows, stream)
    if rows != at.model.n_vocab:
        spread = graph.like(graph.input(1, at.model.n_vocab, stream.shape[1]))
        view = graph.view(spread, 1, at.model.n_vocab, stream.shape[1])
        view.sources = (graph.view(logits, 1, rows, stream.shape[1]), spread)
        logits = graph.view(view, at.model.n_vocab, stream.shape[1])
    logits.kept = True
    graph.expand(logits)
    if draws:  # llm_graph_context::build_sampling: a copy with a row to spare; the few candidates are lost in rounding
        padded = graph.new((at.model.n_vocab, stream.shape[1] + 1), logits)
        padded.kept = True
        graph.expand(padded)
