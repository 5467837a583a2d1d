"""Processes of this machine: who they are, what they may use, and the supervised server of a launch file.

A launch file is JSON: `argv`, `env`, `log`, `start_timeout_s` (the longest a healthy start takes), `restart_delay_s`,
and optionally `stop_timeout_s`, `start_limit`, `log_bytes`, and `companions`: what the server needs beside it, each
with `name`, `argv` and the loopback `port` it serves on. `state.json` beside it says who runs; where that is damaged
or lost, the processes do.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orin_deploy.errors import OrinError
from orin_deploy.host import supervisors
from orin_deploy.host.procfs import PROC

if TYPE_CHECKING:
    from orin_deploy.host.machine import Machine

RUNNING, BACKING_OFF, FAILED = "running", "backing off", "failed"
START_MARK = "--- orin-deploy starts the server"
"""The line in a server's log before each start, whoever keeps it running."""

STOP_TIMEOUT_S = 15.0
START_LIMIT = 5  # failures in a row after which a server is given up, whoever keeps it running
ALREADY_SUPERVISED = 3

_NOTICED_WITHIN_S = 1.0


@dataclass(frozen=True)
class Identity:
    """A process that cannot be mistaken for a later one with its number: its start, in clock ticks of one boot."""

    pid: int
    ticks: int
    boot: str


def identify(pid: int, proc: Path = PROC) -> Identity | None:
    """Who has this process number now; None when nobody has, or only one that is dead and not yet collected."""
    fields = supervisors.stat(pid, proc)
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    return None if not fields or fields[0] in "ZXx" else Identity(pid, int(fields[19]), boot)


def is_alive(who: Identity | None, proc: Path = PROC) -> bool:
    return who is not None and identify(who.pid, proc) == who


def started(who: Identity, proc: Path = PROC) -> float:
    """When a process started, in seconds since the epoch by today's clock."""
    uptime = float((proc / "uptime").read_text().split()[0])
    return time.time() - uptime + who.ticks / os.sysconf("SC_CLK_TCK")


def end(who: Identity, patience_s: float) -> None:
    """End a process: SIGTERM, and SIGKILL when it is still there after `patience_s` seconds."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not is_alive(who):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(who.pid, number)
        deadline = time.monotonic() + patience_s
        while is_alive(who) and time.monotonic() < deadline:
            time.sleep(0.02)


def in_words(returncode: int) -> str:
    """How a process ended: "exit code 1" or "signal 9 (SIGKILL)"."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"signal {-returncode} ({signal.Signals(-returncode).name})"
    except ValueError:
        return f"signal {-returncode}"


