"""The table of `fit`: every cell is the budget's own sum, every largest context is the largest, nothing shrinks."""

from __future__ import annotations

import time
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from orin_deploy.facts.device import MIB
from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model
from orin_deploy.intent.fit_table import Cell, Table, contexts_of, fit_table
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import STEP, Drafting, Serving
from tests.unit.test_budget import MINICPM5, SLIDING

DRAFT = replace(MINICPM5, layers=(Layer(2, 64, 64),) * 4, tensor_bytes=200 * MIB, n_embd=512, n_ff=1024)
MODELS = st.builds(
    lambda model, trained: replace(model, n_ctx_train=trained),
    st.sampled_from([MINICPM5, SLIDING]),
    st.sampled_from([300, 512, 2048, 5000, 8192, 32_768, 131_072]),
)
SERVINGS = st.builds(
    Serving,
    parallel=st.integers(1, 5),
    ubatch_size=st.sampled_from([128, 512, 2048]),
    cache_type_k=st.sampled_from(["f16", "f32", "q8_0"]),
    flash_attn=st.booleans(),
    cache_ram_mib=st.sampled_from([0, 512]),
    kv_unified=st.booleans(),
    gpu=st.booleans(),
    drafting=st.sampled_from([None, Drafting("draft-simple", 4, DRAFT)]),
)
FEW = settings(max_examples=25)


def served(serving: Serving, cell: Cell, context: int) -> Serving:
    column = cell.column
    tried = replace(serving, parallel=column.slots, cache_type_k=column.cache_type_k, cache_type_v=column.cache_type_v)
    return replace(tried, ctx_size=context * tried.slots)


def columns(table: Table) -> list[list[Cell]]:
    return [[cell for cell in table.cells if cell.column == column] for column in table.columns]


@FEW
@given(MODELS, SERVINGS, st.integers(1, 120))
def test_cells_are_the_budgets_and_the_largest_is_the_largest(model: Model, serving: Serving, share: int) -> None:
    everything = Room(0, "").budget(model, replace(serving, ctx_size=model.n_ctx_train * serving.slots)).total_bytes
    room = Room(everything * share // 100, "test", reserve_bytes=7)
    table = fit_table(model, serving, room)
    for cell in table.cells:
        budget = room.budget(model, served(serving, cell, cell.context))
        assert (cell.total_bytes, cell.fits) == (budget.total_bytes, budget.fits)
    for column, most in zip(columns(table), table.largest, strict=True):
        if most is None:
            assert not room.budget(model, served(serving, column[0], min(STEP, model.n_ctx_train))).fits
            continue
        assert room.budget(model, served(serving, most, most.context)).fits
        assert most.context <= model.n_ctx_train
        assert most.context % STEP == 0 or most.context == model.n_ctx_train
        more = min(most.context // STEP * STEP + STEP, model.n_ctx_train)
        assert more == most.context or not room.budget(model, served(serving, most, more)).fits
    best = table.recommended
    assert (best is None) == all(cell is None or cell.column.slots != serving.parallel for cell in table.largest)
    assert best is None or (best in table.largest and best.column.slots == serving.parallel)


@FEW
@given(MODELS, SERVINGS)
def test_more_context_and_more_slots_never_take_less(model: Model, serving: Serving) -> None:
    table = fit_table(model, serving, Room(1 << 40, "test"))
    for column in columns(table):
        totals = [cell.total_bytes for cell in column]
        assert totals == sorted(totals)
    for context in table.contexts:
        row = table.row(context)
        for kind in {cell.column.kind for cell in row}:
            totals = [cell.total_bytes for cell in row if cell.column.kind == kind]
            assert totals == sorted(totals)


@FEW
@given(MODELS, SERVINGS)
def test_a_smaller_type_takes_less_but_for_its_rotation(model: Model, serving: Serving) -> None:
    """Quantised keys and values are turned before they are stored, which takes room in the compute buffer."""

    def caches(cell: Cell) -> int:
        rows = Room(0, "").budget(model, served(serving, cell, cell.context)).rows
        return sum(row.bytes for row in rows if row.name == "KV cache")

    plain = replace(serving, cache_type_k="f16", cache_type_v="f16")
    for context in contexts_of(model):
        row = fit_table(replace(model, n_ctx_train=context), plain, Room(1 << 40, "test")).row(context)
        for slots in {cell.column.slots for cell in row}:
            sizes = [caches(cell) for cell in row if cell.column.slots == slots]
            assert sizes == sorted(sizes, reverse=True)


@FEW
@given(MODELS, SERVINGS, st.integers(1, 100), st.integers(0, 50))
def test_more_memory_never_gives_less(model: Model, serving: Serving, share: int, more: int) -> None:
    everything = Room(0, "").budget(model, replace(serving, ctx_size=model.n_ctx_train * serving.slots)).total_bytes
    small, large = (fit_table(model, serving, Room(everything * size // 100, "test")) for size in (share, share + more))
    for less, most in zip(small.largest, large.largest, strict=True):
        assert less is None or (most is not None and most.context >= less.context)


def test_contexts() -> None:
    assert contexts_of(replace(MINICPM5, n_ctx_train=32_768)) == (2048, 4096, 8192, 16_384, 32_768)
    assert contexts_of(replace(MINICPM5, n_ctx_train=40_960)) == (2048, 4096, 8192, 16_384, 32_768, 40_960)
    assert contexts_of(replace(MINICPM5, n_ctx_train=512)) == (512,)


def test_a_model_beyond_the_board_fits_at_no_context() -> None:
    table = fit_table(replace(MINICPM5, tensor_bytes=9 << 30), Serving(), Room(8 << 30, "test"))
    assert set(table.largest) == {None}
    assert table.recommended is None
    assert table.least_bytes > table.room.limit_bytes


def test_a_conversation_is_worth_a_smaller_cache() -> None:
    need = Room(0, "").budget(MINICPM5, Serving(ctx_size=8192, cache_type_k="q8_0", cache_type_v="q8_0")).total_bytes
    best = fit_table(MINICPM5, Serving(), Room(need, "test")).recommended
    assert best is not None
    assert (best.column.kind, best.context) == ("q8_0", 8192)
    roomy = fit_table(MINICPM5, Serving(), Room(1 << 40, "test")).recommended
    assert roomy is not None
    assert (roomy.column.kind, roomy.context) == ("f16", MINICPM5.n_ctx_train)


def test_where_the_slots_asked_for_do_not_fit_fewer_are_recommended() -> None:
    need = Room(0, "").budget(MINICPM5, Serving(ctx_size=2048, cache_type_k="q4_0", cache_type_v="q4_0")).total_bytes
    table = fit_table(MINICPM5, Serving(parallel=64), Room(need, "test"))
    assert any(table.largest)
    assert table.recommended is not None
    assert table.recommended.column.slots == max(cell.column.slots for cell in table.largest if cell) < 64


def test_it_is_there_at_once() -> None:
    """62 layers, five of six with a window: the widest graph there is. Generous, for other programs compute too."""
    layers = ((Layer(16, 128, 128, True),) * 5 + (Layer(16, 128, 128),)) * 10 + (Layer(16, 128, 128, True),) * 2
    model = replace(SLIDING, layers=layers, n_embd=5376, n_ff=21_504, n_head=32, n_ctx_train=131_072)
    began = time.process_time()
    fit_table(model, Serving(gpu=True, drafting=Drafting("draft-simple", 4, MINICPM5)), Room(30 << 30, "test"))
    assert time.process_time() - began < 5
