"""Apply: carry a plan out part by part, read back what took effect, keep the old service when the new one fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orin_deploy.deploy import verify
from orin_deploy.deploy.plan import PARTS, Plan
from orin_deploy.deploy.record import Record, plain, remember_undo
from orin_deploy.errors import CommandFailed, OrinError
from orin_deploy.host import Host
from orin_deploy.intent.spec import Spec
from orin_deploy.parts import engine, service
from orin_deploy.parts.step import Step


class Events:
    """What apply tells while it works; the console overrides what it shows."""

    def begin(self, step: Step) -> None:
        pass

    def progress(self, fraction: float | None, text: str) -> None:
        pass

    def end(self, step: Step, seconds: float) -> None:
        pass

    def fail(self, step: Step) -> None:
        pass

    def note(self, text: str) -> None:
        pass


@dataclass(frozen=True)
class Applied:
    """How an apply ended: the plan as it stood then, whether anything was done, and the proof if there was one."""

    plan: Plan
    changed: bool
    proof: verify.Proof | None


def apply(host: Host, draft: Callable[[], Plan], record: Record, events: Events) -> Applied:
    """Bring the machine to the plan that `draft` makes of it.

    The plan is drafted again after each part: then the built binary's own --help and the fetched file's own header
    decide what follows, and a part whose steps did not take effect fails by name. Raises OrinError.
    """
    plan = draft()
    changed = False
    for part in PARTS:
        steps = plan.steps_of(part.NAME)
        if part is service and (any(step.actions for step in steps) or plan.proof_due):
            return _serve(host, plan, draft, record, events)
        if not any(step.actions for step in steps):
            continue
        changed = True
        _perform(host, plan.spec, steps, record, events)
        plan = draft()
        _read_back(plan, part.NAME, record)
    return Applied(plan, changed, None)


def _serve(host: Host, plan: Plan, draft: Callable[[], Plan], record: Record, events: Events) -> Applied:
    """Start the server, wait until it answers, prove it; on a failure put back the service that ran before."""
    before = service.snapshot(host, plan.spec)
    try:
        _perform(host, plan.spec, plan.steps_of(service.NAME), record, events)
        proof_step = plan.proof_step
        started = _begin(proof_step, events)
        verify.await_ready(host, plan.spec, events.progress)
        plan = draft()
        _read_back(plan, service.NAME, record)
        proof = verify.verify(host, plan.spec, events.progress)
        _end(proof_step, started, record, events)
    except BaseException as error:
        if before is not None and isinstance(error, Exception):
            events.note("putting back the service that ran before")
            _put_back(host, plan.spec, before, error)
        raise
    return Applied(plan, True, proof)


def _put_back(host: Host, spec: Spec, before: Any, error: Exception) -> None:
    try:
        for action in service.restore(spec, before):
            host.do(action)
    except OrinError as second:
        raise OrinError(
            f"{error}; and the service that ran before could not be put back: {second.message}",
            f"orin-deploy logs --name {spec.name}",
        ) from error


def _perform(host: Host, spec: Spec, steps: tuple[Step, ...], record: Record, events: Events) -> None:
    for step in steps:
        if not step.actions:
            continue
        started = _begin(step, events)
        try:
            if step.undo:
                remember_undo(host, spec.name, step.undo)
            for action in step.actions:
                host.do(action, events.progress)
        except CommandFailed as error:
            _failed(step, started, record, events)
            raise (engine.explain(error) if step.part == engine.NAME else error) from error
        except OSError as error:
            _failed(step, started, record, events)
            raise translate(error, step) from error
        except BaseException:
            _failed(step, started, record, events)
            raise
        _end(step, started, record, events)


def _begin(step: Step, events: Events) -> float:
    events.begin(step)
    return time.monotonic()


def _end(step: Step, started: float, record: Record, events: Events) -> None:
    seconds = time.monotonic() - started
    record.step(step.part, step.name, step.why, "done", seconds)
    events.end(step, seconds)


def _failed(step: Step, started: float, record: Record, events: Events) -> None:
    events.fail(step)
    record.step(step.part, step.name, step.why, "failed", time.monotonic() - started)


def _read_back(plan: Plan, part: str, record: Record) -> None:
    record.update(spec=plain(plan.spec))
    for step in plan.steps_of(part):
        if step.actions:
            raise OrinError(f"{step.name}: done, but it did not take effect: {step.why}", step.hint)


def translate(error: OSError, step: Step | None = None) -> OrinError:
    """An error of the operating system as one sentence with the way on."""
    import errno

    where = error.filename or "a file"
    prefix = f"{step.name}: " if step else ""
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return OrinError(
                f"{prefix}no space is left where {where} is written",
                "free some space, or set ORIN_DEPLOY_HOME to a larger disk, then run the same command again",
            )
        case errno.EACCES | errno.EPERM:
            return OrinError(f"{prefix}no permission to write {where}", "run it with sudo, or set ORIN_DEPLOY_HOME")
        case errno.EROFS:
            return OrinError(
                f"{prefix}{where} is on a read-only file system", "set ORIN_DEPLOY_HOME to a writable folder"
            )
    return OrinError(f"{prefix}{error.strerror or error}: {where}", step.hint if step else None)
