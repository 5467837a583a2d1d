"""The agenda: what is to be measured, for how long, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from orin_deploy.errors import UsageError
from orin_deploy.observe.bench.intervals import FEWEST_TURNS, MOST_TURNS
from orin_deploy.observe.bench.sample import GREEDY, LONG, SHORT, Case
from orin_deploy.observe.bench.workload import OWN, Workload

SHORT_CTX = 4096
LONG_TOKENS = 8192
"""The most tokens that stand before a prompt in a long context; half a slot's context where that is less."""

QUICK_S, FULL_S = 90.0, 900.0
"""Seconds for each arm, unless somebody says otherwise."""

_FEWEST_TOKENS = 48
_TURNS_A_BLOCK = 2

T = TypeVar("T")


@dataclass(frozen=True)
class Agenda:
    """What is measured within `seconds`, starts of servers included.

    `weights` tell how much each workload counts in the mean, 1 without one. `sampling` is what a request says for the
    model's own sampling, `preset` where that is from.
    """

    workloads: tuple[Workload, ...]
    cases: tuple[Case, ...]
    seconds: float
    weights: Mapping[str, float] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    preset: str = "the server's default"

    @property
    def clients(self) -> int:
        return max(case.clients for case in self.cases)

    @property
    def has_long(self) -> bool:
        return any(case.context == LONG for case in self.cases)

    def workload(self, case: Case) -> Workload:
        return next(each for each in self.workloads if each.name == case.workload)

    def shares(self) -> dict[Case, float]:
        """How much each case counts: a workload's weight, spread evenly over its cases."""
        names = [case.workload for case in self.cases]
        return {case: self.weights.get(case.workload, 1.0) / names.count(case.workload) for case in self.cases}


def cases(
    workloads: Sequence[Workload],
    languages: Sequence[str] = ("en",),
    samplings: Sequence[str] = (GREEDY,),
    contexts: Sequence[str] = (SHORT,),
    clients: Sequence[int] = (1,),
) -> tuple[Case, ...]:
    """Every combination, the workload changing fastest; a user's own prompts have no language to choose."""
    return tuple(
        Case(workload.name, language, sampling, context, count)
        for count in clients
        for context in contexts
        for sampling in samplings
        for language in dict.fromkeys((*languages, OWN))
        for workload in workloads
        if language in workload.languages
    )


def within_slots(agenda: Agenda, slots: int) -> tuple[Agenda, tuple[str, ...]]:
    """The agenda with the cases that so many slots can serve at once, and what is to be said of it.

    Raises UsageError when no case is left."""
    left = tuple(case for case in agenda.cases if case.clients <= slots)
    more = sorted({case.clients for case in agenda.cases} - {case.clients for case in left})
    notes = [f"not measured: {count} clients, for there are {slots} slots (--set parallel={count})" for count in more]
    if not left:
        raise UsageError(
            f"{more[0]} clients at once want as many slots, there are {slots}", f"--set parallel={more[0]}"
        )
    for workload in agenda.workloads:
        most = MOST_TURNS * max((case.clients for case in left if case.workload == workload.name), default=0)
        if 0 < len(workload.prompts) < most:
            notes.append(
                f"{workload.name}: {len(workload.prompts)} prompts come more than once in up to {most} requests, and "
                "speculation that remembers earlier requests (ngram-mod) gains by that"
            )
    return replace(agenda, cases=left), tuple(notes)


def schedule(
    arms: Sequence[str], open_cases: Callable[[], Sequence[T]], together: bool
) -> Iterator[tuple[str, T, int]]:
    """Arm, case and turn, one after the other, until no case is open.

    A B B A: every other turn runs backwards, so that a slow drift favours nobody. With all servers up the arms change
    at every request; where only one has room, at every block of turns, and a block begins with the arm that is up.
    """
    turns = 1 if together else _TURNS_A_BLOCK
    for first in range(0, MOST_TURNS, turns):
        order = arms if first // turns % 2 == 0 else tuple(reversed(arms))
        planned = [(case, turn) for turn in range(first, first + turns) for case in open_cases()]
        if not planned:
            return
        if together:
            yield from ((arm, case, turn) for case, turn in planned for arm in order)
        else:
            yield from ((arm, case, turn) for arm in order for case, turn in planned)


def answer_tokens(
    agenda: Agenda, arms: int, left_s: float, prompt_s: Mapping[Case, float], tokens_per_s: float
) -> dict[Case, int]:
    """How long the answers may be so that FEWEST_TURNS turns of every case take no more than most of the time left.

    `prompt_s` is what a case's prompts take, `tokens_per_s` the generation speed of one client.
    """
    rounds = arms * FEWEST_TURNS
    wanted = {case: agenda.workload(case).tokens for case in agenda.cases}
    prompts = rounds * sum(prompt_s[case] for case in agenda.cases)
    answers = rounds * sum(wanted[case] * case.clients for case in agenda.cases) / tokens_per_s
    share = min(max(0.8 * left_s - prompts, 0.0) / answers, 1.0)
    return {case: max(int(wanted[case] * share), min(_FEWEST_TOKENS, wanted[case])) for case in agenda.cases}
