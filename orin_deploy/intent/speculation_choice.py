"""Choosing among measured ways to speculate: the arm that wins over a mix of workloads, the draft's length. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

NONE = "none"
LEAST_GAIN = 0.05
"""What speculation must gain to be worth its memory and its risk; below it repeats of one measurement differ too."""


@dataclass(frozen=True)
class Trial:
    """Speeds of one arm ("none", a kind …) on one workload, in tokens per second, one for each repeat."""

    workload: str
    arm: str
    speeds: tuple[float, ...]

    @property
    def speed(self) -> float:
        return median(self.speeds)

    @property
    def spread(self) -> float:
        """How far the repeats lie apart, as a share of their median; 0 for a single one."""
        return (max(self.speeds) - min(self.speeds)) / self.speed


@dataclass(frozen=True)
class Choice:
    """The arm to serve with and why; `gains` are its speeds over those without speculation, by workload.

    `gain` is their weighted geometric mean, and `rejected` says of every other arm what spoke against it.
    """

    arm: str
    why: str
    gain: float = 1.0
    gains: Mapping[str, float] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)


def choose(trials: Sequence[Trial], mix: Mapping[str, float] | None = None) -> Choice:
    """The best arm over a mix of workloads (weights by name; without one all that were measured count alike).

    An arm must be measured on every workload of the mix, be slower than none on no one of them by more than the
    spread there, and gain more than LEAST_GAIN and the mean spread in the weighted geometric mean; else it is none.
    """
    usable = [trial for trial in trials if trial.speeds and min(trial.speeds) > 0]
    table = {(trial.arm, trial.workload): trial for trial in usable}
    base = {workload: trial for (arm, workload), trial in table.items() if arm == NONE}
    weights = {name: weight for name, weight in (mix or dict.fromkeys(base, 1.0)).items() if weight > 0}
    if not weights or not weights.keys() <= base.keys():
        missing = ", ".join(sorted(weights.keys() - base.keys())) or "any workload"
        return Choice(NONE, f"there is no measurement without speculation on {missing}")
    rejected, best = {}, Choice(NONE, "")
    for arm in dict.fromkeys(trial.arm for trial in usable if trial.arm != NONE):
        verdict = _judge(arm, table, base, weights)
        if isinstance(verdict, str):
            rejected[arm] = verdict
            continue
        if verdict.gain > best.gain:
            rejected |= {} if best.arm == NONE else {best.arm: f"{arm} is faster"}
            best = verdict
        else:
            rejected[arm] = f"{best.arm} is faster"
    if best.arm == NONE:
        told = "; ".join(f"{arm}: {why}" for arm, why in rejected.items())
        return Choice(
            NONE, f"no speculation is faster ({told})" if told else "nothing else was measured", 1, {}, rejected
        )
    return Choice(best.arm, best.why, best.gain, best.gains, rejected)


def _judge(
    arm: str, table: Mapping[tuple[str, str], Trial], base: Mapping[str, Trial], weights: Mapping[str, float]
) -> Choice | str:
    """The arm as a choice, or what speaks against it."""
    if missing := [name for name in weights if (arm, name) not in table]:
        return f"not measured on {', '.join(missing)}"
    pairs = {name: (table[arm, name], base[name]) for name in weights}
    gains = {name: tried.speed / none.speed for name, (tried, none) in pairs.items()}
    spreads = {name: max(tried.spread, none.spread) for name, (tried, none) in pairs.items()}
    slower = [name for name, gain in gains.items() if gain < 1 - spreads[name]]
    if slower:
        worst = min(slower, key=lambda name: gains[name])
        tried, none = pairs[worst]
        return f"slower on {worst or 'this workload'}: {tried.speed:.3g} against {none.speed:.3g} tokens/s"
    total = sum(weights.values())
    gain = math.exp(sum(weight * math.log(gains[name]) for name, weight in weights.items()) / total)
    noise = sum(weight * spreads[name] for name, weight in weights.items()) / total
    if gain <= 1 + max(LEAST_GAIN, noise):
        return f"{gain:.2f} times none, which is no gain beside a spread of {noise:.0%}"
    return Choice(arm, f"{gain:.2f} times as fast as none over {', '.join(weights) or 'the workload'}", gain, gains)


# The draft's length.


@dataclass(frozen=True)
class Length:
    """The longest draft worth its verification. `tokens_per_step` are accepted ones and the one that is always gained;
    `gain` is the speed over that without a draft, and n_max 0 says that no draft pays."""

    n_max: int
    tokens_per_step: float
    gain: float


def survival(accepted_by_position: Sequence[int], drafts: int) -> tuple[float, ...]:
    """The share of drafts that were accepted up to each position, from llama-server's own counters
    (spec_decode_num_accepted_tokens_per_pos_total and spec_decode_num_drafts_total); none accepts more than the last.
    """
    shares, share = [], 1.0
    for count in accepted_by_position:
        share = min(share, count / drafts) if drafts > 0 else 0.0
        shares.append(share)
    return tuple(shares)


def best_length(shares: Sequence[float], verify_s: Mapping[int, float], draft_s: float = 0.0) -> Length:
    """The draft length with most tokens a second.

    A step with k drafted tokens gives 1 + the sum of the first k shares, as they were counted: positions are not
    independent, so no rate is multiplied up. It takes verify_s[k], the measured seconds to verify k drafted tokens (0
    is a step without a draft; between two measured lengths a straight line), and k times `draft_s`, the seconds of one
    drafted token. Of lengths as good as each other the shortest is taken, and none beyond what was measured.
    Raises ValueError without verify_s[0].
    """
    if verify_s.get(0, 0) <= 0:
        raise ValueError("the seconds of a step without a draft are needed")
    known = sorted(verify_s)
    alone = 1 / verify_s[0]
    best, tokens = Length(0, 1.0, 1.0), 1.0
    for k in range(1, min(len(shares), known[-1]) + 1):
        tokens += shares[k - 1]
        gain = tokens / (_between(verify_s, known, k) + k * draft_s) / alone
        if gain > best.gain:
            best = Length(k, tokens, gain)
    return best


def _between(seconds: Mapping[int, float], known: Sequence[int], k: int) -> float:
    if k in seconds:
        return seconds[k]
    at = bisect_left(known, k)
    low, high = known[at - 1], known[at]
    return seconds[low] + (seconds[high] - seconds[low]) * (k - low) / (high - low)
