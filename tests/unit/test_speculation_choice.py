"""The choice among measured ways to speculate, and the draft's length: optimal, never slower, not fooled by noise."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.intent.speculation_choice import LEAST_GAIN, NONE, Trial, best_length, choose, survival

WORKLOADS, ARMS = ("chat", "code", "story"), (NONE, "ngram-map-k4v", "draft-simple")
speeds = st.lists(st.floats(1, 100), min_size=1, max_size=4).map(tuple)


@st.composite
def tables(draw: st.DrawFn) -> list[Trial]:
    pairs = [(workload, arm) for workload in WORKLOADS for arm in ARMS]
    return [Trial(workload, arm, draw(speeds)) for workload, arm in pairs if arm == NONE or draw(st.integers(0, 9))]


def gain(trials: Sequence[Trial], arm: str, workload: str) -> float:
    by = {(trial.arm, trial.workload): trial for trial in trials}
    return by[arm, workload].speed / by[NONE, workload].speed


def noise(trials: Sequence[Trial], arm: str, workload: str) -> float:
    return max(trial.spread for trial in trials if trial.workload == workload and trial.arm in (arm, NONE))


@given(tables())
def test_what_is_chosen_is_slower_nowhere_and_faster_on_the_whole(trials: list[Trial]) -> None:
    choice = choose(trials)
    if choice.arm == NONE:
        assert choice.why
        return
    gains = {workload: gain(trials, choice.arm, workload) for workload in WORKLOADS}
    assert choice.gains == gains
    assert all(each >= 1 - noise(trials, choice.arm, name) for name, each in gains.items())
    assert choice.gain == pytest.approx(math.prod(gains.values()) ** (1 / 3))
    assert choice.gain > 1 + LEAST_GAIN
    assert set(choice.rejected) == {trial.arm for trial in trials} - {NONE, choice.arm}


@given(tables(), st.randoms(), st.floats(0.1, 10))
def test_neither_order_nor_unit_nor_weight_in_common_matters(
    trials: list[Trial], random: object, factor: float
) -> None:
    shuffled = sorted(trials, key=lambda _: random.random())  # type: ignore[attr-defined]
    scaled = [Trial(each.workload, each.arm, tuple(speed * 2 for speed in each.speeds)) for each in shuffled]
    mix = dict.fromkeys(WORKLOADS, factor)
    first, second = choose(trials), choose(scaled, mix)
    assert second.gain == pytest.approx(first.gain)
    assert second.arm == first.arm or second.gain == pytest.approx(first.gain)


@given(st.floats(2, 50), st.floats(0.06, 3))
def test_a_clear_winner_wins_and_a_clear_loser_loses(base: float, extra: float) -> None:
    trials = [Trial("chat", NONE, (base, base)), Trial("chat", "draft", (base * (1 + extra),) * 2)]
    assert choose(trials).arm == "draft"
    assert choose([Trial("chat", NONE, (base * (1 + extra),)), Trial("chat", "draft", (base,))]).arm == NONE


def test_one_workload_that_loses_outweighs_the_mean() -> None:
    trials = [
        Trial("code", NONE, (10,)), Trial("code", "draft", (30,)),
        Trial("chat", NONE, (10,)), Trial("chat", "draft", (7,)),
    ]  # fmt: skip
    assert choose(trials).arm == NONE
    assert "slower on chat" in choose(trials).why
    assert choose(trials, {"code": 1}).arm == "draft"
    assert choose(trials, {"code": 1, "chat": 0}).arm == "draft"


def test_a_gain_within_the_noise_is_none() -> None:
    trials = [Trial("chat", NONE, (9, 10, 11)), Trial("chat", "draft", (10.5, 11.5, 12))]
    assert choose(trials).arm == NONE
    assert "spread" in choose(trials).why


def test_the_weights_decide_between_two_that_win() -> None:
    trials = [
        *(Trial(name, NONE, (10,)) for name in ("chat", "code")),
        Trial("chat", "a", (15,)), Trial("code", "a", (12,)), Trial("chat", "b", (12,)), Trial("code", "b", (15,)),
    ]  # fmt: skip
    assert choose(trials, {"chat": 3, "code": 1}).arm == "a"
    assert choose(trials, {"chat": 1, "code": 3}).arm == "b"


@pytest.mark.parametrize(
    "trials", [[], [Trial("chat", "a", (9,))], [Trial("chat", NONE, ())], [Trial("chat", NONE, (1,))]]
)
def test_without_a_comparison_it_is_none(trials: list[Trial]) -> None:
    assert choose(trials).arm == NONE
    assert choose(trials, {"code": 1}).arm == NONE


# The draft's length.

shares = st.lists(st.floats(0, 1), max_size=12).map(lambda each: sorted(each, reverse=True))
costs = st.dictionaries(st.integers(1, 16), st.floats(0.01, 2), max_size=5).map(lambda each: {0: 0.1, **each})


def speed(shares: Sequence[float], cost: dict[int, float], draft_s: float, k: int) -> float:
    return (1 + sum(shares[:k])) / (cost[k] + k * draft_s)


@given(shares, st.lists(st.floats(0.01, 2), min_size=13, max_size=13), st.floats(0, 0.1))
def test_no_length_is_better_than_the_best(shares: list[float], cost: list[float], draft_s: float) -> None:
    table = dict(enumerate(cost))
    found = best_length(shares, table, draft_s)
    every = [speed(shares, table, draft_s, k) for k in range(len(shares) + 1)]
    assert every[found.n_max] == pytest.approx(max(every))
    assert found.gain == pytest.approx(every[found.n_max] / every[0])
    assert found.tokens_per_step == pytest.approx(1 + sum(shares[: found.n_max]))


@given(shares, costs, st.floats(0.1, 10))
def test_the_unit_of_time_does_not_matter(shares: list[float], cost: dict[int, float], factor: float) -> None:
    scaled = {k: seconds * factor for k, seconds in cost.items()}
    assert best_length(shares, scaled).gain == pytest.approx(best_length(shares, cost).gain)


@given(st.integers(1, 12))
def test_the_two_ends(n: int) -> None:
    flat = dict.fromkeys(range(n + 1), 0.1)
    assert best_length([1.0] * n, flat).n_max == n
    assert best_length([0.0] * n, flat).n_max == 0
    assert best_length([1.0] * n, {k: 0.1 * (k + 1) for k in range(n + 1)}).n_max == 0  # verified one by one: no gain


def test_lengths_between_two_measured_ones_are_on_a_line_and_none_is_beyond() -> None:
    assert best_length([0.9, 0.8, 0.1, 0.0], {0: 0.1, 4: 0.14}).n_max == 2
    assert best_length([1.0] * 8, {0: 0.1, 4: 0.1}).n_max == 4
    with pytest.raises(ValueError, match="without a draft"):
        best_length([1.0], {1: 0.1})


@given(st.lists(st.integers(0, 100), max_size=8), st.integers(0, 100))
def test_shares_of_counted_positions_never_grow(accepted: list[int], drafts: int) -> None:
    found = survival(accepted, drafts)
    assert len(found) == len(accepted)
    assert list(found) == sorted(found, reverse=True)
    assert all(0 <= share <= 1 for share in found)
    assert survival([90, 50, 20], 100) == (0.9, 0.5, 0.2)
