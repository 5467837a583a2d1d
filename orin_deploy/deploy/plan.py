"""The plan: steps with reasons. A step whose state is right has no actions, so a plan after apply is empty."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.intent.spec import Spec
from orin_deploy.parts.step import Step


@dataclass(frozen=True)
class Plan:
    """What `up` will do, in order."""

    spec: Spec
    steps: tuple[Step, ...]

    @property
    def empty(self) -> bool:
        return not any(step.actions for step in self.steps)
