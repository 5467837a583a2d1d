"""Draft: the recipe from a request to a plan, on the machine as it is now."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orin_deploy.deploy import record
from orin_deploy.deploy.lookup import find_model, profile_folders
from orin_deploy.deploy.plan import Plan, plan
from orin_deploy.facts.device import Device
from orin_deploy.facts.inspect import inspect
from orin_deploy.host import Host, Progress
from orin_deploy.intent import board, profile
from orin_deploy.intent.fit import Fitted
from orin_deploy.intent.profile import Profile
from orin_deploy.intent.request import Request
from orin_deploy.intent.resolve import Around, choose_build, deployment_name, layer, resolve
from orin_deploy.intent.spec import Setting, WeightFile, Weights
from orin_deploy.parts import engine, service


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
    return Situation(name, device, chosen, search, service.held_bytes(host, name), because)


def draft(host: Host, request: Request, now: Situation, progress: Progress) -> Plan:
    """The plan for a request. Reads the parts' state and the model's header; changes nothing."""
    previous = record.latest(host, now.name)
    values = layer(now.profile, request.sets)
    build = choose_build(now.device, values, str(host.data))
    values["model"] = _model(request, now.profile, values["model"])
    found = find_model(host, str(values["model"].value), now.search, _files(previous), progress)
    around = Around(
        data=str(host.data),
        is_root=host.is_root,
        help_text=engine.help_text(host, build),
        fitted=_fitted(previous),
        own_bytes=now.own_bytes,
        reboot=request.reboot,
    )
    spec = resolve(now.name, now.profile, now.device, values, build, found.model, found.weights, found.alias, around)
    spec = replace(spec, sources={**spec.sources, "profile": now.chosen_because})
    return plan(host, spec, _proved_pid(previous))


def _model(request: Request, chosen: Profile, option: Setting) -> Setting:
    """The model wanted, and who wants it."""
    if request.model is not None:
        return Setting(request.model, "--model")
    return option if option.value is not None else Setting(chosen.model, f"profile {chosen.name}")


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


def _files(previous: dict[str, Any] | None) -> Weights | None:
    """The files that the last record resolved its reference to: with them a plan needs no network a second time."""
    told = ((previous or {}).get("spec") or {}).get("weights")
    try:
        return Weights(told["reference"], tuple(WeightFile(**file) for file in told["files"])) if told else None
    except (KeyError, TypeError):
        return None


def _proved_pid(previous: dict[str, Any] | None) -> int | None:
    proof = (previous or {}).get("proof") or {}
    return proof.get("pid")
