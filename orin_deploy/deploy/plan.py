"""The plan: steps with reasons. A step whose state is right has no actions, so a plan after apply is empty."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.deploy.decisions import Key
from orin_deploy.host import Host
from orin_deploy.intent.spec import Spec
from orin_deploy.parts import engine, power, service, weights
from orin_deploy.parts.step import Step

PARTS = (power, engine, weights, service)
"""Every part, in the order of work. A part has a NAME, `inspect(host, spec)` and `plan(spec, state)`."""


@dataclass(frozen=True)
class Plan:
    """What `up` will do, in order; `proof_step` says why the running server must be proved, or that it is.

    With draft=auto, `key` is what a decision goes by, and `measuring` the step that makes it where none is on record.
    """

    spec: Spec
    steps: tuple[Step, ...]
    proof_due: bool
    proof_step: Step
    measuring: Step | None = None
    key: Key | None = None

    @property
    def changes(self) -> bool:
        """Whether the machine is changed; to prove a server anew, as after a boot, changes nothing."""
        return self.measuring is not None or any(step.actions for step in self.steps)

    @property
    def empty(self) -> bool:
        return not self.proof_due and not self.changes

    @property
    def in_order(self) -> tuple[Step, ...]:
        """All steps as they are done: what is to be measured needs engine and weights and comes before the service."""
        first = tuple(step for step in self.steps if step.part != service.NAME)
        measuring = () if self.measuring is None else (self.measuring,)
        return (*first, *measuring, *self.steps_of(service.NAME), self.proof_step)

    def steps_of(self, part: str) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.part == part)


def plan(host: Host, spec: Spec, proved_pid: int | None) -> Plan:
    """The steps from the machine as it is now to `spec`; `proved_pid` is the server process the last proof was for."""
    steps: list[Step] = []
    for part in PARTS:
        steps += part.plan(spec, part.inspect(host, spec))
    serving = [step for step in steps if step.part == service.NAME]
    due = any(step.actions for step in serving) or proved_pid is None or proved_pid != service.running_pid(host, spec)
    why = "a real completion, then affinity, context, slots and memory read back" if due else "proved since it started"
    return Plan(spec, tuple(steps), due, Step("verify", "prove the endpoint", why), _measuring(spec))


def _measuring(spec: Spec) -> Step | None:
    wanted = spec.to_measure
    if wanted is None:
        return None
    why = f"draft=auto: to be measured at up: {wanted.text}"
    return Step("speculation", "choose speculation", why, seconds=float(wanted.seconds))
