"""From the service as it is to the service of the spec."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from orin_deploy.actions import Action, Link, Remove, Run, Start, Stop, Write
from orin_deploy.errors import OrinError, UsageError
from orin_deploy.host.processes import BACKING_OFF, FAILED
from orin_deploy.intent.placement import cpu_text
from orin_deploy.intent.spec import Spec
from orin_deploy.parts.service.state import NAME, Holder, Server, ServiceState
from orin_deploy.parts.service.unit import DRAFT, argv, draft_unit_text, launch_text, unit_text
from orin_deploy.parts.service.where import Where
from orin_deploy.parts.step import Step

_TITLE = "start llama-server"


def plan(spec: Spec, state: ServiceState) -> tuple[Step, ...]:
    """One step; without actions when the server runs as the spec says.

    Raises OrinError when somebody else has the port, before anything is stopped, or when there is no taskset.
    """
    if state.taskset is None and spec.device.assumed is None:
        raise OrinError("taskset is not on this machine, so the server cannot be pinned", "sudo apt install util-linux")
    if state.holder is not None and not _left_over(spec, state.holder):
        raise _taken(state.holder, "port", spec.service.port)
    if state.draft_holder is not None and spec.draft_process is not None and not _left_over(spec, state.draft_holder):
        raise _taken(state.draft_holder, "placement.draft_port", spec.draft_process.port)
    if state.keyless:
        raise UsageError(
            f"the API key file {spec.service.api_key_file} holds no key that a request could carry",
            "name it by its absolute path; one key a line, without spaces around it: openssl rand -hex 24 > FILE",
        )
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


def wanted_draft_text(spec: Spec, state: ServiceState) -> str | None:
    """The unit of the draft's own process that shall be; a launch file holds both."""
    if spec.service.manager != "systemd":
        return None
    return draft_unit_text(spec, state.where, state.taskset or "/usr/bin/taskset", state.groups)


def teardown(where: Where, manager: str) -> tuple[Action, ...]:
    """What takes the service away; each action is fine where there is nothing, so it can be done again."""
    if manager == "process":
        return Stop(where.name, where.launch), Remove(where.launch)
    return (
        Run((*where.systemctl, "stop", pattern(where.unit), pattern(where.draft_unit))),
        Remove(where.enabled),
        Remove(where.unit_file),
        Remove(where.draft_file),
        Run((*where.systemctl, "daemon-reload")),
    )


def start_unit(where: Where, *, wait: bool, draft: bool = False) -> tuple[Action, ...]:
    """What makes systemd take the unit up as it is on disk now, and at every boot."""
    return (
        *_enable(where),
        Run((*where.systemctl, "reset-failed", pattern(where.unit), *((pattern(where.draft_unit),) if draft else ()))),
        Run((*where.systemctl, "restart", *(() if wait else ("--no-block",)), where.unit)),
    )


def draft_unit(where: Where, text: str | None, *, there: bool) -> tuple[Action, ...]:
    """What writes the unit of the draft's own process, or takes it away when it is `there` and shall not be."""
    if text is not None:
        return (Write(where.draft_file, text),)
    return (Run((*where.systemctl, "stop", pattern(where.draft_unit))), Remove(where.draft_file)) if there else ()


def _enable(where: Where) -> tuple[Action, ...]:
    return Link(where.enabled, where.unit_file), Run((*where.systemctl, "daemon-reload"))


def pattern(unit: str) -> str:
    """A glob that fits just this unit: systemctl is content when a glob, unlike a name, fits nothing."""
    return unit[:-1] + f"[{unit[-1]}]"


def _actions(spec: Spec, state: ServiceState, text: str) -> tuple[Action, ...]:
    where, manager = state.where, spec.service.manager
    actions: list[Action] = []
    if state.manager is not None and state.manager != manager:
        actions += teardown(where, state.manager)
    left = [holder for holder in (state.holder, state.draft_holder) if holder is not None]
    if left or (manager == "process" and state.status.state is not None):
        actions.append(Stop(spec.name, where.launch))
    if manager == "process":
        if state.text != text:
            actions.append(Write(where.launch, text))
        return (*actions, Start(spec.name, where.launch))
    if state.draft_text != (draft_text := wanted_draft_text(spec, state)):
        actions += draft_unit(where, draft_text, there=True)
    if state.text != text:
        actions.append(Write(where.unit_file, text))
    return (*actions, *start_unit(where, wait=False, draft=spec.draft_process is not None))


