"""A service's whole life under a real systemd, booted for the test in namespaces of its own."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.engine.real_systemd import real_systemd

pytestmark = [pytest.mark.engine, pytest.mark.root]


def test_life_under_systemd(tmp_path: Path, engine_bin: Path, smollm2: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with real_systemd(tmp_path) as inside:
        words = [sys.executable, "-m", "tests.engine.under_systemd", str(engine_bin), str(smollm2), str(data)]
        done = inside(["env", f"ORIN_DEPLOY_HOME={data}", *words])
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["first"] == "not running"
    assert said["answer"]
    assert {"model", "KV", "compute"} <= set(said["kinds"]), "the journal holds the server's words"
    assert said["second"] is None, "a plan after apply is empty"
    assert said["threads"] == [[1]]
    assert said["uid"] not in (0, os.getuid()), "the server has a user of its own"
    assert said["followed"]
    assert said["after_kill"] is None, "systemd starts a killed server again"
    assert "--ctx-size 1024 -> 2048" in said["change"]
    assert "truncated or corrupt" in said["failure"]
    assert said["failure_s"] < 15, "a server that ended is not waited for"
    assert said["restored"] is None, "the service that ran before is back"
    assert said["undone"] == [None, False, None, True]
