"""What is the most a board can run: the table for a model, at hand or not, on a board, at hand or not."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orin_deploy.deploy import residual
from orin_deploy.deploy.draft import Situation
from orin_deploy.deploy.find_draft import ask
from orin_deploy.deploy.lookup import find_model
from orin_deploy.facts.model import Model
from orin_deploy.host import Host, Progress
from orin_deploy.intent import speculation
from orin_deploy.intent.fit import room_of, serving_of
from orin_deploy.intent.fit_table import Table, fit_table
from orin_deploy.intent.limit import file_copy
from orin_deploy.intent.placement import place
from orin_deploy.intent.request import Request
from orin_deploy.intent.resolve import choose_build, layer
from orin_deploy.intent.serving import Serving
from orin_deploy.intent.spec import Setting
from orin_deploy.intent.ways import Way, ways_to_fit
from orin_deploy.parts import engine


@dataclass(frozen=True)
class Fitting:
    """A model's table on a board, with what it was made from; `ways` make it fit where it does so at no context."""

    model: Model
    reference: str
    serving: Serving
    table: Table
    ways: tuple[Way, ...] = ()
    warnings: tuple[str, ...] = ()


def fitting(host: Host, request: Request, now: Situation, progress: Progress) -> Fitting:
    """The table for a request. Reads headers only, by ranges where a model is elsewhere; changes nothing."""
    values = layer(now.profile, request.sets)
    if request.draft is not None:
        values["draft"] = Setting(request.draft, "--draft")
    build = choose_build(now.device, values, str(host.data))
    reference = request.model or str(values["model"].value or now.profile.model)
    found = find_model(host, reference, now.search, None, progress)
    asked = ask(host, values, found, now.search, None, progress)
    drafted = speculation.decide(asked, found.model, found.weights, values, build, engine.help_text(host, build))
    draft = drafted.draft
    if draft is not None and draft.where == "process":
        draft = speculation.in_process(draft, values, build, place(now.device.cpu, values, draft=True))
    serving = serving_of(values, build, speculation.drafting(draft, values, build))
    learned = residual.rows(host, now.device, build.key, found.model.architecture)
    own = 0 if now.device.assumed else now.own_bytes
    room = room_of(now.device, values, own, (*file_copy(found.model, serving), *learned))
    table = fit_table(found.model, serving, room)
    smallest = replace(serving, ctx_size=table.contexts[0] * serving.slots)
    ways = () if any(table.largest) else ways_to_fit(found.model, smallest, room)
    return Fitting(found.model, reference, serving, table, ways, drafted.warnings)
