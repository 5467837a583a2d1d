"""Fitting: the context against the memory there is, for any memory, any model and what was fitted before."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orin_deploy.errors import Refused
from orin_deploy.facts.device import MIB, Device, Memory
from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model
from orin_deploy.intent import profile
from orin_deploy.intent.budget import Budget
from orin_deploy.intent.fit import Fitted, fit, room_of, serving_of
from orin_deploy.intent.profile import Profile
from orin_deploy.intent.refusal import DoesNotFit
from orin_deploy.intent.resolve import layer
from orin_deploy.intent.serving import STEP
from orin_deploy.intent.spec import Setting, Spec
from tests.planning import PROFILES, planned

WORDS = st.fixed_dictionaries(
    {
        "parallel": st.sampled_from(["1", "2", "3", "4"]),
        "cache_type_k": st.sampled_from(["f16", "q8_0", "q4_0"]),
        "cache_ram": st.sampled_from(["0", "256"]),
        "kv_unified": st.sampled_from(["on", "off"]),
    }
)
MEMORY = st.integers(64, 64_000)
UNHURRIED = settings(deadline=None, max_examples=60)


@lru_cache
def board() -> Spec:
    return planned("agx32").spec


@st.composite
def models(draw: st.DrawFn) -> Model:
    """The board's own model in other sizes."""
    layers = (Layer(draw(st.integers(1, 8)), 64, 64),) * draw(st.integers(1, 40))
    trained = draw(st.sampled_from([512, 4096, 8192, 40_960, 131_072]))
    size = draw(st.integers(10, 4000)) * MIB
    return replace(board().model, layers=layers, n_ctx_train=trained, tensor_bytes=size)


@lru_cache
def chosen() -> Profile:
    return profile.load("agx32", (PROFILES,))


def values(words: dict[str, str]) -> dict[str, Setting]:
    return layer(chosen(), tuple(words.items()))


def machine(available_mib: int, **more: Any) -> Device:
    memory = Memory(total=65_000 * MIB, available=available_mib * MIB, free=0, **more)
    return replace(board().device, memory=memory, assumed=None)


def made(
    model: Model, words: dict[str, Setting], device: Device, earlier: Fitted | None = None, own: int = 0
) -> tuple[Setting, Budget]:
    serving = serving_of(words, board().build)
    return fit(model, words, serving, room_of(device, words, model, serving, own_bytes=own), device, earlier)


def fitted(
    model: Model, available_mib: int, words: dict[str, str], earlier: Fitted | None = None, own: int = 0
) -> tuple[int, str, Budget] | None:
    """Context, source and budget; None when nothing fits."""
    try:
        setting, budget = made(model, values(words), machine(available_mib), earlier, own)
    except Refused:
        return None
    return int(str(setting.value)), setting.source, budget


@UNHURRIED
@given(models(), MEMORY, WORDS)
def test_what_is_fitted_fits_and_the_next_step_does_not(model: Model, available: int, words: dict[str, str]) -> None:
    found = fitted(model, available, words)
    slots = 1 if words["kv_unified"] == "on" else int(words["parallel"])
    if found is None:
        assert fitted(model, available, words | {"ctx_size": str(STEP * slots)}) is None
        return
    context, source, budget = found
    assert budget.fits
    assert budget.total_bytes <= budget.limit_bytes == available * MIB
    assert context % (STEP * slots) == 0
    if context >= model.n_ctx_train // STEP * STEP * slots:
        assert source == "fitted to memory: all the model was trained for"
    else:
        assert source == "fitted to memory"
        assert fitted(model, available, words | {"ctx_size": str(context + STEP * slots)}) is None


@UNHURRIED
@given(models(), MEMORY, st.integers(0, 20_000), WORDS)
def test_more_memory_never_gives_a_smaller_context(model: Model, few: int, more: int, words: dict[str, str]) -> None:
    small, large = fitted(model, few, words), fitted(model, few + more, words)
    if small is not None:
        assert large is not None
        assert large[0] >= small[0]


@UNHURRIED
@given(models(), st.integers(1, 64), st.integers(0, 64), WORDS)
def test_a_larger_context_never_needs_less(model: Model, steps: int, more: int, words: dict[str, str]) -> None:
    big = replace(model, n_ctx_train=131_072)
    sizes = [words | {"ctx_size": str(STEP * 4 * count)} for count in (steps, steps + more)]
    small, large = (fitted(big, 500_000, each) for each in sizes)
    assert small is not None
    assert large is not None
    assert small[2].total_bytes <= large[2].total_bytes


