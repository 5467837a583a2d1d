"""Neighbours: two deployments on one device see each other, running, starting or backing off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.deploy.neighbours import planned_bytes, with_neighbours
from orin_deploy.facts.device import MIB, Device, Tenant
from orin_deploy.host import Host
from orin_deploy.host.processes import RUNNING, State, identify
from tests.specs import make_device


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host("/", {"ORIN_DEPLOY_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})


@pytest.fixture
def server() -> Iterator[int]:
    """A process that holds 80 MiB of its own."""
    words = "import time; held = bytearray(b'x' * (80 * 2**20)); print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.kill()


def deployed(host: Host, name: str, outcome: str = "done", pid: int | None = None, up: bool = True) -> None:
    """A deployment that was planned with 1,000 MiB beside a reserve, and a supervised server of this number."""
    folder = host.data / "deployments" / name
    (folder / "records").mkdir(parents=True)
    rows = [{"name": "weights", "bytes": 700}, {"name": "KV cache", "bytes": 300}, {"name": "reserve", "bytes": 512}]
    spec: dict[str, Any] = {
        "settings": {"ctx_size": {"value": 1024}},
        "budget": {"rows": [row | {"bytes": int(str(row["bytes"])) * MIB} for row in rows]},
        "weights": {"reference": "x", "files": []},
        "build": {"folder": "x"},
    }
    (folder / "records/0001.json").write_text(json.dumps({"record": 1, "outcome": outcome, "spec": spec}))
    if up:
        (folder / "undo.json").write_text('{"undo": []}')
    if pid is not None:
        who = identify(pid)
        assert who is not None
        (folder / "launch.json").write_text("{}")
        (folder / "state.json").write_text(json.dumps(asdict(State(RUNNING, who, who, 1, 0, None))))


def here(*tenants: Tenant) -> Device:
    return replace(make_device(), tenants=tenants)


def test_a_running_neighbour_is_named_with_what_it_holds_and_has_yet_to_take(host: Host, server: int) -> None:
    deployed(host, "chat", pid=server)
    seen = here(
        Tenant("process", "python3 (1)", 80 * MIB, pids=(server,)), Tenant("process", "firefox", MIB, pids=(1,))
    )
    found = with_neighbours(host, seen, "mine").tenants
    assert [(each.kind, each.name) for each in found] == [("deployment", "chat"), ("process", "firefox")]
    assert 80 * MIB <= found[0].bytes < 120 * MIB
    assert found[0].bytes + found[0].promised_bytes == 1000 * MIB
    assert found[0].pids == (server,)


def test_the_deployment_itself_is_no_tenant(host: Host, server: int) -> None:
    deployed(host, "mine", pid=server)
    assert with_neighbours(host, here(Tenant("process", "llama-server (1)", MIB, pids=(server,))), "mine").tenants == ()


def test_a_deployment_that_is_just_starting_counts_by_its_record(host: Host, server: int) -> None:
    deployed(host, "chat", outcome="running", up=False)
    assert with_neighbours(host, here(), "mine").tenants == (), (
        "nobody changes this machine: the record is a torn run's"
    )
    (host.data / "lock").write_text(json.dumps({"pid": server, "command": "orin-deploy up"}))
    (tenant,) = with_neighbours(host, here(), "mine").tenants
    assert (tenant.name, tenant.bytes, tenant.promised_bytes) == ("chat", 0, 1000 * MIB)
    (host.data / "lock").write_text(json.dumps({"pid": os.getpid(), "command": "orin-deploy up"}))
    assert with_neighbours(host, here(), "mine").tenants == (), "we ourselves hold the lock"


def test_a_deployment_that_is_down_or_has_ended_takes_nothing(host: Host) -> None:
    deployed(host, "over", up=False)
    deployed(host, "ended")
    assert with_neighbours(host, here(), "mine").tenants == ()


@pytest.mark.parametrize("text", ["", "{", "5", '{"pid": "x"}', '{"pid": null}', "[1]"])
def test_a_damaged_lock_is_nobodys(host: Host, text: str) -> None:
    deployed(host, "chat", outcome="running", up=False)
    (host.data / "lock").write_text(text)
    assert with_neighbours(host, here(), "mine").tenants == ()


@pytest.mark.parametrize("record", [{}, {"spec": None}, {"spec": {}}, {"spec": {"budget": None}}])
def test_a_record_without_a_plan_promises_nothing(record: dict[str, Any]) -> None:
    assert planned_bytes(record) == 0
