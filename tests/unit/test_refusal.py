"""The refusal: its numbers, and that every change it offers makes the deployment fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orin_deploy.cli.ways import document, lines
from orin_deploy.errors import Exit
from orin_deploy.facts.device import MIB, Tenant
from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model
from orin_deploy.intent.budget import GROUP, SET
from orin_deploy.intent.refusal import refusal
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import STEP, Drafting, Serving
from orin_deploy.intent.ways import Way
from orin_deploy.intent.ways_of_room import ways_of_room
from tests.specs import make_device
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


@settings(max_examples=40)
@given(MODELS, SERVINGS, st.integers(1, 99))
def test_where_the_context_was_fitted_every_way_says_the_one_it_leaves(
    model: Model, serving: Serving, share: int
) -> None:
    """What is freed goes into a context that is worth serving, not into a prompt cache beside one of 256 tokens."""
    smallest = replace(serving, ctx_size=STEP * serving.slots)
    room = Room(Room(0, "").budget(model, smallest).total_bytes * share // 100, "test")
    for way in refusal(model, smallest, room, fitted=True).ways:
        after = changed(smallest, way)
        assert room.budget(model, after).total_bytes == way.total_bytes <= room.limit_bytes
        assert after.ctx_size == room.most(model, after)
        assert f"a context of {after.ctx_size // after.slots}" in way.what
        if after.ctx_size < 8192 * after.slots:
            bare = replace(after, cache_ram_mib=0)
            assert after.cache_ram_mib == 0 or not room.budget(model, bare, 8192 * after.slots).fits
        assert "one slot of" not in way.what


def test_a_fitted_context_gets_what_a_smaller_prompt_cache_gives() -> None:
    serving = Serving(ctx_size=STEP, cache_ram_mib=2048)
    need = Room(0, "").budget(MINICPM5, serving).total_bytes
    way = refusal(MINICPM5, serving, Room(need - 64 * MIB, "test"), fitted=True).ways[0]
    options = dict(way.options)
    assert int(options["ctx_size"]) >= 8192
    assert 0 < int(options["cache_ram"]) < 2048 - 64


@pytest.mark.parametrize(
    ("room", "said"),
    [
        (Room(1 << 30, "memory.limit_mib (--set)", limit_kind=SET), "raise memory.limit_mib, or use a smaller model"),
        (Room(1 << 30, "the cgroup's limit", limit_kind=GROUP), "raise the group's limit, or use a smaller model"),
        (
            Room(1 << 30, "memory.limit_mib", 2 << 30, limit_kind=SET),
            "raise memory.limit_mib, or lower memory.reserve_mib",
        ),
    ],
)
def test_where_nothing_helps_the_hint_names_what_bounds_the_room(room: Room, said: str) -> None:
    """And it is the line after the error, whatever else is listed."""
    error = refusal(MINICPM5, Serving(ctx_size=8192, cache_ram_mib=512), room, make_device())
    assert error.ways == ()
    assert (error.hint or "").startswith(said)
    assert next(lines(error)) == f"hint: {error.hint}"
    assert "free memory" not in str(error.hint)


@settings(max_examples=40)
@given(MODELS, SERVINGS, st.integers(1, 4000), st.booleans(), st.booleans())
def test_another_reserve_or_limit_makes_it_fit_where_no_setting_does(
    model: Model, serving: Serving, percent: int, fitted: bool, by_hand: bool
) -> None:
    """Each is estimated again in the room that it makes, and takes what it says."""
    least = Room(0, "").budget(model, serving, STEP * serving.slots).total_bytes
    asked = STEP * serving.slots if fitted else serving.ctx_size
    serving = replace(serving, ctx_size=asked)
    room = Room(least * percent // 1000, "test", least, limit_kind=SET if by_hand else GROUP, beyond_bytes=3 * least)
    for way in ways_of_room(model, serving, room, fitted=fitted):
        options = dict(way.options)
        reserve, limit = options.pop("memory.reserve_mib", None), options.pop("memory.limit_mib", None)
        assert (reserve is None) != (limit is None)
        if reserve is not None:
            after = replace(room, reserve_bytes=int(reserve) * MIB)
            assert after.reserve_bytes < room.reserve_bytes
        else:
            after = replace(room, limit_bytes=int(limit or 0) * MIB)
            assert by_hand
            assert after.limit_bytes <= room.beyond_bytes
        tokens = after.most(model, serving) if fitted else int(options.get("ctx_size", asked))
        budget = after.budget(model, serving, tokens)
        assert budget.fits
        assert budget.total_bytes == way.total_bytes
    assert (percent < 1000) or ways_of_room(model, serving, room, fitted=fitted) or percent >= 2000


def test_a_limit_set_by_hand_below_the_reserve_is_never_the_models_fault() -> None:
    """The reserve is named, and whole commands change it or the limit; nobody is told to free memory."""
    small = replace(MINICPM5, tensor_bytes=100 * MIB, layers=MINICPM5.layers[:2])
    room = Room(400 * MIB, "memory.limit_mib (--set)", 512 * MIB, limit_kind=SET, beyond_bytes=8 << 30)
    error = refusal(small, Serving(ctx_size=STEP), room, make_device(), fitted=True)
    assert "512 MiB of them the reserve" in error.message
    assert [way.options[0][0] for way in error.ways] == ["memory.reserve_mib", "memory.limit_mib"]
    said = " ".join([error.message, str(error.hint), *lines(error)])
    assert "smaller model" not in said
    assert "free memory" not in said


def test_what_would_free_memory_is_a_whole_command_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["orin-deploy", "plan", "--model", "m", "--set", "cache_ram=512", "--json"])
    here = replace(make_device(), tenants=(Tenant("deployment", "chat", 100 * MIB),))
    error = refusal(MINICPM5, Serving(ctx_size=8192, cache_ram_mib=512), Room(1 << 30, "MemAvailable"), here)
    commands = [each["command"] for each in document(error)["frees"]]
    assert "orin-deploy plan --model m --set cache_ram=0" in commands
    assert "orin-deploy plan --model m --set cache_ram=512 --set cache_type_k=q8_0 --set cache_type_v=q8_0" in commands
    assert "orin-deploy down --name chat" in commands
    assert all(set(each) == {"what", "bytes", "command"} for each in document(error)["frees"])
    shown = [line.strip() for line in lines(error)]
    assert set(commands) <= set(shown)


@pytest.mark.parametrize("layer", [Layer(0, 0, 0, state=(4096, 4096 * 64)), Layer(2, 64, 64, sliding=True)])
def test_fewer_checkpoints_are_offered_wherever_they_are_counted(layer: Layer) -> None:
    model = replace(MINICPM5, layers=(layer, Layer(2, 64, 64)) * 12, sliding_window=1024)
    serving = Serving(ctx_size=8192, ctx_checkpoints=64)
    need = Room(0, "").budget(model, serving).total_bytes
    ways = refusal(model, serving, Room(need - 8 * MIB, "test")).ways
    assert ("ctx_checkpoints", "4") in [option for way in ways for option in way.options]
    whole = replace(serving, ctx_checkpoints=0)
    assert not any("checkpoints" in way.what for way in refusal(model, whole, Room(need // 2, "test")).ways)
