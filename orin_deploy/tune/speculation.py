"""`draft: auto`: the candidates raced at `up`, and the decision kept on record."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from orin_deploy.deploy import decisions
from orin_deploy.deploy.draft import Situation
from orin_deploy.deploy.plan import Plan
from orin_deploy.deploy.verify import context_per_slot
from orin_deploy.errors import OrinError, Refused
from orin_deploy.host import Host, Progress
from orin_deploy.intent.measured import Candidate, Decision
from orin_deploy.intent.options import find
from orin_deploy.intent.request import Request
from orin_deploy.intent.resolve import layer
from orin_deploy.intent.speculation import mix
from orin_deploy.intent.speculation_choice import NONE
from orin_deploy.observe.bench import Agenda, Arm, Comparison, cases, workload
from orin_deploy.observe.bench.planning import plan_field, reason
from orin_deploy.observe.bench.race import TimeOver
from orin_deploy.observe.bench.workload import Workload
from orin_deploy.parts import service, weights
from orin_deploy.tune.again import again, enough_bytes
from orin_deploy.tune.second_look import Better, second_look
from orin_deploy.tune.verdict import Verdict, judge
from orin_deploy.tune.work import Work, arm

_TIME = "speculation.measure_s"
_RACE = 0.75
"""The share of the time that the candidates' race may take; the rest is for a second look at the winner."""
_CHARACTERS_A_TOKEN = 2.5
"""Fewer than English text has with any vocabulary, so that no prompt is taken for shorter than it is."""


def check_workloads(request: Request, now: Situation) -> None:
    """Raise UsageError for a workload in the mix that there is not, before anything is built."""
    if names := tuple(mix(layer(now.profile, request.sets))):
        workload.choose(workload.shipped(now.search), names)


def decide(
    host: Host, request: Request, command: str, plan: Plan, make_room: Callable[[], None], progress: Progress
) -> str:
    """Measure what `plan` leaves to be measured, keep the decision on record, and say it in a sentence.

    Candidates that fail are left out; where nothing can be measured it is none, and the sentence says so. Calls
    `make_room` where the deployment's own server leaves none for the race.
    """
    wanted, key = plan.spec.to_measure, plan.key
    assert wanted is not None
    assert key is not None
    work = Work(host, request, command, float(wanted.seconds), progress)
    try:
        agenda = _agenda(work, plan)
        found = _race(work, plan, wanted.candidates, agenda, make_room)
    except OrinError as error:
        work.left_out.append(error)
        decision = Decision(NONE, f"tried {_date(work)}: nothing could be measured: {reason(error)}", sure=False)
        said, undecided, busy = decision.source, isinstance(error, TimeOver), None
    else:
        decision, verdict = _decided(work, wanted.candidates, found, agenda)
        said, undecided, busy = _source(work, decision.record, verdict.why), verdict.undecided, verdict.busy
    enough = enough_bytes(work.left_out, work.limit_bytes)
    if enough is not None or not decision.sure:
        decision = replace(decision, again=again(wanted.seconds, work.limit_bytes, enough))
    decisions.keep(host, decisions.Kept(key, decision, wanted.seconds, enough))
    if not undecided:
        return f"{decision.kind}: {said}"
    advice = f"{busy}: try again when idle" if busy else "more turns may tell"
    return f"{decision.kind}: {said}; {advice}: {_with_time(command, 2 * wanted.seconds)}"


def _with_time(command: str, seconds: int) -> str:
    """The command that was typed, with so much time to measure."""
    words, kept = iter(shlex.split(command)), list[str]()
    for word in words:
        name, equals, value = word.partition("=")
        if name not in ("--set", "-s"):
            kept.append(word)
            continue
        value = value if equals else next(words, "")
        if find(value.partition("=")[0]).key != _TIME:
            kept += [name, value]
    return shlex.join([*kept, "--set", f"{_TIME}={seconds}"])


