"""From the service as it is to the service of the spec."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from orin_deploy.actions import Action, Link, Remove, Run, Start, Stop, Write
from orin_deploy.errors import OrinError
from orin_deploy.host.processes import BACKING_OFF, FAILED
from orin_deploy.intent.placement import cpu_text
from orin_deploy.intent.spec import Spec
from orin_deploy.parts.service.state import NAME, ServiceState
from orin_deploy.parts.service.unit import argv, launch_text, unit_text
from orin_deploy.parts.service.where import Where
from orin_deploy.parts.step import Step

_TITLE = "start llama-server"


def plan(spec: Spec, state: ServiceState) -> tuple[Step, ...]:
    """One step; without actions when the server runs as the spec says.

    Raises OrinError when somebody else has the port, before anything is stopped, or when there is no taskset.
    """
    if state.taskset is None and spec.device.assumed is None:
        raise OrinError("taskset is not on this machine, so the server cannot be pinned", "sudo apt install util-linux")
    if state.holder is not None:
        raise _taken(spec, state)
    text = wanted_text(spec, state)
    reasons = "; ".join(_reasons(spec, state, text))
    if reasons:
        actions = _actions(spec, state, text)
    elif spec.service.manager == "systemd" and not state.enabled:
        reasons, actions = "it would not start at boot", _enable(state.where)
    else:
        return (Step(NAME, _TITLE, _as_planned(state), hint=_hint(spec, state)),)
    undo = teardown(state.where, spec.service.manager)
    return (Step(NAME, _TITLE, reasons, actions, undo, _hint(spec, state)),)


def wanted_text(spec: Spec, state: ServiceState) -> str:
    """The launch file or unit that shall be."""
    taskset = state.taskset or "/usr/bin/taskset"
    if spec.service.manager == "systemd":
        return unit_text(spec, state.where, taskset, state.groups)
    return launch_text(spec, state.where, taskset)


def teardown(where: Where, manager: str) -> tuple[Action, ...]:
    """What takes the service away; each action is fine where there is nothing, so it can be done again."""
    if manager == "process":
        return Stop(where.name, where.launch), Remove(where.launch)
    return (
        Run((*where.systemctl, "stop", _pattern(where.unit))),
        Remove(where.enabled),
        Remove(where.unit_file),
        Run((*where.systemctl, "daemon-reload")),
    )


def start_unit(where: Where, *, wait: bool) -> tuple[Action, ...]:
    """What makes systemd take the unit up as it is on disk now, and at every boot."""
    return (
        *_enable(where),
        Run((*where.systemctl, "reset-failed", _pattern(where.unit))),
        Run((*where.systemctl, "restart", *(() if wait else ("--no-block",)), where.unit)),
    )


def _enable(where: Where) -> tuple[Action, ...]:
    return Link(where.enabled, where.unit_file), Run((*where.systemctl, "daemon-reload"))


def _pattern(unit: str) -> str:
    """A glob that fits just this unit: systemctl is content when a glob, unlike a name, fits nothing."""
    return unit[:-1] + f"[{unit[-1]}]"


def _actions(spec: Spec, state: ServiceState, text: str) -> tuple[Action, ...]:
    where, manager = state.where, spec.service.manager
    actions: list[Action] = []
    if state.manager is not None and state.manager != manager:
        actions += teardown(where, state.manager)
    if manager == "process":
        if state.status.state is not None:
            actions.append(Stop(spec.name, where.launch))
        if state.text != text:
            actions.append(Write(where.launch, text))
        return (*actions, Start(spec.name, where.launch))
    if state.text != text:
        actions.append(Write(where.unit_file, text))
    return (*actions, *start_unit(where, wait=False))


def _reasons(spec: Spec, state: ServiceState, text: str) -> Iterator[str]:
    status = state.status
    if state.manager not in (None, spec.service.manager):
        yield f"kept running by {state.manager}, shall be by {spec.service.manager}"
    if status.state == FAILED:
        yield f"given up after {status.failures} failed starts ({status.exit})"
    elif status.state == BACKING_OFF:
        yield f"backing off after {status.exit}"
    elif state.server is None:
        yield "not running"
    else:
        found = tuple(drift(spec, state))
        yield from found
        if not found and state.text != text:
            yield "the way it is launched changed"


def drift(spec: Spec, state: ServiceState) -> Iterator[str]:
    """In what the running server is not the one of the spec."""
    server = state.server
    if server is None:
        return
    if server.argv != argv(spec):
        yield f"argv changed: {differences(server.argv, argv(spec))}"
    strays = sorted({cpus for _, cpus in server.threads if cpus != tuple(sorted(spec.placement.cpus))})
    if strays:
        yield f"threads run on CPUs {' and '.join(map(cpu_text, strays))}, planned {cpu_text(spec.placement.cpus)}"
    if server.options_from_env:
        yield f"its environment sets {', '.join(server.options_from_env)}"
    if server.replaced:
        yield "its program was replaced on disk"
    if state.overdue:
        yield "it does not answer"


def differences(old: tuple[str, ...], new: tuple[str, ...]) -> str:
    """What changed between two launches, option by option: "--ctx-size 4096 -> 8192, + --metrics"."""
    before, after = _options(old), _options(new)
    found = [f"{old[0]} -> {new[0]}"] if old[:1] != new[:1] else []
    for name in dict.fromkeys((*before, *after)):
        if name not in before:
            found.append(f"+ {name} {after[name]}".strip())
        elif name not in after:
            found.append(f"- {name} {before[name]}".strip())
        elif before[name] != after[name]:
            found.append(f"{name} {before[name]} -> {after[name]}")
    return ", ".join(found) or "the order of its options"


def _options(words: tuple[str, ...]) -> dict[str, str]:
    options: dict[str, str] = {}
    name = ""
    for word in words[1:]:
        if word.startswith("-") and not word[1:2].isdigit():
            name = word
            options[name] = ""
        else:
            options[name] = f"{options.get(name, '')} {word}".strip()
    return options


def _as_planned(state: ServiceState) -> str:
    since = f" since {datetime.fromtimestamp(state.status.since):%Y-%m-%d %H:%M}" if state.status.since else ""
    return f"runs as planned{since} (process {state.status.pid})"


def _taken(spec: Spec, state: ServiceState) -> OrinError:
    holder, port = state.holder, spec.service.port
    assert holder is not None
    if holder.deployment is not None:
        return OrinError(
            f"port {port} is taken by the deployment {holder.deployment} (process {holder.pid})",
            f"orin-deploy down --name {holder.deployment}, or --set port=N with a free port",
        )
    who = holder.program if holder.pid is None else f"process {holder.pid}: {holder.program}"
    return OrinError(f"port {port} is taken by {who}", f"--set port={port + 1}, or end that program")


def _hint(spec: Spec, state: ServiceState) -> str | None:
    if state.system_config:
        return "llama-server also reads /etc/llama.cpp/config.ini, which may change these options: remove it"
    if spec.service.manager == "systemd" and not state.lingers:
        return "a user's service ends with the user's last session, unless: loginctl enable-linger"
    return None
