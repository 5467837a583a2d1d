"""What is: the service of one deployment, in the terms of its spec."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from orin_deploy.host import Host, processes, procfs, supervisors
from orin_deploy.intent import deployment
from orin_deploy.intent.spec import Spec
from orin_deploy.parts.service.running import Status, api_keys, auth_headers, status
from orin_deploy.parts.service.where import Where, manager, where

NAME = "service"

_HTTP_TIMEOUT_S = 1.0
_ANSWERS_WITHIN_S = 30.0  # it listens before it loads the model


@dataclass(frozen=True)
class Server:
    """The server's process. `options_from_env` are variables that change its options behind the plan's back."""

    argv: tuple[str, ...]
    options_from_env: tuple[str, ...]
    replaced: bool  # its program file on disk is another one now
    threads: tuple[tuple[int, tuple[int, ...]], ...]  # each thread and the CPUs it may use


@dataclass(frozen=True)
class Endpoint:
    """What the server answers: `health` is "ok", "loading" or None for nothing; the rest is from /props.

    /slots is not asked here: on a busy server its answer waits for the batch at hand.
    """

    health: str | None = None
    ctx_per_slot: int | None = None
    slots: int | None = None
    model_path: str | None = None
    build: str | None = None  # as "b6402-0c1e570"


@dataclass(frozen=True)
class Holder:
    """Someone else who listens on the port: process number and words, and which deployment of ours it is, if any."""

    pid: int | None
    program: str
    deployment: str | None = None
    supervised: bool = False  # by a supervisor of ours, which can be told to end it


@dataclass(frozen=True)
class ServiceState:
    """The service of one deployment as it is now. `text` is the launch file or unit on disk of the `manager`."""

    where: Where
    taskset: str | None
    groups: tuple[str, ...] = ()  # of video and render those this machine has
    lingers: bool = True  # a user's units outlive the session
    keyless: bool = False  # an API key file is named, and holds no key that a request could carry
    system_config: bool = False  # /etc/llama.cpp/config.ini exists: llama-server reads it, nothing can stop it
    manager: str | None = None
    text: str | None = None
    draft_text: str | None = None  # of the draft's own unit, where there is one
    enabled: bool = False
    status: Status = field(default_factory=Status)
    server: Server | None = None
    draft: Server | None = None  # the draft's own process
    endpoint: Endpoint = Endpoint()
    overdue: bool = False  # it runs for long enough that it should have answered, and has not
    holder: Holder | None = None
    draft_holder: Holder | None = None  # of the port of the draft's own process


def inspect(host: Host, spec: Spec) -> ServiceState:
    """Read the service's state; quick, also while the server is busy. For a device not at hand: nothing is there."""
    place = where(host, spec.name)
    group_file = host.read("/etc/group") or ""
    state = ServiceState(
        where=place,
        taskset=host.which("taskset"),
        groups=tuple(name for name in ("video", "render") if re.search(rf"^{name}:", group_file, re.MULTILINE)),
        lingers=place.of_system or host.exists(f"/var/lib/systemd/linger/{host.environ.get('USER', '')}"),
        system_config=host.exists("/etc/llama.cpp/config.ini"),
    )
    if spec.device.assumed is not None:
        return state
    having = manager(host, place)
    now = status(host, spec.name)
    endpoint = _endpoint(host, spec) if now.pid is not None else Endpoint()
    age_s = host.now().timestamp() - now.since if now.since is not None else 0.0
    return replace(
        state,
        manager=having,
        text=host.read_text(place.launch if having == "process" else place.unit_file) if having else None,
        enabled=host.link_target(place.enabled) is not None,
        status=now,
        keyless=spec.service.api_key_file is not None
        and not all(key == key.strip() for key in api_keys(spec) or (" ",)),
        draft_text=host.read_text(place.draft_file) if having == "systemd" else None,
        server=None if now.pid is None else _server(host, now.pid),
        draft=None if now.draft is None else _server(host, now.draft),
        endpoint=endpoint,
        overdue=endpoint.health is None and age_s > _ANSWERS_WITHIN_S,
        holder=_holder(host, spec.service.port, spec.service.host, now.pid),
        draft_holder=None
        if spec.draft_process is None
        else _holder(host, spec.draft_process.port, "127.0.0.1", now.draft),
    )


def _server(host: Host, pid: int) -> Server | None:
    proc = host.path("/proc")
    argv = procfs.command(pid, proc)
    if argv is None:
        return None
    environ = procfs.environment(pid, proc) or {}
    return Server(
        argv=argv,
        options_from_env=tuple(sorted(set(environ) - set(processes.without_options(environ)))),
        replaced=(procfs.program(pid, proc) or "").endswith(" (deleted)"),
        threads=tuple(sorted(procfs.threads(pid, proc).items())),
    )


def _endpoint(host: Host, spec: Spec) -> Endpoint:
    health = host.http("GET", f"{spec.service.endpoint}/health", timeout_s=_HTTP_TIMEOUT_S)
    if health is None or health.status != 200:
        return Endpoint("loading" if health is not None and health.status == 503 else None)
    url = f"{spec.service.endpoint}/props"
    reply = host.http("GET", url, headers=auth_headers(spec), timeout_s=_HTTP_TIMEOUT_S)
    props = reply.json() if reply is not None and reply.status == 200 else None
    if not isinstance(props, dict):
        return Endpoint("ok")
    generation = props.get("default_generation_settings") or {}
    return Endpoint(
        "ok", generation.get("n_ctx"), props.get("total_slots"), props.get("model_path"), props.get("build_info")
    )


def _holder(host: Host, port: int, address: str, pid: int | None) -> Holder | None:
    found = procfs.port_holder(port, address, pid, host.path("/proc"))
    # A program of another user has no number that we may read, and neither has a server that does not run.
    if found is None or (pid is not None and found[0] == pid):
        return None
    number, program = found
    if number is None:
        return Holder(None, program)
    supervised = _supervised(host, number)
    name = supervised or deployment.of_unit(procfs.cgroup(number, host.path("/proc")))
    return Holder(number, program, name, supervised is not None)


def _supervised(host: Host, pid: int) -> str | None:
    """The deployment whose supervisor started a process, or has left it behind."""
    folder, proc = deployment.folders(host.data), host.path("/proc")
    names = {*supervisors.names(folder, proc), *(path.parent.name for path in folder.glob("*/state.json"))}
    return next(
        (name for name in sorted(names) if pid in processes.servers(Path(where(host, name).launch), proc)), None
    )
