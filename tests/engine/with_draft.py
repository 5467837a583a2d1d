"""A deployment with a draft in its own process; run inside a real systemd by test_draft_process.py, it tells its life
as JSON on standard output."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from orin_deploy.deploy import verify
from orin_deploy.errors import OrinError
from orin_deploy.host import Host, procfs
from orin_deploy.intent import speculation
from orin_deploy.intent.options import OPTIONS
from orin_deploy.intent.spec import Draft, Placement, Setting, Spec, WeightFile, Weights
from orin_deploy.parts import service
from orin_deploy.parts.step import Step
from tests.specs import free_port, make_build, make_spec


def with_draft(
    data: Path,
    engine_bin: Path,
    model: Path,
    draft: Path,
    cpus: tuple[int, ...],
    draft_cpus: tuple[int, ...],
    manager: str,
) -> Spec:
    """The Spec of a deployment whose draft has a process of its own, one thread each."""
    placement = Placement(cpus, 1, 1, "test", draft_cpus, 1)
    values = {key: Setting(option.default, "default") for key, option in OPTIONS.items()}
    values["placement.draft_port"] = Setting(free_port(), "test")
    build = make_build(engine_bin)
    weights = Weights(f"file:{draft}", (WeightFile(f"file:{draft}", str(draft)),))
    chosen = Draft("draft-simple", weights, n_max=3)
    process = speculation.in_process(chosen, values, build, placement)
    options = {key: setting.value for key, setting in speculation.server_options(values, process, build).items()}
    return make_spec(
        data,
        engine_bin,
        model,
        free_port(),
        options={
            **options,
            "spec_type": process.kind,
            "spec_draft_model": str(draft),
            "threads": 1,
            "threads_batch": 1,
        },
        placement=placement,
        draft=process,
        manager=manager,
        user="orin-deploy" if manager == "systemd" else None,
    )


def quiet(fraction: float | None, text: str) -> None:
    pass


def plan(host: Host, spec: Spec) -> Step:
    (step,) = service.plan(spec, service.inspect(host, spec))
    return step


def up(host: Host, spec: Spec) -> verify.Proof:
    for action in plan(host, spec).actions:
        host.do(action)
    verify.await_ready(host, spec, quiet)
    return verify.verify(host, spec, quiet)


def _drafted(host: Host, spec: Spec) -> int:
    payload = {"prompt": "Once upon a time there was a", "n_predict": 24, "temperature": 0}
    reply = host.http("POST", f"{spec.service.endpoint}/completion", payload, timeout_s=60)
    return int(reply.json()["timings"]["draft_n"])


def _after_killing(host: Host, spec: Spec, which: str) -> dict[str, Any]:
    before = service.status(host, spec.name)
    victim = getattr(before, which)
    os.kill(victim, signal.SIGKILL)
    deadline = time.monotonic() + 300
    while (now := service.status(host, spec.name)).pid in (None, before.pid) or now.draft in (None, before.draft):
        assert time.monotonic() < deadline, f"killing {which}: {before} then {now}"
        time.sleep(0.1)
    verify.await_ready(host, spec, quiet)
    verify.verify(host, spec, quiet)
    step = plan(host, spec)
    return {"new": True, "pending": step.why if step.actions else None, "drafted": _drafted(host, spec) > 0}


def _failing(host: Host, spec: Spec) -> tuple[str, float]:
    """What is told of a draft's process that cannot start, after how long; the service that ran before is put back."""
    assert spec.draft is not None
    failing = replace(spec, draft=replace(spec.draft, argv=(*spec.draft.argv, "-d", "NOPE")))
    before = service.snapshot(host, failing)
    assert before is not None
    began, message = time.monotonic(), ""
    try:
        up(host, failing)
    except OrinError as error:
        message = error.message
    seconds = time.monotonic() - began
    for action in (*service.halt(host, failing), *service.restore(failing, before)):
        host.do(action)
    verify.await_ready(host, spec, quiet)
    assert plan(host, spec).actions == ()
    return message, seconds


def life(engine_bin: Path, model: Path, draft: Path, data: Path) -> dict[str, Any]:
    host, spec = Host(), with_draft(data, engine_bin, model, draft, (0,), (1,), "systemd")
    said: dict[str, Any] = {}
    undo = plan(host, spec).undo
    up(host, spec)
    now = service.status(host, spec.name)
    assert now.pid is not None
    assert now.draft is not None
    pids = (now.pid, now.draft)
    said["threads"] = [sorted(set(procfs.threads(pid).values())) for pid in pids]
    users = {os.stat(f"/proc/{pid}").st_uid for pid in pids}
    said["users"] = len(users) if 0 not in users else 0
    step = plan(host, spec)
    said["second"] = step.why if step.actions else None
    said["draft_n"] = _drafted(host, spec)
    said["after_draft_kill"] = _after_killing(host, spec, "draft")
    said["after_server_kill"] = _after_killing(host, spec, "pid")

    said["failure"], said["failure_s"] = _failing(host, spec)
    words = spec.service.argv
    alone = replace(
        spec,
        draft=None,
        placement=replace(spec.placement, draft_cpus=(), draft_threads=0),
        service=replace(spec.service, argv=words[: words.index("--rpc")]),
    )
    up(host, alone)
    state = service.inspect(host, alone)
    said["without_draft"] = [state.status.draft, host.exists(state.where.draft_file)]
    up(host, spec)
    for action in (*undo, *undo):
        host.do(action)
    state = service.inspect(host, spec)
    said["undone"] = [state.manager, host.exists(state.where.draft_file), state.holder, state.draft_holder]
    return said


if __name__ == "__main__":
    print(json.dumps(life(*map(Path, sys.argv[1:5]))))
