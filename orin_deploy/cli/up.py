"""`plan`, `up` and `down`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from typing import Any, NoReturn

from orin_deploy.actions import to_json
from orin_deploy.cli.carry_out import carry_out
from orin_deploy.cli.console import Console, mib
from orin_deploy.cli.documents import plan_document
from orin_deploy.cli.show_memory import show_taken
from orin_deploy.cli.show_plan import show_plan
from orin_deploy.cli.show_speculation import decision_document, decision_text, proved_document, speculation_text
from orin_deploy.deploy import down as undoing
from orin_deploy.deploy import taken
from orin_deploy.deploy.draft import Situation, draft, situation
from orin_deploy.deploy.plan import Plan
from orin_deploy.deploy.record import Record, known, latest, plain, unread, unread_text
from orin_deploy.deploy.verify import context_per_slot
from orin_deploy.errors import Rebooting, UsageError
from orin_deploy.host import Host
from orin_deploy.intent.options import WORKLOAD
from orin_deploy.intent.request import Request
from orin_deploy.intent.spec import Spec

TRUSTED_SPREAD = 0.15


def request(
    profile: str,
    model: str | None,
    name: str | None,
    sets: list[str] | None,
    profiles: str | None,
    force: bool,
    reboot: bool = False,
    no_power: bool = False,
    draft: str | None = None,
) -> Request:
    """The request that the command line makes; raises UsageError for a --set without a value."""
    pairs = []
    for word in sets or ():
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise UsageError(f'--set "{word}" is not KEY=VALUE', "as in --set ctx_size=4096")
        pairs.append((key.strip(), value.strip()))
    if no_power:
        pairs += [("power.mode", "keep"), ("power.clocks", "keep"), ("power.fan", "keep")]
    return Request(profile, model, name, tuple(pairs), profiles, force, reboot, draft)


def plan(wish: Request, console: Console) -> None:
    host = Host()
    now = situation(host, wish, elsewhere=True)
    _check_workloads(wish, now)
    tell_unread(host, now.name, console)
    planned = draft(host, wish, now, console.events().progress)
    show_plan(planned, console)
    console.document(plan_document(planned))


def up(wish: Request, console: Console) -> None:
    host = Host()
    command = shlex.join(["orin-deploy", *sys.argv[1:]])
    events = console.events()
    with host.lock(command):
        now = situation(host, wish, elsewhere=False)
        _check_workloads(wish, now)
        numbers = tell_unread(host, now.name, console)
        planned = draft(host, wish, now, events.progress)
        if planned.empty:
            finished = latest(host, now.name, "done") or {}
            console.say(f"Nothing to do: {planned.spec.name} is as planned.")
            _summary(finished, changed=False, planned=planned, unread=numbers, console=console)
            return
        show_plan(planned, console, actions=False)
        console.say()
        try:
            finished, spec = carry_out(host, wish, now, planned, Record(host, now.name, command), events)
        except Rebooting as reboot:
            _tell_reboot(reboot, now.name, command, console)
    console.say()
    # The steps are those that were to be done; the engine's help and what was measured decide of the spec on the way.
    _summary(finished, changed=planned.changes, planned=replace(planned, spec=spec), unread=numbers, console=console)


def tell_unread(host: Host, name: str, console: Console) -> tuple[int, ...]:
    """Say that records cannot be read, where that is so; returns their numbers."""
    if (said := unread_text(host, name)) is not None:
        console.tell(f"warning: {said}")
    return unread(host, name)


def _check_workloads(wish: Request, now: Situation) -> None:
    if any(key.startswith(WORKLOAD) for key in (*now.profile.values, *(key for key, _ in wish.sets))):
        from orin_deploy.tune.speculation import check_workloads

        check_workloads(wish, now)


def _tell_reboot(reboot: Rebooting, name: str, command: str, console: Console) -> NoReturn:
    """The end of a command that reboots the machine: what goes on afterwards."""
    console.say(f"{reboot.message[0].upper()}{reboot.message[1:]}. When it is back, the same command goes on:")
    console.say(f"  {command}")
    console.document({"name": name, "changed": True, "rebooting": True, "next": command})
    raise SystemExit(reboot.code)


def _summary(record: dict[str, Any], changed: bool, planned: Plan, unread: tuple[int, ...], console: Console) -> None:
    """The table at the end of `up`, and its JSON document."""
    spec = planned.spec
    measured = record.get("measurement") or {}
    memory = memory_compared(record)
    rows = [("endpoint", f"{spec.service.endpoint}/v1  (OpenAI API)")]
    if measured:
        rows += [
            ("prompt", f"{measured['prompt_per_s']:.1f} tokens/s over {measured['prompt_tokens']} tokens"),
            ("generation", generation_text(measured)),
            ("first token", f"{measured['first_token_s'] * 1000:.0f} ms"),
        ]
    elif (unmeasured := record.get("unmeasured")) is not None:
        rows.append(("speed", f"not measured: {unmeasured}"))
    if (speculation := proved_document(record)) is not None:
        rows.append(("speculation", speculation_text(speculation)))
    if (decided := decision_document(record)) is not None:
        rows.append(("draft", decision_text(decided)))
    rows.append(("context", f"{_context(spec)} ({spec.sources['ctx_size']})"))
    if record:
        rows.append(("record", f"{record['record']} of {record.get('started', '')[:19].replace('T', ' ')} UTC"))
    console.table(rows)
    show_taken(record, console)
    console.document(
        {
            "name": spec.name,
            "changed": changed,
            "endpoint": spec.service.endpoint,
            "model": spec.model.reference,
            "ctx_size": spec.settings["ctx_size"].value,
            "measurement": measured or None,
            "unmeasured": record.get("unmeasured"),
            "speculation": speculation,
            "decision": decided,
            "memory": memory,
            "record": record.get("record"),
            "unread_records": list(unread),
            "plan": plan_document(planned),
        }
    )


def _context(spec: Spec) -> str:
    """The context as clients meet it, by the rule that the read-back checks: what each slot gets."""
    slots = int(str(spec.settings["parallel"].value))
    each = context_per_slot(spec) or spec.settings["ctx_size"].value
    return f"{each} tokens" if slots == 1 else f"{each} tokens in each of {slots} slots"


def generation_text(measured: dict[str, Any]) -> str:
    """The generation speed, and how far the repeats lay apart where that is too far to trust it."""
    text = f"{measured['generated_per_s']:.1f} tokens/s over {measured['generated_tokens']} tokens"
    if measured["spread"] > TRUSTED_SPREAD:
        text += f" (repeats differ by {measured['spread']:.0%}: the machine was busy)"
    return text


def memory_compared(record: dict[str, Any]) -> dict[str, Any] | None:
    """The engine's buffers as planned and as its own log says it took them, in bytes; None without a proof."""
    rows = taken.of_record(record)
    if not rows:
        return None
    whole = taken.resident(record)
    return {
        "planned_bytes": sum(row.planned_bytes for row in rows),
        "taken_bytes": sum(row.taken_bytes for row in rows),
        "rows": record["proof"]["memory"],
        "compared": plain(rows),
        "resident": plain(whole),
    }


