"""Blocks with a running state: build_rs, Mamba (src/models/mamba-base.cpp), short convolution (lfm2.cpp) and gated
delta net (delta-net-base.cpp, qwen35.cpp, qwen3next.cpp)."""

from __future__ import annotations

from orin_deploy.facts.blocks import Block, DeltaNet, Mixer, ShortConv, StateSpace
from orin_deploy.intent.compute.graph import Tensor
from orin_deploy.intent.compute.inputs import Context


def recurrent(at: Context, block: Block, mixer: Mixer, normed: Tensor) -> Tensor:
    """A block's recurrent mixer, output matrix included."""
    if isinstance(mixer, ShortConv):
        return _short_conv(at, mixer, normed)
    if isinstance(mixer, DeltaNet):
        return _delta_net(at, block, mixer, normed)
    return _mamba1(at, block, mixer, normed) if mixer.version == 1 else _mamba2(at, block, mixer, normed)


def _state(at: Context, size: int) -> Tensor:
    """build_rs: each sequence's state, gathered from the cache."""
    sequences = at.batch.sequences
    state = at.graph.new((size, sequences), at.graph.view(at.states(), sequences))
    at.graph.expand(state)
    return state


def _convolved(at: Context, kernel: int, state: Tensor, columns: Tensor, channels: int) -> Tensor:
    """The cached columns before the new ones; the last of them go back to the cache, a copy for each snapshot."""
    graph, sequences = at.graph, at.batch.sequences
    each = columns.bytes // columns.width // channels // sequences
    cached = graph.view(state, kernel - 1, channels, sequences)
    joined = graph.new((kernel - 1 + each, channels, sequences), cached, graph.view(columns, each, channels, sequences))
    for _ in range(min(each, at.batch.snapshots + 1)):
        graph.expand(graph.cache(graph.view(joined, kernel - 1, channels, sequences)))
    return joined


def _short_conv(at: Context, mixer: ShortConv, normed: Tensor) -> Tensor:
    graph, width, sequences = at.graph, at.model.n_embd, at.batch.sequences
    each = normed.shape[1] // sequences
    three = graph.matmul(3 * width, graph.view(normed, width, each, sequences))
    first, second, third = (graph.view(three, width, each, sequences) for _ in range(3))
    product = graph.like(first, third)
    joined = _convolved(at, mixer.kernel, _state(at, width * (mixer.kernel - 1)), product, width)
    out = graph.like(second, graph.new((width, each, sequences), joined))
    return graph.view(graph.matmul(width, out), width, each * sequences)


