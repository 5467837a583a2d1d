"""Whether the arms said the same: with greedy sampling they should, but a batch can round differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from orin_deploy.observe.bench.sample import GREEDY, Case, Sample

_SHOWN = 4


@dataclass(frozen=True)
class Difference:
    """The first token in which an arm's answer differs from the first arm's: its place, and both texts from there on,
    a few tokens long, empty where the answer had ended."""

    arm: str
    case: Case
    turn: int
    client: int
    token: int
    expected: str
    found: str


def first_difference(one: Sequence[str], other: Sequence[str]) -> int | None:
    """The place of the first token that differs; None for answers that are the same."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    return None if same == len(one) == len(other) else same


def differences(samples: Sequence[Sample], arms: Sequence[str]) -> tuple[int, tuple[Difference, ...]]:
    """How many greedy answers were compared with the first arm's, and those that differ. Rejected samples count too:
    being disturbed makes no answer wrong."""
    base = {(s.case, s.turn): s for s in samples if s.arm == arms[0] and s.case.sampling == GREEDY}
    compared, found = 0, []
    for sample in samples:
        one = base.get((sample.case, sample.turn))
        if sample.arm == arms[0] or sample.arm not in arms or one is None:
            continue
        for client, (expected, answer) in enumerate(zip(one.answers, sample.answers, strict=True)):
            compared += 1
            at = first_difference(expected.pieces, answer.pieces)
            if at is not None:
                texts = ("".join(each.pieces[at : at + _SHOWN]) for each in (expected, answer))
                found.append(Difference(sample.arm, sample.case, sample.turn, client, at, *texts))
    return compared, tuple(found)
