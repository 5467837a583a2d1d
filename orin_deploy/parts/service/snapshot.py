"""The service that ran before a change, and how to put it back when the new one fails."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.actions import Action, Run, Start, Stop, Write
from orin_deploy.host import Host
from orin_deploy.intent.spec import Spec
from orin_deploy.parts.service.state import inspect
from orin_deploy.parts.service.steps import start_unit, teardown
from orin_deploy.parts.service.where import Where, where


@dataclass(frozen=True)
class Before:
    """A service that ran: who kept it running and the whole launch file or unit."""

    where: Where
    manager: str
    text: str


def snapshot(host: Host, spec: Spec) -> Before | None:
    """The deployment's service as it runs now, or None when none does."""
    state = inspect(host, spec)
    if state.server is None or state.manager is None or state.text is None:
        return None
    return Before(state.where, state.manager, state.text)


def restore(spec: Spec, before: Before) -> tuple[Action, ...]:
    """What ends the service of `spec` and starts the one that ran before it."""
    place = before.where
    other = () if before.manager == spec.service.manager else teardown(place, spec.service.manager)
    if before.manager == "process":
        return *other, Stop(spec.name, place.launch), Write(place.launch, before.text), Start(spec.name, place.launch)
    return *other, Write(place.unit_file, before.text), *start_unit(place, wait=True)


def halt(host: Host, spec: Spec) -> tuple[Action, ...]:
    """What stops a service that fails, so that it does not start again and again; its files stay."""
    place = where(host, spec.name)
    if spec.service.manager == "process":
        return (Stop(spec.name, place.launch),)
    return (Run((*place.systemctl, "stop", place.unit)),)
