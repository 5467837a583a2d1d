"""The budget's arithmetic: known sums, and what must hold for every model, serving and limit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import Refused
from orin_deploy.facts.device import MIB
from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model, Projected
from orin_deploy.intent.budget import Budget, estimate, fit_context
from orin_deploy.intent.compute import Batch, compute_bytes
from orin_deploy.intent.engine_rows import ENGINE_ROWS
from orin_deploy.intent.serving import Drafting, Serving, cells_per_slot, context_per_slot

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
    drafting=st.sampled_from(
        [None, Drafting("ngram-simple", 7), Drafting("draft-dspark", 7, MINICPM5), Drafting("draft-mtp", 2)]
    ),
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


def test_recurrent_state_grows_with_slots_and_speculation_and_not_with_context() -> None:
    hybrid = replace(
        MINICPM5, architecture="qwen35", layers=(Layer(0, 0, 0, state=(1000, 32)),) * 3 + (Layer(2, 64, 64),)
    )
    one = 3 * 4 * (1000 + 32)
    drafting = Drafting("draft-eagle3", 7, replace(MINICPM5, layers=MINICPM5.layers[:1]))
    for slots, draft, times in ((1, None, 1), (4, None, 4), (1, drafting, 8), (2, drafting, 16)):
        for size in (1024, 32768):
            serving = Serving(ctx_size=size, parallel=slots, drafting=draft)
            assert row(estimate(hybrid, serving), "recurrent state") == times * one
    simple = Serving(ctx_size=1024, drafting=replace(drafting, kind="draft-simple"))
    assert row(estimate(hybrid, simple), "recurrent state") == one
    assert "recurrent state" not in {each.name for each in estimate(MINICPM5, Serving(ctx_size=1024)).rows}


def test_compressed_caches_of_deepseek4() -> None:
    """A cell for 4 or 128 tokens, in whole 256s, and a stream of its own for every slot even when slots are unified."""
    layers = (Layer(1, 512, 0, True, 128, 0, 4), Layer(1, 512, 0, True, 0, 0, 128))
    model = replace(MINICPM5, architecture="deepseek4", layers=layers, sliding_window=128)
    window, csa, hca = 2 * (512 + 256) * 512, 8192 * (512 + 128), 256 * 512
    assert row(estimate(model, Serving(ctx_size=32768)), "KV cache") == 2 * (window + csa + hca)
    unified = Serving(ctx_size=32768, parallel=3, kv_unified=True)
    assert row(estimate(model, unified), "KV cache") == 3 * 2 * (window + csa + hca)


DRAFT = replace(MINICPM5, layers=(Layer(2, 64, 64),) * 4, tensor_bytes=200 * MIB, n_vocab=32_000, n_embd=512, n_ff=1024)


@pytest.mark.parametrize(("kind", "rows"), [("draft-simple", 3), ("draft-dspark", 3 * 8)])
def test_a_draft_has_the_targets_context_and_types_of_its_own(kind: str, rows: int) -> None:
    drafting = Drafting(kind, 7, DRAFT, cache_type_k="q8_0", cache_type_v="q8_0")
    budget = estimate(MINICPM5, Serving(ctx_size=3000, parallel=3, drafting=drafting))
    assert row(budget, "draft KV cache") == 3 * 1024 * 4 * 2 * 128 // 32 * 34
    assert row(budget, "draft weights") == 200 * MIB
    width = 0 if kind == "draft-simple" else 512
    assert row(budget, "draft output") == 4 * rows * (32_000 + width)
    assert "draft process" not in {each.name for each in budget.rows}


def test_a_draft_apart_adds_its_process_and_multi_token_prediction_no_weights() -> None:
    apart = estimate(MINICPM5, Serving(ctx_size=3000, drafting=Drafting("draft-simple", 4, DRAFT, apart=True)))
    assert row(apart, "draft process") > 0
    ahead = replace(MINICPM5, nextn=(Layer(2, 128, 128),))
    budget = estimate(ahead, Serving(ctx_size=4096, drafting=Drafting("draft-mtp", 2)))
    assert row(budget, "draft weights") == 0
    assert row(budget, "draft KV cache") == 4096 * 2 * 2 * 128 * 2
    assert row(budget, "KV cache") == 42 * row(budget, "draft KV cache")


def test_a_draft_that_reads_layers_has_them_handed_out() -> None:
    tapping = replace(DRAFT, target_layers=(2, 20, 39))
    plain, tapped = (
        row(estimate(MINICPM5, Serving(ctx_size=8192, drafting=Drafting("draft-eagle3", 3, draft))), "output")
        for draft in (DRAFT, tapping)
    )
    assert tapped - plain == 3 * 2048 * MINICPM5.n_embd * 4


@pytest.mark.parametrize(
    ("ctx_size", "parallel", "unified", "cells", "tokens"),
    [(4096, 1, False, 4096, 4096), (3000, 4, False, 768, 768), (3000, 4, True, 3072, 3072), (0, 1, False, 8192, 8192)],
)
def test_context_per_slot(ctx_size: int, parallel: int, unified: bool, cells: int, tokens: int) -> None:
    def of(rule: Callable[..., int], trained: int) -> int:
        return rule(trained, ctx_size=ctx_size, parallel=parallel, kv_unified=unified)

    assert (of(cells_per_slot, 8192), of(context_per_slot, 8192)) == (cells, tokens)
    assert of(context_per_slot, 300) == min(300, of(cells_per_slot, 300))


def test_checkpoints_of_recurrent_state_and_a_projector() -> None:
    hybrid = replace(MINICPM5, layers=(Layer(0, 0, 0, state=(1000, 32)), Layer(2, 64, 64)))
    kept = row(estimate(hybrid, Serving(ctx_size=4096, parallel=2, ctx_checkpoints=5)), "prompt cache")
    assert kept == 5 * 2 * 4 * (1000 + 32)
    assert row(estimate(MINICPM5, Serving(ctx_size=4096, projector_bytes=77)), "projector") == 77


def test_a_draft_in_the_server_takes_its_share_of_the_process() -> None:
    alone, drafted = (
        row(estimate(MINICPM5, Serving(ctx_size=4096, drafting=drafting)), "process")
        for drafting in (None, Drafting("draft-simple", 4, DRAFT))
    )
    assert 256 * DRAFT.n_vocab < drafted - alone < alone


def test_an_unknown_architecture_takes_what_its_engine_projects() -> None:
    stranger = replace(MINICPM5, architecture="llama9")
    (said,) = [each.source for each in estimate(stranger, Serving(ctx_size=4096)).rows if each.name == "KV cache"]
    assert said.startswith("assumed: plain attention; llama9")
    model = replace(stranger, projected=Projected(100, 7, 64.0, 50))
    budget = estimate(model, Serving(ctx_size=4096, parallel=2, cache_type_k="q8_0"))
    rows = ("weights", "KV cache", "recurrent state", "compute")
    assert [row(budget, name) for name in rows] == [100, round(4096 * 64 * (34 + 64) / 128), 14, 50]


def test_rows_of_a_gpu() -> None:
    tied = replace(MINICPM5, token_embd_bytes=1000)
    budget = estimate(tied, Serving(ctx_size=4096, gpu=True))
    assert row(budget, "weights") == tied.tensor_bytes + 1000
    assert {"CUDA context", "staging"} <= {each.name for each in budget.rows}
    direct = estimate(tied, Serving(ctx_size=4096, gpu=True, load_mode="dio"))
    assert (row(budget, "staging"), row(direct, "staging")) == (4 * MIB, 256 * MIB)  # four buffers of 1 or 64 MiB
    assert row(budget, "compute") > row(estimate(tied, Serving(ctx_size=4096)), "compute")


def test_a_prompt_cache_without_end_is_refused() -> None:
    with pytest.raises(Refused, match="without a limit"):
        estimate(MINICPM5, Serving(cache_ram_mib=-1))


@given(MODELS, SERVINGS)
def test_rows_are_disjoint_and_never_negative(model: Model, serving: Serving) -> None:
    budget = estimate(model, serving)
    names = [each.name for each in budget.rows]
    assert len(set(names)) == len(names)
    assert set(ENGINE_ROWS) - {"recurrent state"} <= set(names)
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


@given(st.lists(st.sampled_from([Layer(4, 64, 64, True), Layer(1, 64, 64)]), min_size=1, max_size=9), SERVINGS)
def test_equal_layers_need_no_second_walk(kinds: list[Layer], serving: Serving) -> None:
    """Cutting runs of equal layers short changes nothing: the same graph, each run 3 and 9 layers long."""
    batch = Batch(512, serving.parallel, 4096, 1536, serving.flash_attn, 0, 0)
    sizes = {
        compute_bytes(replace(SLIDING, layers=tuple(kind for kind in kinds for _ in range(times))), batch, gpu=False)
        for times in (3, 9)
    }
    assert len(sizes) == 1
