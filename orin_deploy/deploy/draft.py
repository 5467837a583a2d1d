"""Draft: the recipe from a request to a plan, on the machine as it is now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orin_deploy.deploy import decisions, earlier, record, residual
from orin_deploy.deploy.find_draft import ask
from orin_deploy.deploy.lookup import Found, find_model, profile_folders
from orin_deploy.deploy.neighbours import with_neighbours
from orin_deploy.deploy.plan import Plan, plan
from orin_deploy.errors import Refused
from orin_deploy.facts.device import Device
from orin_deploy.facts.inspect import inspect
from orin_deploy.host import Host, Progress
from orin_deploy.intent import board, profile
from orin_deploy.intent.basis import Around, Basis, basis
from orin_deploy.intent.limit import limit
from orin_deploy.intent.profile import Profile
from orin_deploy.intent.request import Request
from orin_deploy.intent.resolve import choose_build, deployment_name, layer, resolve
from orin_deploy.intent.spec import Build, Setting
from orin_deploy.intent.speculation import Decision, wish
from orin_deploy.intent.speculation_choice import NONE
from orin_deploy.parts import engine, service
from orin_deploy.parts.engine import projection


@dataclass(frozen=True)
class Situation:
    """What is read once for one run of a verb: the machine as it was at the start, the profile, the search path.

    `own_bytes` is the memory that this deployment's running server held at that moment and would give back.
    """

    name: str
    device: Device
    profile: Profile
    search: tuple[Path, ...]
    own_bytes: int
    chosen_because: str = "--profile"


def situation(host: Host, request: Request, elsewhere: bool) -> Situation:
    """Inspect the machine and load the profile. With `elsewhere` a board that is not at hand may stand in (`plan`);
    without it a profile for another machine is refused, unless the request forces it."""
    device = inspect(host)
    search = profile_folders(host, request.profiles_folder)
    wanted, because = request.profile, "--profile"
    if request.profile == "auto":
        wanted, because = board.choose(device, search)
    chosen = profile.load(wanted, search)
    device = board.complete_clusters(chosen, board.assume_module(chosen, device))
    name = deployment_name(chosen.name if request.name is None else request.name)
    if not request.force and not board.is_at_hand(chosen, device):
        if not elsewhere:
            board.require_at_hand(chosen, device)
        device = board.stand_in(chosen)
    else:
        device = with_neighbours(host, device, name)
    held = 0 if device.assumed else service.held_bytes(host, name)
    return Situation(name, device, chosen, search, held, because)


@dataclass(frozen=True)
class Recipe:
    """What a plan is made from, read once: `plan` and `fit` both go by it.

    With draft=auto `key` is what a decision goes by, and `recorded` the one on record; `previous` is the last record.
    """

    values: dict[str, Setting]
    build: Build
    found: Found
    around: Around
    key: decisions.Key | None
    recorded: Decision | None
    previous: dict[str, Any] | None

    def basis(self, now: Situation) -> Basis:
        """All that is decided before the context is. Raises Refused or UsageError."""
        found = self.found
        return basis(
            now.profile, now.device, self.values, self.build, found.model, found.weights, found.alias, self.around
        )

    def without_draft(self, why: str) -> Decision | None:
        """The decision to do without the draft on record, and why; None where there is none to do without."""
        if self.recorded is None or self.recorded.kind == NONE:
            return None
        return replace(self.recorded, kind=NONE, source=f"{self.recorded.source}; done without now: {why}")


def recipe(
    host: Host, request: Request, now: Situation, progress: Progress, *, decision: Decision | None = None
) -> Recipe:
    """Read the parts' state, the models' headers and the records; changes nothing.

    `decision` is what shall speculate with draft=auto, as if it had been measured to be best; without it the records
    tell.
    """
    previous = record.latest(host, now.name)
    values = _values(request, now)
    build = choose_build(now.device, values, str(host.data))
    found = find_model(host, str(values["model"].value), now.search, earlier.files(previous), progress)
    found = replace(found, model=projection.completed(host, build, found.model, found.weights.files[0].path))
    key, recorded = _recorded(host, request, now, values, build, found) if decision is None else (None, None)
    files, left_out, decided = earlier.draft_files(previous), earlier.left_out(previous), decision or recorded
    around = Around(
        data=str(host.data),
        is_root=host.is_root,
        help_text=engine.help_text(host, build),
        fitted=earlier.fitted(previous),
        own_bytes=now.own_bytes,
        learned=residual.rows(host, now.device, build.key, found.model.architecture),
        asked=ask(host, values, found, now.search, files, progress, left_out=left_out, decision=decided),
        decision=decided,
        reboot=request.reboot,
    )
    return Recipe(values, build, found, around, key, recorded, previous)


def draft(
    host: Host,
    request: Request,
    now: Situation,
    progress: Progress,
    *,
    decision: Decision | None = None,
) -> Plan:
    """The plan for a request. Reads the parts' state and the models' headers; changes nothing.

    `decision` is as in `recipe`; one on record that cannot be any more is done without.
    """
    made = recipe(host, request, now, progress, decision=decision)
    found = made.found

    def planned(around: Around) -> Plan:
        spec = resolve(
            now.name, now.profile, now.device, made.values, made.build, found.model, found.weights, found.alias, around
        )
        spec = replace(spec, sources={**spec.sources, "profile": now.chosen_because})
        return replace(plan(host, spec, earlier.proved_pid(made.previous)), key=made.key)

    counted = earlier.learned(made.previous)
    try:
        if made.around.learned != counted and now.own_bytes:
            # What the running server's own start taught is for the next start: by itself it is no reason to restart it.
            kept = planned(replace(made.around, learned=counted))
            if kept.empty:
                return kept
        return planned(made.around)
    except Refused as error:
        without = made.without_draft(error.message)
        if without is None:
            raise
        return draft(host, request, now, progress, decision=without)


def _recorded(
    host: Host, request: Request, now: Situation, values: Mapping[str, Setting], build: Build, found: Found
) -> tuple[decisions.Key | None, Decision | None]:
    """With draft=auto, what a decision for this deployment goes by, and the one on record."""
    wished = wish(values, found.drafts)
    if not wished.auto:
        return None, None
    key = decisions.key(host, now.device, build, found.weights, wished, values, reboot=request.reboot)
    can_be_had = limit(now.device, values, now.own_bytes).bytes
    return key, decisions.find(host, key, int(str(values["speculation.measure_s"].value)), can_be_had)


def _values(request: Request, now: Situation) -> dict[str, Setting]:
    """Every option's value; the model and the draft as well, with who wants them."""
    values = layer(now.profile, request.sets)
    if request.draft is not None:
        values["draft"] = Setting(request.draft, "--draft")
    if request.model is not None:
        values["model"] = Setting(request.model, "--model")
    elif values["model"].value is None:
        values["model"] = Setting(now.profile.model, f"profile {now.profile.name}")
    return values
