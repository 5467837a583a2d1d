"""What all measuring of one `up` shares: for whom, beside what, and how much time is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orin_deploy.deploy.draft import draft, situation
from orin_deploy.deploy.plan import Plan
from orin_deploy.errors import OrinError
from orin_deploy.host import Host, Progress
from orin_deploy.intent.limit import limit
from orin_deploy.intent.measured import Candidate, Decision
from orin_deploy.intent.request import Request
from orin_deploy.intent.resolve import layer
from orin_deploy.intent.spec import Setting
from orin_deploy.observe.bench import Agenda, Arm, Comparison, race, record
from orin_deploy.observe.bench.arms import DRAFT
from orin_deploy.tune.verdict import Verdict


class Work:
    """One measurement for the deployment of `request`, within `allowed` seconds from when its clock is started.

    `left_out` is why ways were not measured, as it comes up.
    """

    def __init__(self, host: Host, request: Request, command: str, allowed: float, progress: Progress) -> None:
        self.host = host
        self.request = request
        self.command = command
        self.allowed = allowed
        self.progress = progress
        self.now = situation(host, request, elsewhere=False)
        self.values: Mapping[str, Setting] = layer(self.now.profile, request.sets)
        self.slots = int(str(self.values["parallel"].value or 1))
        self.left_out: list[OrinError] = []
        self.asked_clients = int(str(self.values["speculation.concurrency"].value))
        self.start()

    @property
    def clients(self) -> int:
        """Who ask at once: more than there are slots would only wait for one another."""
        return min(self.asked_clients, self.slots)

    def start(self) -> None:
        self.began = self.host.monotonic()

    @property
    def seconds(self) -> float:
        return self.host.monotonic() - self.began

    @property
    def left(self) -> float:
        return max(self.allowed - self.seconds, 0.0)

    def tell(self, fraction: float | None, text: str) -> None:
        """Progress of the whole, whatever part of it is told."""
        self.progress(min(self.seconds / self.allowed, 1.0), f"{text}, {self.left:.0f} s left")

    @property
    def limit_bytes(self) -> int:
        """The memory that can be had."""
        return limit(self.now.device, self.values, self.now.own_bytes).bytes

    def look_again(self) -> None:
        """Read the machine anew, where something on it has changed."""
        self.now = situation(self.host, self.request, elsewhere=False)

    def planned(self, each: Candidate) -> Plan:
        """The whole deployment with a candidate; raises Refused where it does not fit."""
        wanted = Decision(each.kind, "to be measured", where=each.where)
        return draft(self.host, self.request, self.now, self.progress, decision=wanted)

    def race(self, arms: Sequence[Arm], agenda: Agenda, seconds: float) -> Comparison:
        return race(self.host, self.request, self.now, arms, replace(agenda, seconds=max(seconds, 1.0)), self.tell)

    def keep(self, agenda: Agenda, found: Comparison, verdict: Verdict) -> int:
        """Write the bench's record of a race, with what it led to; returns its number."""
        document = record.document(self.host, self.now.name, self.command, agenda, found)
        told = {
            "arm": verdict.arm,
            "why": verdict.why,
            "sure": verdict.sure,
            "gains": dict(verdict.gains),
            "against": dict(verdict.against),
        }
        return int(record.keep(self.host, {**document, "decision": told})["record"])


def arm(each: Candidate) -> Arm:
    """A candidate as an arm of a race."""
    if each.where in ("inline", "process"):
        return Arm(each.name, DRAFT, (("placement.draft", each.where),))
    return Arm(each.name, each.kind)
