"""Apply: carry a plan out part by part, read back what took effect, keep the old service when the new one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from orin_deploy.deploy import verify
from orin_deploy.deploy.plan import PARTS, Plan
from orin_deploy.deploy.record import Record, latest, plain, remember_undo, spec_of
from orin_deploy.errors import CommandFailed, OrinError, Rebooting
from orin_deploy.host import Host
from orin_deploy.intent.spec import Spec
from orin_deploy.parts import engine, power, service
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
    """How an apply ended: the plan as it stood then, and the proof if there was one."""

    plan: Plan
    proof: verify.Proof | None


def apply(host: Host, plan: Plan, draft: Callable[[], Plan], record: Record, events: Events) -> Applied:
    """Bring the machine to the plan.

    It is drafted again after each part: then the built binary's own --help and the fetched file's own header
    decide what follows, and a part whose steps did not take effect fails by name. Raises OrinError, RebootNeeded
    before anything is changed.
    """
    _check_power(host, plan, record)
    for part in PARTS:
        steps = plan.steps_of(part.NAME)
        if part is service and (any(step.actions for step in steps) or plan.proof_due):
            return _serve(host, plan, draft, record, events)
        if not any(step.actions for step in steps):
            continue
        if part is power:
            plan = _switch_power(host, plan, draft, record, events)
            continue
        _perform(host, plan.spec, steps, record, events)
        plan = draft()
        _read_back(plan, part.NAME, record)
    return Applied(plan, None)


def _check_power(host: Host, plan: Plan, record: Record) -> None:
    """What the power steps need and only a person can give: root, and consent to a reboot."""
    wanted = plan.spec.power
    if wanted is None or not any(step.actions for step in plan.steps_of(power.NAME)):
        return
    if not host.is_root:
        raise OrinError(
            "setting the power mode and clocks needs root", f"sudo {record.data['command']}; or add --no-power"
        )
    if wanted.mode is not None and wanted.reboot_needed and not wanted.reboot_allowed:
        raise power.reboot_needed(plan.spec, "nothing was changed")


def _switch_power(host: Host, plan: Plan, draft: Callable[[], Plan], record: Record, events: Events) -> Plan:
    """Set power and read it back; where nvpmodel asks for a reboot all the same, what was there before is put back."""
    steps = plan.steps_of(power.NAME)
    try:
        _perform(host, plan.spec, steps, record, events)
        plan = draft()
        _read_back(plan, power.NAME, record)
    except Rebooting:
        raise
    except OrinError as error:
        if not power.asks(error, power.said(host, plan.spec)):
            raise
        for action in next(step.undo for step in steps if step.actions):
            host.do(action, events.progress)
        raise power.reboot_needed(plan.spec, "the mode from before is back") from error
    return plan


def _serve(host: Host, plan: Plan, draft: Callable[[], Plan], record: Record, events: Events) -> Applied:
    """Start the server, wait until it answers, prove it; when the new one fails, put back the one that ran before."""
    before = service.snapshot(host, plan.spec)
    steps = plan.steps_of(service.NAME)
    try:
        _perform(host, plan.spec, steps, record, events)
        with _step(plan.proof_step, record, events):
            verify.await_ready(host, plan.spec, events.progress)
            plan = draft()
            _read_back(plan, service.NAME, record)
            proof = verify.verify(host, plan.spec, events.progress)
    except Exception as error:
        if any(step.actions for step in steps):
            _retreat(host, plan.spec, before, error, events)
        raise
    return Applied(plan, proof)


def _retreat(host: Host, spec: Spec, before: service.Before | None, error: Exception, events: Events) -> None:
    """Stop the service that failed; where one ran before it, start that again and wait until it answers."""
    events.note("stopping it" if before is None else "putting back the service that ran before")
    try:
        for action in service.halt(host, spec) if before is None else service.restore(spec, before):
            host.do(action, events.progress)
        earlier = None if before is None else spec_of(latest(host, spec.name, "done"))
        if earlier is not None:
            verify.await_ready(host, earlier, events.progress)
    except (OrinError, OSError) as second:
        why = translate(second) if isinstance(second, OSError) else second
        raise OrinError(
            f"{error}; and what was there before could not be put back: {why.message}",
            f"orin-deploy logs --name {spec.name}",
        ) from error


def _perform(host: Host, spec: Spec, steps: tuple[Step, ...], record: Record, events: Events) -> None:
    for step in steps:
        if not step.actions:
            continue
        with _step(step, record, events):
            if step.undo:
                remember_undo(host, spec.name, step.undo)
            for action in step.actions:
                host.do(action, events.progress)


@contextmanager
def _step(step: Step, record: Record, events: Events) -> Iterator[None]:
    """Tell and record how a step goes; a failed command or system call becomes an error with its cause."""
    clock = record.host.monotonic
    began = clock()
    events.begin(step)
    try:
        yield
    except Rebooting:
        record.step(step.part, step.name, step.why, "rebooting", clock() - began)
        events.end(step, clock() - began)
        raise
    except BaseException as error:
        events.fail(step)
        record.step(step.part, step.name, step.why, "failed", clock() - began)
        if isinstance(error, CommandFailed) and step.part == engine.NAME:
            raise engine.explain(error) from error
        if isinstance(error, OSError):
            raise translate(error, step) from error
        raise
    record.step(step.part, step.name, step.why, "done", clock() - began)
    events.end(step, clock() - began)


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
        case errno.EEXIST | errno.ENOTDIR:
            return OrinError(
                f"{prefix}{where} needs a folder where something else is",
                "move that away, or set ORIN_DEPLOY_HOME to another folder",
            )
    hint = (step.hint if step else None) or "check that path, or set ORIN_DEPLOY_HOME to a folder that can be written"
    return OrinError(f"{prefix}{error.strerror or error}: {where}", hint)
