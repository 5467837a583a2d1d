"""The step: one thing a part does to bring its state to the spec."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.actions import Action


@dataclass(frozen=True)
class Step:
    """What is to be done and why; no actions when the state is already right.

    `undo` is written to disk before the first action, so that `down` can restore what was there, also after a power
    cut. `seconds` is an estimate, None for short steps.
    """

    part: str
    name: str
    why: str
    actions: tuple[Action, ...] = ()
    undo: tuple[Action, ...] = ()
    hint: str | None = None
    seconds: float | None = None