def _agenda(work: Work, plan: Plan) -> Agenda:
    """What is measured: the workloads that are served, as far as they have room in a slot's context."""
    served, slot = mix(work.values), context_per_slot(plan.spec)
    known = workload.choose(workload.shipped(work.now.search), tuple(served))
    chosen = tuple(each for each in known if slot is None or _tokens(each) <= slot)
    if not chosen:
        names = ", ".join(each.name for each in known)
        raise OrinError(f"a context of {slot} tokens holds none of the workloads {names}")
    return Agenda(chosen, cases(chosen, clients=(work.clients,)), work.allowed, weights=served)


def _tokens(each: Workload) -> float:
    """A prompt and its answer, at most."""
    return max(len(each.prompt("en", number)) for number in range(4)) / _CHARACTERS_A_TOKEN + each.tokens


def _race(
    work: Work, plan: Plan, candidates: Sequence[Candidate], agenda: Agenda, make_room: Callable[[], None]
) -> Comparison:
    """The race of all candidates that can be; raises OrinError with every reason where that is none of them."""
    arms, left_out = [], dict[str, str]()
    for each in candidates:
        try:
            if each.kind != NONE:
                _prepare(work, each)
            arms.append(arm(each))
        except OrinError as error:
            work.left_out.append(error)
            left_out[each.name] = reason(error)
    if len(arms) < 2:
        raise OrinError("; ".join(f"{name}: {why}" for name, why in left_out.items()))
    work.start()
    if service.status(work.host, plan.spec.name).pid is not None and _crowded(work, arms, agenda):
        make_room()
        work.look_again()
    found = work.race(arms, agenda, work.allowed * _RACE - work.seconds)
    work.left_out += found.errors.values()
    return replace(found, left_out={**left_out, **found.left_out})


def _prepare(work: Work, each: Candidate) -> None:
    """Fetch what a candidate needs; raises OrinError where the deployment has no room for it, or it cannot be."""
    planned = work.planned(each)
    if planned.spec.draft is None:
        raise OrinError(planned.spec.no_draft or "it cannot be planned")
    for step in planned.steps_of(weights.NAME):
        for action in step.actions:
            work.host.do(action, work.progress)


def _crowded(work: Work, arms: Sequence[Arm], agenda: Agenda) -> bool:
    """Whether an arm has no room beside the server that runs."""
    try:
        return bool(plan_field(work.host, work.request, work.now, arms, agenda, work.tell).left_out)
    except Refused:
        return True


def _decided(
    work: Work, candidates: Sequence[Candidate], found: Comparison, agenda: Agenda
) -> tuple[Decision, Verdict]:
    """The decision, and the verdict that it comes from."""
    verdict = judge(found)
    number = work.keep(agenda, found, verdict)
    winner = next((each for each in candidates if each.name == verdict.arm and each.kind != NONE), None)
    if winner is None:
        return _decision(work, number, verdict), verdict
    try:
        better = second_look(work, winner, found, agenda, verdict.gain or 1.0)
    except OrinError:  # what was decided stands
        better = None
    return _decision(work, number, verdict, winner, better), better.verdict if better else verdict


def _decision(
    work: Work, number: int, verdict: Verdict, winner: Candidate | None = None, better: Better | None = None
) -> Decision:
    """The decision with its source, as plans show it."""
    if better is not None:
        number, verdict = better.record, better.verdict
    source = _source(work, number, verdict.short or verdict.why)
    if winner is None:
        gain = verdict.gains.get(verdict.nearest or "")
        return Decision(NONE, source, gain=gain, record=number, date=_date(work), sure=verdict.sure)
    return Decision(
        winner.kind,
        source,
        where="auto" if winner.where == "draftless" else winner.where,
        n_max=better.numbers.n_max if better else None,
        n_min=better.numbers.n_min if better else None,
        p_min=better.numbers.p_min if better else None,
        gain=verdict.gain,
        record=number,
        date=_date(work),
    )


def _source(work: Work, number: int | None, why: str) -> str:
    return f"measured {_date(work)}, bench record {number}{_load(work)}: {why}"


def _load(work: Work) -> str:
    if work.asked_clients > work.clients:
        return f" with {work.clients} of {work.asked_clients} clients, for so many slots there are"
    return f" with {work.clients} clients" if work.clients > 1 else ""


def _date(work: Work) -> str:
    return work.host.now().date().isoformat()
