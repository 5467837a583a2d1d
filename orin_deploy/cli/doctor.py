"""`doctor`: the cause of what went wrong, from this machine or from evidence."""

from __future__ import annotations

from pathlib import Path

from orin_deploy.cli.console import Console
from orin_deploy.deploy.down import choose
from orin_deploy.deploy.record import deployments, latest, plain
from orin_deploy.doctor.diagnose import diagnose
from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.doctor.live import live
from orin_deploy.doctor.reading import read_evidence
from orin_deploy.errors import Exit, UsageError
from orin_deploy.facts.inspect import inspect
from orin_deploy.host import Host
from orin_deploy.parts import service

WORDS = {"refuse": "must not", "diagnose": "cause", "warn": "warning", "plan": "advice", "accept": "fine"}
"""What people read for a finding's verdict."""


def doctor(path: str | None, name: str | None, console: Console) -> None:
    """Exit code 0 when nothing is found, 1 when something is; that something is fine (accept) is no finding."""
    if path is not None and not path.strip():
        raise UsageError("the evidence's path is empty", "give a log, a model file or a folder of evidence")
    evidence = _live(name) if path is None else read_evidence(Path(path))
    findings = diagnose(evidence)
    for finding in findings:
        _show(finding, console)
    for file in evidence.unread:
        console.say(f"passed over: {file}")
    if not findings:
        console.say("Nothing found." if path else "Nothing found on this machine.")
    console.document({"findings": [plain(finding) for finding in findings], "unread": plain(evidence.unread)})
    if any(finding.verdict != "accept" for finding in findings):
        raise SystemExit(Exit.FAILED)


def _live(name: str | None) -> Evidence:
    host = Host()
    known = deployments(host)
    chosen = choose(host, name) if name is not None or len(known) == 1 else None
    record = latest(host, chosen) if chosen else None
    return live(inspect(host), record, service.log_lines(host, chosen) if chosen else ())


def _show(finding: Finding, console: Console) -> None:
    console.say(f"{WORDS[finding.verdict]}: {finding.what}  [{finding.rule}]")
    if finding.why_not:
        console.say(f"  {finding.why_not}")
    for key, value in finding.values.items():
        console.say(f"  {key}: {value}")
    console.say(f"  next: {finding.next}")
