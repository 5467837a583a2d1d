"""What runs for a deployment, by its name: its state, process and memory. Quick looks, also without a spec."""

from __future__ import annotations

import glob
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orin_deploy.host import Host, processes, procfs, supervisors
from orin_deploy.host.processes import BACKING_OFF, FAILED, RUNNING
from orin_deploy.intent import deployment
from orin_deploy.intent.spec import Spec
from orin_deploy.parts import serverlog
from orin_deploy.parts.service.log import log_lines
from orin_deploy.parts.service.unit import DRAFT, environment
from orin_deploy.parts.service.where import Where, manager, where


@dataclass(frozen=True)
class Status:
    """What the manager says of the server. `state` is RUNNING, BACKING_OFF, FAILED, or None when there is nothing.

    `failures` counts exits in a row, `exit` is the last of them in words; `since` is in seconds since the epoch.
    `draft` is the process number of the draft's own process, None where there is none.
    """

    state: str | None = None
    pid: int | None = None
    since: float | None = None
    failures: int = 0
    exit: str | None = None
    draft: int | None = None


def status(host: Host, name: str) -> Status:
    """What keeps the server running says of it."""
    place = where(host, name)
    match manager(host, place):
        case "process":
            now = processes.running(Path(place.launch), host.path("/proc"))
            if now is None:
                return Status()
            return Status(now.state, now.server, now.since, now.failures, now.exit, next(iter(now.companions), None))
        case "systemd":
            return _unit_status(host, place)
    return Status()


def kept(host: Host) -> frozenset[str]:
    """The deployments that systemd or a supervisor keeps, by their names; also those of which no other file is left."""
    folder = glob.escape(str(Path(where(host, "").unit_file).parent))
    named = ((path, deployment.of_unit(path)) for path in host.glob(f"{folder}/{deployment.UNITS}"))
    ours = {name for path, name in named if name and _is_ours(host.read_text(path) or "", where(host, name))}
    return supervisors.names(deployment.folders(host.data), host.path("/proc")) | ours


def _is_ours(unit: str, place: Where) -> bool:
    """Whether a unit serves out of our data folder: the system has those of every data folder."""
    return environment("XDG_CONFIG_HOME", place.config) in unit.split("\n")


def running_pid(host: Host, spec: Spec) -> int | None:
    """The process number of the deployment's server, or None."""
    return status(host, spec.name).pid


def held_bytes(host: Host, name: str) -> int:
    """Bytes that the deployment's server would give back to the free memory: its own pages, and the CUDA buffers its
    log names, which no process's resident size shows on a Jetson. Pages of a mapped model count as free already."""
    now = status(host, name)
    if now.pid is None:
        return 0
    resident = [procfs.memory(pid, host.path("/proc")) for pid in (now.pid, now.draft) if pid is not None]
    buffers = serverlog.memory_rows(log_lines(host, name))
    return sum(rows.get("anon", 0) + rows.get("shmem", 0) for rows in resident) + sum(
        row.bytes for row in buffers if row.device.startswith("CUDA")
    )


def slots(host: Host, spec: Spec, timeout_s: float = 10) -> list[dict[str, Any]] | None:
    """What the server says of each slot; None when it does not show its slots, or not within `timeout_s` seconds."""
    reply = host.http("GET", f"{spec.service.endpoint}/slots", headers=auth_headers(spec), timeout_s=timeout_s)
    told = reply.json() if reply is not None and reply.status == 200 else None
    return told if isinstance(told, list) else None


def auth_headers(spec: Spec) -> dict[str, str]:
    """What a request to the endpoint needs: the first API key of the key file, where there is one."""
    keys = api_keys(spec)
    return {"Authorization": f"Bearer {keys[0]}"} if keys else {}


def api_keys(spec: Spec) -> tuple[str, ...]:
    """The keys the server takes from its key file, as its arg.cpp reads it: each line that is no comment, to its last
    space. Empty for a file that cannot be read: the server would then answer everybody."""
    file = Path(spec.service.api_key_file or "")
    try:
        lines = file.read_text(errors="replace").split("\n") if file.is_absolute() and file.is_file() else []
    except OSError:
        return ()
    return tuple(line for line in lines if line and not line.startswith("#"))


def _unit_status(host: Host, place: Where) -> Status:
    show, draft = _show(host, place, place.unit), {}
    if host.exists(place.draft_file):
        draft = _show(host, place, place.draft_unit)
    pid = int(show.get("MainPID", "0")) or None
    proc = host.path("/proc")
    who = processes.identify(pid, proc) if pid is not None else None
    if show.get("ActiveState") == "failed":
        state = FAILED
    elif who is not None:
        state = RUNNING
    elif show.get("SubState", "").startswith("auto-restart"):
        state = BACKING_OFF
    elif draft.get("ActiveState") == "failed" or draft.get("SubState", "").startswith("auto-restart"):
        state = FAILED if draft["ActiveState"] == "failed" else BACKING_OFF
        return Status(state, failures=int(draft.get("NRestarts", "0")), exit=f"{DRAFT}'s {_exit(draft)}")
    else:
        return Status()
    since = processes.started(who, proc) if who else None
    return Status(
        state=state,
        pid=who.pid if who else None,
        since=since,
        failures=int(show.get("NRestarts", "0")),
        exit=_exit(show),
        draft=int(draft.get("MainPID", "0")) or None,
    )


def _show(host: Host, place: Where, unit: str) -> dict[str, str]:
    names = "ActiveState,SubState,MainPID,NRestarts,ExecMainCode,ExecMainStatus,Result"
    said = host.ask(*place.systemctl, "show", unit, "-p", names) or ""
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)


def _exit(show: Mapping[str, str]) -> str | None:
    """How the unit's last process ended, in the supervisor's words; ExecMainCode is a CLD_ code of wait(2)."""
    number = int(show.get("ExecMainStatus") or 0)
    match show.get("ExecMainCode"):
        case _ if show.get("Result") == "timeout":
            return "start timeout"
        case "1":
            return processes.in_words(number)
        case "2" | "3":
            return processes.in_words(-number)
    result = show.get("Result", "success")
    return None if result == "success" else f"systemd's result {result}"
