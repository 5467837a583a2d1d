"""What a supervisor starts beside its server: first, watched, restarted together, ended last, never left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.host import Host, processes, procfs
from orin_deploy.host.processes import BACKING_OFF, FAILED, RUNNING
from tests.specs import free_port
from tests.waiting import until

Launch = Callable[..., Path]

# Listens after a while, says when it is told to end, and ends.
LISTEN = """
import signal, socket, sys, time
def leave(number, frame):
    print("companion ends", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
time.sleep(0.2)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("companion listens", flush=True)
while True:
    time.sleep(3600)
"""
SERVE = "trap 'echo server ends; exit 0' TERM; echo server starts; while :; do sleep 0.05; done"


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def launch(tmp_path: Path, host: Host) -> Iterator[Launch]:
    path = tmp_path / "launch.json"

    def write(companion: list[str] | None = None, port: int | None = None, **changes: Any) -> Path:
        number = port or free_port()
        document = {
            "argv": ["sh", "-c", SERVE],
            "env": {},
            "log": str(tmp_path / "server.log"),
            "start_timeout_s": 3600,
            "restart_delay_s": 0.2,
            "stop_timeout_s": 300,
            "companions": [
                {
                    "name": "the draft process",
                    "argv": companion or [sys.executable, "-c", LISTEN, str(number)],
                    "port": number,
                }
            ],
            **changes,
        }
        path.write_text(json.dumps(document))
        return path

    yield write
    processes.stop(host, path)


def now(path: Path) -> processes.Running:
    found = processes.running(path)
    assert found is not None
    return found


def said(path: Path) -> list[str]:
    lines = path.with_name("server.log").read_text().splitlines()
    return [line for line in lines if line.startswith(("companion", "server"))]


def pair(path: Path) -> tuple[int, int]:
    """The server and its companion, both alive."""
    found = now(path)
    assert found.server is not None
    assert len(found.companions) == 1
    return found.server, found.companions[0]


def test_it_serves_before_the_server_starts_and_ends_after_it(host: Host, launch: Launch) -> None:
    path = launch()
    processes.start(host, path)
    both = pair(path)
    until(lambda: len(said(path)) == 2)  # it has its trap by then
    processes.stop(host, path)
    assert said(path) == ["companion listens", "server starts", "server ends", "companion ends"]
    assert [processes.identify(pid) for pid in both] == [None, None]


VICTIMS = pytest.mark.parametrize("victim", [0, 1], ids=["server", "companion"])


@VICTIMS
def test_when_one_is_killed_the_other_ends(host: Host, launch: Launch, victim: int) -> None:
    path = launch(restart_delay_s=3600)
    processes.start(host, path)
    both = pair(path)
    os.kill(both[victim], signal.SIGKILL)
    waiting = until(lambda: (found := now(path)).state == BACKING_OFF and not found.companions and found)
    assert waiting.exit == ("signal 9 (SIGKILL)", "the draft process's signal 9 (SIGKILL)")[victim]
    assert [processes.identify(pid) for pid in both] == [None, None]


@VICTIMS
def test_when_one_is_killed_both_start_anew(host: Host, launch: Launch, victim: int) -> None:
    path = launch()
    processes.start(host, path)
    both = pair(path)
    os.kill(both[victim], signal.SIGKILL)
    until(lambda: (found := now(path)).starts == 2 and found.state == RUNNING)
    assert not set(both) & set(pair(path))


def test_how_the_server_ended_is_told_while_its_companion_still_ends(host: Host, launch: Launch) -> None:
    stubborn = LISTEN.replace("sys.exit(0)", "return")
    port = free_port()
    path = launch([sys.executable, "-c", stubborn, str(port)], port, restart_delay_s=3600)
    processes.start(host, path)
    server, companion = pair(path)
    os.kill(server, signal.SIGKILL)
    ending = until(lambda: (found := now(path)).state == BACKING_OFF and found.exit and found)
    assert (ending.exit, ending.companions) == ("signal 9 (SIGKILL)", (companion,))
    os.kill(companion, signal.SIGKILL)


def test_a_companion_that_ends_before_it_serves_keeps_the_server_from_starting(host: Host, launch: Launch) -> None:
    path = launch(["sh", "-c", "echo companion fails; exit 3"], start_limit=2)
    processes.start(host, path)
    end = until(lambda: (found := now(path)).state == FAILED and found)
    assert (end.starts, end.exit, end.server, end.companions) == (2, "the draft process's exit code 3", None, ())
    assert said(path) == ["companion fails"] * 2


def test_a_companion_that_never_serves_is_given_up(host: Host, launch: Launch) -> None:
    path = launch(["sleep", "3600"], start_timeout_s=0.3, start_limit=1)
    processes.start(host, path)
    end = until(lambda: (found := now(path)).state == FAILED and found)
    assert end.exit == "the draft process not serving after 0 s"


def test_somebody_else_on_the_port_is_not_taken_for_it(host: Host, launch: Launch) -> None:
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", LISTEN, str(port)], stdout=subprocess.DEVNULL) as other:
        try:
            until(lambda: procfs.port_holder(port))
            path = launch(port=port, start_limit=1)
            processes.start(host, path)
            assert until(lambda: now(path).state == FAILED and now(path)).exit == "the draft process's exit code 1"
        finally:
            other.kill()


def test_a_program_that_is_not_there_is_told_in_the_log(host: Host, launch: Launch) -> None:
    path = launch(["/nonexistent/ggml-rpc-server"], start_limit=1)
    processes.start(host, path)
    assert until(lambda: now(path).state == FAILED and now(path)).exit == "exit code 127"
    assert "cannot start /nonexistent/ggml-rpc-server" in path.with_name("server.log").read_text()


def test_a_killed_supervisor_leaves_neither(host: Host, launch: Launch) -> None:
    path = launch()
    processes.start(host, path)
    both = pair(path)
    supervisor = now(path).supervisor
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: [processes.identify(pid) for pid in both] == [None, None])
    processes.start(host, path)
    assert not set(both) & set(pair(path))


def test_stopping_while_it_does_not_serve_yet(host: Host, launch: Launch) -> None:
    path = launch(["sh", "-c", f"exec {shlex.join(['sleep', '3600'])}"])
    words = [sys.executable, "-m", "orin_deploy.host.supervise", str(path)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as starter:
        try:
            child = until(lambda: _supervisor_of(path))
            os.kill(child, signal.SIGTERM)
            assert starter.wait(300) is not None
            until(lambda: processes.identify(child) is None)
        finally:
            starter.kill()
    assert processes.running(path) is None


def _supervisor_of(path: Path) -> int | None:
    """The process that has the launch file's lock and the companion for a child."""
    for folder in Path("/proc").glob("[0-9]*"):
        if (procfs.command(int(folder.name)) or ())[-2:] == ("orin_deploy.host.supervise", str(path)):
            children = (folder / "task" / folder.name / "children").read_text().split()
            if any(procfs.command(int(pid)) == ("sleep", "3600") for pid in children):
                return int(folder.name)
    return None