def without_options(environ: dict[str, str]) -> dict[str, str]:
    """An environment less the variables that change llama-server's options, or where its threads run, behind the
    plan's back: OpenMP binds each thread to a place of its own when it is told to."""
    strays = ("LLAMA_API_KEY", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
    return {k: v for k, v in environ.items() if not k.startswith("LLAMA_ARG_") and k not in strays}


# The supervised server of a launch file.


@dataclass(frozen=True)
class State:
    """What a supervisor says of itself. `failures` counts the server's exits in a row, `exit` is the last of them.

    Of one that was found by its processes, with no state on disk, the three that tell of earlier starts are 0 and None.
    """

    state: str
    supervisor: Identity
    server: Identity | None
    starts: int
    failures: int
    exit: str | None
    companions: tuple[Identity, ...] = ()


@dataclass(frozen=True)
class Running:
    """A supervised server as it is now, from living processes only.

    `supervisor` is None when it was killed and left the server behind, or gave up; `server` is None between two
    starts. `since` is the server's start in seconds since the epoch. `state` is RUNNING, BACKING_OFF or FAILED.
    """

    state: str
    supervisor: int | None
    server: int | None
    since: float | None
    starts: int
    failures: int
    exit: str | None
    companions: tuple[int, ...] = ()


def state_path(launch: Path) -> Path:
    return launch.with_name("state.json")


def read_state(launch: Path, proc: Path = PROC) -> State | None:
    """The last state written beside a launch file, or None; it may be of processes long dead.

    A state of another launch file's supervisor, as a copied folder holds it, is none of this one.
    """
    try:
        data = json.loads(state_path(launch).read_text())
        server = data.pop("server")
        supervisor = Identity(**data.pop("supervisor"))
        companions = tuple(Identity(**companion) for companion in data.pop("companions", ()))
        state = State(
            supervisor=supervisor, server=Identity(**server) if server else None, companions=companions, **data
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    sound = all(isinstance(who.pid, int) for who in (supervisor, *children(state)))
    # A number that another supervisor has now says nothing of the one that had it.
    lent = sound and is_alive(supervisor, proc) and supervisors.is_of_another(supervisor.pid, launch, proc)
    return state if sound and not lent else None


def _found(launch: Path, proc: Path) -> tuple[State, ...]:
    """The supervisors of a launch file by their own words, each with its children: companions, and last the server."""
    states = []
    for supervisor in supervisors.of(launch, proc):
        who = identify(supervisor, proc)
        below = [child for pid in supervisors.children(supervisor, proc) if (child := identify(pid, proc)) is not None]
        server = below.pop() if below and not supervisors.is_companion(below[-1].pid, proc) else None
        if who is not None:
            states.append(State(RUNNING if server else BACKING_OFF, who, server, 0, 0, None, tuple(below)))
    return tuple(states)


def children(state: State) -> tuple[Identity, ...]:
    """The server, then its companions: the order in which they end."""
    return (*((state.server,) if state.server else ()), *state.companions)


def servers(launch: Path, proc: Path = PROC) -> frozenset[int]:
    """The process numbers of all servers and companions of a launch file, also of a second supervisor's."""
    states = (read_state(launch, proc), *_found(launch, proc))
    told = (who for state in states if state is not None for who in children(state))
    return frozenset(who.pid for who in told if is_alive(who, proc))


def write_state(launch: Path, state: State) -> None:
    """Write the state whole; it needs no durability, for no process outlives a power cut."""
    temporary = launch.with_name(f".state.{os.getpid()}")
    temporary.write_text(json.dumps(asdict(state)) + "\n")
    temporary.replace(state_path(launch))


def running(launch: Path, proc: Path = PROC) -> Running | None:
    """The supervised server of a launch file; None when nothing runs and no supervisor has given up."""
    state = _settled_state(launch, proc)
    if state is None:
        return None
    supervised, serving = is_alive(state.supervisor, proc), is_alive(state.server, proc)
    if not supervised and not serving and state.state != FAILED:
        # It may have ended since its state was read: what it last said is on disk by now.
        return None if read_state(launch, proc) in (None, state) else running(launch, proc)
    server = state.server if serving else None
    return Running(
        state=RUNNING if serving else (FAILED if state.state == FAILED else BACKING_OFF),
        supervisor=state.supervisor.pid if supervised else None,
        server=server.pid if server else None,
        since=started(server, proc) if server else None,
        starts=state.starts,
        failures=state.failures,
        exit=state.exit,
        companions=tuple(each.pid for each in state.companions if is_alive(each, proc)),
    )


def _settled_state(launch: Path, proc: Path) -> State | None:
    """The state, once the supervisor has noticed what became of its server; where the disk has none, of what runs."""
    state = read_state(launch, proc)
    deadline = time.monotonic() + _NOTICED_WITHIN_S
    while (
        state is not None
        and state.state == RUNNING
        and not is_alive(state.server, proc)
        and is_alive(state.supervisor, proc)
        and time.monotonic() < deadline
    ):
        time.sleep(0.01)
        state = read_state(launch, proc)
    if state is None or not is_alive(state.supervisor, proc):
        return next(iter(_found(launch, proc)), state)
    return state


def start(host: Machine, launch: Path) -> None:
    """Start the supervisor of a launch file in the background; a server that it already keeps running is left alone.

    Raises OrinError when the supervisor cannot start; how the server fares is for `running` to tell.
    """
    import subprocess

    import orin_deploy

    done = subprocess.run(
        supervisors.command(launch),
        cwd=Path(orin_deploy.__file__).parents[1],  # so that `-m` finds this very package
        env=host.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode not in (0, ALREADY_SUPERVISED):
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise OrinError(f"the supervisor of {launch} cannot start: {words[-1]}", f"look at {launch}")


def stop(host: Machine, launch: Path) -> None:
    """End every supervisor of a launch file and its server, also one whose state is lost, and a server whose
    supervisor was killed; idempotent."""
    told, found = read_state(launch), _found(launch, PROC)
    try:
        # A supervisor gives its server its own patience before it kills it; wait for both.
        for state in (told, *found):
            if state is not None:
                end(state.supervisor, _stop_timeout_s(launch) + 5)
        for state in (read_state(launch) or told, *found):
            for left in children(state) if state is not None else ():
                end(left, STOP_TIMEOUT_S)
    except PermissionError as error:
        raise OrinError(
            f"the server of {launch} belongs to another user", "run the same command as that user or with sudo"
        ) from error
    state_path(launch).unlink(missing_ok=True)


def _stop_timeout_s(launch: Path) -> float:
    try:
        return float(launched(launch.read_text()).get("stop_timeout_s", STOP_TIMEOUT_S))
    except (OSError, ValueError, TypeError):
        return STOP_TIMEOUT_S


def launched(text: str) -> dict[str, Any]:
    """What the text of a launch file says; empty where it is damaged in what is launched, or how."""
    try:
        said = json.loads(text)
        commands = [said["argv"], *(companion["argv"] for companion in said.get("companions", ()))]
        whole = said.keys() >= {"env", "log", "start_timeout_s", "restart_delay_s"}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}
    words = all(isinstance(argv, list) and argv and all(isinstance(word, str) for word in argv) for argv in commands)
    return said if whole and words else {}
