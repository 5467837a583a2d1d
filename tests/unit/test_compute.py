"""The compute buffer's walk: the allocator's rules one by one, and what must hold for every model and batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.facts.blocks import Block, read_blocks
from orin_deploy.facts.gguf import read_ranges
from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model, from_header
from orin_deploy.intent.compute import Batch, compute_bytes, decoder
from orin_deploy.intent.compute.arena import Arena, reserve
from orin_deploy.intent.compute.graph import Graph
from orin_deploy.intent.compute.inputs import Context
from tests.ggufs import Shape, header
from tests.shapes import SHAPES, Recipe, dflash, eagle3, qwen35

KEYS = [
    *("attention.head_count", "attention.kv_lora_rank", "attention.key_length_mla", "expert_used_count"),
    *("ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.group_count", "ssm.time_step_rank"),
]
SLIVERS = 16384  # bytes by which the order of small tensors may shift a buffer's end
KIB, N_VOCAB = 1024, 20000  # larger vocabularies take long to read and change little


def graph_of(build: Callable[[Graph], None]) -> Graph:
    graph = Graph()
    build(graph)
    return graph


@lru_cache
def shaped(name: str) -> Model:
    """A shape's model, of its header alone."""
    return described(SHAPES[name]())


@lru_cache
def recipe(name: str) -> Recipe:
    """A shape without its vocabulary."""
    made = SHAPES[name]()
    assert isinstance(made, Recipe)
    made.metadata["tokenizer.ggml.tokens"] = made.metadata["tokenizer.ggml.token_type"] = []
    return made


def described(made: Recipe | Shape) -> Model:
    if isinstance(made, Shape):
        made = replace(made, n_vocab=min(made.n_vocab, N_VOCAB))
    else:
        made.metadata["tokenizer.ggml.tokens"] = made.metadata["tokenizer.ggml.tokens"][:N_VOCAB]
    raw = made.header_bytes()
    read = read_ranges(lambda at, size: raw[at : at + size], None, "shape", fingerprint=False)
    return from_header(read, "shape")


BATCHES = st.builds(
    lambda tokens, sequences, **more: Batch(
        tokens=tokens * sequences, sequences=sequences, streams=sequences, rotate_k=0, rotate_v=0, **more
    ),
    tokens=st.sampled_from([1, 32, 300]),
    sequences=st.integers(1, 4),
    outputs=st.integers(1, 32),
    cells=st.sampled_from([256, 4096, 65536]),
    cells_swa=st.sampled_from([256, 1280]),
    flash_attn=st.booleans(),
    type_k=st.sampled_from(["f16", "q8_0"]),
)
NAMES = st.sampled_from(sorted(SHAPES))


def test_the_smallest_hole_that_fits_is_taken_and_neighbours_merge() -> None:
    arena = Arena(32)
    places = [arena.take(size) for size in (64, 128, 32, 96, 32)]
    assert places == [0, 64, 192, 224, 320]
    arena.give(64, 128)
    arena.give(224, 96)
    assert arena.take(90) == 224  # the hole of 96 and not the earlier one of 128
    arena.give(192, 32)
    assert arena.take(160) == 64  # 128 and the 32 behind it
    assert arena.high == 352


def test_the_end_is_given_back() -> None:
    arena = Arena(32)
    first, second = arena.take(1), arena.take(1)
    arena.give(first, 1)
    arena.give(second, 1)
    assert arena.holes == []
    assert (arena.end, arena.high) == (0, 64)


def test_sums_take_over_a_source_and_what_a_view_shows_stays() -> None:
    def chain(graph: Graph, *, viewed: bool) -> None:
        first = graph.new((KIB, 4), graph.input(4))
        second = graph.matmul(KIB, first)
        source = graph.view(second, KIB, 4) if viewed else second
        graph.expand(graph.like(source, first))

    in_place = reserve(graph_of(lambda graph: chain(graph, viewed=False)), gpu=False)
    copied = reserve(graph_of(lambda graph: chain(graph, viewed=True)), gpu=False)
    assert in_place == (2 * 16 * KIB + 32, 0)
    assert copied == in_place  # the first source gives its place instead: nothing shows it any more


def test_what_is_read_later_is_never_freed() -> None:
    def two(graph: Graph, *, kept: bool) -> None:
        first = graph.new((KIB, 4), graph.input(4))
        first.kept = kept
        graph.expand(graph.matmul(KIB, graph.matmul(KIB, first)))

    freed = reserve(graph_of(lambda graph: two(graph, kept=False)), gpu=False)[0]
    assert reserve(graph_of(lambda graph: two(graph, kept=True)), gpu=False)[0] == freed + 16 * KIB


