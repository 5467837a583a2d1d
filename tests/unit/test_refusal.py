"""The refusal: its numbers, and that every change it offers makes the deployment fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orin_deploy.errors import Exit
from orin_deploy.facts.device import MIB
from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model
from orin_deploy.intent.refusal import refusal
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import STEP, Drafting, Serving
from orin_deploy.intent.ways import Way
from tests.unit.test_budget import MINICPM5, SLIDING

MODELS = st.sampled_from([MINICPM5, SLIDING])
DRAFT = replace(MINICPM5, layers=(Layer(2, 64, 64),) * 4, tensor_bytes=200 * MIB, n_embd=512, n_ff=1024)
SERVINGS = st.builds(
    Serving,
    ctx_size=st.sampled_from([1024, 8192, 40_000, 131_072]),
    parallel=st.integers(1, 4),
    ubatch_size=st.sampled_from([64, 512, 2048]),
    cache_type_k=st.sampled_from(["f32", "f16", "q8_0", "q4_0"]),
    cache_type_v=st.sampled_from(["f16", "q8_0"]),
    cache_ram_mib=st.sampled_from([0, 100, 2048]),
    kv_unified=st.booleans(),
    gpu=st.booleans(),
    drafting=st.sampled_from([None, Drafting("ngram-simple", 7), Drafting("draft-simple", 4, DRAFT)]),
)
FIELDS = {"cache_ram": "cache_ram_mib"}


def changed(serving: Serving, way: Way) -> Serving:
    """The serving after the words of a way are typed, read as the command line reads them."""
    fields: dict[str, Any] = {}
    words = iter(way.words)
    for option in words:
        value = next(words)
        if option == "--draft":
            assert value == "none"
            fields["drafting"] = None
            continue
        assert option == "--set"
        key, _, text = value.partition("=")
        fields[FIELDS.get(key, key)] = int(text) if text.isdigit() else text
    return replace(serving, **fields)


@settings(max_examples=40)
@given(MODELS, SERVINGS, st.integers(1, 99))
def test_every_way_fits_and_the_sum_is_what_it_says(model: Model, serving: Serving, share: int) -> None:
    need = Room(0, "").budget(model, serving).total_bytes
    room = Room(need * share // 100, "test", reserve_bytes=0)
    error = refusal(model, serving, room)
    assert (error.code, error.need_bytes, error.limit_bytes) == (Exit.REFUSED, need, room.limit_bytes)
    assert len(error.ways) <= 3
    assert len({way.words for way in error.ways}) == len(error.ways)
    for way in error.ways:
        budget = room.budget(model, changed(serving, way))
        assert budget.fits
        assert budget.total_bytes == way.total_bytes
    for each in error.largest:
        tried = replace(serving, cache_type_k=each.cache_type_k, cache_type_v=each.cache_type_v)
        step = STEP * serving.slots
        if each.ctx_size is None:
            assert not room.budget(model, tried, step).fits
        else:
            assert room.budget(model, tried, each.ctx_size).fits
    if any(each.ctx_size and each.ctx_size < serving.ctx_size for each in error.largest):
        assert error.ways


@settings(max_examples=40)
@given(MODELS, SERVINGS, st.integers(1, 99))
def test_no_way_gives_up_more_than_it_must(model: Model, serving: Serving, share: int) -> None:
    room = Room(Room(0, "").budget(model, serving).total_bytes * share // 100, "test")
    ways = refusal(model, serving, room).ways
    assert [len(way.changes) for way in ways] == sorted(len(way.changes) for way in ways)
    for way in ways:
        assert not any(set(other.changes) < set(way.changes) for other in ways)


def test_the_numbers() -> None:
    room = Room(4 << 30, "MemAvailable")
    error = refusal(MINICPM5, Serving(ctx_size=131_072), room)
    sizes = {each.cache_type_k: each.ctx_size for each in error.largest}
    assert f"{-(-error.need_bytes // MIB):,} MiB" in error.message
    assert "4,096 MiB can be had (MemAvailable)" in error.message
    assert all(f"{size} with {kind} KV cache" in error.message for kind, size in sizes.items())
    assert list(sizes) == ["f16", "q8_0", "q4_0"]
    assert 0 < (sizes["f16"] or 0) < (sizes["q8_0"] or 0) < (sizes["q4_0"] or 0) <= 131_072
    assert error.hint is not None
    assert f"--set ctx_size={sizes['f16']}" in error.hint.split(" or ")


def test_what_keeps_the_context_comes_with_what_cuts_it() -> None:
    serving = Serving(ctx_size=131_072, cache_ram_mib=2048)
    need = Room(0, "").budget(MINICPM5, serving).total_bytes
    ways = refusal(MINICPM5, serving, Room(need - 500 * MIB, "test")).ways
    assert [way.changes[0] for way in ways][:2] == ["a prompt cache of 1536 MiB", "a q8_0 KV cache"]
    assert "ctx_size" in dict(ways[2].options)


def test_changes_are_joined_where_one_is_not_enough() -> None:
    serving = Serving(ctx_size=32_768, cache_ram_mib=1024)
    need = Room(0, "").budget(MINICPM5, replace(serving, cache_type_k="q8_0", cache_type_v="q8_0", cache_ram_mib=0))
    ways = refusal(MINICPM5, serving, Room(need.total_bytes, "test")).ways
    assert any(way.changes == ("no prompt cache", "a q8_0 KV cache") for way in ways)


def test_where_nothing_helps_nothing_is_offered() -> None:
    error = refusal(MINICPM5, Serving(ctx_size=8192), Room(1 << 30, "test"))
    assert error.ways == ()
    assert "no context fits: the smallest still takes" in error.message
    assert error.hint == "use a smaller model or quantisation, or free memory"


def test_values_are_not_quantised_without_flash_attention() -> None:
    plain = Serving(ctx_size=131_072, flash_attn=False)
    error = refusal(MINICPM5, plain, Room(8 << 30, "test"))
    assert [each.cache_type_k for each in error.largest] == ["f16"]
    assert not any("q8_0" in word or "q4_0" in word for way in error.ways for word in way.words)
