"""Run inside a real systemd by test_service_systemd.py: one service's whole life, told as JSON on standard output."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from orin_deploy.deploy import verify
from orin_deploy.errors import OrinError
from orin_deploy.host import Host
from orin_deploy.intent.spec import Spec, Value
from orin_deploy.parts import service
from tests.specs import free_port, make_spec


class Asking(Host):
    """A host that asks the server something whenever somebody sleeps."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec

    def sleep(self, seconds: float) -> None:
        verify.verify(Host(), self.spec, quiet)


def quiet(fraction: float | None, text: str) -> None:
    pass


def apply(host: Host, spec: Spec) -> str:
    step = service.plan(spec, service.inspect(host, spec))[0]
    for action in step.actions:
        host.do(action)
    verify.await_ready(host, spec, quiet)
    return step.why


def pending(host: Host, spec: Spec) -> str | None:
    step = service.plan(spec, service.inspect(host, spec))[0]
    return step.why if step.actions else None


def life(engine_bin: Path, model: Path, data: Path) -> dict[str, Any]:
    key = data / "api key"
    key.write_text("# the key of this test\nsecret\n")
    key.chmod(0o600)
    broken = data / "broken model.gguf"
    broken.write_bytes(model.read_bytes()[:1_000_000])
    port = free_port()

    def wanted(model: Path, ctx_size: int) -> Spec:
        options: dict[str, Value] = {"ctx_size": ctx_size, "threads": 1, "threads_batch": 1, "api_key_file": str(key)}
        return make_spec(
            data,
            engine_bin,
            model,
            port,
            options=options,
            cpus=(1,),
            manager="systemd",
            user="orin-deploy",
            api_key_file=str(key),
        )

    host, spec = Host(), wanted(model, 1024)
    said: dict[str, Any] = {}
    undo = service.plan(spec, service.inspect(host, spec))[0].undo
    said["first"] = apply(host, spec)
    proof = verify.verify(host, spec, quiet)
    said["answer"], said["kinds"] = proof.answer, [row.kind for row in proof.memory]
    said["second"] = pending(host, spec)
    state = service.inspect(host, spec)
    said["threads"] = sorted({cpus for _, cpus in state.server.threads}) if state.server else None
    said["uid"] = os.stat(f"/proc/{proof.pid}").st_uid

    said["followed"] = next(service.follow_log(Asking(spec), spec.name))

    os.kill(proof.pid, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while service.running_pid(host, spec) in (None, proof.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    verify.await_ready(host, spec, quiet)
    said["after_kill"] = pending(host, spec)

    changed = wanted(model, 2048)
    said["change"] = apply(host, changed)
    failing = wanted(broken, 2048)
    before = service.snapshot(host, failing)
    assert before is not None
    began = time.monotonic()
    try:
        apply(host, failing)
    except OrinError as error:
        said["failure"] = error.message
    said["failure_s"] = time.monotonic() - began
    for action in service.restore(failing, before):
        host.do(action)
    verify.await_ready(host, changed, quiet)
    said["restored"] = pending(host, changed)

    for action in (*undo, *undo):
        host.do(action)
    state = service.inspect(host, spec)
    said["undone"] = [state.manager, state.enabled, state.status.state, state.holder is None]
    return said


if __name__ == "__main__":
    print(json.dumps(life(*map(Path, sys.argv[1:4]))))
