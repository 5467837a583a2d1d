"""The race: arms measured turn by turn until there is nothing more to tell, or the time is over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from orin_deploy.deploy.draft import Situation
from orin_deploy.deploy.verify import context_per_slot
from orin_deploy.errors import OrinError
from orin_deploy.host import Host, Progress
from orin_deploy.intent.request import Request
from orin_deploy.intent.spec import Spec
from orin_deploy.observe.bench import intervals
from orin_deploy.observe.bench.agenda import SHORT_CTX, Agenda, answer_tokens, schedule, within_slots
from orin_deploy.observe.bench.arms import Arm
from orin_deploy.observe.bench.comparison import Comparison, compare, comparisons, rivals, speeds
from orin_deploy.observe.bench.conditions import conditions
from orin_deploy.observe.bench.measure import Prompts, ask, take
from orin_deploy.observe.bench.planning import Field, plan_field, reason
from orin_deploy.observe.bench.sample import Case, Sample, rejected
from orin_deploy.observe.bench.server import Server, started
from orin_deploy.observe.bench.watch import Watch, slowed

_WARM_TOKENS = 32


class TimeOver(OrinError):
    """The time is over before anything is measured."""


def race(
    host: Host, request: Request, now: Situation, arms: Sequence[Arm], agenda: Agenda, progress: Progress
) -> Comparison:
    """Measure each arm on a server of its own, beside whatever else runs, within the agenda's seconds.

    Arms that cannot be planned, started or finished are left out with the reason. Raises Refused when there is no
    room for one server, and OrinError when no arm is left or the time is over before anything is measured.
    """
    began = host.monotonic()
    field = plan_field(host, request, now, arms, agenda, progress)
    agenda, notes = within_slots(agenda, field.slots)
    with Watch(host) as watch, ExitStack() as stack:
        pool = _Pool(host, field, stack, progress)
        return _Race(host, field, agenda, pool.get, watch, progress, began, len(arms)).run(notes)


def measure_running(host: Host, spec: Spec, agenda: Agenda, progress: Progress) -> Comparison:
    """Measure the deployment that runs, as it runs; the one arm has the deployment's name."""
    server = Server(host, spec.name, spec)
    field = Field({spec.name: spec}, together=True, errors={})
    agenda, notes = within_slots(agenda, field.slots)
    with Watch(host) as watch:
        return _Race(host, field, agenda, lambda arm: server, watch, progress, host.monotonic()).run(notes)


class _Pool:
    """The arms' servers: all at once where they have room, else one at a time."""

    def __init__(self, host: Host, field: Field, stack: ExitStack, progress: Progress) -> None:
        self.host = host
        self.field = field
        self.stack = stack
        self.progress = progress
        self.up: dict[str, Server] = {}

    def get(self, arm: str) -> Server:
        """The server of an arm, started where it is not up; raises OrinError when it cannot be."""
        if arm not in self.up:
            if not self.field.together:
                self.up.clear()
                self.stack.close()
            spec = self.field.specs[arm]
            self.up[arm] = self.stack.enter_context(started(self.host, arm, spec, self.progress))
        return self.up[arm]


