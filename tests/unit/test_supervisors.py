"""Servers whose files are damaged or lost: found again by what runs, and nobody else's process is ever ended."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.deploy.down import choose, down
from orin_deploy.deploy.record import deployments, known
from orin_deploy.errors import OrinError
from orin_deploy.host import Host, processes, procfs, supervisors
from orin_deploy.host.processes import BACKING_OFF, RUNNING
from orin_deploy.parts import service
from tests.specs import free_port, make_spec

Launch = Callable[..., Path]
LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(60)"

WHO = {"pid": 4000000, "ticks": 1, "boot": "x"}
DAMAGED = {
    "empty": "", "torn": '{"state": "runn', "a list": "[]", "null": "null", "binary": "\0\0\0",
    "other JSON": '{"argv": ["sh"], "log": "x"}', "words for numbers": json.dumps(
        {"state": "running", "supervisor": WHO | {"pid": "1"}, "server": None, "starts": 1, "failures": 0, "exit": None}
    ),
    "of processes long dead": json.dumps(
        {"state": "running", "supervisor": WHO, "server": WHO, "starts": 1, "failures": 0, "exit": None}
    ),
    "lost": None,
}  # fmt: skip


def damage(path: Path, text: str | None) -> None:
    path.unlink() if text is None else path.write_text(text)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path)})


@pytest.fixture
def launch(host: Host) -> Iterator[Launch]:
    """Starts a deployment's server, a small program; what is left of it at the end is ended by its words."""

    def start(name: str = "a", argv: list[str] | None = None, **changes: Any) -> Path:
        folder = host.data / "deployments" / name
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "argv": argv or ["sleep", "60"],
            "env": {},
            "log": str(folder / "server.log"),
            "start_timeout_s": 60,
            "restart_delay_s": 0.05,
            "stop_timeout_s": 2,
            **changes,
        }
        (folder / "launch.json").write_text(json.dumps(document))
        processes.start(host, folder / "launch.json")
        return folder / "launch.json"

    yield start
    for name in supervisors.names(host.data / "deployments"):
        processes.stop(host, host.data / "deployments" / name / "launch.json")


def pids(path: Path) -> tuple[int, int]:
    """Supervisor and server, both alive."""
    now = processes.running(path)
    assert now is not None
    assert now.supervisor is not None
    assert now.server is not None
    return now.supervisor, now.server


def alive(*numbers: int) -> list[int]:
    return [pid for pid in numbers if processes.identify(pid) is not None]


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_server_whose_state_is_damaged_is_told_left_alone_and_ended(
    host: Host, launch: Launch, text: str | None
) -> None:
    path = launch()
    both = pids(path)
    damage(processes.state_path(path), text)
    found = processes.running(path)
    assert found is not None
    assert (found.state, found.supervisor, found.server, found.companions) == (RUNNING, *both, ())
    assert abs((found.since or 0) - time.time()) < 60
    processes.start(host, path)
    assert pids(path) == both, "it is supervised already"
    processes.stop(host, path)
    assert alive(*both) == []
    assert not processes.state_path(path).exists()
    assert processes.running(path) is None


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_server_of_which_nothing_is_left_on_disk_is_found_and_ended(
    host: Host, launch: Launch, text: str | None
) -> None:
    path = launch()
    both = pids(path)
    damage(processes.state_path(path), text)
    damage(path, text)
    assert pids(path) == both
    assert service.status(host, "a").pid == both[1]
    assert deployments(host) == known(host) == ("a",)
    assert choose(host, None) == "a"
    down(host, "a")
    assert alive(*both) == []
    assert (deployments(host), path.exists()) == ((), False)


def test_not_even_the_folder_need_be_left(host: Host, launch: Launch) -> None:
    path = launch()
    both = pids(path)
    shutil.rmtree(host.data / "deployments")
    assert service.status(host, "a").pid == both[1]
    assert deployments(host) == ("a",)
    down(host, "a")
    assert alive(*both) == []
    assert deployments(host) == known(host) == ()


def test_one_started_beside_it_after_its_folder_was_removed_is_ended_with_it(host: Host, launch: Launch) -> None:
    first = pids(path := launch())
    shutil.rmtree(path.parent)
    second = pids(launch())
    assert not {*first} & {*second}
    assert len(supervisors.of(path)) == 2
    processes.stop(host, path)
    assert alive(*first, *second) == []


def test_a_server_between_two_starts_is_backing_off(host: Host, launch: Launch) -> None:
    path = launch(argv=["false"], restart_delay_s=30)
    deadline = time.monotonic() + 10
    while (now := processes.running(path)) is None or now.state != BACKING_OFF:
        assert time.monotonic() < deadline
    processes.state_path(path).write_text("{")
    found = processes.running(path)
    assert found is not None
    assert (found.state, found.supervisor, found.server) == (BACKING_OFF, now.supervisor, None)
    processes.stop(host, path)
    assert alive(now.supervisor or 0) == []


