"""The compute buffer: llama.cpp's prompt graph laid out by ggml's own allocator, step by step.

One buffer holds every intermediate tensor of a graph. ggml frees a tensor after its last use and puts the next one into
the hole that fits best, so the size is the high-water mark of that walk and no sum. We walk the same graph:
src/models/llama.cpp (qwen2, qwen3, gemma alike: biases, head norms and post norms work in place), build_attn of
src/llama-graph.cpp, and ggml/src/ggml-alloc.c. Sizes are F32 activations of `tokens` columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model

F32, I32, I64, F16 = 4, 4, 8, 2


@dataclass(frozen=True)
class Batch:
    """What the graph is built for. `cells` and `cells_swa` are one sequence's cells, as the attention sees them.

    `rotate_k` and `rotate_v` are the sizes of the matrices that quantised keys and values are turned by; 0 for none.
    """

    tokens: int
    outputs: int
    cells: int
    cells_swa: int
    flash_attn: bool
    rotate_k: int
    rotate_v: int


@dataclass(frozen=True)
class ComputeBytes:
    """The buffer of the backend that computes, and what the host keeps beside a GPU's (0 on the CPU)."""

    device: int
    host: int


def compute_bytes(model: Model, batch: Batch, *, gpu: bool) -> ComputeBytes:
    """The worst-case prompt graph's buffers, as the server reserves them at start."""
    graph = _Graph()
    width = model.n_embd * batch.tokens * F32
    graph.input("tokens", batch.tokens * I32)
    graph.input("embd", width)  # the slot for ready-made embeddings is reserved even where none come
    _inputs(graph, model, batch)
    stream = graph.op("embedding", width, "tokens")
    layers = _distinct(model.layers)
    for index, layer in enumerate(layers):
        last = index == len(layers) - 1
        stream = _layer(graph, model, layer, batch, stream, last)
    normed = graph.op("result_norm", model.n_embd * batch.outputs * F32, stream)
    graph.op("logits", model.n_vocab * batch.outputs * F32, normed, output=True)
    peak = graph.peak(alignment=128 if gpu else 32)
    # With a GPU the token embedding is looked up on the CPU, and every input is prepared in pinned host memory.
    return ComputeBytes(peak, sum(graph.inputs.values()) + width if gpu else 0)


def _inputs(graph: _Graph, model: Model, batch: Batch) -> None:
    """In the order in which the graph first meets them, which is the order in which they get their places."""
    widest_v = max(layer.n_head_kv * layer.head_v for layer in model.layers)
    for sliding in dict.fromkeys(layer.sliding for layer in model.layers):
        if batch.rotate_k:
            graph.input(f"k_rot{sliding}", batch.rotate_k**2 * F32)
        graph.input("positions", batch.tokens * I32)
        if batch.rotate_v:
            graph.input(f"v_rot{sliding}", batch.rotate_v**2 * F32)
        graph.input(f"k_slots{sliding}", batch.tokens * I64)
        # Without flash attention the values lie transposed, and each element is told its own place.
        graph.input(f"v_slots{sliding}", batch.tokens * I64 * (1 if batch.flash_attn else widest_v))
        cells = batch.cells_swa if sliding else batch.cells
        graph.input(f"mask{sliding}", cells * batch.tokens * (F16 if batch.flash_attn else F32))
    graph.input("out_ids", batch.outputs * I32)


def _layer(graph: _Graph, model: Model, layer: Layer, batch: Batch, stream: str, last: bool) -> str:
    """One block: attention and feed-forward, each added to the residual stream; returns the stream's new name."""
    width, ff = model.n_embd * batch.tokens * F32, model.n_ff * max(1, model.n_expert_used) * batch.tokens * F32
    attended = graph.op("attn_out", width, _attention(graph, model, layer, batch, stream))
    if last and batch.outputs:
        width = model.n_embd * batch.outputs * F32
        ff = model.n_ff * max(1, model.n_expert_used) * batch.outputs * F32
        attended = graph.op("attn_rows", width, attended, "out_ids")
        stream = graph.op("stream_rows", width, stream, "out_ids")
    stream = graph.op("ffn_inp", width, attended, stream, in_place=True)
    normed = graph.op("ffn_norm", width, stream)
    gate = graph.op("ffn_gate", ff, normed)
    up = graph.op("ffn_up", ff, normed)
    product = graph.op("ffn_product", ff, gate, up)
    down = graph.op("ffn_out", width, product)
    return graph.op("layer_out", width, down, stream, in_place=True)


