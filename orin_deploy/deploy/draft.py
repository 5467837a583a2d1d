"""Draft: the recipe from a request to a plan, on the machine as it is now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orin_deploy.deploy import decisions, record, residual
from orin_deploy.deploy.find_draft import ask
from orin_deploy.deploy.lookup import Found, find_model, profile_folders
from orin_deploy.deploy.neighbours import with_neighbours
from orin_deploy.deploy.plan import Plan, plan
from orin_deploy.errors import Refused
from orin_deploy.facts.device import Device
from orin_deploy.facts.inspect import inspect
from orin_deploy.host import Host, Progress
from orin_deploy.intent import board, profile
from orin_deploy.intent.engine_rows import Row
from orin_deploy.intent.fit import Fitted
from orin_deploy.intent.profile import Profile
from orin_deploy.intent.request import Request
from orin_deploy.intent.resolve import Around, choose_build, deployment_name, layer, resolve
from orin_deploy.intent.spec import Build, LeftOut, Setting, WeightFile, Weights
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
    return Situation(name, device, chosen, search, service.held_bytes(host, name), because)


def draft(
    host: Host,
    request: Request,
    now: Situation,
    progress: Progress,
    *,
    decision: Decision | None = None,
) -> Plan:
    """The plan for a request. Reads the parts' state and the models' headers; changes nothing.

    `decision` is what shall speculate with draft=auto, as if it had been measured to be best; without it the records
    tell, and one that does not fit any more is done without.
    """
    previous = record.latest(host, now.name)
    values = _values(request, now)
    build = choose_build(now.device, values, str(host.data))
    found = find_model(host, str(values["model"].value), now.search, _files((previous or {}).get("spec")), progress)
    found = replace(found, model=projection.completed(host, build, found.model, found.weights.files[0].path))
    key, recorded = _recorded(host, request, now, values, build, found) if decision is None else (None, None)
    files = _files(((previous or {}).get("spec") or {}).get("draft"))
    left_out, decided = _left_out(previous), decision or recorded
    asked = ask(host, values, found, now.search, files, progress, left_out=left_out, decision=decided)
    around = Around(
        data=str(host.data),
        is_root=host.is_root,
        help_text=engine.help_text(host, build),
        fitted=_fitted(previous),
        own_bytes=now.own_bytes,
        asked=asked,
        decision=decided,
        reboot=request.reboot,
    )

    def planned(learned: tuple[Row, ...]) -> Plan:
        about = replace(around, learned=learned)
        spec = resolve(now.name, now.profile, now.device, values, build, found.model, found.weights, found.alias, about)
        spec = replace(spec, sources={**spec.sources, "profile": now.chosen_because})
        return replace(plan(host, spec, _proved_pid(previous)), key=key)

    learned, counted = residual.rows(host, now.device, build.key, found.model.architecture), _learned(previous)
    try:
        if learned != counted and now.own_bytes:
            # What the running server's own start taught is for the next start: by itself it is no reason to restart it.
            kept = planned(counted)
            if kept.empty:
                return kept
        return planned(learned)
    except Refused:
        if recorded is None or recorded.kind == NONE:
            raise
        without = replace(recorded, kind=NONE, source=f"{recorded.source}, and now it does not fit")
        return draft(host, request, now, progress, decision=without)


def _recorded(
    host: Host, request: Request, now: Situation, values: Mapping[str, Setting], build: Build, found: Found
) -> tuple[decisions.Key | None, Decision | None]:
    """With draft=auto, what a decision for this deployment goes by, and the one on record."""
    wished = wish(values, found.drafts)
    if not wished.auto:
        return None, None
    key = decisions.key(host, now.device, build, found.weights, wished, values, reboot=request.reboot)
    return key, decisions.find(host, key, int(str(values["speculation.measure_s"].value)))


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


def _fitted(previous: dict[str, Any] | None) -> Fitted | None:
    """The context that was fitted to memory for this deployment.

    Memory is never twice the same to the byte; without this a second `up` would fit another context and restart."""
    if previous is None or previous.get("outcome") not in ("done", "running"):
        return None
    try:
        setting, budget = previous["spec"]["settings"]["ctx_size"], previous["spec"]["budget"]
        total = sum(row["bytes"] for row in budget["rows"])
        fitted = Fitted(setting["value"], previous["record"], total, budget["limit_bytes"], budget["limit_source"])
        return fitted if setting["source"].startswith("fitted") else None
    except (KeyError, TypeError, AttributeError):  # no spec yet, or a record of another version
        return None


def _learned(previous: dict[str, Any] | None) -> tuple[Row, ...]:
    """What the last record's plan counted as learned."""
    budget = ((previous or {}).get("spec") or {}).get("budget") or {"rows": ()}
    return tuple(
        Row(row["name"], row["bytes"], str(row.get("source")))
        for row in budget["rows"]
        if row.get("name") == residual.ROW
    )


def _files(recorded: dict[str, Any] | None) -> Weights | None:
    """The files that the last record resolved a reference to: with them a plan needs no network a second time."""
    told = (recorded or {}).get("weights")
    try:
        return Weights(told["reference"], tuple(WeightFile(**file) for file in told["files"])) if told else None
    except (KeyError, TypeError):
        return None


def _left_out(previous: dict[str, Any] | None) -> LeftOut | None:
    """The speculation that the last record did without because it did not work, if it went well then."""
    if previous is None or previous.get("outcome") not in ("done", "running"):
        return None
    told = (previous.get("spec") or {}).get("left_out")
    try:
        return LeftOut(**told) if told else None
    except TypeError:
        return None


def _proved_pid(previous: dict[str, Any] | None) -> int | None:
    proof = (previous or {}).get("proof") or {}
    return proof.get("pid")
