"""What is the most a board can run: the table for a model, at hand or not, on a board, at hand or not."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.deploy.draft import Situation, recipe
from orin_deploy.facts.model import Model
from orin_deploy.host import Host, Progress
from orin_deploy.intent.fit_table import Table, fit_table
from orin_deploy.intent.request import Request
from orin_deploy.intent.serving import Serving
from orin_deploy.intent.speculation import Decision, ToMeasure
from orin_deploy.intent.ways import Way, ways_to_fit
from orin_deploy.intent.ways_of_room import ways_of_room


@dataclass(frozen=True)
class Fitting:
    """A model's table on a board, with what it was made from; `ways` make it fit where it does so at no context.

    With `to_measure` no draft is counted yet: `up` measures first whether there is one.
    """

    model: Model
    reference: str
    serving: Serving
    table: Table
    ways: tuple[Way, ...] = ()
    warnings: tuple[str, ...] = ()
    to_measure: ToMeasure | None = None


def fitting(
    host: Host, request: Request, now: Situation, progress: Progress, *, decision: Decision | None = None
) -> Fitting:
    """The table for a request, by the recipe that a plan is made from. Changes nothing.

    As in a plan, a decision on record with which no context fits is done without.
    """
    made = recipe(host, request, now, progress, decision=decision)
    model, basis = made.found.model, made.basis(now)
    table = fit_table(model, basis.serving, basis.room)
    ways: tuple[Way, ...] = ()
    if not any(table.largest):
        if (without := made.without_draft("no context fits with it")) is not None:
            return fitting(host, request, now, progress, decision=without)
        ways = ways_to_fit(model, basis.serving, basis.room, fitted=True)
        ways = ways or ways_of_room(model, basis.serving, basis.room, fitted=True)
    reference = str(made.values["model"].value)
    return Fitting(model, reference, basis.serving, table, ways, basis.drafted.warnings, basis.drafted.to_measure)
