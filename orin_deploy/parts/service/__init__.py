"""The service: one llama-server, kept running by systemd or, where that does not run, by our own supervisor."""

from orin_deploy.parts.service.chat import GREEDY, Answer, Timings, chat
from orin_deploy.parts.service.log import follow_log, log_lines
from orin_deploy.parts.service.running import (
    Status,
    auth_headers,
    held_bytes,
    kept,
    running_pid,
    slots,
    status,
)
from orin_deploy.parts.service.snapshot import Before, halt, leftovers, restore, snapshot
from orin_deploy.parts.service.state import NAME, Endpoint, ServiceState, inspect
from orin_deploy.parts.service.steps import drift, plan
from orin_deploy.parts.service.unit import launch_text
from orin_deploy.parts.service.where import where

__all__ = [
    "GREEDY",
    "NAME",
    "Answer",
    "Before",
    "Endpoint",
    "ServiceState",
    "Status",
    "Timings",
    "auth_headers",
    "chat",
    "drift",
    "follow_log",
    "halt",
    "held_bytes",
    "inspect",
    "kept",
    "launch_text",
    "leftovers",
    "log_lines",
    "plan",
    "restore",
    "running_pid",
    "slots",
    "snapshot",
    "status",
    "where",
]
