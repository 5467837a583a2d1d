"""The service: one llama-server, kept running by systemd or, where that does not run, by our own supervisor."""

from orin_deploy.parts.service.log import follow_log, log_lines
from orin_deploy.parts.service.running import (
    Status,
    auth_headers,
    held_bytes,
    running_pid,
    status,
)
from orin_deploy.parts.service.snapshot import Before, halt, leftovers, restore, snapshot
from orin_deploy.parts.service.state import NAME, Endpoint, ServiceState, inspect
from orin_deploy.parts.service.steps import drift, plan

__all__ = [
    "NAME",
    "Before",
    "Endpoint",
    "ServiceState",
    "Status",
    "auth_headers",
    "drift",
    "follow_log",
    "halt",
    "held_bytes",
    "inspect",
    "leftovers",
    "log_lines",
    "plan",
    "restore",
    "running_pid",
    "snapshot",
    "status",
]
