"""Neighbours: other deployments on the same device, with what they hold and what they have yet to take."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from orin_deploy.deploy import record
from orin_deploy.facts.device import Device, Tenant
from orin_deploy.host import Host
from orin_deploy.host.processes import BACKING_OFF, RUNNING
from orin_deploy.intent.limit import FILE_COPY
from orin_deploy.parts import service

_NEVER_TAKEN = ("reserve", "staging", FILE_COPY)  # rows that are the system's, or given back once it serves


def with_neighbours(host: Host, device: Device, own_name: str) -> Device:
    """The device with its tenants as we know them: this deployment is none, other deployments go by their names."""
    others: list[Tenant] = []
    ours: set[int] = set()
    starting = _changing(host)
    for name in record.known(host) if starting else record.deployments(host):
        now = service.status(host, name)
        pids = {pid for pid in (now.pid, now.draft) if pid is not None}
        ours |= pids
        if name == own_name:
            continue
        latest = record.latest(host, name) or {}
        if now.state in (RUNNING, BACKING_OFF) or (starting and latest.get("outcome") == "running"):
            held = service.held_bytes(host, name)
            promised = max(planned_bytes(latest) - held, 0)
            others.append(Tenant("deployment", name, held, promised_bytes=promised, pids=tuple(sorted(pids))))
    rest = [tenant for tenant in device.tenants if not ours.intersection(tenant.pids)]
    return replace(device, tenants=tuple(sorted((*others, *rest), key=lambda each: -each.bytes)))


def planned_bytes(latest: dict[str, Any]) -> int:
    """What a record's budget gives the server itself, for as long as it serves."""
    budget = ((latest.get("spec") or {}).get("budget") or {}).get("rows") or ()
    return sum(row["bytes"] for row in budget if row.get("name") not in _NEVER_TAKEN)


def _changing(host: Host) -> bool:
    """Whether another orin-deploy is changing this machine now: the lock's holder is alive and is not us."""
    try:
        holder = int(json.loads(host.read(host.data / "lock") or "null")["pid"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return False
    return str(holder) != host.link_target("/proc/self") and host.exists(f"/proc/{holder}")