def test_a_gpu_gets_copies_of_the_inputs() -> None:
    def one(graph: Graph) -> None:
        looked_up = graph.new((KIB, 4), graph.input(4))
        looked_up.on_host = True
        graph.expand(looked_up)
        graph.expand(graph.matmul(KIB, looked_up))

    device, host = reserve(graph_of(one), gpu=True)
    assert device == 2 * 16 * KIB  # the copy and the product
    assert host == 16 * KIB + 32  # the embedding and the tokens' numbers
    assert reserve(graph_of(one), gpu=False) == (2 * 16 * KIB + 32, 0)


@given(NAMES, BATCHES, st.booleans())
def test_every_shape_is_reckoned_between_its_bounds(name: str, batch: Batch, gpu: bool) -> None:
    """More than the embedding's slot alone, less than everything at once."""
    model = shaped(name)
    sizes = compute_bytes(model, batch, gpu=gpu)
    at = Context(model, batch)
    decoder.build_decoder(at)
    tensors = [*at.graph.inputs, *at.graph.order]
    everything = sum(2 * tensor.bytes + tensor.cuda_bytes + 512 for tensor in tensors) * (len(model.layers) // 5 + 1)
    assert model.n_embd * batch.tokens * 4 < sizes.device + sizes.host < everything
    assert (sizes.host > 0) == gpu
    assert sizes.exact


@given(NAMES, BATCHES)
def test_more_cells_never_take_less(name: str, batch: Batch) -> None:
    """For a prompt's graph; many rows of logits may find room where a larger mask has been."""
    batch = replace(batch, tokens=512 * batch.sequences, outputs=1)
    sizes = [compute_bytes(shaped(name), replace(batch, cells=cells), gpu=False).device for cells in (1024, 131072)]
    assert sizes[0] <= sizes[1]


@given(NAMES, BATCHES, st.booleans())
def test_the_walk_in_short_is_the_whole_walk(name: str, batch: Batch, gpu: bool) -> None:
    """Runs of equal layers cut short, and one walk for all contexts: both change nothing."""
    model = shaped(name)
    at = Context(model, batch)
    with pytest.MonkeyPatch.context() as whole:
        whole.setattr(decoder, "_distinct", lambda pairs, batch: [(*pair, False) for pair in pairs])
        decoder.build_decoder(at)
    sizes, whole_sizes = compute_bytes(model, batch, gpu=gpu, cuda=False), reserve(at.graph, gpu=gpu, cuda=False)
    assert (sizes.device, sizes.host) == pytest.approx(whole_sizes, abs=SLIVERS)


def test_cuda_copies_a_quantised_cache_for_each_layer_in_turn() -> None:
    """Keys and values of all cells in 16 bits, behind the result of the attention."""
    model = shaped("minicpm5-2b")
    batch = Batch(128, 1, 65536, 65536, True, 0, 0)
    plain = compute_bytes(model, batch, gpu=True).device
    copied = compute_bytes(model, replace(batch, type_k="q8_0", type_v="q8_0"), gpu=True).device
    halves = 65536 * 2 * 2 * 128 * 2
    assert halves * 0.8 < copied - plain < halves * 1.01
    assert compute_bytes(model, replace(batch, type_k="q8_0"), gpu=True, cuda=False).device < plain


def test_cuda_keeps_the_experts_until_they_are_summed() -> None:
    whole, batch = shaped("qwen3moe"), Batch(512, 1, 4096, 4096, True, 0, 0)
    narrow = (replace(block, experts=block.experts and replace(block.experts, width=64)) for block in whole.blocks)
    model = replace(whole, blocks=tuple(narrow))  # no room left over from wide experts that would do
    other = compute_bytes(model, batch, gpu=True, cuda=False).device
    assert compute_bytes(model, batch, gpu=True).device - other == pytest.approx(8 * 2048 * 512 * 4, rel=0.1)


def test_drafts_that_reckon_every_tokens_logits() -> None:
    """EAGLE-3 and DFlash: the micro-batch times the vocabulary, twice."""
    target = Shape(n_embd=512, n_head=8, n_vocab=20000)
    batch = Batch(512, 1, 2048, 2048, True, 0, 0)
    logits = 2 * 20000 * 512 * 4
    for draft in (eagle3(target, (1, 2, 3)), eagle3(target, (1, 2, 3), 4000), dflash(target, (1, 2))):
        sizes = compute_bytes(described(draft), batch, gpu=False)
        assert sizes.exact
        assert logits < sizes.device < 1.1 * logits


def test_two_drafts_that_differ_in_their_tensors_alone_are_told_apart() -> None:
    target, batch = Shape(n_embd=512, n_head=8, n_vocab=20000), Batch(512, 1, 2048, 2048, True, 0, 0)
    whole, part = (described(eagle3(target, (1, 2, 3), *own)) for own in ((), (4000,)))
    again = replace(whole, tensors=part.tensors)
    assert again == whole
    sizes = [compute_bytes(draft, batch, gpu=False) for draft in (whole, again)]
    assert sizes[0] != sizes[1]


def test_a_target_keeps_what_its_draft_reads() -> None:
    model, batch = shaped("llama gqa"), Batch(512, 1, 4096, 4096, True, 0, 0)
    taps = compute_bytes(model, replace(batch, taps=(2, 7, 13)), gpu=False).device
    assert taps - compute_bytes(model, batch, gpu=False).device == 3 * 2048 * 512 * 4
    ahead = described(qwen35(predicts=True))
    assert len(ahead.layers) == len(ahead.blocks) - 1
    assert compute_bytes(ahead, replace(batch, predicts=True), gpu=False).exact


def test_an_architecture_of_no_known_graph_says_so() -> None:
    model, batch = shaped("llama gqa"), Batch(512, 1, 4096, 4096, True, 0, 0)
    unknown = compute_bytes(replace(model, architecture="brand-new"), batch, gpu=False)
    assert not unknown.exact
    assert unknown.device == compute_bytes(model, batch, gpu=False).device
    indexed = replace(model, layers=tuple(replace(layer, index_k=128) for layer in model.layers))
    assert compute_bytes(indexed, batch, gpu=False).device > unknown.device + 4096 * 512 * 4


def test_a_catalogue_entry_is_a_plain_decoder() -> None:
    known = shaped("minicpm5-2b")
    entry = replace(known, blocks=(), tensors=None)
    batch = Batch(512, 4, 4096, 4096, False, 0, 0, sequences=4, streams=4)
    assert compute_bytes(entry, batch, gpu=False) == compute_bytes(known, batch, gpu=False)


def test_blocks_are_read_of_the_shapes() -> None:
    mixture = shaped("deepseek2").blocks
    assert mixture[0].experts is None
    assert mixture[1].experts is not None
    assert (mixture[1].experts.count, mixture[1].experts.used, mixture[1].experts.shared) == (64, 6, 2816)
    assert mixture[1].latent is not None
    assert (mixture[1].latent.query_rank, mixture[1].latent.rank, mixture[1].latent.rope) == (1536, 512, 64)
    assert [type(block.mixer).__name__ for block in shaped("qwen35").blocks[:4]] == ["DeltaNet"] * 3 + ["NoneType"]
    assert shaped("phi3").blocks[0].up == 2 * shaped("phi3").blocks[0].ff
    assert all(block is mixture[1] for block in mixture[1:])


@given(
    st.dictionaries(
        st.sampled_from(KEYS),
        st.one_of(st.integers(0, 1 << 31), st.lists(st.integers(0, 99), min_size=1, max_size=3)),
    ),
    st.sampled_from(["deepseek2", "qwen35", "granitehybrid", "lfm2", "gpt-oss"]),
)
def test_headers_with_nonsense_are_reckoned_all_the_same(keys: dict[str, object], name: str) -> None:
    made = recipe(name)
    metadata = made.metadata | {f"{made.base.architecture}.{key}": value for key, value in keys.items()}
    raw = header(metadata, made.tensors)
    read = read_ranges(lambda at, size: raw[at : at + size], None, "shape", fingerprint=False)
    blocks = read_blocks(read, made.base.architecture, read.tensors, made.base.n_layer)
    model = replace(shaped(name), blocks=blocks)
    assert compute_bytes(model, Batch(32, 1, 256, 256, True, 0, 0), gpu=False).device > 0


def test_layers_without_blocks_and_blocks_without_layers() -> None:
    model = replace(shaped("llama gqa"), layers=(), blocks=(Block(),))
    assert compute_bytes(model, Batch(32, 1, 256, 256, True, 0, 0), gpu=False).device > 0
    lone = replace(shaped("llama gqa"), layers=(Layer(0, 0, 0),), blocks=(Block(),))
    assert compute_bytes(lone, Batch(32, 1, 256, 256, True, 0, 0), gpu=False).device > 0
