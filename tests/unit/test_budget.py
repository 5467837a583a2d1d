"""The budget's arithmetic: known sums, and what must hold for every model, serving and limit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import Refused
from orin_deploy.facts.device import MIB
from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model
from orin_deploy.intent.budget import Budget, estimate, fit_context
from orin_deploy.intent.compute import Batch, compute_bytes
from orin_deploy.intent.engine_rows import ENGINE_ROWS
from orin_deploy.intent.refusal import refusal
from orin_deploy.intent.serving import Drafting, Serving

MINICPM5 = Model(
    reference="hf:openbmb/MiniCPM5-2B-GGUF",
    known_from="catalogue",
    architecture="llama",
    name="MiniCPM5-2B",
    n_params=2_516_756_480,
    file_type="Q4_K_M",
    file_bytes=1_561_318_368,
    tensor_bytes=1_561_318_368,
    n_embd=2048,
    n_ff=6144,
    n_head=16,
    layers=(Layer(2, 128, 128),) * 42,
    n_vocab=130_560,
    n_ctx_train=131_072,
    tokenizer=None,
    pre_tokenizer="minicpm5",
    chat_template=True,
    vocab_fingerprint=None,
)
SLIDING = replace(
    MINICPM5, layers=((Layer(4, 64, 64, True),) * 5 + (Layer(2, 64, 64),)) * 4, sliding_window=1024, n_ctx_train=32768
)
MODELS = st.sampled_from(
    [MINICPM5, SLIDING, replace(MINICPM5, layers=(Layer(1, 64, 64),), n_embd=64, n_ff=64, n_head=1)]
)
TYPES = st.sampled_from(["f32", "f16", "bf16", "q8_0", "q5_1", "q4_0", "iq4_nl"])
SERVINGS = st.builds(
    Serving,
    ctx_size=st.integers(1, 131_072),
    parallel=st.integers(1, 5),
    ubatch_size=st.sampled_from([64, 512, 2048]),
    cache_type_k=TYPES,
    cache_type_v=TYPES,
    flash_attn=st.booleans(),
    cache_ram_mib=st.sampled_from([0, 512]),
    kv_unified=st.booleans(),
    gpu=st.booleans(),
    drafting=st.sampled_from([None, Drafting("ngram-simple", 7)]),
)


def row(budget: Budget, name: str) -> int:
    return next(row.bytes for row in budget.rows if row.name == name)


def test_known_sums() -> None:
    """KV: 42 layers x 2 x 2 heads x 128 x 2 bytes a cell, a number anyone can check."""
    budget = estimate(MINICPM5, Serving(ctx_size=32768), reserve_bytes=5, limit_bytes=8 << 30, limit_source="test")
    assert row(budget, "KV cache") == 32768 * 42 * 2 * 2 * 128 * 2
    assert row(budget, "output") == 130_560 * 4
    assert row(budget, "weights") == MINICPM5.file_bytes
    assert row(budget, "reserve") == 5
    assert budget.total_bytes == sum(each.bytes for each in budget.rows)


@pytest.mark.parametrize(
    ("kind", "bytes_of_32"),
    [("f32", 128), ("f16", 64), ("bf16", 64), ("q8_0", 34), ("q5_1", 24), ("q5_0", 22), ("q4_1", 20), ("q4_0", 18)],
)
def test_every_type_of_cache(kind: str, bytes_of_32: int) -> None:
    budget = estimate(MINICPM5, Serving(ctx_size=1024, cache_type_k=kind, cache_type_v=kind))
    assert row(budget, "KV cache") == 1024 * 42 * 2 * 2 * 128 * bytes_of_32 // 32


@pytest.mark.parametrize(
    ("serving", "cells"),
    [
        (Serving(ctx_size=1), 256),
        (Serving(ctx_size=257), 512),
        (Serving(ctx_size=1000, parallel=3), 1536),  # 1024 over 3 slots is 341 each, rounded up to 512
        (Serving(ctx_size=1000, parallel=3, kv_unified=True), 1024),
        (Serving(), 131_072),
    ],
)
def test_cells_are_rounded_as_the_engine_does(serving: Serving, cells: int) -> None:
    assert row(estimate(MINICPM5, serving), "KV cache") == cells * 42 * 2 * 2 * 128 * 2


def test_sliding_layers_keep_their_window() -> None:
    layers = 20 * 4 * 64 * 2 * 2, 4 * 2 * 64 * 2 * 2
    short, long = (row(estimate(SLIDING, Serving(ctx_size=size)), "KV cache") for size in (512, 32768))
    assert short == 512 * sum(layers)
    assert long == (1024 + 512) * layers[0] + 32768 * layers[1]
    whole = row(estimate(SLIDING, Serving(ctx_size=32768, swa_full=True)), "KV cache")
    assert whole == 32768 * sum(layers)


def test_checkpoints_count_where_layers_slide() -> None:
    kept = row(estimate(SLIDING, Serving(ctx_size=4096, ctx_checkpoints=3)), "prompt cache")
    assert kept == 3 * (1024 + 512) * 20 * 4 * 64 * 2 * 2
    assert row(estimate(MINICPM5, Serving(ctx_size=4096)), "prompt cache") == 0
    assert row(estimate(MINICPM5, Serving(ctx_size=4096, cache_ram_mib=100)), "prompt cache") == 100 * MIB


def test_rows_of_a_gpu() -> None:
    tied = replace(MINICPM5, token_embd_bytes=1000)
    budget = estimate(tied, Serving(ctx_size=4096, gpu=True))
    assert row(budget, "weights") == tied.tensor_bytes + 1000
    assert {"CUDA context", "staging"} <= {each.name for each in budget.rows}
    assert row(budget, "compute") > row(estimate(tied, Serving(ctx_size=4096)), "compute")


def test_a_prompt_cache_without_end_is_refused() -> None:
    with pytest.raises(Refused, match="without a limit"):
        estimate(MINICPM5, Serving(cache_ram_mib=-1))


@given(MODELS, SERVINGS)
def test_rows_are_disjoint_and_never_negative(model: Model, serving: Serving) -> None:
    budget = estimate(model, serving)
    names = [each.name for each in budget.rows]
    assert len(set(names)) == len(names)
    assert set(ENGINE_ROWS) <= set(names)
    assert all(each.bytes >= 0 and each.source for each in budget.rows)


@given(MODELS, SERVINGS, st.integers(1, 200))
def test_the_fit_is_the_largest_and_the_budget_agrees(model: Model, serving: Serving, share: int) -> None:
    needed = estimate(model, serving).total_bytes
    limit = needed * share // 100
    fitted = fit_context(model, serving, limit_bytes=limit)
    step = 256 * serving.slots
    if fitted is None:
        assert not estimate(model, replace(serving, ctx_size=step), limit_bytes=limit).fits
        return
    assert fitted % step == 0
    assert fitted // serving.slots <= model.n_ctx_train
    assert estimate(model, replace(serving, ctx_size=fitted), limit_bytes=limit).fits
    more = replace(serving, ctx_size=fitted + step)
    assert fitted // serving.slots == model.n_ctx_train or not estimate(model, more, limit_bytes=limit).fits


@given(MODELS, SERVINGS, st.integers(0, 8 << 30), st.integers(0, 8 << 30), st.integers(0, 1 << 30))
def test_more_memory_never_fits_less(model: Model, serving: Serving, limit: int, more: int, reserve: int) -> None:
    small = fit_context(model, serving, limit_bytes=limit) or 0
    assert (fit_context(model, serving, limit_bytes=limit + more) or 0) >= small
    assert (fit_context(model, serving, limit_bytes=limit, reserve_bytes=reserve) or 0) <= small


@given(MODELS, SERVINGS, st.integers(256, 65536))
def test_more_context_never_takes_less(model: Model, serving: Serving, more: int) -> None:
    wider = replace(serving, ctx_size=serving.ctx_size + more)
    assert estimate(model, wider).total_bytes >= estimate(model, serving).total_bytes


def test_the_refusal_gives_the_numbers() -> None:
    serving = Serving(ctx_size=131_072)
    budget = estimate(MINICPM5, serving, limit_bytes=4 << 30, limit_source="MemAvailable")
    error = refusal(MINICPM5, serving, budget)
    fits = {
        kind: fit_context(MINICPM5, with_type(serving, kind), limit_bytes=4 << 30) for kind in ("f16", "q8_0", "q4_0")
    }
    assert f"{-(-budget.total_bytes // MIB):,} MiB" in error.message
    assert "4,096 MiB can be had (MemAvailable)" in error.message
    for kind, size in fits.items():
        assert f"{size} with {kind} KV cache" in error.message
    assert error.hint == f"--set ctx_size={fits['f16']}"
    assert sorted(fits.values(), key=lambda size: size or 0) == list(fits.values())


def test_the_refusal_when_only_a_smaller_cache_fits_and_when_none_does() -> None:
    serving = Serving(ctx_size=8192, cache_type_k="f32", cache_type_v="f32", parallel=4)
    floor = estimate(MINICPM5, replace(with_type(serving, "q8_0"), ctx_size=1024), limit_bytes=0).total_bytes
    tight = estimate(MINICPM5, serving, limit_bytes=floor, limit_source="test")
    assert (
        refusal(MINICPM5, serving, tight).hint == "--set ctx_size=1024 --set cache_type_k=q8_0 --set cache_type_v=q8_0"
    )
    none = estimate(MINICPM5, serving, limit_bytes=1 << 30, limit_source="test")
    assert "no context fits" in refusal(MINICPM5, serving, none).message
    plain = replace(serving, flash_attn=False)
    assert "q8_0" not in refusal(MINICPM5, plain, estimate(MINICPM5, plain, limit_bytes=2 << 30)).message


def with_type(serving: Serving, kind: str) -> Serving:
    return replace(serving, cache_type_k=kind, cache_type_v=kind)


@given(st.lists(st.sampled_from([Layer(4, 64, 64, True), Layer(1, 64, 64)]), min_size=1, max_size=9), SERVINGS)
def test_equal_layers_need_no_second_walk(kinds: list[Layer], serving: Serving) -> None:
    """Cutting runs of equal layers short changes nothing: the same graph, each run 3 and 9 layers long."""
    batch = Batch(512, serving.parallel, 4096, 1536, serving.flash_attn, 0, 0)
    sizes = {
        compute_bytes(replace(SLIDING, layers=tuple(kind for kind in kinds for _ in range(times))), batch, gpu=False)
        for times in (3, 9)
    }
    assert len(sizes) == 1
