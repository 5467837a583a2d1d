"""Apply: carry a plan out part by part, read back what took effect, keep the old service when the new one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from orin_deploy.deploy import residual, verify
from orin_deploy.deploy.plan import PARTS, Plan
from orin_deploy.deploy.record import Record, latest, plain, remember_undo, spec_of
from orin_deploy.errors import CommandFailed, OrinError, Rebooting
from orin_deploy.host import Host
from orin_deploy.intent.spec import LeftOut, Spec
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


Measure = Callable[[Plan, Callable[[], None]], str]
"""Decides what a plan leaves to be measured, keeps it on record, and says it in a sentence; calls the second to stop
the deployment's own server where there is no room beside it. Never raises for a candidate that fails."""


def apply(
    host: Host,
    plan: Plan,
    draft: Callable[[], Plan],
    record: Record,
    events: Events,
    measure: Measure | None = None,
) -> Applied:
    """Bring the machine to the plan.

    It is drafted again after each part: then the built binary's own --help and the fetched file's own header
    decide what follows, and a part whose steps did not take effect fails by name. What is to be measured is, once
    engine and weights are here. Raises OrinError, RebootNeeded before anything is changed.
    """
    _check_power(host, plan, record)
    for part in PARTS:
        if part is service and plan.measuring is not None and measure is not None:
            plan, before = _measure(host, plan, draft, record, events, measure)
            return _serve(host, plan, draft, record, events, before)
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


def _measure(
    host: Host, plan: Plan, draft: Callable[[], Plan], record: Record, events: Events, measure: Measure
) -> tuple[Plan, service.Before | None]:
    """Measure, and draft anew with what was decided; also the server that ran, where it had to stop for that."""
    assert plan.measuring is not None
    running = _running(host, plan.spec)
    stopped: list[service.Before] = []

    def make_room() -> None:
        if running is not None:
            events.note("stops the server that runs: there is no room beside it")
            stopped.append(running)
            for action in service.halt(host, plan.spec):
                host.do(action, events.progress)

    try:
        with _step(plan.measuring, record, events):
            said = measure(plan, make_room)
        events.note(said)
        return draft(), stopped[0] if stopped else None
    except BaseException as error:
        if stopped:
            _retreat(host, plan.spec, running, error, events)
        raise


def _serve(
    host: Host,
    plan: Plan,
    draft: Callable[[], Plan],
    record: Record,
    events: Events,
    stopped: service.Before | None = None,
) -> Applied:
    """Start the server, wait until it answers, prove it; when the new one fails, put back the one that ran before, or
    that was `stopped` to measure."""
    before, watch = stopped or _running(host, plan.spec), residual.watch(host, plan.spec.name)
    touched = stopped is not None or any(step.actions for step in plan.steps_of(service.NAME))
    try:
        try:
            applied = _start(host, plan, draft, record, events)
        except OrinError as error:
            if plan.spec.draft is None or not plan.spec.draft.optional:
                raise
            plan, touched = _without_draft(plan, error, draft, record, events), True
            applied = _start(host, plan, draft, record, events)
    except Exception as error:
        if isinstance(error, OrinError):
            residual.remember_failure(host, plan.spec, error, record.number, watch)
        if touched:
            _retreat(host, plan.spec, before, error, events)
        raise
    if applied.proof is not None:
        residual.remember_start(host, applied.plan.spec, applied.proof, record.number)
    return applied


def _start(host: Host, plan: Plan, draft: Callable[[], Plan], record: Record, events: Events) -> Applied:
    _perform(host, plan.spec, plan.steps_of(service.NAME), record, events)
    with _step(plan.proof_step, record, events):
        verify.await_ready(host, plan.spec, events.progress)
        plan = draft()
        _read_back(plan, service.NAME, record)
        return Applied(plan, verify.verify(host, plan.spec, events.progress))


def _without_draft(plan: Plan, error: OrinError, draft: Callable[[], Plan], record: Record, events: Events) -> Plan:
    """The plan that goes on without the optional draft that has just failed; the record says so, and drafting the plan
    anew reads it there, now and at every later `up` with the same engine."""
    spec = plan.spec
    assert spec.draft is not None
    events.note(f"goes on without speculation ({spec.draft.kind}): {error.message}")
    reference = spec.draft.weights.reference if spec.draft.weights else None
    left_out = LeftOut(spec.draft.kind, reference, spec.build.key, error.message)
    record.update(spec=plain(replace(spec, left_out=left_out)))
    return draft()


def _running(host: Host, spec: Spec) -> service.Before | None:
    """The service that runs, to be put back when the new one fails."""
    return service.snapshot(host, spec, spec_of(latest(host, spec.name, "done")))


def _retreat(host: Host, spec: Spec, before: service.Before | None, error: BaseException, events: Events) -> None:
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
            return OrinError(f"{prefix}no permission for {where}", "run it with sudo, or set ORIN_DEPLOY_HOME")
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