def _mamba2(at: Context, block: Block, mixer: StateSpace, normed: Tensor) -> Tensor:
    graph, sequences = at.graph, at.batch.sequences
    each, head = normed.shape[1] // sequences, mixer.inner // mixer.heads
    channels = mixer.inner + 2 * mixer.groups * mixer.state
    heads = (head, mixer.heads, each, sequences)
    state = _state(at, (mixer.kernel - 1) * channels)
    wide = graph.view(graph.matmul(mixer.projected, normed), mixer.projected, each, sequences)
    gate = graph.view(wide, *heads)
    joined = _convolved(at, mixer.kernel, state, graph.view(wide, channels, each, sequences), channels)
    mixed = graph.like(graph.new((channels, each, sequences), joined))
    values = graph.view(mixed, *heads)
    inward, outward = (graph.view(mixed, mixer.state, mixer.groups, each, sequences) for _ in range(2))
    steps = graph.like(graph.new((mixer.heads, each, sequences), graph.view(wide, mixer.heads, each, sequences)))
    states = mixer.state * mixer.inner * sequences * (at.batch.snapshots + 1)
    which = graph.view(at.states(), sequences)
    scanned = graph.new((mixer.inner * each * sequences + states,), values, steps, inward, outward, which)
    graph.expand(scanned)
    graph.expand(graph.cache(graph.view(scanned, states)))
    out = graph.like(graph.view(scanned, *heads), graph.like(values))
    out = graph.new(heads, graph.new(heads, gate), out)
    if "ssm_norm.weight" in block.parts:
        out = graph.like(graph.view(out, mixer.inner // mixer.groups, mixer.groups, each, sequences))
    return graph.matmul(at.model.n_embd, graph.view(out, mixer.inner, each * sequences))


def _mamba1(at: Context, block: Block, mixer: StateSpace, normed: Tensor) -> Tensor:
    graph, sequences = at.graph, at.batch.sequences
    each, inner = normed.shape[1] // sequences, mixer.inner
    state = _state(at, (mixer.kernel - 1) * inner)
    wide = graph.matmul(2 * inner, graph.view(normed, normed.shape[0], each, sequences))
    gate = graph.view(wide, inner, each, sequences)
    joined = _convolved(at, mixer.kernel, state, graph.view(wide, inner, each, sequences), inner)
    mixed = graph.like(graph.new((inner, each, sequences), joined))
    split = graph.matmul(mixer.heads + 2 * mixer.state, mixed)
    ranks, inward, outward = (graph.view(split, size, each, sequences) for size in (mixer.heads, *[mixer.state] * 2))
    if "ssm_dt_norm.weight" in block.parts:
        ranks, inward, outward = graph.like(ranks), graph.like(inward), graph.like(outward)
    else:
        ranks = graph.new(ranks.shape, ranks)
    steps = graph.matmul(inner, ranks)
    values = graph.view(mixed, 1, inner, each, sequences)
    states = mixer.state * inner * sequences
    which = graph.view(at.states(), sequences)
    scanned = graph.new((inner * each * sequences + states,), values, steps, inward, outward, which)
    graph.expand(scanned)
    graph.expand(graph.cache(graph.view(scanned, states)))
    out = graph.like(graph.view(scanned, inner, each, sequences), graph.like(mixed))
    out = graph.new((inner, each, sequences), graph.new((inner, each, sequences), gate), out)
    lowered = graph.matmul(at.model.n_embd, out)
    return graph.view(lowered, at.model.n_embd, each * sequences)


def _delta_net(at: Context, block: Block, mixer: DeltaNet, normed: Tensor) -> Tensor:
    """The fused operator, which every backend of ours has; q, k and v come out of one convolution."""
    graph, sequences = at.graph, at.batch.sequences
    graph.expand(normed)
    each, head, heads = normed.shape[1] // sequences, mixer.inner // mixer.value_heads, mixer.value_heads
    channels = mixer.inner + 2 * mixer.key_heads * mixer.head
    shape = (head, heads, each, sequences)
    mixed = graph.view(graph.matmul(channels, normed), channels, each, sequences)
    gate = graph.matmul(mixer.inner, normed)
    beta, decay = _rates(at, block, mixer, normed)
    joined = _convolved(at, mixer.kernel, _state(at, (mixer.kernel - 1) * channels), mixed, channels)
    state = graph.view(_state(at, head * head * heads), head, head, heads, sequences)
    wide = graph.like(graph.new((channels, each, sequences), joined))
    query, key = (graph.like(graph.view(wide, mixer.head, mixer.key_heads, each, sequences)) for _ in range(2))
    if at.architecture == "qwen3next" and mixer.key_heads != heads:
        spread = (mixer.head, heads // mixer.key_heads, mixer.key_heads, each * sequences)
        query, key = (
            graph.view(graph.new(spread, graph.view(each_of, *spread)), mixer.head, heads, each, sequences)
            for each_of in (query, key)
        )
    rows = each * sequences + (at.batch.snapshots + 1) * head * sequences
    result = graph.new((head * heads, rows), query, key, graph.view(wide, *shape), decay, beta, state)
    graph.expand(graph.cache(graph.view(result, head * head * heads * sequences)))
    out = graph.like(graph.like(graph.view(result, *shape)), graph.like(graph.view(gate, *shape)))
    lowered = graph.matmul(at.model.n_embd, graph.view(out, head * heads, each, sequences))
    return graph.view(lowered, at.model.n_embd, each * sequences)


def _rates(at: Context, block: Block, mixer: DeltaNet, normed: Tensor) -> tuple[Tensor, Tensor]:
    """How much each value head writes (beta) and forgets, from two small matrices or one."""
    graph, sequences = at.graph, at.batch.sequences
    each, heads = normed.shape[1] // sequences, mixer.value_heads
    shape = (1, heads, each, sequences)
    if "ssm_beta.weight" in block.parts:
        beta = graph.like(graph.view(graph.matmul(heads, normed), *shape))
        decay = graph.like(graph.view(graph.matmul(heads, normed), heads, each, sequences))
        return beta, graph.view(decay, *shape)
    both = graph.matmul(2 * heads, normed)
    halves = (heads // mixer.key_heads, mixer.key_heads, each, sequences)
    beta = graph.like(graph.new(halves, graph.view(both, *halves)))
    decay = graph.like(graph.new((heads, each, sequences), graph.view(both, *halves)))
    return graph.view(beta, *shape), graph.view(decay, *shape)
