"""`draft: auto`: the candidates raced at `up`, and the decision kept on record."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orin_deploy.deploy import decisions
from orin_deploy.deploy.draft import Situation, draft, situation
from orin_deploy.deploy.plan import Plan
from orin_deploy.deploy.verify import context_per_slot
from orin_deploy.errors import OrinError, Refused, UsageError
from orin_deploy.facts.draft import BY_MODEL
from orin_deploy.host import Host, Progress
from orin_deploy.intent import speculation
from orin_deploy.intent.measured import Candidate, Decision
from orin_deploy.intent.request import Request
from orin_deploy.intent.resolve import layer
from orin_deploy.intent.speculation_choice import NONE
from orin_deploy.observe.bench import Agenda, Arm, Comparison, cases, race, record, verify_cost, workload
from orin_deploy.observe.bench.arms import DRAFT
from orin_deploy.observe.bench.planning import plan_field
from orin_deploy.observe.bench.workload import Workload
from orin_deploy.parts import service, weights
from orin_deploy.tune.length import Numbers, drafts, numbers
from orin_deploy.tune.verdict import Verdict, judge

_WORKLOAD = "speculation.workload."

# Shares of the time: the race itself, then what is found out about the winner's length; the rest races that.
_RACE, _COSTS = 0.75, 0.9
_LEAST_S = 15.0
"""With less time left no second look at the winner is begun: servers have to start for it."""
_LONGEST = 16
"""The longest draft of a draft model that is tried."""
_CHARACTERS_A_TOKEN = 2.5
"""Fewer than English or Chinese text has with any vocabulary, so that a prompt is not taken for too short."""


def check_workloads(request: Request, now: Situation) -> None:
    """Raise UsageError for a workload in the mix that there is not, before anything is built."""
    names = _mix(layer_values(request, now))
    if names:
        workload.choose(workload.shipped(now.search), tuple(names))


def layer_values(request: Request, now: Situation) -> Mapping[str, Any]:
    return {key: setting.value for key, setting in layer(now.profile, request.sets).items()}


def _mix(values: Mapping[str, Any]) -> dict[str, float]:
    """The weights of the workloads that are served, by name; empty for all alike."""
    mix = {key.removeprefix(_WORKLOAD): value for key, value in values.items() if key.startswith(_WORKLOAD)}
    return {name: float(weight) for name, weight in mix.items() if weight}


@dataclass
class Tuning:
    """One measurement: what is measured for whom, within which seconds of the host's clock."""

    host: Host
    request: Request
    command: str
    progress: Progress

    def measure(self, plan: Plan, make_room: Callable[[], None]) -> str:
        """Decide what `plan` leaves to be measured, keep the decision, and say it in a sentence.

        Candidates that fail are left out; where nothing can be measured it is none, and the sentence says so.
        """
        wanted, key = plan.spec.to_measure, plan.key
        assert wanted is not None
        assert key is not None
        self.began, self.allowed = self.host.monotonic(), float(wanted.seconds)
        self.now = situation(self.host, self.request, elsewhere=False)
        self.values = layer_values(self.request, self.now)
        self.slots = int(str(plan.spec.settings["parallel"].value)) if "parallel" in plan.spec.settings else 1
        try:
            found, agenda, verdict = self._race(plan, wanted.candidates, make_room)
        except OrinError as error:
            decision = self._decision(f"nothing could be measured: {error.message}", None)
        else:
            decision = self._decided(wanted.candidates, found, agenda, verdict)
        decisions.keep(self.host, decisions.Kept(key, decision, wanted.seconds))
        return f"speculation: {decision.kind} ({decision.source})"

    # The first race: all candidates.

    def _race(
        self, plan: Plan, candidates: Sequence[Candidate], make_room: Callable[[], None]
    ) -> tuple[Comparison, Agenda, Verdict]:
        agenda = self._agenda(plan, self.allowed * _RACE)
        arms, left_out = [_arm(candidates[0])], {}
        for each in candidates[1:]:
            try:
                self._prepare(each)
            except OrinError as error:
                left_out[each.name] = error.message
            else:
                arms.append(_arm(each))
        if len(arms) < 2:
            raise OrinError("; ".join(f"{name}: {why}" for name, why in left_out.items()))
        if service.status(self.host, plan.spec.name).pid is not None and self._crowded(arms, agenda):
            make_room()
            self.now = situation(self.host, self.request, elsewhere=False)
        agenda = replace(agenda, seconds=max(self.allowed * _RACE - self._seconds(), 1.0))
        found = race(self.host, self.request, self.now, arms, agenda, self._tell)
        found = replace(found, left_out={**left_out, **found.left_out})
        return found, agenda, judge(found)

    def _prepare(self, each: Candidate) -> None:
        """Fetch what a candidate needs; raises OrinError where the deployment has no room for it or it cannot be."""
        wanted = Decision(each.kind, "to be measured", where=each.where)
        planned = draft(self.host, self.request, self.now, self._tell, decision=wanted)
        if planned.spec.draft is None:
            why = next((text for text in planned.spec.warnings if "left out" in text), "it cannot be planned")
            raise OrinError(why)
        for step in planned.steps_of(weights.NAME):
            for action in step.actions:
                self.host.do(action, self._tell)

    def _crowded(self, arms: Sequence[Arm], agenda: Agenda) -> bool:
        """Whether an arm has no room beside the server that runs."""
        try:
            return bool(plan_field(self.host, self.request, self.now, arms, agenda, self._tell).left_out)
        except Refused:
            return True

    def _agenda(self, plan: Plan, seconds: float) -> Agenda:
        """What is measured: the workloads that are served, as far as they have room in a slot's context."""
        mix = _mix(self.values)
        slot = context_per_slot(plan.spec)
        chosen = tuple(
            each
            for each in workload.choose(workload.shipped(self.now.search), tuple(mix))
            if slot is None or _longest_prompt(each) / _CHARACTERS_A_TOKEN + each.tokens <= slot
        )
        if not chosen:
            raise OrinError(f"a context of {slot} tokens holds none of the workloads")
        return Agenda(chosen, cases(chosen, clients=(self.clients,)), seconds, weights=mix)

    @property
    def clients(self) -> int:
        """Who ask at once: more than there are slots would only wait for one another."""
        return min(int(self.values["speculation.concurrency"]), self.slots)

    # The second look: how much the winner should draft.

    def _decided(
        self, candidates: Sequence[Candidate], found: Comparison, agenda: Agenda, verdict: Verdict
    ) -> Decision:
        number = self._keep(agenda, found, verdict)
        if verdict.arm == NONE:
            return self._decision(verdict.why, number, gain=verdict.gains.get(verdict.nearest or ""), sure=verdict.sure)
        winner = next(each for each in candidates if each.name == verdict.arm)
        chosen = self._decision(verdict.why, number, winner, gain=verdict.gain)
        try:
            return self._with_numbers(winner, found, agenda, chosen) or chosen
        except OrinError:  # what was decided stands
            return chosen

    def _with_numbers(
        self, winner: Candidate, found: Comparison, agenda: Agenda, chosen: Decision
    ) -> Decision | None:
        """The winner with numbers that the measured costs promise to be better, where a race confirms them."""
        best = self._numbers(winner, found, agenda)
        if best is None or self._left() < _LEAST_S:
            return None
        tuned = replace(chosen, n_max=best.n_max, n_min=best.n_min, p_min=best.p_min)
        values = layer(self.now.profile, self.request.sets)
        if not (told := speculation.by_decision(replace(tuned, where="auto"), values)):
            return None
        sets = tuple((key, str(setting.value)) for key, setting in told.items())
        arm = _arm(winner)
        tried = replace(arm, name=f"{arm.name}, {best.n_max} tokens", sets=(*arm.sets, *sets))
        again = replace(agenda, seconds=self._left())
        raced = race(self.host, self.request, self.now, (_arm(Candidate(NONE)), tried), again, self._tell)
        verdict = judge(raced)
        number = self._keep(again, raced, verdict)
        if verdict.arm != tried.name or (verdict.gain or 0.0) < (chosen.gain or 0.0):
            return None
        return self._decision(verdict.why, number, winner, gain=verdict.gain, numbers=best)

    def _numbers(self, winner: Candidate, found: Comparison, agenda: Agenda) -> Numbers | None:
        """The winner's best numbers by the cost of verifying; None where there is no time, or they are as they were."""
        values = layer(self.now.profile, self.request.sets)
        by_model = winner.kind in BY_MODEL
        key = speculation.n_max_key(winner.kind)
        if key is None or values[key].value is not None or self._left() < 2 * _LEAST_S:
            return None
        usual = self._usual(winner)
        good = [sample for at, sample in enumerate(found.samples) if at not in found.rejected]
        made = drafts(good, winner.name, agenda.shares())
        if made is None:
            return None
        longest = len(made.shares)
        if by_model and made.shares[-1] > 0.5:  # what lies beyond is not known yet: look once with longer drafts
            probe = replace(_arm(winner), sets=(*_arm(winner).sets, (key, str(_LONGEST))))
            looked = race(
                self.host, self.request, self.now, (probe,), replace(agenda, seconds=self._left() / 4), self._tell
            )
            made = drafts(looked.samples, winner.name, agenda.shares()) or made
            longest = len(made.shares)
        reach = min(self.clients * (longest + 1) - 1, 64)
        seconds = self.allowed * _COSTS - self._seconds()
        if seconds < _LEAST_S:
            return None
        cost = verify_cost(self.host, self.request, self.now, reach, seconds, self._tell)
        best = numbers(winner.kind, made, cost, by_model=by_model, longest=longest, clients=self.clients)
        same = best is not None and (best.n_max, best.p_min) == (usual, None) and best.n_min in (None, 1)
        return None if same else best

    def _usual(self, winner: Candidate) -> int:
        """How many tokens the winner drafted at most in the race."""
        wanted = Decision(winner.kind, "measured", where=winner.where)
        planned = draft(self.host, self.request, self.now, self._tell, decision=wanted).spec.draft
        return planned.n_max if planned is not None else 0

    # What is told and kept.

    def _keep(self, agenda: Agenda, found: Comparison, verdict: Verdict) -> int:
        """Write the bench's record of a race, with what it led to; returns its number."""
        document = record.document(self.host, self.now.name, self.command, agenda, found)
        told = {"arm": verdict.arm, "why": verdict.why, "sure": verdict.sure}
        more = {"gains": dict(verdict.gains), "against": dict(verdict.against)}
        return int(record.keep(self.host, {**document, "decision": {**told, **more}})["record"])

    def _decision(
        self,
        why: str,
        number: int | None,
        winner: Candidate | None = None,
        *,
        gain: float | None = None,
        numbers: Numbers | None = None,
        sure: bool = False,
    ) -> Decision:
        date = self.host.now().date().isoformat()
        where = f", record {number}" if number is not None else ""
        asked = int(self.values["speculation.concurrency"])
        load = f" with {self.clients} clients" if self.clients > 1 else ""
        if asked > self.clients:
            load = f" with {self.clients} of {asked} clients, for there are {self.slots} slots"
        source = f"measured {date}{where}{load}: {why}"
        if winner is None:
            return Decision(NONE, source, gain=gain, record=number, date=date, sure=sure)
        return Decision(
            winner.kind,
            source,
            where="auto" if winner.where == "draftless" else winner.where,
            n_max=numbers.n_max if numbers else None,
            n_min=numbers.n_min if numbers else None,
            p_min=numbers.p_min if numbers else None,
            gain=gain,
            record=number,
            date=date,
        )

    # The clock.

    def _seconds(self) -> float:
        return self.host.monotonic() - self.began

    def _left(self) -> float:
        return max(self.allowed - self._seconds(), 0.0)

    def _tell(self, fraction: float | None, text: str) -> None:
        """Progress of the whole, whatever part of it is told."""
        share = min(self._seconds() / self.allowed, 1.0)
        self.progress(share, f"{text}, {self._left():.0f} s left")


def _arm(each: Candidate) -> Arm:
    """A candidate as an arm of the race."""
    if each.where in ("inline", "process"):
        return Arm(each.name, DRAFT, (("placement.draft", each.where),))
    return Arm(each.name, each.kind)


def _longest_prompt(each: Workload) -> int:
    return max(len(each.prompt(language, number)) for language in ("en",) for number in range(4))


def command(argv: Sequence[str]) -> str:
    return shlex.join(["orin-deploy", *argv])
