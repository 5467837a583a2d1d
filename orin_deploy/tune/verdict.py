"""From a race to a decision: speculation only where it surely wins. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from orin_deploy.intent.refusal import TOO_LITTLE
from orin_deploy.intent.speculation_choice import LEAST_GAIN, NONE
from orin_deploy.observe.bench.comparison import FASTER, UNKNOWN, Comparison, Ratio, pairs, speeds
from orin_deploy.observe.bench.intervals import LEAST
from orin_deploy.observe.bench.sample import Case

_MUCH = 0.25
"""The share of the server's CPUs that other programs may take of a quiet machine."""


@dataclass(frozen=True)
class Verdict:
    """The arm to serve with and why. `gains` are the arms' speeds over those without speculation, over the mix, as far
    as they are known; `against` says of every other arm what spoke against it.

    `sure` is False where none is served because another measurement might find a gain: with `undecided` one of more
    turns, where the machine was `busy`, in words, one while it is idle. `short` says why in few words.
    """

    arm: str
    why: str
    gains: Mapping[str, float] = field(default_factory=dict)
    against: Mapping[str, str] = field(default_factory=dict)
    sure: bool = True
    undecided: bool = False
    busy: str | None = None
    short: str = ""

    @property
    def gain(self) -> float | None:
        return self.gains.get(self.arm)

    @property
    def nearest(self) -> str | None:
        """Of the arms that were measured, the fastest over the mix."""
        return max(self.gains, key=lambda arm: self.gains[arm], default=None)


def judge(found: Comparison) -> Verdict:
    """The arm with the best geometric mean over the mix, where it surely gains at least LEAST_GAIN and is slower than
    none on no workload by more than its spread there; else none.

    Unlike `speculation_choice.choose`, which has speeds without their prompts, this compares turn by turn: both arms
    of a turn had the same prompt, seconds apart, and the interval of the mean narrows with every turn.
    """
    against = dict(found.left_out)
    if found.arms[:1] != (NONE,):
        why = found.left_out.get(NONE, "it was not measured")
        return Verdict(NONE, f"there is nothing to compare with: {NONE}: {why}", {}, against, sure=False)
    gains: dict[str, float] = {}
    winners: list[str] = []
    open_arms: list[str] = []
    for arm in found.arms[1:]:
        mean = found.mean_ratios.get(arm)
        if mean is None or mean.value is None:
            against[arm] = "too few samples that count"
            open_arms.append(arm)
            continue
        gains[arm] = mean.value.value
        slower = _slower(found, arm)
        if slower is not None:
            against[arm] = slower
        elif mean.verdict == FASTER and mean.value.value >= 1 + LEAST_GAIN:
            winners.append(arm)
        else:
            against[arm] = _no_gain(mean)
            if mean.verdict == UNKNOWN and mean.value.high >= 1 + LEAST_GAIN:
                open_arms.append(arm)
    if winners:
        best = max(winners, key=lambda arm: gains[arm])
        against |= {arm: f"{best} is faster" for arm in winners if arm != best}
        return Verdict(best, f"{gains[best]:.2f} times none", gains, against)
    if open_arms:
        busy = _busy(found)
        few = "most turns did not count" if 2 * len(found.rejected) > len(found.samples) else "too few turns"
        short = f"could not tell, {'the machine was busy' if busy else few}"
        why = f"could not tell: {_lists(against, open_arms)}"
        return Verdict(NONE, why, gains, against, sure=False, undecided=True, busy=busy, short=short)
    if not gains:
        lacking = all(why.startswith(TOO_LITTLE) for why in against.values())
        short = f"{TOO_LITTLE} to measure another way" if lacking else "nothing else could be measured"
        why = f"nothing else could be measured: {_lists(against, against)}"
        return Verdict(NONE, why, gains, against, sure=False, short=short)
    nearest = max(gains, key=lambda arm: gains[arm])
    return Verdict(NONE, f"{nearest} {gains[nearest]:.2f} times none", gains, against)


def _busy(found: Comparison) -> str | None:
    """What other programs did meanwhile, in words, where that was much of the server's CPUs."""
    known = [sample.others_cpus for sample in found.samples if sample.others_cpus is not None]
    cpus = len(found.conditions.get("cpus") or ())
    if not known or not cpus or median(known) <= _MUCH * cpus:
        return None
    load = (found.conditions.get("load_average") or ("unknown",))[0]
    return f"the machine was busy (load {load}; other programs computed on {median(known):.1f} CPUs)"


def _lists(against: Mapping[str, str], arms: Mapping[str, str] | list[str]) -> str:
    return "; ".join(f"{arm}: {against[arm]}" for arm in arms)


def _slower(found: Comparison, arm: str) -> str | None:
    """The workload on which an arm is slower by more than its spread, in words; None where there is none."""
    for case in found.cases:
        ratio = found.ratios.get((case, arm))
        if ratio is None or ratio.value is None:
            continue
        loss = -math.log(ratio.value.value)
        if loss > max(_spread(found, case, arm, ratio), math.log1p(LEAST)):
            return f"slower on {case.workload}: {ratio.value.value:.2f} times none"
    return None


def _spread(found: Comparison, case: Case, arm: str, ratio: Ratio) -> float:
    """How far the ratios of single turns lie apart, or the interval of their mean where more turns make it narrower;
    as logarithms."""
    good = [sample for at, sample in enumerate(found.samples) if at not in found.rejected]
    logs = pairs(speeds(good, case, found.arms[0]), speeds(good, case, arm))
    assert ratio.value is not None
    return min(max(logs) - min(logs), math.log1p(ratio.value.spread)) if len(logs) > 1 else math.inf


def _no_gain(mean: Ratio) -> str:
    assert mean.value is not None
    if mean.verdict == UNKNOWN:
        spread = f"±{mean.value.spread:.0%}" if mean.value.spread < 1 else "in too few turns"
        return f"{mean.value.value:.2f} times none {spread}"
    return f"{mean.value.value:.2f} times none"
