"""Samples of the bench with a speed that is wanted."""

from __future__ import annotations

from collections.abc import Sequence

from orin_deploy.observe.bench.sample import Case, Counts, Sample
from orin_deploy.parts.service import Answer, Timings


def answer(pieces: Sequence[str], seconds: float, drafted: int = 0, accepted: int = 0) -> Answer:
    """An answer whose tokens come evenly, the first after a tenth of a second."""
    each = (seconds - 0.1) / max(len(pieces) - 1, 1)
    arrivals = tuple(0.1 + each * at for at in range(len(pieces)))
    timings = Timings(20, 0, 200.0, len(pieces), len(pieces) / seconds, drafted, accepted)
    return Answer(tuple(pieces), arrivals, seconds, "length", timings)


def sample(
    arm: str,
    case: Case,
    turn: int,
    speed: float,
    *,
    pieces: Sequence[str] = ("a",) * 65,
    others_cpus: float | None = None,
    slowed: tuple[str, ...] = (),
    drafted: int = 0,
    accepted: int = 0,
    counts: Counts | None = None,
) -> Sample:
    seconds = 0.1 + (len(pieces) - 1) / speed
    answers = (answer(pieces, seconds, drafted, accepted),) * case.clients
    return Sample(arm, case, turn, float(turn), answers, counts, others_cpus, slowed)