class _Race:
    """One race as it goes on: `arms` are those still in it."""

    def __init__(
        self,
        host: Host,
        field: Field,
        agenda: Agenda,
        get: Callable[[str], Server],
        watch: Watch,
        progress: Progress,
        began: float,
        wanted: int = 1,
    ) -> None:
        self.host = host
        self.field = field
        self.agenda = agenda
        self.get = get
        self.watch = watch
        self.progress = progress
        self.began = began
        self.wanted = wanted
        self.arms = list(field.specs)
        self.errors = dict(field.errors)
        self.samples: list[Sample] = []
        self.prompts = Prompts(agenda, context_per_slot(field.base) or SHORT_CTX)
        self.tokens: Mapping[Case, int] = {}
        self.warm: list[Server] = []
        self.cpus = len(field.base.placement.cpus)

    def run(self, notes: tuple[str, ...]) -> Comparison:
        for arm in tuple(self.arms) if self.field.together and not self._alone() else ():
            self._try(arm, lambda server: None)
        while not (self.tokens or self._alone()):
            self._try(self.arms[0], self._choose_lengths)
        for arm, case, turn in schedule(tuple(self.arms), self._open, self.field.together):
            if self._seconds() > self.agenda.seconds:
                break
            if arm in self.arms:
                self._say(arm, case, turn)
                self._try(arm, partial(self._turn, case=case, turn=turn))
        if not (self.samples or self._alone()):
            seconds = self.agenda.seconds
            raise TimeOver(f"{seconds:g} s were over before anything was measured", f"--seconds {4 * seconds:.0f}")
        return self._compared(notes)

    def _try(self, arm: str, work: Callable[[Server], None]) -> None:
        """Do something with an arm's server; an arm that fails leaves the race, and with the last one it ends."""
        try:
            server = self.get(arm)
            if server not in self.warm:
                ask(server, self.prompts.short(), _WARM_TOKENS)
                server.counts()  # what it did until now is nobody's figure
                self.warm.append(server)
            work(server)
        except OrinError as error:
            self.arms.remove(arm)
            self.errors[arm] = error
            if not self.arms:
                raise

    def _choose_lengths(self, server: Server) -> None:
        """How long the answers may be, from the speed of one that is not the first."""
        self.prompts.fit(server)
        agenda = self.agenda
        warm = ask(server, self.prompts.short(), _WARM_TOKENS).timings
        per_s = max(warm.prompt_per_s, 1.0)
        prompt_s = {case: sum(map(server.tokens, self.prompts.of(case, 0))) / per_s for case in agenda.cases}
        left = agenda.seconds - self._seconds()
        speed = max(warm.generated_per_s, 0.1)
        self.tokens = answer_tokens(agenda, len(self.arms), left, prompt_s, speed)

    def _turn(self, server: Server, case: Case, turn: int) -> None:
        self.samples.append(take(server, case, turn, self.prompts, self.tokens[case], self.watch))

    def _open(self) -> list[Case]:
        """The cases that are not settled; none when there is nothing left to compare with."""
        if self._alone():
            return []
        good = self._good()
        count = comparisons(len(self.agenda.cases), len(self.arms))
        found = []
        for case in self.agenda.cases:
            logs = {arm: speeds(good, case, arm) for arm in self.arms}
            if len(logs) == 1:
                done = intervals.steady([*logs[self.arms[0]].values()])
            else:
                done = intervals.settled(rivals(logs), count)
            if not done:
                found.append(case)
        return found

    def _alone(self) -> bool:
        """Whether one arm is left of several: its speed alone is not what was asked for."""
        return len(self.arms) < 2 <= self.wanted

    def _judged(self) -> list[Sample]:
        """The samples, with what slowed the machine down during each as far as it is known by now."""
        moments = tuple(self.watch.moments)
        return [replace(each, slowed=slowed(moments, each.began, each.began + each.seconds)) for each in self.samples]

    def _good(self) -> list[Sample]:
        judged = self._judged()
        out = rejected(judged, self.cpus)
        return [sample for at, sample in enumerate(judged) if at not in out]

    def _seconds(self) -> float:
        return self.host.monotonic() - self.began

    def _say(self, arm: str, case: Case, turn: int) -> None:
        fraction = min(self._seconds() / self.agenda.seconds, 1.0)
        self.progress(fraction, f"turn {turn + 1}: {case.workload} ({case.language}), {arm}")

    def _compared(self, notes: tuple[str, ...]) -> Comparison:
        specs = {arm: self.field.specs[arm] for arm in self.arms}
        return compare(
            self._judged(),
            self.arms,
            self.agenda.shares(),
            self.cpus,
            left_out={arm: reason(error) for arm, error in self.errors.items()},
            errors=self.errors,
            notes=notes,
            together=self.field.together,
            tokens=dict(self.tokens),
            conditions=conditions(self.host, specs, self.agenda, self.watch.moments),
            seconds=self._seconds(),
        )
