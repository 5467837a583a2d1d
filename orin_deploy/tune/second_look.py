"""The second look at the kind that won: how much it should draft, by what verifying costs here, proved by a race."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orin_deploy.facts.draft import BY_MODEL
from orin_deploy.intent.measured import Candidate, Decision
from orin_deploy.intent.speculation import by_decision
from orin_deploy.intent.speculation.kinds import n_max_key, n_min_key
from orin_deploy.intent.speculation_choice import NONE
from orin_deploy.observe.bench import Agenda, Comparison, verify_cost
from orin_deploy.tune.length import Drafts, Numbers, drafts, numbers
from orin_deploy.tune.verdict import Verdict, judge
from orin_deploy.tune.work import Work, arm

LEAST_S = 15.0
"""With less time left nothing further is begun: servers have to start for it."""

_COSTS = 0.6  # of the time left: the rest races what the costs promise
_LONGEST = 16  # the longest draft of a draft model that is tried
_LONGEST_PASS = 64  # tokens in one verification; ngram kinds draft no more
_GOES_ON = 0.5  # accepted at the last position: what lies beyond it is worth a look


@dataclass(frozen=True)
class Better:
    """Numbers that a race has confirmed, with its verdict and its record's number."""

    numbers: Numbers
    verdict: Verdict
    record: int


def second_look(work: Work, winner: Candidate, found: Comparison, agenda: Agenda, gain: float) -> Better | None:
    """Numbers for the winner of `found` with which it gains at least as much; None where there is no time, where
    somebody has set them, or where a race does not confirm what the costs promise."""
    key = n_max_key(winner.kind)
    if key is None or work.values[key].value is not None or work.left < 2 * LEAST_S:
        return None
    usual = work.planned(winner).spec.draft
    best = _numbers(work, winner, found, agenda, key)
    if best is None or usual is None:
        return None
    told = by_decision(_decision(winner, best), work.values)
    as_it_was = {key: usual.n_max, n_min_key(winner.kind): usual.n_min}
    if all(setting.value == as_it_was.get(name) for name, setting in told.items()) or work.left < LEAST_S:
        return None
    plain = arm(winner)
    sets = tuple((each, str(setting.value)) for each, setting in told.items())
    tried = replace(plain, name=f"{plain.name} with {best.n_max} tokens", sets=(*plain.sets, *sets))
    raced = work.race((arm(Candidate(NONE)), tried), agenda, work.left)
    verdict = judge(raced)
    number = work.keep(agenda, raced, verdict)
    confirmed = verdict.arm == tried.name and (verdict.gain or 0.0) >= gain
    return Better(best, verdict, number) if confirmed else None


def _decision(winner: Candidate, best: Numbers) -> Decision:
    return Decision(winner.kind, "to be confirmed", n_max=best.n_max, n_min=best.n_min, p_min=best.p_min)


def _numbers(work: Work, winner: Candidate, found: Comparison, agenda: Agenda, key: str) -> Numbers | None:
    """The winner's best numbers by the cost of verifying; None where nothing tells them."""
    by_model = winner.kind in BY_MODEL
    made = _drafts(found, winner, agenda)
    if made is None:
        return None
    if by_model and made.shares[-1] > _GOES_ON and len(made.shares) < _LONGEST:
        plain = arm(winner)
        longer = replace(plain, sets=(*plain.sets, (key, str(_LONGEST))))
        made = _drafts(work.race((longer,), agenda, work.left / 4), winner, agenda) or made
    seconds = work.left * _COSTS
    if seconds < LEAST_S:
        return None
    longest = len(made.shares)
    reach = min(work.clients * (longest + 1) - 1, _LONGEST_PASS)
    cost = verify_cost(work.host, work.request, work.now, reach, seconds, work.tell)
    return numbers(winner.kind, made, cost, by_model=by_model, longest=longest, clients=work.clients)


def _drafts(found: Comparison, winner: Candidate, agenda: Agenda) -> Drafts | None:
    good = [sample for at, sample in enumerate(found.samples) if at not in found.rejected]
    return drafts(good, winner.name, agenda.shares())
