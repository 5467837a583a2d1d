"""What is measured once: one case, one arm, one turn; and whether it counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from orin_deploy.parts.service import Answer

GREEDY, OWN_SAMPLING = "greedy", "own"
SHORT, LONG = "short", "long"

_LEAST_TOKENS = 8
_BUSY = 0.25
"""The share of the server's CPUs that others may use beyond what they use most of the time."""


@dataclass(frozen=True)
class Case:
    """One kind of work under one load. `sampling` is GREEDY or OWN_SAMPLING, `context` SHORT or LONG, `clients` ask
    at the same time."""

    workload: str
    language: str
    sampling: str = GREEDY
    context: str = SHORT
    clients: int = 1


@dataclass(frozen=True)
class Counts:
    """What a server has speculated so far: `drafts` are verifications, `by_position` accepted tokens by position."""

    drafts: int = 0
    by_position: tuple[int, ...] = ()

    def since(self, before: Counts) -> Counts:
        earlier = (*before.by_position, *([0] * len(self.by_position)))
        return Counts(
            self.drafts - before.drafts,
            tuple(now - then for now, then in zip(self.by_position, earlier, strict=False)),
        )


@dataclass(frozen=True)
class Sample:
    """One turn of one arm at one case: every client's answer. `turn` names the prompts, the same for all arms.

    `began` is on the host's clock, `counts` None where the server has no metrics. `others_cpus` is how many CPUs all
    other programs kept busy meanwhile, `slowed` what the kernel says slowed the machine down.
    """

    arm: str
    case: Case
    turn: int
    began: float
    answers: tuple[Answer, ...]
    counts: Counts | None = None
    others_cpus: float | None = None
    slowed: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return max(answer.total_s for answer in self.answers)

    @property
    def tokens(self) -> int:
        return sum(answer.timings.generated_tokens for answer in self.answers)

    @property
    def speed(self) -> float:
        """Tokens per second of all clients together, from the first token of any to the end of all; 0 where an answer
        is too short to tell."""
        first = min(answer.first_token_s for answer in self.answers)
        if self.tokens < _LEAST_TOKENS * len(self.answers) or self.seconds <= first:
            return 0.0
        return (self.tokens - len(self.answers)) / (self.seconds - first)

    @property
    def prompt_per_s(self) -> float:
        return fmean(answer.timings.prompt_per_s for answer in self.answers)

    @property
    def first_token_s(self) -> float:
        return median(answer.first_token_s for answer in self.answers)

    @property
    def gaps_s(self) -> tuple[float, ...]:
        """From each token to the next, as a client sees them: tokens accepted together come together."""
        return tuple(
            later - earlier
            for answer in self.answers
            for earlier, later in zip(answer.arrivals_s, answer.arrivals_s[1:], strict=False)
        )

    @property
    def drafted(self) -> int:
        return sum(answer.timings.drafted for answer in self.answers)

    @property
    def accepted(self) -> int:
        return sum(answer.timings.accepted for answer in self.answers)


def rejected(samples: Sequence[Sample], cpus: int) -> dict[int, str]:
    """The samples that prove nothing, by their place in the list, and why.

    Programs that compute all the time are part of the conditions; what counts is a sample during which they did more,
    by a quarter of the server's `cpus`.
    """
    known = [sample.others_cpus for sample in samples if sample.others_cpus is not None]
    usual = median(known) if known else 0.0
    found = {}
    for at, sample in enumerate(samples):
        if sample.slowed:
            found[at] = f"throttled: {', '.join(sample.slowed)}"
        elif sample.others_cpus is not None and sample.others_cpus > usual + _BUSY * cpus:
            found[at] = f"other programs computed on {sample.others_cpus:.1f} CPUs, usually {usual:.1f}"
        elif sample.speed <= 0:
            found[at] = f"too short an answer: {sample.tokens} tokens"
    return found
