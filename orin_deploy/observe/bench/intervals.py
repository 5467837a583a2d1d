"""How far a measured speed can be trusted: intervals of means and of ratios, and when there is nothing more to tell.

Speeds are compared by their logarithms, turn by turn: the arms of a turn had the same prompts, seconds apart, so what
disturbs both cancels out. The interval of the mean is Student's: a bootstrap's of so few turns would be too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean, variance

RATE = 0.05
"""The share of runs, with all their comparisons, that may call a difference where there is none."""

FEWEST_TURNS = 4
MOST_TURNS = 16
NARROW = 0.03
"""A ratio's half-width at which a case without a difference is settled."""

LEAST = 0.01
"""A smaller difference is none, however surely it is measured: another build or another day brings more."""


@dataclass(frozen=True)
class Interval:
    """A value of a positive quantity with the bounds between which its true value lies at the stated rate."""

    value: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """The half-width in relation to the value: 0.03 is three percent to either side."""
        return math.sqrt(self.high / self.low) - 1 if self.low > 0 else math.inf

    @property
    def differs(self) -> bool:
        """Of a ratio: whether it is surely not 1, and by enough to matter."""
        return (self.low > 1 or self.high < 1) and abs(math.log(self.value)) >= math.log1p(LEAST)


@lru_cache(maxsize=4096)
def student(inside: float, df: int) -> float:
    """The t within which Student's distribution holds the share `inside`, both sides counted.

    By bisection of Abramowitz and Stegun 26.7.3 and 26.7.4, exact for whole degrees of freedom.
    """
    low, high = 0.0, 1.0
    while _within(high, df) < inside and high < 1e12:
        low, high = high, high * 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, df) < inside else (low, middle)
    return high


def _within(t: float, df: int) -> float:
    angle = math.atan(t / math.sqrt(df))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term, total = (cosine if odd else 1.0), 0.0
    for step in range(2 + odd, df + 1, 2):
        total += term
        term *= cosine * cosine * (step - 1) / step
    return (angle + sine * total) * 2 / math.pi if odd else sine * total


def interval(logs: Sequence[float], wrong: float) -> Interval:
    """Of the geometric mean, from the logarithms; it misses the true one with the probability `wrong`.

    Without bounds (0, infinity) for fewer than two values.
    """
    middle = fmean(logs)
    if len(logs) < 2:
        return Interval(math.exp(middle), 0.0, math.inf)
    half = student(1 - wrong, len(logs) - 1) * math.sqrt(variance(logs) / len(logs))
    return _around(middle, half)


def pooled(cases: Mapping[str, Sequence[float]], weights: Mapping[str, float], wrong: float) -> Interval:
    """Of the weighted geometric mean over cases, each with its logarithms (Welch and Satterthwaite's freedom)."""
    total = sum(weights[name] for name in cases)
    middle, squares, freedom = 0.0, 0.0, 0.0
    for name, logs in cases.items():
        share = weights[name] / total
        middle += share * fmean(logs)
        if len(logs) < 2:
            return Interval(math.exp(middle), 0.0, math.inf)
        part = share * share * variance(logs) / len(logs)
        squares += part
        freedom += part * part / (len(logs) - 1)
    # Whole, rounded down: the safer side. A little more, for the quotient of a whole number may come out below it.
    df = int(squares * squares / freedom + 1e-9) if freedom else max(map(len, cases.values()))
    return _around(middle, student(1 - wrong, max(df, 1)) * math.sqrt(squares))


def _around(middle: float, half: float) -> Interval:
    half = min(half, 300.0)  # beyond, the exponential overflows
    return Interval(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def verdict_rate(comparisons: int) -> float:
    """What each of so many comparisons may be wrong by, so that all together are by RATE (Bonferroni).

    A third of it: a case may also be settled early by looking after every turn, and the turns at which an interval
    looks narrow are not any turns. Simulated with equal arms and 1 to 5 percent of noise, 1.6 to
    3.9 runs of 100 call some difference.
    """
    return RATE / max(comparisons, 1) / 3


def settled(ratios: Sequence[Sequence[float]], comparisons: int) -> bool:
    """Whether more turns would tell nothing new of a case; `ratios` are the logarithms for each other arm.

    Each arm surely differs, by a rate that looking after every turn does not spoil, or is surely close.
    """
    rate = verdict_rate(comparisons)
    early = rate / (MOST_TURNS - FEWEST_TURNS)
    for logs in ratios:
        if len(logs) < FEWEST_TURNS:
            return False
        if len(logs) < MOST_TURNS and not interval(logs, early).differs and interval(logs, rate).spread > NARROW:
            return False
    return True


def steady(logs: Sequence[float]) -> bool:
    """Whether one arm's own speed is known well enough, where there is no other to compare it with."""
    return len(logs) >= MOST_TURNS or (len(logs) >= FEWEST_TURNS and interval(logs, RATE).spread <= NARROW)
