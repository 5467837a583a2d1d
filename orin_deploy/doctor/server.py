"""The rule for a server that did not get ready for a reason that no other rule knows better."""

from __future__ import annotations

import re

from orin_deploy.doctor.evidence import Evidence, Log
from orin_deploy.doctor.finding import Finding
from orin_deploy.parts.serverlog import reason

_SPEAKS = re.compile(r"^(?:[\d.]+ [A-Z] )?(?:srv |llama_|common_|main: |system_info)|llama-server")
_READY = re.compile(r"listening on|all slots are idle")


def not_ready(evidence: Evidence) -> Finding | None:
    """A llama-server whose last start did not end in listening, with the reason its own log gives."""
    for log in evidence.logs:
        if _is_of_a_server(log) and (found := reason(log.lines)) is not None:
            message, hint = found
            return Finding("service.not-ready", "diagnose", message, hint, values={"log": log.name})
    return None


def _is_of_a_server(log: Log) -> bool:
    speaks = any(_SPEAKS.search(line) for line in log.lines)
    return speaks and not log.is_of_a_build and not any(_READY.search(line) for line in log.lines)
