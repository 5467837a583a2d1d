"""From samples to verdicts. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from orin_deploy.errors import OrinError
from orin_deploy.observe.bench.intervals import FEWEST_TURNS, RATE, Interval, interval, pooled, verdict_rate
from orin_deploy.observe.bench.outputs import Difference, differences
from orin_deploy.observe.bench.sample import Case, Sample, rejected

WIDE = 0.1
"""A ratio's half-width beyond which that nothing differs is not known either."""

FASTER, SLOWER, SAME, UNKNOWN = "faster", "slower", "no difference", "unknown"


@dataclass(frozen=True)
class Score:
    """How an arm did at a case. Speeds in tokens per second, of all clients together for `speed`; seconds otherwise.

    `speed` is the geometric mean of `turns` samples, None without any that counts. `acceptance` is accepted over
    drafted tokens, `accepted_length` the tokens that a verification yields (the target's own included),
    `by_position` the share of verifications that accepted a token at each position; None without drafts.
    """

    turns: int
    rejected: int
    speed: Interval | None
    prompt_per_s: float | None
    first_token_s: float | None
    gap_p50_s: float | None
    gap_p95_s: float | None
    tokens: int
    drafted: int
    acceptance: float | None
    accepted_length: float | None
    by_position: tuple[float, ...]

    @property
    def spread(self) -> float | None:
        return None if self.speed is None else self.speed.spread


@dataclass(frozen=True)
class Ratio:
    """An arm's speed over the first arm's, from `turns` turns that both have; `verdict` says what that proves."""

    turns: int
    value: Interval | None
    verdict: str


@dataclass(frozen=True)
class Comparison:
    """What a race found. The first of `arms` is what the others are compared with.

    `best` names the arms of each case that no other surely beats, fastest first; all of them means that there is no
    difference, none that nothing can be told. `means` are over the weighted mix of cases that every arm has.
    `left_out` says why an arm is missing, of the error in `errors`; `together` whether all servers were up at once,
    `tokens` how long the answers could be.
    """

    arms: tuple[str, ...]
    cases: tuple[Case, ...]
    scores: Mapping[tuple[Case, str], Score]
    ratios: Mapping[tuple[Case, str], Ratio]
    best: Mapping[Case, tuple[str, ...]]
    means: Mapping[str, Interval]
    mean_ratios: Mapping[str, Ratio]
    outputs: tuple[Difference, ...]
    compared_outputs: int
    samples: tuple[Sample, ...]
    rejected: Mapping[int, str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, OrinError] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    together: bool = True
    tokens: Mapping[Case, int] = field(default_factory=dict)
    conditions: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def compare(
    samples: Sequence[Sample], arms: Sequence[str], shares: Mapping[Case, float], cpus: int, **told: Any
) -> Comparison:
    """The comparison of `arms` over the cases of `shares`; `told` are the fields that samples do not hold."""
    out = rejected(samples, cpus)
    good = [sample for at, sample in enumerate(samples) if at not in out]
    cases = tuple(shares)
    logs = {(case, arm): speeds(good, case, arm) for case in cases for arm in arms}
    wrong = verdict_rate(comparisons(len(cases), len(arms)))
    scores = {
        (case, arm): _score([s for s in samples if (s.case, s.arm) == (case, arm)], good, case, arm)
        for case in cases
        for arm in arms
    }
    paired = {(case, arm): pairs(logs[case, arms[0]], logs[case, arm]) for case in cases for arm in arms[1:]}
    compared, found = differences(samples, arms)
    means, mean_ratios = _means(logs, paired, arms, shares)
    return Comparison(
        arms=tuple(arms),
        cases=cases,
        scores=scores,
        ratios={key: _ratio({"": each}, {"": 1.0}, wrong) for key, each in paired.items()},
        best={case: _best({arm: logs[case, arm] for arm in arms}, wrong) for case in cases},
        means=means,
        mean_ratios=mean_ratios,
        outputs=found,
        compared_outputs=compared,
        samples=tuple(samples),
        rejected=out,
        **told,
    )


