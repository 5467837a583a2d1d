"""One service's life with the real llama-server and the real taskset: start, change, trouble, end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.deploy import verify
from orin_deploy.errors import OrinError
from orin_deploy.host import Host, processes, procfs
from orin_deploy.intent.spec import Spec
from orin_deploy.parts import service
from orin_deploy.parts.step import Step
from tests.specs import free_port, make_spec
from tests.waiting import until

pytestmark = pytest.mark.engine

Make = Callable[..., Spec]


def quiet(fraction: float | None, text: str) -> None:
    pass


def plan(host: Host, spec: Spec) -> Step:
    (step,) = service.plan(spec, service.inspect(host, spec))
    return step


def do(host: Host, step: Step) -> None:
    for action in step.actions:
        host.do(action)


def up(host: Host, spec: Spec) -> verify.Proof:
    do(host, plan(host, spec))
    verify.await_ready(host, spec, quiet)
    return verify.verify(host, spec, quiet)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path / "data")})
    yield host
    for launch in (host.data / "deployments").glob("*/launch.json"):
        processes.stop(host, launch)


@pytest.fixture
def make(host: Host, engine_bin: Path, smollm2: Path) -> Make:
    """Specs of one deployment, all on the same free port."""
    port = free_port()

    def specs(**changes: Any) -> Spec:
        return make_spec(host.data, engine_bin, changes.pop("model", smollm2), changes.pop("port", port), **changes)

    return specs


def test_it_serves_pinned_and_a_second_plan_is_empty(host: Host, make: Make) -> None:
    cpu = max(os.sched_getaffinity(0))
    spec = make(options={"threads": 1, "threads_batch": 1}, cpus=(cpu,))
    proof = up(host, spec)
    assert proof.answer
    assert proof.generated_tokens > 0
    assert proof.generated_per_s > 0
    assert proof.first_token_s > 0
    assert proof.ready_s is not None
    kv = sum(row.bytes for row in proof.memory if row.kind == "KV")
    assert kv == 1024 * 30 * 2 * 3 * 64 * 2, "cells x layers x (K and V) x heads x head size x f16"
    assert proof.resident_bytes > kv
    threads = procfs.threads(proof.pid)
    assert len(threads) > 1
    assert set(threads.values()) == {(cpu,)}
    assert plan(host, spec).actions == ()
    assert service.running_pid(host, spec) == proof.pid
    now = service.status(host, spec.name)
    assert (now.state, now.pid) == (processes.RUNNING, proof.pid)
    assert service.held_bytes(host, spec.name) > kv


def test_a_changed_option_restarts_it_and_the_old_one_can_be_put_back(host: Host, make: Make) -> None:
    old, new = make(), make(options={"ctx_size": 2048, "parallel": 2})
    first = up(host, old)
    before = service.snapshot(host, new)
    assert before is not None
    assert "--ctx-size 1024 -> 2048, --parallel 1 -> 2" in plan(host, new).why
    second = up(host, new)
    assert second.pid != first.pid
    for action in service.restore(new, before):
        host.do(action)
    verify.await_ready(host, old, quiet)
    assert plan(host, old).actions == ()


def test_down_leaves_nothing_and_can_be_done_again(host: Host, make: Make) -> None:
    spec = make()
    step = plan(host, spec)
    proof = up(host, spec)
    for action in (*step.undo, *step.undo):
        host.do(action)
    assert procfs.command(proof.pid) is None
    assert procfs.port_holder(spec.service.port) is None
    assert service.status(host, spec.name).state is None
    assert service.snapshot(host, spec) is None
    assert plan(host, spec).why == "not running"


def test_a_port_of_another_program_is_refused_before_anything_is_stopped(host: Host, make: Make) -> None:
    proof = up(host, make())
    taken = free_port()
    words = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(taken)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        try:
            until(lambda: procfs.port_holder(taken))
            with pytest.raises(OrinError, match=rf"process {other.pid}: .*http\.server") as caught:
                plan(host, make(port=taken))
            assert "--set port=" in (caught.value.hint or "")
        finally:
            other.kill()
    assert service.running_pid(host, make()) == proof.pid


def test_a_port_of_another_deployment_is_named(host: Host, make: Make) -> None:
    spec = make()
    up(host, spec)
    with pytest.raises(OrinError, match="the deployment test") as caught:
        plan(host, replace(spec, name="second"))
    assert "orin-deploy down --name test" in (caught.value.hint or "")


def test_a_killed_server_comes_back(host: Host, make: Make) -> None:
    spec = make()
    proof = up(host, spec)
    os.kill(proof.pid, signal.SIGKILL)
    until(lambda: (now := service.status(host, spec.name)).state == processes.BACKING_OFF and now.exit)
    assert "backing off after signal 9" in plan(host, spec).why
    until(lambda: service.running_pid(host, spec))
    verify.await_ready(host, spec, quiet)
    assert plan(host, spec).actions == ()
    assert verify.verify(host, spec, quiet).pid != proof.pid


def test_a_killed_supervisor_takes_the_server_with_it_and_up_starts_both_anew(host: Host, make: Make) -> None:
    spec = make()
    proof = up(host, spec)
    launch = host.data / "deployments" / spec.name / "launch.json"
    running = processes.running(launch)
    assert running is not None
    assert running.supervisor is not None
    os.kill(running.supervisor, signal.SIGKILL)
    until(lambda: procfs.command(proof.pid) is None)
    assert plan(host, spec).why == "not running"
    assert up(host, spec).pid != proof.pid
    processes.stop(host, launch)
    assert procfs.port_holder(spec.service.port) is None


def test_a_thread_pinned_elsewhere_is_found(host: Host, make: Make) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    spec = make()
    proof = up(host, spec)
    # One of the HTTP threads, which come first: two compute threads that wait for each other on one CPU take minutes.
    os.sched_setaffinity(sorted(procfs.threads(proof.pid))[1], {0})
    assert "threads run on CPUs 0, planned 0-1" in plan(host, spec).why
    with pytest.raises(OrinError, match="service step's read-back differs: threads run on CPUs 0, planned 0-1"):
        verify.verify(host, spec, quiet)


def test_what_lies_around_in_the_environment_changes_nothing(host: Host, make: Make, tmp_path: Path) -> None:
    config = tmp_path / "config" / "llama.cpp"
    config.mkdir(parents=True)
    (config / "config.ini").write_text("[*]\nalias = stray\n")
    stray = {"LLAMA_ARG_ALIAS": "stray", "LLAMA_API_KEY": "secret", "XDG_CONFIG_HOME": str(config.parent)}
    host.environ.update(stray)
    spec = make()
    up(host, spec)
    assert b"stray" not in host.http("GET", f"{spec.service.endpoint}/props").body


def test_with_an_api_key(host: Host, make: Make, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("# a comment\nsecret\n")
    spec = make(options={"api_key_file": str(key)}, api_key_file=str(key))
    up(host, spec)
    assert host.http("GET", f"{spec.service.endpoint}/props").status == 401
    assert plan(host, spec).actions == ()
