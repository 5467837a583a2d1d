"""The service that ran before a change, and how to put it back when the new one fails."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.actions import Action, Run, Start, Stop, Write
from orin_deploy.host import Host, processes
from orin_deploy.intent.spec import Spec
from orin_deploy.parts.service.state import ServiceState, inspect
from orin_deploy.parts.service.steps import draft_unit, pattern, start_unit, teardown, wanted_draft_text, wanted_text
from orin_deploy.parts.service.unit import argv
from orin_deploy.parts.service.where import Where, manager, where


@dataclass(frozen=True)
class Before:
    """A service that ran: who kept it running and the whole launch file or unit."""

    where: Where
    manager: str
    text: str
    draft_text: str | None = None  # of the draft's own unit, where it had one


def snapshot(host: Host, spec: Spec, proved: Spec | None = None) -> Before | None:
    """The deployment's service as it runs now, or None when none does.

    Where its launch file or a unit of it is damaged or lost, all are written anew from `proved`, the spec that was
    proved last, if that is what runs.
    """
    state = inspect(host, spec)
    if state.server is None or state.manager is None:
        return None
    if _is_whole(state):
        return Before(state.where, state.manager, state.text or "", state.draft_text)
    if proved is None or proved.service.manager != state.manager or state.server.argv != argv(proved):
        return None
    return Before(state.where, state.manager, wanted_text(proved, state), wanted_draft_text(proved, state))


def _is_whole(state: ServiceState) -> bool:
    """Whether the launch file, or the unit and the draft's own where it is bound to one, still start what runs."""
    text = state.text or ""
    if state.manager == "process":
        return bool(processes.launched(text))
    draft = state.draft_text or ""
    return _is_unit(text, "WantedBy") and (state.where.draft_unit not in text or _is_unit(draft, "NoNewPrivileges"))


def _is_unit(text: str, last: str) -> bool:
    """Whether a unit goes from its command to the setting that comes last in it, and its last line is whole."""
    return "\nExecStart=" in text and f"\n{last}=" in text and text.endswith("\n")


def restore(spec: Spec, before: Before) -> tuple[Action, ...]:
    """What ends the service of `spec` and starts the one that ran before it."""
    place = before.where
    other = () if before.manager == spec.service.manager else teardown(place, spec.service.manager)
    if before.manager == "process":
        return *other, Stop(spec.name, place.launch), Write(place.launch, before.text), Start(spec.name, place.launch)
    draft = draft_unit(place, before.draft_text, there=spec.draft_process is not None)
    return *other, *draft, Write(place.unit_file, before.text), *start_unit(place, wait=True, draft=bool(draft))


def leftovers(host: Host, name: str) -> tuple[Action, ...]:
    """What takes away the service whose files are here, for when its remembered undo actions are lost."""
    place = where(host, name)
    having = manager(host, place)
    return () if having is None else teardown(place, having)


def halt(host: Host, spec: Spec) -> tuple[Action, ...]:
    """What stops a service that fails, so that it does not start again and again; its files stay."""
    place = where(host, spec.name)
    if spec.service.manager == "process":
        return (Stop(spec.name, place.launch),)
    return (Run((*place.systemctl, "stop", place.unit, pattern(place.draft_unit))),)