def _means(
    logs: Mapping[tuple[Case, str], Mapping[int, float]],
    paired: Mapping[tuple[Case, str], Sequence[float]],
    arms: Sequence[str],
    shares: Mapping[Case, float],
) -> tuple[dict[str, Interval], dict[str, Ratio]]:
    """The weighted geometric means over the cases that every arm has, and their ratios to the first arm's."""
    whole = [case for case in shares if all(logs[case, arm] for arm in arms)]
    weights = {str(at): shares[case] for at, case in enumerate(whole)}
    means, ratios = {}, {}
    for arm in arms if whole else ():
        means[arm] = pooled({str(at): [*logs[case, arm].values()] for at, case in enumerate(whole)}, weights, RATE)
        if arm != arms[0]:
            both = {str(at): paired[case, arm] for at, case in enumerate(whole) if paired[case, arm]}
            ratios[arm] = _ratio(both, weights, RATE / (len(arms) - 1))
    return means, ratios


def comparisons(cases: int, arms: int) -> int:
    """How many there are: each arm with each other at each case."""
    return max(cases * arms * (arms - 1) // 2, 1)


def speeds(good: Sequence[Sample], case: Case, arm: str) -> dict[int, float]:
    """The logarithms of an arm's speeds at a case, by turn."""
    return {sample.turn: math.log(sample.speed) for sample in good if (sample.case, sample.arm) == (case, arm)}


def pairs(base: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    """The logarithms of the ratios of the turns that both arms have."""
    return [other[turn] - base[turn] for turn in sorted(base.keys() & other.keys())]


def rivals(logs: Mapping[str, Mapping[int, float]]) -> list[list[float]]:
    """The ratios that decide a case: of the leader and of the first arm to each other arm."""
    leader = max(logs, key=lambda arm: fmean(logs[arm].values()) if logs[arm] else -math.inf)
    first = next(iter(logs))
    return [pairs(logs[one], logs[arm]) for one in dict.fromkeys((leader, first)) for arm in logs if arm != one]


def _ratio(cases: Mapping[str, Sequence[float]], weights: Mapping[str, float], wrong: float) -> Ratio:
    fewest = min((len(logs) for logs in cases.values()), default=0)
    if fewest == 0:
        return Ratio(0, None, UNKNOWN)
    value = pooled(cases, weights, wrong) if len(cases) > 1 else interval(next(iter(cases.values())), wrong)
    if sum(map(len, cases.values())) < FEWEST_TURNS:
        return Ratio(fewest, value, UNKNOWN)
    if value.differs:
        return Ratio(fewest, value, FASTER if value.value > 1 else SLOWER)
    return Ratio(fewest, value, SAME if value.spread <= WIDE else UNKNOWN)


def _best(logs: Mapping[str, Mapping[int, float]], wrong: float) -> tuple[str, ...]:
    """The arms that no other surely beats, fastest first; none where an arm has too few turns."""
    if any(len(each) < FEWEST_TURNS for each in logs.values()):
        return ()
    order = sorted(logs, key=lambda arm: -fmean(logs[arm].values()))
    top = logs[order[0]]
    return tuple(
        arm
        for arm in order
        if arm == order[0] or _ratio({"": pairs(logs[arm], top)}, {"": 1.0}, wrong).verdict != FASTER
    )


def _score(mine: Sequence[Sample], good: Sequence[Sample], case: Case, arm: str) -> Score:
    kept = [sample for sample in good if (sample.case, sample.arm) == (case, arm)]
    gaps = sorted(gap for sample in kept for gap in sample.gaps_s)
    drafted, accepted = sum(s.drafted for s in kept), sum(s.accepted for s in kept)
    drafts = sum(s.counts.drafts for s in kept if s.counts)
    longest = max((len(s.counts.by_position) for s in kept if s.counts), default=0)
    positions = [
        sum(s.counts.by_position[at] for s in kept if s.counts and at < len(s.counts.by_position))
        for at in range(longest)
    ]
    return Score(
        turns=len(kept),
        rejected=len(mine) - len(kept),
        speed=interval([math.log(s.speed) for s in kept], RATE) if kept else None,
        prompt_per_s=median(s.prompt_per_s for s in kept) if kept else None,
        first_token_s=median(s.first_token_s for s in kept) if kept else None,
        gap_p50_s=_quantile(gaps, 0.5),
        gap_p95_s=_quantile(gaps, 0.95),
        tokens=sum(s.tokens for s in kept),
        drafted=drafted,
        acceptance=accepted / drafted if drafted else None,
        accepted_length=1 + accepted / drafts if drafts else None,
        by_position=tuple(count / drafts for count in positions) if drafts else (),
    )


def _quantile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest value with that share of the values at or below it."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else None
