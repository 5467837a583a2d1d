"""Feed-forward networks: build_ffn and build_moe_ffn of src/llama-graph.cpp, biases and scales (in place) left out."""

from __future__ import annotations

from orin_deploy.facts.blocks import Block, Experts
from orin_deploy.intent.compute.graph import I32, Tensor
from orin_deploy.intent.compute.inputs import Context

_FUSED_MAX_EXPERTS = 15  # MOE_WEIGHTED_REDUCTION_MAX_EXPERTS of ggml-cuda.cu
_WEIGHTED_BEFORE = "llama4"


def feed_forward(at: Context, block: Block, normed: Tensor) -> Tensor:
    """The dense or the expert network of a block, shared experts added."""
    if block.experts is None:
        return dense(at, block.up or at.model.n_ff, block.ff or at.model.n_ff, normed, _gated(block, ""))
    out = mixture(at, block, block.experts, normed)
    if not block.experts.shared:
        return out
    shared = dense(at, block.experts.shared, block.experts.shared, normed, _gated(block, "_shexp"))
    if "ffn_gate_inp_shexp.weight" in block.parts:
        shared = at.graph.like(shared, at.graph.like(at.graph.matmul(1, normed)))
    return at.graph.like(out, shared)


def _gated(block: Block, kind: str) -> bool:
    return not block.parts or f"ffn_gate{kind}.weight" in block.parts


def dense(at: Context, up: int, ff: int, normed: Tensor, gated: bool) -> Tensor:
    """Up, activation, down; gate and up apart, in one matrix of twice the width, or no gate at all."""
    graph = at.graph
    if gated:
        raised = graph.matmul(up, normed)
        active = graph.new(raised.shape, graph.matmul(ff, normed), raised)
    elif up == 2 * ff:
        active = graph.new((ff, *normed.shape[1:]), graph.matmul(up, normed))
    else:
        active = graph.like(graph.matmul(up, normed))
    return graph.matmul(at.model.n_embd, active)


def mixture(at: Context, block: Block, experts: Experts, normed: Tensor) -> Tensor:
    """The router, the chosen experts' networks, and their weighted sum."""
    graph, tokens, used = at.graph, normed.shape[1], experts.used
    latent = normed
    if "ffn_latent_down.weight" in block.parts:
        latent = graph.matmul(experts.hidden, normed)
    logits = graph.matmul(experts.count, normed)
    weighted_later = at.architecture == "gpt-oss"  # softmax over the chosen only
    probabilities = logits if weighted_later else graph.like(logits)
    chosen_by = probabilities
    if "exp_probs_b.bias" in block.parts:
        chosen_by = graph.like(probabilities)
    if experts.groups > 1:
        chosen_by = _grouped(at, experts, chosen_by, tokens)
    order = graph.new((experts.count, tokens), chosen_by, width=I32)
    chosen = graph.view(order, used, tokens)
    weights = graph.new((1, used, tokens), graph.view(probabilities, 1, experts.count, tokens), chosen)
    if weighted_later:
        weights = graph.view(graph.like(graph.view(weights, used, tokens)), 1, used, tokens)
    else:
        flat = graph.view(weights, used, tokens)
        weights = graph.view(graph.like(flat, graph.like(graph.new((1, tokens), flat))), 1, used, tokens)
    graph.expand(weights)
    graph.keep_on_cuda(len(graph.order), logits, probabilities, order)
    out = _networks(at, block, experts, latent, chosen, weights, used)
    return graph.matmul(at.model.n_embd, out) if "ffn_latent_up.weight" in block.parts else out


def _grouped(at: Context, experts: Experts, chosen_by: Tensor, tokens: int) -> Tensor:
    """Only the experts of the best groups may be chosen (DeepSeek V3)."""
    graph, each = at.graph, experts.count // experts.groups
    groups = graph.view(chosen_by, each, experts.groups, tokens)
    best = graph.view(graph.new((each, experts.groups, tokens), groups, width=I32), 2, experts.groups, tokens)
    scores = graph.new((1, 2, experts.groups, tokens), graph.view(groups, 1, each, experts.groups, tokens), best)
    sums = graph.new((1, experts.groups, tokens), graph.view(scores, 2, experts.groups, tokens))
    ranked = graph.new((experts.groups, tokens), graph.view(sums, experts.groups, tokens), width=I32)
    kept = graph.view(ranked, experts.groups, tokens)
    rows = graph.new((each, experts.groups, tokens), groups, kept)
    filled = graph.like(groups)
    merged = graph.view(filled, each, experts.groups, tokens)
    merged.sources = (rows, kept, filled)
    return graph.view(merged, experts.count, tokens)


def _networks(
    at: Context, block: Block, experts: Experts, normed: Tensor, chosen: Tensor, weights: Tensor, used: int
) -> Tensor:
    graph, tokens = at.graph, normed.shape[1]
    each = graph.view(normed, experts.hidden, 1, tokens)
    if at.architecture == _WEIGHTED_BEFORE:
        each = graph.like(graph.new((experts.hidden, used, tokens), each), weights)
    wide = (experts.width, used, tokens)
    if experts.merged:
        both = graph.new((2 * experts.width, used, tokens), each, chosen)
        active = graph.new(wide, graph.view(both, *wide), graph.view(both, *wide))
    elif "ffn_gate_exps.weight" in block.parts:
        raised = graph.new(wide, each, chosen)
        active = graph.new(wide, graph.new(wide, each, chosen), raised)
    else:
        active = graph.like(graph.new(wide, each, chosen))
    lowered = graph.new((experts.hidden, used, tokens), active, chosen)
    out = lowered if at.architecture == _WEIGHTED_BEFORE else graph.like(lowered, weights)
    graph.expand(out)
    return _summed(at, experts, out, used, lowered, weights)


def _summed(at: Context, experts: Experts, out: Tensor, used: int, lowered: Tensor, weights: Tensor) -> Tensor:
    """The views before the sums; CUDA does all in one kernel, which needs the unweighted results to the end."""
    graph, tokens = at.graph, out.shape[2]
    views = [graph.view(out, experts.hidden, tokens) for _ in range(used)]
    for view in views:
        graph.expand(view)
    total = views[0]
    if used == 1:
        return graph.new((experts.hidden, tokens), total)
    for view in views[1:]:
        total = graph.like(total, view)
        graph.expand(total)
    if used <= _FUSED_MAX_EXPERTS and out is not lowered:
        graph.keep_on_cuda(len(graph.order) - 1, lowered, weights)
    return total