def _attention(graph: _Graph, model: Model, layer: Layer, batch: Batch, stream: str) -> str:
    sliding, tokens = layer.sliding, batch.tokens * F32
    q_bytes, k_bytes = model.n_head * layer.head_k * tokens, layer.n_head_kv * layer.head_k * tokens
    v_bytes, out_bytes = layer.n_head_kv * layer.head_v * tokens, model.n_head * layer.head_v * tokens
    normed = graph.op("attn_norm", model.n_embd * tokens, stream)

    def query() -> str:
        rope = graph.op("q_rope", q_bytes, graph.op("q", q_bytes, normed), "positions")
        return graph.op("q_rot", q_bytes, f"k_rot{sliding}", rope) if batch.rotate_k else rope

    def key() -> str:
        rope = graph.op("k_rope", k_bytes, graph.op("k", k_bytes, normed), "positions")
        return graph.op("k_rotated", k_bytes, f"k_rot{sliding}", rope) if batch.rotate_k else rope

    def value() -> str:
        plain = graph.op("v", v_bytes, normed)
        return graph.op("v_rotated", v_bytes, f"v_rot{sliding}", plain) if batch.rotate_v else plain

    q = query()
    if model.sliding_layers:  # llm_graph_input_attn_kv_iswa expands the key first, the plain cache the value
        k, v = key(), value()
    else:
        v, k = value(), key()
    graph.op("store_k", 0, k, f"k_slots{sliding}")
    graph.op("store_v", 0, v, f"v_slots{sliding}")
    if batch.flash_attn:
        out = graph.op("flash_attn", out_bytes, q, f"mask{sliding}")
    else:
        cells = batch.cells_swa if sliding else batch.cells
        kq = graph.op("kq", cells * model.n_head * tokens, q)
        soft = graph.op("kq_soft_max", cells * model.n_head * tokens, kq, f"mask{sliding}", in_place=True)
        out = graph.op("kqv_merged", out_bytes, graph.op("kqv", out_bytes, soft))
    return graph.op("kqv_rotated", out_bytes, f"v_rot{sliding}", out) if batch.rotate_v else out


def _distinct(layers: Sequence[Layer]) -> list[Layer]:
    """The layers with long runs of equal ones cut to three: the allocator's state repeats after the second."""
    kept: list[Layer] = []
    for layer in layers:
        if kept[-3:] != [layer] * 3:
            kept.append(layer)
    return kept


@dataclass
class _Op:
    name: str
    bytes: int
    sources: tuple[str, ...]
    in_place: bool
    output: bool


@dataclass
class _Graph:
    """Tensors by unique name, in the order of computation."""

    inputs: dict[str, int] = field(default_factory=dict)
    ops: list[_Op] = field(default_factory=list)

    def input(self, name: str, size: int) -> None:
        self.inputs[name] = size

    def op(self, name: str, size: int, *sources: str, in_place: bool = False, output: bool = False) -> str:
        name = f"{name}#{len(self.ops)}"
        self.ops.append(_Op(name, size, sources, in_place, output))
        return name

    def peak(self, alignment: int) -> int:
        """The high-water mark in bytes of ggml_gallocr_alloc_graph_impl on this graph."""
        uses = Counter(source for op in self.ops for source in op.sources)
        arena = _Arena(alignment)
        places = {name: arena.take(size) for name, size in self.inputs.items()}
        sizes = self.inputs | {op.name: op.bytes for op in self.ops}
        for op in self.ops:
            heir = self._inherits(op, uses, sizes)
            if heir:
                places[op.name] = places.pop(heir)
            elif op.bytes:
                places[op.name] = arena.take(op.bytes)
            for source in op.sources:
                uses[source] -= 1
                if not uses[source] and source in places:
                    arena.give(places.pop(source), sizes[source])
        return arena.high

    @staticmethod
    def _inherits(op: _Op, uses: Counter[str], sizes: dict[str, int]) -> str | None:
        """The source whose place an in-place operation takes over: of the same size and not needed again."""
        if not op.in_place:
            return None
        return next((name for name in op.sources if uses[name] == 1 and sizes[name] == op.bytes), None)


class _Arena:
    """ggml_dyn_tallocr with one chunk: best fit among the holes, else the end; neighbouring holes merge."""

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.holes: list[tuple[int, int]] = []  # (offset, size), by offset
        self.end = 0
        self.high = 0

    def take(self, size: int) -> int:
        size = self._padded(size)
        fitting = [(hole, -offset) for offset, hole in self.holes if hole >= size]
        if fitting:
            hole, negative = min(fitting)
            offset = -negative
            self.holes.remove((offset, hole))
            if hole > size:
                self._insert((offset + size, hole - size))
        else:
            offset = self.end
            self.end += size
        self.high = max(self.high, offset + size)
        return offset

    def give(self, offset: int, size: int) -> None:
        size = self._padded(size)
        for start, hole in list(self.holes):
            if start + hole == offset or offset + size == start:
                self.holes.remove((start, hole))
                offset, size = min(start, offset), size + hole
        if offset + size == self.end:
            self.end = offset
        else:
            self._insert((offset, size))

    def _insert(self, hole: tuple[int, int]) -> None:
        self.holes = sorted([*self.holes, hole])

    def _padded(self, size: int) -> int:
        return -(-size // self.alignment) * self.alignment
