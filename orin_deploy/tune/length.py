"""How much to draft: from the acceptance by position and the cost of verifying, both measured. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orin_deploy.facts.draft import SIMPLE
from orin_deploy.intent.speculation_choice import best_length, survival
from orin_deploy.observe.bench.sample import Case, Sample

_LEAST_P_MIN, _MOST_P_MIN = 0.05, 0.9


@dataclass(frozen=True)
class Drafts:
    """What an arm's drafts came to over the mix: `shares` of them accepted at each position, the seconds and drafted
    tokens of a pass of the target."""

    shares: tuple[float, ...]
    pass_s: float
    drafted_per_pass: float


@dataclass(frozen=True)
class Numbers:
    """How to draft: at most, at least, and from which confidence on; None leaves it to the default. `gain` is what the
    measured costs promise over none."""

    n_max: int
    n_min: int | None
    p_min: float | None
    gain: float


def drafts(samples: Sequence[Sample], arm: str, weights: Mapping[Case, float]) -> Drafts | None:
    """What became of an arm's drafts, each case by its weight; None where it drafted nothing or its server does not
    count."""
    counts: dict[int, int] = {}
    total, seconds, passes, drafted = 0, 0.0, 0, 0
    for sample in samples:
        if sample.arm != arm or sample.counts is None:
            continue
        weight = round(1000 * weights.get(sample.case, 0.0))
        total += weight * sample.counts.drafts
        for at, count in enumerate(sample.counts.by_position):
            counts[at] = counts.get(at, 0) + weight * count
        timings = [answer.timings for answer in sample.answers if answer.timings.generated_per_s > 0]
        seconds += sum(each.generated_tokens / each.generated_per_s for each in timings)
        passes += sum(each.generated_tokens - each.accepted for each in timings)
        drafted += sum(each.drafted for each in timings)
    if total <= 0 or passes <= 0 or not counts:
        return None
    accepted = [counts.get(at, 0) for at in range(max(counts) + 1)]
    return Drafts(survival(accepted, total), seconds / passes, drafted / passes)


def numbers(
    kind: str, made: Drafts, cost_ms: Callable[[int], float], *, by_model: bool, longest: int, clients: int = 1
) -> Numbers | None:
    """The best numbers of a kind, drafting `longest` tokens at most; None where no draft pays by these costs.

    With several clients one pass verifies the drafts of all of them, beside a plain token of each.
    """
    reach = min(longest, len(made.shares))
    verify_s = {k: cost_ms(clients * (k + 1) - 1) / 1000 for k in range(reach + 1)}
    draft_s = _draft_seconds(made, cost_ms, clients) if by_model else 0.0
    best = best_length(made.shares, verify_s, draft_s)
    if best.n_max == 0:
        return None
    rate = best.tokens_per_step / (verify_s[best.n_max] + best.n_max * draft_s)
    least = _least(made.shares[: best.n_max], verify_s, draft_s)
    p_min = None
    if kind == SIMPLE:
        p_min = _least_confidence(made.shares, best.n_max, rate, verify_s, draft_s)
    return Numbers(best.n_max, least if least > 1 or not by_model else None, p_min, best.gain)


def _draft_seconds(made: Drafts, cost_ms: Callable[[int], float], clients: int) -> float:
    """What one drafted token takes: what a pass took in service beyond the verification of its tokens."""
    if made.drafted_per_pass <= 0:
        return 0.0
    verify_s = cost_ms(round(clients * (made.drafted_per_pass + 1)) - 1) / 1000
    return max(made.pass_s - verify_s, 0.0) / made.drafted_per_pass


def _least(shares: Sequence[float], verify_s: Mapping[int, float], draft_s: float) -> int:
    """The shortest draft from which on none is slower than a plain token."""
    least, tokens = 1, 1.0
    for k, share in enumerate(shares, 1):
        tokens += share
        if tokens * verify_s[0] < verify_s[k] + k * draft_s:
            least = k + 1
    return min(least, len(shares))


def _least_confidence(
    shares: Sequence[float], n_max: int, rate: float, verify_s: Mapping[int, float], draft_s: float
) -> float | None:
    """The confidence below which the last token costs more than it yields: it takes what `rate` would make of its
    time, and counts only where all before it were accepted. None where every token pays."""
    reached = shares[n_max - 2] if n_max > 1 else 1.0
    needed = rate * (verify_s[n_max] - verify_s[n_max - 1] + draft_s) / max(reached, 1e-6)
    return None if needed < _LEAST_P_MIN else round(min(needed, _MOST_P_MIN), 2)
