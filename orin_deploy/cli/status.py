"""`status` and `logs`: what runs."""

from __future__ import annotations

from typing import Any

from orin_deploy.cli.console import Console, mib
from orin_deploy.cli.show_memory import show_taken
from orin_deploy.cli.show_speculation import decision_document, decision_text, live_document, speculation_text
from orin_deploy.cli.up import memory_compared, tell_unread
from orin_deploy.deploy.down import choose
from orin_deploy.deploy.record import deployments, latest, spec_of, unread
from orin_deploy.host import Host, procfs
from orin_deploy.host.processes import RUNNING
from orin_deploy.intent.spec import Spec
from orin_deploy.parts import service


def status(name: str | None, console: Console) -> None:
    host = Host()
    known = deployments(host)
    if name is None and not known:
        console.say(f"Nothing is deployed in {host.data} (root, each user and ORIN_DEPLOY_HOME have their own).")
        console.document({"deployments": []})
        return
    if name is None and len(known) > 1:
        documents = [_document(host, each) for each in known]
        for each in known:
            tell_unread(host, each, console)
        console.table(
            [(each["name"], each["state"], each["endpoint"] or "", each["model"] or "") for each in documents]
        )
        console.document({"deployments": documents})
        return
    document = _document(host, choose(host, name))
    tell_unread(host, document["name"], console)
    rows = [(label, str(document[key])) for label, key in _ROWS if document[key] is not None]
    if document["resident_bytes"]:
        rows.append(("resident", f"{mib(document['resident_bytes'])} now"))
    measured = document["measurement"]
    if measured:
        rows.append(
            (
                "speed",
                f"{measured['generated_per_s']:.1f} tokens/s, first token {measured['first_token_s'] * 1000:.0f} ms",
            )
        )
    elif document["unmeasured"]:
        rows.append(("speed", f"not measured: {document['unmeasured']}"))
    if document["speculation"] is not None:
        rows.append(("speculation", speculation_text(document["speculation"])))
    if document["decision"] is not None:
        rows.append(("draft", decision_text(document["decision"])))
    console.table(rows)
    show_taken(_proved(host, document["name"]), console)
    console.document(document)


_ROWS = (
    ("deployment", "name"),
    ("state", "state"),
    ("endpoint", "endpoint"),
    ("model", "model"),
    ("context", "ctx_size"),
    ("process", "pid"),
    ("profile", "profile"),
    ("last record", "record"),
    ("outcome", "outcome"),
    ("error", "error"),
    ("last exit", "last_exit"),
)


def _document(host: Host, name: str) -> dict[str, Any]:
    """The stable JSON of one deployment: from its last record, and from the server as it is now."""
    record = latest(host, name) or {}
    spec = spec_of(record)
    now = service.status(host, name)
    done = _proved(host, name)
    return {
        "name": name,
        "state": _state(host, now, spec),
        "endpoint": spec.service.endpoint if spec else None,
        "pid": now.pid,
        "failures": now.failures,
        "last_exit": now.exit,
        "profile": spec.profile if spec else None,
        "model": spec.weights.reference if spec else None,
        "ctx_size": spec.settings["ctx_size"].value if spec else None,
        "record": record.get("record"),
        "outcome": record.get("outcome"),
        "error": record.get("error"),
        "unread_records": list(unread(host, name)),
        "speculation": live_document(host, spec, now.state == RUNNING),
        "decision": decision_document(record),
        "measurement": done.get("measurement"),
        "unmeasured": done.get("unmeasured"),
        "memory": memory_compared(done),
        "resident_bytes": sum(procfs.memory(now.pid, host.path("/proc")).values()) if now.pid else None,
    }


def _proved(host: Host, name: str) -> dict[str, Any]:
    """The newest record of a start that was proved and measured; empty when there is none."""
    record = latest(host, name) or {}
    return record if record.get("measurement") else latest(host, name, "done") or {}


def _state(host: Host, now: service.Status, spec: Spec | None) -> str:
    """What the manager says, and of a process that runs whether it answers."""
    if now.state != RUNNING or spec is None:
        return now.state or "stopped"
    reply = host.http("GET", f"{spec.service.endpoint}/health", timeout_s=1)
    return {200: RUNNING, 503: "loading"}.get(reply.status if reply else 0, "not answering")


def logs(name: str | None, lines: int, follow: bool, console: Console) -> None:
    host = Host()
    chosen = choose(host, name)
    tail = service.log_lines(host, chosen, lines)
    console.document({"name": chosen, "lines": list(tail)})
    for line in tail:
        console.say(line)
    if follow and not console.as_json and console.out.stream is not None:
        for line in service.follow_log(host, chosen):
            console.say(line)
            if console.out.stream is None:
                return
