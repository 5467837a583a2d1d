"""The supervisor, with small programs in the server's place: what it restarts, gives up, writes, and leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.errors import OrinError
from orin_deploy.host import Host, processes, procfs
from orin_deploy.host.processes import BACKING_OFF, FAILED, RUNNING, START_MARK
from tests.waiting import until

Launch = Callable[..., Path]


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def launch(tmp_path: Path, host: Host) -> Iterator[Launch]:
    """Writes a launch file whose server is a shell script; everything it started is stopped at the end."""
    path = tmp_path / "launch.json"

    def write(script: str, **changes: Any) -> Path:
        document = {
            "argv": ["sh", "-c", script],
            "env": {"FROM_LAUNCH": "yes"},
            "log": str(tmp_path / "server.log"),
            "start_timeout_s": 3600,
            "restart_delay_s": 0.05,
            "stop_timeout_s": 300,
            **changes,
        }
        path.write_text(json.dumps(document))
        return path

    yield write
    processes.stop(host, path)


def server(path: Path) -> processes.Running:
    now = processes.running(path)
    assert now is not None
    return now


def pids(path: Path) -> tuple[int, int]:
    """Supervisor and server, both alive."""
    now = server(path)
    assert now.supervisor is not None
    assert now.server is not None
    return now.supervisor, now.server


def test_it_runs_apart_from_the_command_that_started_it(host: Host, launch: Launch) -> None:
    began = time.time()
    path = launch("exec sleep 3600")
    processes.start(host, path)
    assert server(path).state == RUNNING
    assert began - 1 < (server(path).since or 0) < time.time() + 1
    supervisor, served = pids(path)
    assert os.getsid(supervisor) != os.getsid(0)
    assert os.getsid(served) == served
    assert procfs.command(served) == ("sleep", "3600")


def test_starting_twice_is_one_server(host: Host, launch: Launch) -> None:
    path = launch("exec sleep 3600")
    processes.start(host, path)
    first = pids(path)
    processes.start(host, path)
    assert pids(path) == first


def test_stop_ends_both_and_can_be_done_again(host: Host, launch: Launch) -> None:
    path = launch("exec sleep 3600")
    processes.start(host, path)
    both = pids(path)
    processes.stop(host, path)
    processes.stop(host, path)
    assert processes.running(path) is None
    assert [processes.identify(pid) for pid in both] == [None, None]


def test_a_server_that_ignores_sigterm_is_killed(host: Host, launch: Launch) -> None:
    path = launch("trap '' TERM; echo trapped; while :; do sleep 0.1; done", stop_timeout_s=0.3)
    processes.start(host, path)
    until(lambda: "trapped" in path.with_name("server.log").read_text())
    _, served = pids(path)
    processes.stop(host, path)
    assert processes.identify(served) is None


def test_children_of_the_server_do_not_outlive_it(host: Host, launch: Launch) -> None:
    path = launch("sleep 3601 & echo child $!; exec sleep 3602")
    processes.start(host, path)
    words = until(lambda: [line for line in path.with_name("server.log").read_text().splitlines() if "child" in line])
    child = int(words[0].split()[1])
    processes.stop(host, path)
    until(lambda: processes.identify(child) is None)


def test_a_killed_server_is_started_again(host: Host, launch: Launch) -> None:
    path = launch("exec sleep 3600")
    processes.start(host, path)
    supervisor, first = pids(path)
    os.kill(first, signal.SIGKILL)
    again = until(lambda: (now := server(path)).state == RUNNING and now.server != first and now)
    assert (again.starts, again.supervisor) == (2, supervisor)


def test_how_a_server_ended_is_told_while_it_waits_for_its_next_start(host: Host, launch: Launch) -> None:
    path = launch("exec sleep 3600", restart_delay_s=3600)
    processes.start(host, path)
    os.kill(pids(path)[1], signal.SIGKILL)
    waiting = until(lambda: (now := server(path)).state == BACKING_OFF and now.exit and now)
    assert (waiting.server, waiting.failures, waiting.exit) == (None, 1, "signal 9 (SIGKILL)")


def test_it_backs_off_and_gives_up(host: Host, launch: Launch) -> None:
    path = launch("date +%s.%N; exit 3", start_limit=4)
    processes.start(host, path)
    end = until(lambda: (now := server(path)).state == FAILED and now)
    assert (end.starts, end.failures, end.exit) == (4, 4, "exit code 3")
    assert end.server is None
    times = [float(line) for line in path.with_name("server.log").read_text().splitlines() if line[0].isdigit()]
    first, second, third = (later - earlier for earlier, later in pairwise(times))
    assert first >= 0.05
    assert second >= 0.1
    assert third >= 0.2
    launch("exec sleep 3600")
    processes.start(host, path)  # giving up is not for ever, and the old supervisor may still be on its way out
    assert (server(path).starts, server(path).state) == (1, RUNNING)


def test_one_that_gives_up_while_it_is_looked_at_is_not_said_to_be_nothing(
    host: Host, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = launch("exit 3", start_limit=1)
    processes.start(host, path)
    until(lambda: server(path).state == FAILED and server(path).supervisor is None)
    last = processes.read_state(path)
    assert last is not None
    read = iter([replace(last, state=BACKING_OFF), last])
    monkeypatch.setattr(processes, "_settled_state", lambda launch, proc: next(read))
    assert server(path).state == FAILED


def test_living_long_enough_forgives_earlier_failures(host: Host, launch: Launch) -> None:
    path = launch("sleep 0.15; exit 1", start_timeout_s=0.1, start_limit=2)
    processes.start(host, path)
    assert until(lambda: (now := server(path)).starts >= 4 and now).state != FAILED


def test_a_killed_supervisor_leaves_no_server(host: Host, launch: Launch) -> None:
    path = launch("exec sleep 3600")
    processes.start(host, path)
    supervisor, served = pids(path)
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: processes.identify(served) is None)
    assert processes.running(path) is None
    processes.start(host, path)
    assert server(path).state == RUNNING


def test_stop_finds_a_server_whose_supervisor_is_gone(host: Host, launch: Launch, tmp_path: Path) -> None:
    orphan = subprocess.Popen(["sleep", "3600"])
    try:
        path = launch("exec sleep 3600")
        processes.start(host, path)
        state = processes.read_state(path)
        assert state is not None
        processes.stop(host, path)
        processes.write_state(path, replace(state, server=processes.identify(orphan.pid)))
        assert server(path).server == orphan.pid
        processes.stop(host, path)
        assert orphan.wait(300) == -signal.SIGTERM
    finally:
        orphan.kill()
        orphan.wait()


def test_a_reused_process_number_is_left_alone(host: Host, launch: Launch) -> None:
    stranger = subprocess.Popen(["sleep", "3600"])
    try:
        path = launch("exec sleep 3600")
        who = processes.identify(stranger.pid)
        assert who is not None
        for earlier in (replace(who, ticks=who.ticks - 1), replace(who, boot="another boot")):
            processes.write_state(path, processes.State(RUNNING, earlier, earlier, 1, 0, None))
            assert processes.running(path) is None
            processes.stop(host, path)
            assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_the_log_is_bounded_and_loses_nothing_recent(host: Host, launch: Launch) -> None:
    path = launch("seq -f 'line %.0f' 200000; exec sleep 3600", log_bytes=8000)
    processes.start(host, path)
    log = path.with_name("server.log")
    until(lambda: (host.read(log) or "").endswith("line 200000"))
    files = sorted(path.parent.glob("server.log*"))
    assert [file.name for file in files] == ["server.log", "server.log.1", "server.log.2"]
    assert all(file.stat().st_size <= 8000 + 65536 for file in files)
    kept = "".join(file.read_text() for file in reversed(files)).splitlines()
    numbers = [int(line.split()[1]) for line in kept if line.startswith("line")]
    assert numbers == list(range(numbers[0], 200001))


def test_each_start_is_marked_in_the_log(host: Host, launch: Launch) -> None:
    path = launch("echo words; exit 1", start_limit=2)
    processes.start(host, path)
    until(lambda: server(path).state == FAILED)
    lines = path.with_name("server.log").read_text().splitlines()
    assert [line.startswith(START_MARK) for line in lines] == [True, False, True, False]


def test_the_environment_is_clean(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "64")
    monkeypatch.setenv("LLAMA_API_KEY", "secret")
    monkeypatch.setenv("GGML_CUDA_DISABLE_GRAPHS", "1")
    host = Host()
    path = launch("exec sleep 3600")
    processes.start(host, path)
    environ = procfs.environment(pids(path)[1])
    assert environ is not None
    assert environ["FROM_LAUNCH"] == "yes"
    assert environ["GGML_CUDA_DISABLE_GRAPHS"] == "1"
    assert not {"LLAMA_ARG_CTX_SIZE", "LLAMA_API_KEY"} & set(environ)


def test_a_program_that_is_not_there_is_told_in_the_log(host: Host, launch: Launch) -> None:
    path = launch("", argv=["/nonexistent/taskset"], start_limit=1)
    processes.start(host, path)
    assert until(lambda: (now := server(path)).state == FAILED and now).exit == "exit code 127"
    assert "cannot start /nonexistent/taskset: No such file or directory" in path.with_name("server.log").read_text()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"argv": []}', '{"argv": "sh"}', '{"argv": ["sh"]}'])
def test_a_broken_launch_file_is_an_error_not_a_silence(host: Host, tmp_path: Path, text: str) -> None:
    path = tmp_path / "launch.json"
    path.write_text(text)
    assert processes.launched(text) == {}
    with pytest.raises(OrinError, match="cannot start"):
        processes.start(host, path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"state": 1}', '{"supervisor": {}, "server": null}'])
def test_a_torn_state_file_counts_as_none(host: Host, launch: Launch, text: str) -> None:
    path = launch("exec sleep 3600")
    processes.state_path(path).write_text(text)
    assert processes.running(path) is None
    processes.start(host, path)
    assert server(path).state == RUNNING


def test_ways_to_end_in_words() -> None:
    assert processes.in_words(1) == "exit code 1"
    assert processes.in_words(-9) == "signal 9 (SIGKILL)"
    assert processes.in_words(-250) == "signal 250"


def test_the_supervisor_imports_nothing_heavy() -> None:
    code = "import sys, orin_deploy.host.supervise; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=True).stdout.split()
    assert not {"typer", "rich", "plumbum", "psutil", "yaml", "urllib3"} & set(loaded)
