"""`status` and `logs`: what runs."""

from __future__ import annotations

from typing import Any

from orin_deploy.cli.console import Console, mib
from orin_deploy.cli.up import memory_compared
from orin_deploy.deploy.down import choose
from orin_deploy.deploy.record import deployments, latest, spec_of
from orin_deploy.errors import OrinError
from orin_deploy.host import Host
from orin_deploy.parts import service

FOLLOW_INTERVAL_S = 0.5


def status(name: str | None, console: Console) -> None:
    host = Host()
    known = deployments(host)
    if name is None and len(known) != 1:
        documents = [_document(host, each) for each in known]
        if not documents:
            console.say("Nothing is deployed on this machine: orin-deploy up")
        console.table([(each["name"], each["state"], each["endpoint"] or "", each["model"] or "") for each in documents])
        console.document({"deployments": documents})
        return
    document = _document(host, choose(host, name))
    rows = [(label, str(document[key])) for label, key in _ROWS if document[key] is not None]
    memory = document["memory"]
    if memory is not None:
        rows.append(("memory", f"planned {mib(memory['planned_bytes'])}, taken {mib(memory['taken_bytes'])}"))
    measured = document["measurement"]
    if measured:
        rows.append(("speed", f"{measured['generated_per_s']:.1f} tokens/s, first token {measured['first_token_s'] * 1000:.0f} ms"))
    console.table(rows)
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
)


def _document(host: Host, name: str) -> dict[str, Any]:
    """The stable JSON of one deployment: from its last record, and from the server as it is now."""
    record = latest(host, name) or {}
    spec = spec_of(record)
    now = service.status(host, spec) if spec is not None else service.Status()
    done = record if record.get("measurement") else latest(host, name, "done") or {}
    return {
        "name": name,
        "state": now.state or "stopped",
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
        "measurement": done.get("measurement"),
        "memory": memory_compared(done),
    }


def logs(name: str | None, lines: int, follow: bool, console: Console) -> None:
    host = Host()
    chosen = choose(host, name)
    spec = spec_of(latest(host, chosen))
    if spec is None:
        raise OrinError(f"{chosen} has no record that says where its log is", "orin-deploy up")
    seen = service.log_lines(host, spec)
    tail = seen[-lines:]
    console.document({"name": chosen, "lines": list(tail)})
    for line in tail:
        console.say(line)
    while follow and not console.as_json:
        host.sleep(FOLLOW_INTERVAL_S)
        now = service.log_lines(host, spec)
        for line in _fresh(seen, now):
            console.say(line)
        seen = now


def _fresh(seen: tuple[str, ...], now: tuple[str, ...]) -> tuple[str, ...]:
    """The lines that came since `seen`; both are the end of the same log, whose beginning may be gone by now."""
    if not seen:
        return now
    for start in range(len(now), 0, -1):
        if now[start - 1] == seen[-1] and now[max(0, start - 5) : start] == seen[-min(5, start) :]:
            return now[start:]
    return now
