"""Servers whose files are damaged or lost: found again by what runs, and nobody else's process is ever ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
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
from orin_deploy.host.processes import BACKING_OFF, FAILED, RUNNING
from orin_deploy.parts import service
from tests.specs import free_port, make_spec
from tests.unprivileged import NOBODY, common_folder, unprivileged
from tests.waiting import until

Launch = Callable[..., Path]
LISTEN = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(3600)"

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
    """Starts a deployment's server, a small program; at the end each supervisor is killed, its server with it."""
    ran = []

    def start(name: str = "a", argv: list[str] | None = None, **changes: Any) -> Path:
        folder = host.data / "deployments" / name
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "argv": argv or ["sleep", "3600"],
            "env": {},
            "log": str(folder / "server.log"),
            "start_timeout_s": 3600,
            "restart_delay_s": 0.05,
            "stop_timeout_s": 2,
            **changes,
        }
        path = folder / "launch.json"
        path.write_text(json.dumps(document))
        processes.start(host, path)
        ran.append(processes.Identity(**json.loads(processes.state_path(path).read_text())["supervisor"]))
        return path

    yield start
    for supervisor in filter(processes.is_alive, ran):
        os.kill(supervisor.pid, signal.SIGKILL)


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
    began = time.time()
    path = launch()
    both = pids(path)
    damage(processes.state_path(path), text)
    found = processes.running(path)
    assert found is not None
    assert (found.state, found.supervisor, found.server, found.companions) == (RUNNING, *both, ())
    assert began - 1 < (found.since or 0) < time.time() + 1
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


def test_a_server_without_a_record_is_not_said_not_to_run(host: Host, launch: Launch) -> None:
    launch()
    shutil.rmtree(host.data / "deployments")
    environ = {**os.environ, "ORIN_DEPLOY_HOME": str(host.data)}
    for words in ["bench"], ["top", "--once"]:
        done = subprocess.run(
            [sys.executable, "-m", "orin_deploy", *words], env=environ, capture_output=True, text=True, timeout=300
        )
        said = done.stdout + done.stderr
        assert "no record that can be read says" in said
        assert "orin-deploy up --name a" in said
        assert "does not run" not in said


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
    path = launch(argv=["false"], restart_delay_s=3600)
    now = until(lambda: (now := processes.running(path)) and now.state == BACKING_OFF and now)
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


@pytest.mark.parametrize("launch_too", [False, True], ids=["state", "state and launch file"])
def test_a_draft_process_is_not_taken_for_the_server_that_waits_for_it(
    host: Host, launch: Launch, launch_too: bool
) -> None:
    """The server died; its draft's process still ends, and takes its time."""
    port = free_port()
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + LISTEN
    draft = {"name": "the draft process", "argv": [sys.executable, "-c", deaf, str(port)], "port": port}
    path = launch(companions=[draft], stop_timeout_s=3600)
    supervisor, server = pids(path)
    os.kill(server, signal.SIGKILL)
    until(lambda: (now := processes.running(path)) and now.state == BACKING_OFF and now.exit)
    processes.state_path(path).unlink()
    if launch_too:
        path.write_text("")
    found = processes.running(path)
    assert found is not None
    assert (found.state, found.supervisor, found.server) == (BACKING_OFF, supervisor, None)
    assert len(found.companions) == 1
    spec = make_spec(host.data, Path("/engine"), Path("/model.gguf"), port, name="a")
    (step,) = service.plan(spec, service.inspect(host, spec))
    assert "its server does not run yet" in step.why, "it is not known to have ended"


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
    launch("a")  # it ends what a killed supervisor left, which is what its state tells
    assert len(alive(*pids(other))) == 2


def test_a_state_whose_process_number_another_supervisor_has_now_still_tells(host: Host, launch: Launch) -> None:
    other, _ = pids(launch("b"))
    mine = host.data / "deployments/a/launch.json"
    mine.parent.mkdir()
    then = processes.Identity(other, 1, "an earlier boot")
    processes.write_state(mine, processes.State(FAILED, then, None, 5, 5, "exit code 1"))
    found = processes.running(mine)
    assert found is not None
    assert (found.state, found.supervisor, found.exit) == (FAILED, None, "exit code 1")


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
    script = "import time; print(flush=True); time.sleep(3600)"
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


def test_where_a_process_may_not_be_looked_into_its_words_are_taken_as_we_see_them() -> None:
    with common_folder() as folder:
        path, proc, closed = folder / "data/deployments/a/launch.json", folder / "proc", folder / "closed"
        (closed / "root").mkdir(parents=True)
        path.parent.mkdir(parents=True)
        (path.parents[1] / "b").mkdir()
        seen(proc, 10, supervisors.command(path), closed / "root")
        closed.chmod(0)
        with unprivileged():
            assert supervisors.of(path, proc) == (10,)
            assert supervisors.names(path.parents[1], proc) == {"a"}
            assert not supervisors.is_of_another(10, path, proc)
            assert supervisors.is_of_another(10, path.parents[1] / "b/launch.json", proc)


STOP = """
import os, sys
from pathlib import Path
from orin_deploy.errors import OrinError
from orin_deploy.host import Host, processes
host, path = Host(environ={"ORIN_DEPLOY_HOME": sys.argv[1]}), Path(sys.argv[2])
os.setgroups([]), os.setgid(int(sys.argv[3])), os.setuid(int(sys.argv[3]))
print(processes.running(path).server)
try:
    processes.stop(host, path)
except OrinError as error:
    print(error.message)
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize("stateless", [False, True])
def test_another_users_server_is_told_and_is_not_said_to_have_ended(stateless: bool) -> None:
    with common_folder() as folder:
        host = Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(folder)})
        path = folder / "deployments/a/launch.json"
        path.parent.mkdir(parents=True)
        launched = {"argv": ["sleep", "3600"], "env": {}, "log": str(folder / "log")}
        path.write_text(json.dumps({**launched, "start_timeout_s": 60, "restart_delay_s": 1}))
        processes.start(host, path)
        both = pids(path)
        if stateless:
            processes.state_path(path).unlink()
        try:
            words = [sys.executable, "-c", STOP, str(folder), str(path), str(NOBODY)]
            done = subprocess.run(words, capture_output=True, text=True, timeout=300)
            assert done.stdout.splitlines() == [str(both[1]), f"the server of {path} belongs to another user"]
            assert alive(*both) == [*both]
        finally:
            os.kill(both[0], signal.SIGKILL)


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


def test_who_has_the_port_is_told_by_what_runs(host: Host, launch: Launch) -> None:
    """Of this deployment it is to be ended, of another one of ours it has a name, of others it is left alone."""
    port = free_port()
    path = launch("test", serving(port))
    until(lambda: procfs.port_holder(port))
    first = pids(path)
    shutil.rmtree(path.parent)
    second = pids(launch("test"))  # runs beside it, without the port
    spec = make_spec(host.data, Path("/engine"), Path("/model.gguf"), port)
    (step,) = service.plan(spec, service.inspect(host, spec))
    assert f"another server of this deployment has port {port} (process {first[1]})" in step.why
    host.do(step.actions[0])
    assert alive(*first, *second) == []
    path = launch("other", serving(port))
    until(lambda: procfs.port_holder(port))
    shutil.rmtree(path.parent)
    with pytest.raises(OrinError, match=f"port {port} is taken by the deployment other") as raised:
        service.plan(spec, service.inspect(host, spec))
    assert "down --name other" in (raised.value.hint or "")
    assert choose(host, "other") == "other", "the hint's command must go"