@pytest.mark.parametrize("launch_too", [False, True], ids=["state", "state and launch file"])
def test_the_draft_process_is_told_from_the_server(host: Host, launch: Launch, launch_too: bool) -> None:
    port = free_port()
    draft = [sys.executable, "-c", LISTEN, str(port)]
    path = launch(companions=[{"name": "the draft process", "argv": draft, "port": port}])
    before = processes.running(path)
    assert before is not None
    processes.state_path(path).unlink()
    if launch_too:
        path.write_text("")
    after = processes.running(path)
    assert after is not None
    assert len(after.companions) == 1
    assert (after.server, after.companions) == (before.server, before.companions)
    assert processes.servers(path) == {before.server, *before.companions}
    processes.stop(host, path)
    assert alive(before.server or 0, *before.companions) == []


def test_the_state_of_another_deployment_is_nobody_elses(host: Host, launch: Launch) -> None:
    mine, other = launch("a"), launch("b")
    both = pids(mine)
    shutil.copy(processes.state_path(other), processes.state_path(mine))
    assert pids(mine) == both
    processes.stop(host, mine)
    assert alive(*both) == []
    assert len(alive(*pids(other))) == 2
    shutil.copy(processes.state_path(other), processes.state_path(mine))
    assert processes.running(mine) is None
    processes.start(host, mine)  # it ends what a killed supervisor left, which is what its state tells
    assert len(alive(*pids(other))) == 2


def test_a_folder_that_was_renamed_while_it_runs_still_tells(host: Host, launch: Launch) -> None:
    path = launch()
    both = pids(path)
    moved = path.parent.rename(path.parent.with_name("moved")) / "launch.json"
    assert pids(moved) == both
    processes.stop(host, moved)
    assert alive(*both) == []


@pytest.mark.parametrize("way", ["by another name", "as a word"])
def test_a_process_that_only_names_the_launch_file_is_left_alone(host: Host, tmp_path: Path, way: str) -> None:
    path = tmp_path / "deployments/a/launch.json"
    path.parent.mkdir(parents=True)
    words = supervisors.command(path)
    script = "import time; print(flush=True); time.sleep(60)"
    argv = [sys.executable, "-c", script, *words[1:]] if way == "as a word" else ["tail", "-f", str(path)]
    path.write_text("\n")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as stranger:
        try:
            assert stranger.stdout is not None
            stranger.stdout.readline()
            assert processes.running(path) is None
            assert deployments(host) == ()
            processes.stop(host, path)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def seen(proc: Path, pid: int, words: list[str], root: Path, session: int | None = None) -> None:
    """A process in a /proc of our own, with a root folder of its own."""
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "cmdline").write_text("\0".join(words) + "\0")
    (proc / str(pid) / "stat").write_text(f"{pid} (a (b) c) S 1 {pid} {session or pid} {'0 ' * 15}777 0\n")
    (proc / str(pid) / "root").symlink_to(root)


def test_the_same_path_in_a_container_is_another_deployment(tmp_path: Path) -> None:
    path = tmp_path / "data/deployments/a/launch.json"
    words = supervisors.command(path)
    container = tmp_path / "container"
    inside = container / str(path).lstrip("/")
    for each in (path, inside):
        each.parent.mkdir(parents=True)
    seen(tmp_path / "proc", 10, words, Path("/"))
    seen(tmp_path / "proc", 20, words, container)
    seen(tmp_path / "proc", 30, words, Path("/"), session=5)  # the command that starts one, about to end
    (tmp_path / "proc/net").mkdir()
    assert supervisors.of(path, tmp_path / "proc") == (10,)
    shutil.rmtree(path.parent)
    assert supervisors.of(path, tmp_path / "proc") == (10,), "removed here, there in the container"
    shutil.rmtree(inside.parent)
    assert supervisors.of(path, tmp_path / "proc") == (10,), "removed in both"
    assert supervisors.names(path.parents[1], tmp_path / "proc") == {"a"}
    assert supervisors.of(path.parents[1] / "b/launch.json", tmp_path / "proc") == ()


def test_two_names_of_one_folder_are_one_deployment(host: Host, launch: Launch, tmp_path: Path) -> None:
    path = launch()
    both = pids(path)
    (tmp_path / "link").symlink_to(tmp_path / "deployments")
    other = tmp_path / "link/a/launch.json"
    assert pids(other) == both
    processes.state_path(path).write_text("")
    assert pids(other) == both


def serving(port: int) -> list[str]:
    return [sys.executable, "-c", LISTEN, str(port)]


def until_taken(port: int) -> None:
    deadline = time.monotonic() + 10
    while procfs.port_holder(port) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_who_has_the_port_is_told_by_what_runs(host: Host, launch: Launch) -> None:
    """Of this deployment it is to be ended, of another one of ours it has a name, of others it is left alone."""
    port = free_port()
    path = launch("test", serving(port))
    until_taken(port)
    first = pids(path)
    shutil.rmtree(path.parent)
    second = pids(launch("test"))  # runs beside it, without the port
    spec = make_spec(host.data, Path("/engine"), Path("/model.gguf"), port)
    (step,) = service.plan(spec, service.inspect(host, spec))
    assert f"another server of this deployment has port {port} (process {first[1]})" in step.why
    host.do(step.actions[0])
    assert alive(*first, *second) == []
    path = launch("other", serving(port))
    until_taken(port)
    shutil.rmtree(path.parent)
    with pytest.raises(OrinError, match=f"port {port} is taken by the deployment other") as raised:
        service.plan(spec, service.inspect(host, spec))
    assert "down --name other" in (raised.value.hint or "")
    assert choose(host, "other") == "other", "the hint's command must go"
