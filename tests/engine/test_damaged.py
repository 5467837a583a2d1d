"""Damage on disk while the real server runs, through the public command: it is told, replaced, put back, ended.

And a run that breaks off once its server was proved: `status` and the next `up` agree that it serves.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orin_deploy.host import Host, processes, supervisors
from tests.engine.command import Command, command
from tests.engine.test_main_job import answers

pytestmark = pytest.mark.engine


@pytest.fixture
def orin(tmp_path: Path, engine_bin: Path, smollm2: Path) -> Iterator[Command]:
    with command(tmp_path / "home", engine_bin, smollm2) as each:
        try:
            yield each
        finally:
            processes.stop(Host(), folder(each) / "launch.json")


def folder(orin: Command) -> Path:
    return orin.home / "deployments/host"


@pytest.mark.parametrize("names", [("state.json",), ("launch.json",), ("state.json", "launch.json")], ids="+".join)
def test_a_server_whose_files_are_damaged_is_told_replaced_and_ended(orin: Command, names: tuple[str, ...]) -> None:
    def damage() -> None:
        for name in names:
            (folder(orin) / name).write_text('{"torn": ')

    first = orin.up("--json")
    assert first.code == 0, first.err
    pid = orin("status", "--json").json["pid"]
    damage()
    status = orin("status", "--json").json
    assert (status["state"], status["pid"], status["endpoint"]) == ("running", pid, first.json["endpoint"])
    changed = orin.up("--set", "ctx_size=512", "--json")
    assert changed.code == 0, changed.err
    second = orin("status", "--json").json["pid"]
    assert (second != pid, processes.identify(pid)) == (True, None)
    damage()
    assert orin("down").code == 0
    assert processes.identify(second) is None
    assert not answers(orin.port)
    assert orin("status", "--json").json == {"deployments": []}


def test_a_server_whose_files_are_damaged_is_put_back_when_the_new_one_fails(orin: Command, smollm2: Path) -> None:
    assert orin.up("--json").code == 0
    broken = smollm2.read_bytes().replace(b"\x06\0\0\0\0\0\0\0smollm", b"\x06\0\0\0\0\0\0\0nopepe", 1)
    (orin.home.parent / "broken.gguf").write_bytes(broken)
    for name in ("state.json", "launch.json"):
        (folder(orin) / name).write_text("")
    failed = orin.up("--model", str(orin.home.parent / "broken.gguf"))
    assert failed.code == 1
    assert "could not be put back" not in failed.err
    assert answers(orin.port)
    assert not orin.plan("--json").json["changes"] or orin.up("--json").code == 0


def test_a_server_whose_folder_was_removed_is_taken_over_and_ended(orin: Command) -> None:
    assert orin.up("--json").code == 0
    pid = orin("status", "--json").json["pid"]
    shutil.rmtree(folder(orin))
    assert orin("status", "--json").json["pid"] == pid
    other = orin.up("--name", "other")
    assert other.code == 1
    assert "down --name host" in other.err
    again = orin.up("--json")
    assert again.code == 0, again.err
    second = orin("status", "--json").json["pid"]
    assert (second != pid, processes.identify(pid)) == (True, None)
    shutil.rmtree(folder(orin))
    assert orin("down", "--name", "host").code == 0
    assert processes.identify(second) is None
    assert not answers(orin.port)


def test_a_damaged_record_is_told_once_and_the_one_before_is_used(orin: Command) -> None:
    first = orin.up("--json")
    assert first.json["unread_records"] == []
    (folder(orin) / "records/0002.json").write_text('{"record": 2, "spec"')
    again = orin.up("--json")
    assert (again.code, again.json["changed"], again.json["record"], again.json["unread_records"]) == (0, False, 1, [2])
    assert again.json["measurement"] == first.json["measurement"]
    for words in ("up", *orin.words), ("status",):
        told = orin(*words)
        assert (told.code, told.err.count("record 2 of host cannot be read")) == (0, 1), told.err
    assert orin.up("--set", "ctx_size=512", "--json").json["unread_records"] == [2]
    status = orin("status", "--json")
    assert (status.json["record"], status.json["unread_records"], status.err) == (3, [], "")


HELD = """
import os, signal, sys
from dataclasses import replace
from orin_deploy.cli import carry_out, main

def held(host, endpoint, headers, progress, proof, measure=carry_out.measure):
    os.kill(proof.pid, signal.SIGSTOP)
    fast = replace(proof, prompt_per_s=1e3, generated_per_s=1e3)  # a slow server would not be asked
    return measure(host, endpoint, headers, progress, fast)

carry_out.measure = held
main.main()
"""


def held_server(orin: Command, up: subprocess.Popen[str]) -> int:
    """The server of an `up` that holds it while its speed is measured."""
    deadline = time.monotonic() + 300
    while up.poll() is None and time.monotonic() < deadline:
        now = processes.running(folder(orin) / "launch.json")
        if now is not None and now.server is not None and supervisors.stat(now.server)[:1] == ["T"]:
            return now.server
        time.sleep(0.1)
    up.kill()
    pytest.fail(f"it did not measure: {up.communicate()}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_what_was_proved_serves_although_its_measurement_was_broken_off(orin: Command, number: signal.Signals) -> None:
    """The server is held before the first request, so that the signal comes while one is under way."""
    process = subprocess.Popen(
        (sys.executable, "-c", HELD, "up", *orin.words),
        env=orin.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    server = held_server(orin, process)
    try:
        process.send_signal(number)
        _, err = process.communicate(timeout=300)
    finally:
        os.kill(server, signal.SIGCONT)
    killed = number == signal.SIGKILL
    assert process.returncode == (-number if killed else 130), err
    assert ("serves and was proved; its speed was not measured" in err) != killed
    status, again = orin("status", "--json").json, orin.up("--json").json
    assert (status["state"], status["outcome"], status["unmeasured"]) == ("running", "done", "interrupted")
    assert (again["changed"], again["measurement"], again["unmeasured"]) == (False, None, "interrupted")
    assert again["record"] == status["record"]
    assert "not measured: interrupted" in orin("status").out
    assert not orin.plan("--json").json["changes"]
