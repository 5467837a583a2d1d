"""Carrying out what `up` planned: apply it, measure what was proved, and keep on record how it ended."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

from orin_deploy import __version__
from orin_deploy.deploy.apply import Events, Measure, apply
from orin_deploy.deploy.draft import Situation, draft
from orin_deploy.deploy.plan import Plan
from orin_deploy.deploy.record import Record, plain
from orin_deploy.deploy.verify import Proof
from orin_deploy.errors import Exit, OrinError, Rebooting, RebootNeeded
from orin_deploy.host import Host
from orin_deploy.intent.request import Request
from orin_deploy.intent.spec import Spec
from orin_deploy.observe.measure import measure
from orin_deploy.parts import service
from orin_deploy.parts.step import Step


def carry_out(
    host: Host, wish: Request, now: Situation, planned: Plan, record: Record, events: Events
) -> tuple[dict[str, Any], Spec]:
    """Apply and measure, with the record telling at every moment how far it came; returns its data and what serves."""
    record.update(spec=plain(planned.spec), versions={"orin_deploy": __version__, "python": platform.python_version()})
    try:
        measuring = _measure(host, wish, record.data["command"], events)
        applied = apply(host, planned, lambda: draft(host, wish, now, events.progress), record, events, measuring)
        # What was proved serves, whatever breaks off its measurement: the next `up` finds nothing to do.
        unmeasured = None if applied.proof is None else "interrupted"
        record.finish("done", spec=plain(applied.plan.spec), proof=plain(applied.proof), unmeasured=unmeasured)
        if applied.proof is not None:
            record.finish("done", **measure_proved(host, applied.plan.spec, applied.proof, record, events))
    except KeyboardInterrupt:
        if record.data["outcome"] == "done":
            raise _interrupted(now.name) from None
        record.finish("interrupted")
        raise
    except RebootNeeded as error:
        then = record.data["command"] if isinstance(error, Rebooting) else error.hint
        record.finish("reboot", f"{error.message}; then: {then}")
        raise
    except Exception as error:
        record.finish("failed", str(error), proof=None, unmeasured=None)  # it is to be proved anew
        raise
    return record.data, applied.plan.spec


def _interrupted(name: str) -> OrinError:
    """The end of a run that was interrupted while nothing but the measurement was left to do."""
    what = f"interrupted: {name} serves and was proved; its speed was not measured"
    return OrinError(what, f"orin-deploy bench --name {name} measures it", code=Exit.INTERRUPTED)


def _measure(host: Host, wish: Request, command: str, events: Events) -> Measure:
    """What decides `draft: auto` where nothing is on record; imported only then, for it is the whole bench."""

    def measure(planned: Plan, make_room: Callable[[], None]) -> str:
        from orin_deploy.tune.speculation import decide

        return decide(host, wish, command, planned, make_room, events.progress)

    return measure


def measure_proved(host: Host, spec: Spec, proof: Proof, record: Record, events: Events) -> dict[str, Any]:
    """Measure, as fields of the record. A server that was proved and still serves is up, also where that fails."""
    step = Step("measure", "measure its speed", "prompt and generation speed, time to first token")
    events.begin(step)
    began = host.monotonic()
    fields: dict[str, Any] = {"measurement": None, "unmeasured": None}
    try:
        seen = measure(host, spec.service.endpoint, service.auth_headers(spec), events.progress, proof)
        fields["measurement"] = plain(seen)
    except OrinError as error:
        if service.running_pid(host, spec) != proof.pid:
            events.fail(step)
            raise
        fields["unmeasured"] = error.message
    except KeyboardInterrupt:
        events.fail(step)
        raise
    seconds = host.monotonic() - began
    record.step(step.part, step.name, step.why, "failed" if fields["unmeasured"] else "done", seconds)
    events.end(step, seconds)
    return fields
