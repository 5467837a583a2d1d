"""Attention: the projections of a block, and build_attn and build_attn_mha of src/llama-graph.cpp."""

from __future__ import annotations

from orin_deploy.facts.blocks import Block, Latent
from orin_deploy.facts.layers import Layer
from orin_deploy.intent.compute.graph import F16, F32, Tensor
from orin_deploy.intent.compute.inputs import Context

# src/llama-model.cpp llama_model_rope_type: NONE.
_WITHOUT_ROPE = frozenset(
    {
        "bloom",
        "gpt2",
        "gptj",
        "jais",
        "jamba",
        "kimi-k3",
        "kimi-linear",
        "mamba",
        "mamba2",
        "mpt",
        "nemotron_h",
        "nemotron_h_moe",
        "refact",
    }
)
_SCALED_QUERIES = frozenset({"gemma", "gemma2", "gemma3", "phi2", "phi3"})


def attention(at: Context, block: Block, layer: Layer, normed: Tensor) -> Tensor:
    """A block's attention, output matrix included; keys and values are stored where the layer has a cache."""
    if block.latent is not None:
        return at.graph.matmul(at.model.n_embd, _latent(at, block, layer, block.latent, normed))
    graph, tokens = at.graph, at.batch.tokens
    heads, keys = block.n_head or at.model.n_head, layer.n_head_kv
    gate = None
    if "attn_qkv.weight" in block.parts:
        fused = graph.matmul(heads * layer.head_k + keys * (layer.head_k + layer.head_v), normed)
        query, key, value = (
            graph.view(fused, size, count, tokens)
            for size, count in ((layer.head_k, heads), (layer.head_k, keys), (layer.head_v, keys))
        )
    else:
        wide = graph.matmul(block.query or heads * layer.head_k, normed)
        if gated := block.query == 2 * heads * layer.head_k and block.attended == heads * layer.head_v:
            gate = graph.new((heads * layer.head_k, tokens), graph.view(wide, layer.head_k, heads, tokens))
        if block.wide_norms and not gated:
            wide = graph.like(wide)
        query = graph.view(wide, layer.head_k, heads, tokens)
        key = _projection(at, block, layer.head_k, keys, normed)
        value = graph.view(graph.matmul(keys * layer.head_v, normed), layer.head_v, keys, tokens)
    query, key = _positioned(at, block, query, "attn_q_norm"), _positioned(at, block, key, "attn_k_norm")
    if at.architecture in _SCALED_QUERIES:
        query = graph.like(query)
    attended = attend(at, layer, query, key if keys else None, value if keys else None)
    if gate is not None:
        attended = graph.like(attended, graph.like(gate))
    return graph.matmul(at.model.n_embd, attended)


def _projection(at: Context, block: Block, head: int, keys: int, normed: Tensor) -> Tensor:
    key = at.graph.matmul(keys * head, normed)
    return at.graph.view(at.graph.like(key) if block.wide_norms else key, head, keys, at.batch.tokens)


def _positioned(at: Context, block: Block, heads: Tensor, norm: str) -> Tensor:
    if f"{norm}.weight" in block.parts and not block.wide_norms:
        heads = at.graph.like(heads)
    return heads if at.architecture in _WITHOUT_ROPE else at.graph.like(heads, at.positions())


def attend(at: Context, layer: Layer, query: Tensor, key: Tensor | None, value: Tensor | None) -> Tensor:
    """build_attn for a cache of keys and values: rotated if quantised, stored, and attended to."""
    graph, batch, sliding = at.graph, at.batch, layer.sliding
    if batch.rotate_k:
        query = _rotated(at, query, at.rotation("k", sliding))
        key = key and _rotated(at, key, at.rotation("k", sliding))
    if batch.rotate_v and value is not None:
        value = _rotated(at, value, at.rotation("v", sliding))
    # llm_graph_input_attn_kv_iswa expands the key first, the plain cache the value.
    for tensor in (query, key, value) if at.windowed else (query, value, key):
        if tensor is not None:
            graph.expand(tensor)
    tokens = batch.tokens
    if key is not None:
        flat = graph.view(key, key.shape[0] * key.shape[1], tokens)
        graph.expand(graph.cache(flat, at.slots("k", sliding)))
    if value is not None:
        graph.expand(graph.cache(_stored_values(at, value), at.slots("v", sliding)))
    attended = mha(at, layer, query)
    if batch.rotate_v:
        attended = _rotated(at, attended, at.rotation("v", sliding))
    return attended