@UNHURRIED
@given(models(), MEMORY, WORDS)
def test_every_change_that_the_refusal_offers_fits(model: Model, available: int, words: dict[str, str]) -> None:
    asked = words | {"ctx_size": str(model.n_ctx_train)}
    if fitted(model, available, asked) is not None:
        return
    with pytest.raises(DoesNotFit) as caught:
        made(model, values(asked), machine(available))
    for way in caught.value.ways:
        found = fitted(model, available, asked | dict(way.options))
        assert found is not None
        assert found[2].total_bytes == way.total_bytes
    if not caught.value.ways:
        smallest = {"cache_type_k": "q4_0", "cache_type_v": "q4_0", "cache_ram": "0", "parallel": "1"}
        assert fitted(model, available, words | smallest) is None


def earlier(context: int, budget: Budget, record: int = 7) -> Fitted:
    return Fitted(context, record, budget.total_bytes, budget.limit_bytes, budget.limit_kind)


@UNHURRIED
@given(models(), MEMORY, st.integers(-30, 2000), WORDS)
def test_a_fitted_context_stays_while_it_fits_and_only_free_memory_moved(
    model: Model, available: int, moved: int, words: dict[str, str]
) -> None:
    first = fitted(model, available, words)
    if first is None or available + moved < 1:
        return
    again = fitted(model, available + moved, words, earlier(first[0], first[2]))
    if first[2].total_bytes <= (available + moved) * MIB:
        assert again is not None
        assert again[:2] == (first[0], "fitted to memory, record 7")
    else:
        assert again is None or again[0] < first[0]


@pytest.mark.parametrize("change", [{"cache_type_k": "q4_0"}, {"parallel": "4"}, {"memory.reserve_mib": "10"}])
def test_who_asks_for_something_else_gets_a_context_fitted_to_it(change: dict[str, str]) -> None:
    model, available = board().model, 6000
    first = fitted(model, available, {})
    assert first is not None
    assert first[0] < model.n_ctx_train
    again = fitted(model, available, change, earlier(first[0], first[2]))
    assert again == fitted(model, available, change)
    assert again is not None
    assert again[1] == "fitted to memory"


def test_a_limit_that_is_lifted_lets_the_context_grow() -> None:
    model = board().model
    first = fitted(model, 20_000, {"memory.limit_mib": "6000"})
    assert first is not None
    assert first[2].limit_source == "memory.limit_mib (--set)"
    kept = fitted(model, 20_000, {"memory.limit_mib": "6000"}, earlier(first[0], first[2]))
    wider = fitted(model, 20_000, {"memory.limit_mib": "6500"}, earlier(first[0], first[2]))
    lifted = fitted(model, 20_000, {}, earlier(first[0], first[2]))
    assert kept is not None
    assert wider is not None
    assert lifted is not None
    assert first[0] == kept[0] < wider[0] < lifted[0]


@UNHURRIED
@given(
    st.integers(1000, 60_000), st.integers(1000, 60_000), st.integers(0, 500), st.integers(1000, 60_000),
    st.integers(0, 900),
)  # fmt: skip
def test_the_tightest_limit_counts_and_what_is_held_comes_on_top(
    available: int, group: int, used: int, asked: int, own: int
) -> None:
    device = machine(available, cgroup_limit=group * MIB, cgroup_used=used * MIB)
    words = values({"memory.limit_mib": str(asked), "ctx_size": "256", "memory.reserve_mib": "0", "cache_ram": "0"})
    model = replace(board().model, tensor_bytes=MIB, token_embd_bytes=0, layers=(Layer(1, 64, 64),), n_ff=64, n_vocab=9)
    _, budget = made(model, words, device, own=own * MIB)
    bounds = {
        "MemAvailable": available + own,
        "the cgroup's limit less its use": group - used + own,
        "memory.limit_mib (--set)": asked,
    }
    name = budget.limit_source.removesuffix(" and what this deployment holds")
    assert budget.limit_bytes == min(bounds.values()) * MIB == bounds[name] * MIB


@pytest.mark.parametrize("slots", [1, 4])
def test_beyond_training_is_refused_unless_stretched_on_purpose(slots: int) -> None:
    model = replace(board().model, n_ctx_train=4096)
    most, words = 4096 * slots, {"parallel": str(slots)}
    assert fitted(model, 60_000, words | {"ctx_size": str(most)}) is not None
    with pytest.raises(Refused, match=f"ctx_size={most + 1} .--set. is beyond the 4096 tokens") as caught:
        made(model, values(words | {"ctx_size": str(most + 1)}), machine(60_000))
    assert f"--set ctx_size={most}" in (caught.value.hint or "")
    stretched = words | {"ctx_size": str(2 * most), "rope_scaling": "yarn"}
    assert fitted(model, 60_000, stretched) is not None
