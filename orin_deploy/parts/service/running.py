"""What runs for a deployment, by its name alone: process, log, memory. Quick looks, also without a spec."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orin_deploy.host import Host, processes, procfs
from orin_deploy.host.processes import BACKING_OFF, FAILED, RUNNING
from orin_deploy.intent.spec import Service, Spec
from orin_deploy.parts import serverlog
from orin_deploy.parts.service.where import Where, where

_LOG_TAIL_BYTES = 2 * 1024 * 1024
_LOG_LINES = 5000
_FOLLOW_EVERY_S = 0.5


@dataclass(frozen=True)
class Status:
    """What the manager says of the server. `state` is RUNNING, BACKING_OFF, FAILED, or None when there is nothing.

    `failures` counts exits in a row, `exit` is the last of them in words; `since` is in seconds since the epoch.
    """

    state: str | None = None
    pid: int | None = None
    since: float | None = None
    failures: int = 0
    exit: str | None = None


@dataclass(frozen=True)
class Now:
    """A deployment's service at this moment, for people: `state` is "running", "loading", "backing off", …"""

    state: str
    endpoint: str | None
    pid: int | None


def manager(host: Host, place: Where) -> str | None:
    """Who has the deployment, told by the files it left: "process", "systemd" or None."""
    files = {"process": place.launch, "systemd": place.unit_file}
    return next((name for name, file in files.items() if host.exists(file)), None)


def status(host: Host, name: str) -> Status:
    """What keeps the server running says of it."""
    place = where(host, name)
    match manager(host, place):
        case "process":
            now = processes.running(Path(place.launch))
            return Status() if now is None else Status(now.state, now.server, now.since, now.failures, now.exit)
        case "systemd":
            return _unit_status(host, place)
    return Status()


def running_pid(host: Host, spec: Spec) -> int | None:
    """The process number of the deployment's server, or None."""
    return status(host, spec.name).pid


def now(host: Host, name: str, served: Mapping[str, Any]) -> Now:
    """The service of a deployment as it is now; `served` is the `service` of a record's spec, or empty."""
    found = status(host, name)
    if found.pid is None or "port" not in served:
        state = {BACKING_OFF: f"backing off after {found.exit}", FAILED: f"failed: {found.exit}", RUNNING: RUNNING}
        return Now(state.get(found.state or "", "stopped"), None, found.pid)
    endpoint = Service(**{**served, "argv": (), "env": ()}).endpoint
    reply = host.http("GET", f"{endpoint}/health", timeout_s=1)
    answers = {200: RUNNING, 503: "loading"}
    return Now(answers.get(reply.status, "not answering") if reply else "not answering", endpoint, found.pid)


def held_bytes(host: Host, name: str) -> int:
    """Bytes that the deployment's server would give back to the free memory: its own pages, and the CUDA buffers its
    log names, which no process's resident size shows on a Jetson. Pages of a mapped model count as free already."""
    pid = status(host, name).pid
    if pid is None:
        return 0
    resident = procfs.memory(pid)
    buffers = serverlog.memory_rows(log_lines(host, name))
    return (
        resident.get("anon", 0)
        + resident.get("shmem", 0)
        + sum(row.bytes for row in buffers if row.device.startswith("CUDA"))
    )


def auth_headers(spec: Spec) -> dict[str, str]:
    """What a request to the endpoint needs: the first API key of the key file, where there is one."""
    if spec.service.api_key_file is None:
        return {}
    try:
        lines = Path(spec.service.api_key_file).read_text().splitlines()
    except OSError:
        return {}
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return {"Authorization": f"Bearer {keys[0]}"} if keys else {}


def log_lines(host: Host, name: str, count: int = _LOG_LINES) -> tuple[str, ...]:
    """The last lines of the server's log: the journal's under systemd, else the log file's."""
    place = where(host, name)
    if manager(host, place) == "systemd":
        text = host.ask(*place.journalctl, "-u", place.unit, "-o", "cat", "-n", str(count), "--no-pager", "-q")
        return tuple((text or "").splitlines())
    return _tail(_log_file(host, place))[-count:]


def follow_log(host: Host, name: str) -> Iterator[str]:
    """New lines of the server's log as they come, until the caller stops."""
    seen = log_lines(host, name)
    while True:
        host.sleep(_FOLLOW_EVERY_S)
        lines = log_lines(host, name)
        yield from lines[_overlap(seen, lines) :]
        seen = lines


def _overlap(seen: tuple[str, ...], lines: tuple[str, ...]) -> int:
    """How many of `lines` were seen: the window slides over the log, so its end before is somewhere in it now."""
    last = seen[-20:]
    for end in range(len(lines), 0, -1):
        if lines[max(end - len(last), 0) : end] == last[-end:]:
            return end
    return 0


def _log_file(host: Host, place: Where) -> Path | None:
    try:
        return Path(json.loads(host.read(place.launch) or "")["log"])
    except (ValueError, TypeError, KeyError):
        return None


def _tail(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, 2) - _LOG_TAIL_BYTES, 0))
            return tuple(file.read().decode("utf-8", "replace").splitlines())
    except OSError:
        return ()


def _unit_status(host: Host, place: Where) -> Status:
    names = "ActiveState,SubState,MainPID,NRestarts,ExecMainCode,ExecMainStatus,Result"
    said = host.ask(*place.systemctl, "show", place.unit, "-p", names) or ""
    show = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    pid = int(show.get("MainPID", "0")) or None
    who = processes.identify(pid) if pid is not None else None
    if show.get("ActiveState") == "failed":
        state = FAILED
    elif who is not None:
        state = RUNNING
    elif show.get("SubState", "").startswith("auto-restart"):
        state = BACKING_OFF
    else:
        return Status()
    since = processes.started(who) if who else None
    return Status(state, who.pid if who else None, since, int(show.get("NRestarts", "0")), _exit(show))


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