def _rotated(at: Context, tensor: Tensor, rotation: Tensor) -> Tensor:
    """llama_mul_mat_hadamard."""
    graph = at.graph
    rows = (rotation.shape[0], tensor.bytes // tensor.width // rotation.shape[0])
    # A view of a fused product is not contiguous; one of a product of its own is.
    scattered = tensor.base is not None and tensor.bytes != tensor.base.bytes
    flat = graph.new(rows, tensor) if scattered else graph.view(tensor, *rows)
    return graph.view(graph.new(rows, rotation, flat), *tensor.shape)


def _stored_values(at: Context, value: Tensor) -> Tensor:
    """llama_kv_cache::cpy_v: without flash attention the values lie transposed, each layer's as wide as the widest."""
    graph, tokens = at.graph, at.batch.tokens
    width = value.shape[0] * value.shape[1]
    if at.batch.flash_attn:
        return graph.view(value, width, tokens)
    scattered = value.base is not None and value.bytes != value.base.bytes
    flat = graph.new((width, tokens), value) if scattered else graph.view(value, width, tokens)
    if width < at.widest_v:
        flat = graph.new((at.widest_v, tokens), flat)
    return graph.view(flat, 1, flat.shape[0] * tokens)


def mha(at: Context, layer: Layer, query: Tensor, latent: Latent | None = None) -> Tensor:
    """build_attn_mha: one tensor (heads x size, tokens) of what the queries found."""
    graph, batch, tokens = at.graph, at.batch, at.batch.tokens
    heads, streams = query.shape[1], batch.streams
    cells = batch.cells_swa if layer.sliding else batch.cells
    head_v = latent.rank if latent else layer.head_v
    mask = at.mask(layer.sliding)
    turned = graph.view(graph.view(query, *query.shape), query.shape[0], tokens // streams, heads, streams)
    if batch.flash_attn:
        found = graph.new((head_v, heads, tokens // streams, streams), turned, mask)
        found.cuda_bytes = _half_precision_copies(at, layer, cells, latent)
        if latent:
            found = graph.matmul(latent.head_v, graph.view(found, head_v, tokens // streams, heads, streams))
            found = graph.new((latent.head_v, heads, tokens), graph.view(found, latent.head_v, heads, tokens))
            head_v = latent.head_v
        found = graph.view(found, head_v * heads, tokens)
    else:
        scores = graph.like(graph.new((cells, tokens // streams, heads, streams), turned), mask)
        found = graph.new((head_v, tokens // streams, heads, streams), scores)
        if latent:  # the values are a view of the keys and are transposed first
            values = graph.new((cells, head_v, streams), graph.cache(), width=_width(batch.type_k))
            found.sources = (values, scores)
        if latent:
            found = graph.matmul(latent.head_v, found)
        found = graph.new((found.shape[0] * heads, tokens), graph.view(found, found.shape[0], heads, tokens))
    graph.expand(found)
    return found


def _width(kind: str) -> int:
    return F32 if kind == "f32" else F16


def _half_precision_copies(at: Context, layer: Layer, cells: int, latent: Latent | None) -> int:
    """Keys and values of one layer as F16 behind the result, where the cache holds another type: CUDA's kernels for
    prompts read nothing else (ggml_cuda_flash_attn_ext_get_alloc_size)."""
    total, size = cells * at.batch.streams, 0
    if at.batch.type_k != "f16":
        size += 128 + total * layer.n_head_kv * layer.head_k * F16
    if at.batch.type_v != "f16" and not latent:
        size += 128 + total * layer.n_head_kv * layer.head_v * F16
    return size


def _latent(at: Context, block: Block, layer: Layer, latent: Latent, normed: Tensor) -> Tensor:
    """src/models/deepseek2.cpp: queries and keys from compressed vectors, the rotary part beside them."""
    graph, tokens, heads = at.graph, at.batch.tokens, block.n_head
    nope = latent.head_k - latent.rope
    narrow = graph.like(graph.matmul(latent.query_rank, normed)) if latent.query_rank else normed
    query = graph.view(graph.matmul(heads * latent.head_k, narrow), latent.head_k, heads, tokens)
    both = graph.matmul(latent.rank + latent.rope, normed)
    turned = graph.like(graph.view(both, latent.rope, 1, tokens), at.positions())
    packed = graph.like(graph.view(both, latent.rank, tokens))
    if not latent.absorbed:
        return _unpacked(at, block, layer, latent, query, packed, turned)
    rotary = graph.like(graph.view(query, latent.rope, heads, tokens), at.positions())
    plain = graph.view(graph.view(query, nope, heads, tokens), nope, tokens, heads)
    absorbed = graph.view(graph.matmul(latent.rank, plain), latent.rank, heads, tokens)
    query = graph.new((latent.rank + latent.rope, heads, tokens), absorbed, rotary)
    value = graph.view(packed, latent.rank, 1, tokens)
    key = graph.new((latent.rank + latent.rope, 1, tokens), value, turned)
    for tensor in (query, value, key):
        graph.expand(tensor)
    graph.expand(graph.cache(graph.view(key, latent.rank + latent.rope, tokens), at.slots("k", False)))
    return mha(at, layer, query, latent)


def _unpacked(
    at: Context, block: Block, layer: Layer, latent: Latent, query: Tensor, packed: Tensor, turned: Tensor
) -> Tensor:
    """Files that keep whole keys and values: unpacked for every head before they are stored."""
    graph, tokens, heads = at.graph, at.batch.tokens, block.n_head
    nope = latent.head_k - latent.rope
    both = graph.matmul(heads * (nope + latent.head_v), packed)
    value = graph.new((latent.head_v, heads, tokens), graph.view(both, latent.head_v, heads, tokens))
    query = graph.like(query, at.positions())
    repeated = graph.new((latent.rope, heads, tokens), turned)
    key = graph.new((latent.head_k, heads, tokens), graph.view(both, nope, heads, tokens), repeated)
    return attend(at, layer, query, key, value)
