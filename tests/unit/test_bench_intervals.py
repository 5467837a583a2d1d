"""The statistics of the bench: what it calls a difference is one, at the rate it states."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.observe.bench import intervals
from orin_deploy.observe.bench.comparison import FASTER, SAME, UNKNOWN, Comparison, compare, comparisons, rivals, speeds
from orin_deploy.observe.bench.intervals import FEWEST_TURNS, MOST_TURNS, RATE, interval, pooled, settled, student
from orin_deploy.observe.bench.sample import Case, Sample
from tests.unit.bench_samples import sample

CASES = tuple(Case(name, "en") for name in ("chat", "code", "copy"))
SHARES = dict.fromkeys(CASES, 1.0)


@pytest.mark.parametrize(
    ("inside", "df", "value"),
    # A table of Student's distribution.
    [(0.95, 1, 12.706), (0.95, 2, 4.303), (0.99, 4, 4.604), (0.95, 5, 2.571), (0.999, 9, 4.781), (0.95, 30, 2.042)],
)
def test_student(inside: float, df: int, value: float) -> None:
    assert student(inside, df) == pytest.approx(value, abs=0.001)


def raced(random: Random, speed: dict[str, float], noise: float, drift: float = 0.0) -> Comparison:
    """A race of arms with true speeds, stopped as the real one is; `noise` and `drift` are shares of the speed."""
    arms, samples = tuple(speed), list[Sample]()
    count = comparisons(len(CASES), len(arms))
    for turn in range(MOST_TURNS):
        still = []
        for case in CASES:
            logs = {arm: speeds(samples, case, arm) for arm in arms}
            if not settled(rivals(logs), count):
                still.append(case)
        for case in still:
            prompt = random.gauss(0, 0.1)  # every prompt has its own speed, the same for all arms
            for arm in arms if turn % 2 == 0 else reversed(arms):
                slower = drift * len(samples)
                samples.append(sample(arm, case, turn, speed[arm] * math.exp(prompt + random.gauss(0, noise) - slower)))
    return compare(samples, arms, SHARES, cpus=2)


def test_equal_arms_are_called_different_no_more_often_than_stated() -> None:
    random, runs = Random(1), 300
    wrong = sum(
        any(
            ratio.verdict not in (SAME, UNKNOWN)
            for ratio in raced(random, {"a": 50.0, "b": 50.0}, 0.03).ratios.values()
        )
        for _ in range(runs)
    )
    # Three standard errors above the stated rate is what chance allows a right program.
    assert wrong / runs <= RATE + 3 * math.sqrt(RATE * (1 - RATE) / runs)


def test_a_steady_drift_favours_no_arm() -> None:
    random = Random(2)
    found = raced(random, {"a": 50.0, "b": 50.0, "c": 50.0}, 0.01, drift=0.001)
    assert {ratio.verdict for ratio in found.ratios.values()} <= {SAME, UNKNOWN}
    assert all(ratio.value is not None and abs(math.log(ratio.value.value)) < 0.02 for ratio in found.ratios.values())


def test_a_gain_of_two_fifths_is_found_soon_and_the_winner_named() -> None:
    random, missed = Random(3), 0
    for _ in range(20):
        found = raced(random, {"none": 50.0, "draft": 70.0}, 0.05)
        for case in CASES:
            ratio = found.ratios[case, "draft"]
            assert ratio.verdict == FASTER
            assert ratio.value is not None
            missed += not ratio.value.low < 1.4 < ratio.value.high
            assert found.best[case] == ("draft",)
        assert found.mean_ratios["draft"].verdict == FASTER
        assert len(found.samples) <= 2 * len(CASES) * 12
    assert missed <= 3  # of 60, at the stated rate and because a case is settled when its interval is a lucky one


def test_equal_arms_on_a_quiet_machine_are_settled_before_the_last_turn() -> None:
    found = raced(Random(4), {"a": 50.0, "b": 50.0}, 0.005)
    assert {ratio.verdict for ratio in found.ratios.values()} == {SAME}
    assert all(found.best[case] in (("a", "b"), ("b", "a")) for case in CASES)
    assert len(found.samples) < 2 * len(CASES) * MOST_TURNS


def test_noise_without_end_is_told_as_not_known() -> None:
    found = raced(Random(5), {"a": 50.0, "b": 50.0}, 0.5)
    assert {ratio.verdict for ratio in found.ratios.values()} == {UNKNOWN}


LOGS = st.lists(st.floats(-2, 2), min_size=2, max_size=12)


@given(LOGS, st.floats(-3, 3))
def test_an_interval_moves_with_its_values(logs: list[float], by: float) -> None:
    one, other = interval(logs, 0.05), interval([value + by for value in logs], 0.05)
    assert one.low <= one.value <= one.high
    assert other.value == pytest.approx(one.value * math.exp(by))
    assert other.spread == pytest.approx(one.spread, abs=1e-9, rel=1e-6)


@given(LOGS)
def test_more_certainty_takes_a_wider_interval(logs: list[float]) -> None:
    assert interval(logs, 0.01).spread >= interval(logs, 0.05).spread


@given(LOGS)
def test_a_mix_of_one_case_is_that_case(logs: list[float]) -> None:
    one, mix = interval(logs, 0.05), pooled({"": logs}, {"": 3.0}, 0.05)
    assert mix.value == pytest.approx(one.value)
    assert mix.spread == pytest.approx(one.spread, rel=1e-6, abs=1e-9)


@given(st.lists(st.floats(-1, 1), max_size=FEWEST_TURNS - 1))
def test_a_case_is_never_settled_by_too_few_turns(logs: list[float]) -> None:
    assert not settled([logs], 1)
    assert not intervals.steady(logs)


def test_one_value_has_no_bounds() -> None:
    assert interval([0.0], 0.05).high == math.inf
    assert not interval([1.0], 0.05).differs
