"""One turn: every client of a case asks at once, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from queue import SimpleQueue
from threading import Thread
from typing import Any

from orin_deploy.errors import OrinError
from orin_deploy.observe.bench.agenda import LONG_TOKENS, Agenda
from orin_deploy.observe.bench.sample import GREEDY, LONG, Case, Sample
from orin_deploy.observe.bench.server import Server
from orin_deploy.observe.bench.watch import Watch, others_cpus
from orin_deploy.observe.bench.workload import filler
from orin_deploy.parts.service import GREEDY as GREEDILY
from orin_deploy.parts.service import Answer, chat

_TRIAL_CHARACTERS = 2000


class Prompts:
    """The prompts of an agenda, each as long as its case wants; the same for every arm."""

    def __init__(self, agenda: Agenda, ctx_per_slot: int) -> None:
        self.agenda = agenda
        self.long_tokens = min(ctx_per_slot // 2, LONG_TOKENS)
        self._characters: dict[str, int] = {}

    def fit(self, server: Server) -> None:
        """Find out how many characters fill a long context, by the model's own tokens."""
        for language in {case.language for case in self.agenda.cases if case.context == LONG}:
            text = filler(language, 0, _TRIAL_CHARACTERS)
            self._characters[language] = self.long_tokens * len(text) // max(server.tokens(text), 1)

    def short(self) -> str:
        """A prompt to warm a server up with, none of those that are measured: ngram-mod would remember it."""
        case = self.agenda.cases[0]
        return self.agenda.workload(case).prompt(case.language, -1)

    def of(self, case: Case, turn: int) -> tuple[str, ...]:
        """One prompt for each client."""
        return tuple(self._one(case, turn * case.clients + client) for client in range(case.clients))

    def _one(self, case: Case, number: int) -> str:
        prompt = self.agenda.workload(case).prompt(case.language, number)
        if case.context != LONG:
            return prompt
        return f"{filler(case.language, number, self._characters[case.language])}\n\n{prompt}"


def take(server: Server, case: Case, turn: int, prompts: Prompts, tokens: int, watch: Watch) -> Sample:
    """Measure one turn. What slowed it down is told later, by the looks before and after.

    Raises OrinError when an answer fails.
    """
    agenda = prompts.agenda
    options: dict[str, Any] = {**GREEDILY}
    if case.sampling != GREEDY:
        del options["temperature"]
        options |= {**agenda.sampling, "seed": turn}
    pids = server.pids()
    before, began = watch.busy(pids), server.host.monotonic()
    answers = _all(server, prompts.of(case, turn), tokens, options)
    after = watch.busy(pids)
    return Sample(
        arm=server.arm,
        case=case,
        turn=turn,
        began=began,
        answers=answers,
        counts=server.counts(),
        others_cpus=others_cpus(before, after),
    )


def _all(server: Server, prompts: tuple[str, ...], tokens: int, options: Mapping[str, Any]) -> tuple[Answer, ...]:
    """The answers of all clients; the first failure of any is raised."""
    if len(prompts) == 1:
        return (ask(server, prompts[0], tokens, options),)
    done: SimpleQueue[tuple[int, Answer | OrinError]] = SimpleQueue()

    def one(at: int, prompt: str) -> None:
        try:
            done.put((at, ask(server, prompt, tokens, options)))
        except OrinError as error:
            done.put((at, error))

    # Not waited for when this program is interrupted: their requests end with the server, or with us.
    for at, prompt in enumerate(prompts):
        Thread(target=one, args=(at, prompt), daemon=True).start()
    answers: dict[int, Answer] = {}
    while len(answers) < len(prompts):
        at, answer = done.get()
        if isinstance(answer, OrinError):
            raise answer
        answers[at] = answer
    return tuple(answers[at] for at in range(len(prompts)))


def ask(server: Server, prompt: str, tokens: int, options: Mapping[str, Any] = GREEDILY) -> Answer:
    """One answer; raises OrinError with the reason from the server's log where the server has ended."""
    try:
        return chat(server.host, server.endpoint, prompt, tokens, server.headers, options)
    except OrinError as error:
        raise server.failure(error.message) from error
