"""A draft in a process of its own, with the real engine: both pinned, speculating, watched and stopped together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.deploy import verify
from orin_deploy.errors import OrinError
from orin_deploy.host import Host, processes, procfs
from orin_deploy.intent.spec import Spec
from orin_deploy.parts import service
from orin_deploy.parts.service.unit import DRAFT
from tests.engine.real_systemd import real_systemd
from tests.engine.with_draft import plan, quiet, up, with_draft
from tests.specs import free_port
from tests.waiting import until

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def draft_model(tmp_path_factory: pytest.TempPathFactory, engine_bin: Path, smollm2: Path) -> Path:
    """A draft of the target's own vocabulary: the target, quantised further."""
    path = tmp_path_factory.mktemp("draft") / "draft.gguf"
    words = [str(engine_bin / "llama-quantize"), "--allow-requantize", str(smollm2), str(path), "Q2_K"]
    subprocess.run(words, check=True, capture_output=True)
    return path


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path / "data")})
    yield host
    for launch in (host.data / "deployments").glob("*/launch.json"):
        processes.stop(host, launch)


@pytest.fixture
def spec(host: Host, engine_bin: Path, smollm2: Path, draft_model: Path) -> Spec:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("two processes on CPUs of their own need two CPUs")
    return with_draft(host.data, engine_bin, smollm2, draft_model, (cpus[0],), (cpus[1],), "process")


def both(host: Host, spec: Spec) -> tuple[int, int]:
    """The server and its draft's process, both alive."""
    now = service.status(host, spec.name)
    assert now.pid is not None
    assert now.draft is not None
    return now.pid, now.draft


def running(host: Host, spec: Spec) -> processes.Running:
    found = processes.running(host.data / "deployments" / spec.name / "launch.json")
    assert found is not None
    return found


def completion(host: Host, spec: Spec) -> dict[str, Any]:
    payload = {"prompt": "Once upon a time there was a", "n_predict": 24, "temperature": 0}
    timings: dict[str, Any] = host.http("POST", f"{spec.service.endpoint}/completion", payload, timeout_s=60).json()[
        "timings"
    ]
    return timings


def test_it_speculates_with_each_thread_of_both_processes_where_it_belongs(host: Host, spec: Spec) -> None:
    undo = plan(host, spec).undo
    up(host, spec)
    server, draft = both(host, spec)
    for pid, cpus in ((server, spec.placement.cpus), (draft, spec.placement.draft_cpus)):
        assert set(procfs.threads(pid).values()) == {cpus}
    assert len(procfs.threads(server)) > 1
    slots = host.http("GET", f"{spec.service.endpoint}/slots").json()
    assert [slot["speculative"] for slot in slots] == [True]
    assert completion(host, spec)["draft_n"] > 0
    assert any("RPC0" in line and "KV buffer size" in line for line in service.log_lines(host, spec.name))
    assert plan(host, spec).actions == (), "a plan after apply is empty"

    assert spec.draft is not None
    assert procfs.port_holder(spec.draft.port) is not None
    for action in (*undo, *undo):
        host.do(action)
    assert [procfs.command(pid) for pid in (server, draft)] == [None, None]
    assert procfs.port_holder(spec.draft.port) is None


def test_a_killed_draft_process_is_noticed_without_a_request(host: Host, spec: Spec) -> None:
    spec = replace(spec, service=replace(spec.service, restart_delay_s=3600))
    up(host, spec)
    server, draft = both(host, spec)
    os.kill(draft, signal.SIGKILL)  # the server is idle: it would not notice before its next request, and abort then
    waiting = until(
        lambda: (now := service.status(host, spec.name)).state == processes.BACKING_OFF and now.exit and now
    )
    assert waiting.exit == f"{DRAFT}'s signal 9 (SIGKILL)"
    assert procfs.command(server) is None


@pytest.mark.parametrize("victim", [0, 1], ids=["server", "draft process"])
def test_when_one_is_killed_both_come_back(host: Host, spec: Spec, victim: int) -> None:
    up(host, spec)
    before = both(host, spec)
    os.kill(before[victim], signal.SIGKILL)
    until(lambda: running(host, spec).starts == 2 and service.running_pid(host, spec))
    verify.await_ready(host, spec, quiet)
    verify.verify(host, spec, quiet)
    assert completion(host, spec)["draft_n"] > 0
    assert not {*before} & {*both(host, spec)}


def test_a_killed_supervisor_takes_both_with_it(host: Host, spec: Spec) -> None:
    up(host, spec)
    pids = both(host, spec)
    supervisor = running(host, spec).supervisor
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    until(lambda: [processes.identify(pid) for pid in pids] == [None, None])
    assert plan(host, spec).why == "not running"
    up(host, spec)
    assert not set(pids) & set(both(host, spec))


def test_a_draft_thread_pinned_elsewhere_is_named(host: Host, spec: Spec) -> None:
    up(host, spec)
    _, draft = both(host, spec)
    os.sched_setaffinity(draft, spec.placement.cpus)
    with pytest.raises(OrinError, match=rf"{DRAFT}'s threads run on CPUs .*\(thread {draft}: 1 of") as caught:
        verify.verify(host, spec, quiet)
    assert "read-back" in caught.value.message


def test_the_draft_port_of_another_program_is_refused(host: Host, spec: Spec) -> None:
    assert spec.draft is not None
    taken = free_port()
    words = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(taken)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        try:
            until(lambda: procfs.port_holder(taken))
            with pytest.raises(OrinError, match=rf"port {taken} is taken by process {other.pid}") as caught:
                plan(host, replace(spec, draft=replace(spec.draft, port=taken)))
        finally:
            other.kill()
    assert "--set placement.draft_port=" in (caught.value.hint or "")


@pytest.mark.root
def test_life_under_systemd(tmp_path: Path, engine_bin: Path, smollm2: Path, draft_model: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with real_systemd(tmp_path) as inside:
        words = [sys.executable, "-m", "tests.engine.with_draft", *map(str, (engine_bin, smollm2, draft_model, data))]
        done = inside(["env", f"ORIN_DEPLOY_HOME={data}", *words])
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["threads"] == [[[0]], [[1]]]
    assert said["users"] == 1, "both run as the one dynamic user, not as root"
    assert said["second"] is None, "a plan after apply is empty"
    assert said["draft_n"] > 0
    assert said["after_draft_kill"] == {"new": True, "pending": None, "drafted": True}
    assert said["after_server_kill"] == {"new": True, "pending": None, "drafted": True}
    assert "unknown device: NOPE" in said["failure"]
    assert said["failure_s"] < 50, "a draft's process that ended is not waited for"
    assert said["without_draft"] == [None, False], "a deployment that gives its draft up leaves no unit of it"
    assert said["undone"] == [None, False, None, None]