def down(name: str | None, purge: bool, reboot: bool, console: Console) -> None:
    host = Host()
    command = shlex.join(["orin-deploy", *sys.argv[1:]])
    with host.lock(command):
        if name is None and not known(host):
            console.say("Nothing to do: nothing is deployed on this machine.")
            console.document(_down_document(None, undoing.Undone(), ()))
            return
        chosen = undoing.choose(host, name)
        numbers = tell_unread(host, chosen, console)
        try:
            done = undoing.down(host, chosen, purge, reboot)
        except Rebooting as going:
            _tell_reboot(going, chosen, command, console)
    if not done.actions and not done.removed:
        console.say(f"Nothing to do: {chosen} is not up.")
    for action in done.actions:
        console.say(f"- {action}")
    for path in done.removed:
        console.say(f"- remove {path}")
    if done.removed:
        console.say(f"{mib(done.freed_bytes)} freed.")
    elif done.actions:
        console.say(f"{chosen} is down. Engines and models stay; --purge removes those nothing uses.")
    if done.kept_for:
        console.tell(f"warning: engines and models stay: what {', '.join(done.kept_for)} uses is not on record")
    console.document(_down_document(chosen, done, numbers))


def _down_document(name: str | None, done: undoing.Undone, unread: tuple[int, ...]) -> dict[str, Any]:
    return {
        "name": name,
        "changed": bool(done.actions or done.removed),
        "actions": [to_json(action) for action in done.actions],
        "removed": list(done.removed),
        "freed_bytes": done.freed_bytes,
        "kept_for": list(done.kept_for),
        "unread_records": list(unread),
    }