def _reasons(spec: Spec, state: ServiceState, text: str) -> Iterator[str]:
    status = state.status
    if state.holder is not None:
        yield f"another server of this deployment has port {spec.service.port} (process {state.holder.pid})"
    if state.draft_holder is not None:
        yield f"another draft process of this deployment runs (process {state.draft_holder.pid})"
    if state.manager not in (None, spec.service.manager):
        yield f"kept running by {state.manager}, shall be by {spec.service.manager}"
    if status.state == FAILED:
        yield f"given up after {status.failures} failed starts ({status.exit})"
    elif status.state == BACKING_OFF:
        yield f"backing off after {status.exit}" if status.exit else "its server does not run yet"
    elif state.server is None:
        yield "not running"
    else:
        found = tuple(drift(spec, state))
        yield from found
        if not found and (state.text != text or state.draft_text != wanted_draft_text(spec, state)):
            yield "the way it is launched changed"


def drift(spec: Spec, state: ServiceState) -> Iterator[str]:
    """In what the running server is not the one of the spec."""
    server = state.server
    if server is None:
        return
    if server.argv != argv(spec):
        yield f"argv changed: {differences(server.argv, argv(spec))}"
    yield from _strays("", server, spec.placement.cpus)
    yield from _draft_drift(spec, state.draft)
    if server.options_from_env:
        yield f"its environment sets {', '.join(server.options_from_env)}"
    if server.replaced:
        yield "its program was replaced on disk"
    if state.overdue:
        yield "it does not answer"


def _draft_drift(spec: Spec, draft: Server | None) -> Iterator[str]:
    planned = spec.draft_process
    if planned is None:
        if draft is not None:
            yield f"{DRAFT} is not planned"
    elif draft is None:
        yield f"{DRAFT} is not running"
    elif draft.argv != planned.argv:
        yield f"{DRAFT}'s argv changed: {differences(draft.argv, planned.argv)}"
    else:
        yield from _strays(f"{DRAFT}'s ", draft, spec.placement.draft_cpus)


def _strays(whose: str, server: Server, planned: tuple[int, ...]) -> Iterator[str]:
    """The threads that may run elsewhere than planned: a cpuset, OMP_PROC_BIND or a person's taskset outdid ours."""
    strays = {tid: cpus for tid, cpus in server.threads if cpus != tuple(sorted(planned))}
    if strays:
        masks = " and ".join(map(cpu_text, sorted(set(strays.values()))))
        named = ", ".join(map(str, sorted(strays)[:3])) + (" …" if len(strays) > 3 else "")
        yield (
            f"{whose}threads run on CPUs {masks}, planned {cpu_text(planned)} "
            f"(thread {named}: {len(strays)} of {len(server.threads)})"
        )


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


def _left_over(spec: Spec, holder: Holder) -> bool:
    """Whether who has the port is a server of this very deployment that a supervisor keeps, its files removed since."""
    return holder.deployment == spec.name and holder.supervised


def _taken(holder: Holder, key: str, port: int) -> OrinError:
    if holder.deployment is not None:
        return OrinError(
            f"port {port} is taken by the deployment {holder.deployment} (process {holder.pid})",
            f"orin-deploy down --name {holder.deployment}, or --set {key}=N with a free port",
        )
    who = holder.program if holder.pid is None else f"process {holder.pid}: {holder.program}"
    return OrinError(f"port {port} is taken by {who}", f"--set {key}={port + 1}, or end that program")


def _hint(spec: Spec, state: ServiceState) -> str | None:
    if state.system_config:
        return "llama-server also reads /etc/llama.cpp/config.ini, which may change these options: remove it"
    if spec.service.manager == "systemd" and not state.lingers:
        return "a user's service ends with the user's last session, unless: loginctl enable-linger"
    return None
