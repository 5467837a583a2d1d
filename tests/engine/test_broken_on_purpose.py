"""What people and machines do to a deployment that nobody planned for; through the public command, with the engine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.command import Command, command

pytestmark = pytest.mark.engine


@pytest.fixture
def orin(tmp_path: Path, engine_bin: Path, smollm2: Path) -> Iterator[Command]:
    with command(tmp_path / "home", engine_bin, smollm2) as each:
        yield each


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as listener:
            listener.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_an_ipv6_address(orin: Command) -> None:
    done = orin.up("--set", "host=::1", "--json")
    assert done.code == 0, done.err
    assert done.json["endpoint"] == f"http://[::1]:{orin.port}"
    assert not orin.plan("--set", "host=::1", "--json").json["changes"]


def test_a_reader_that_leaves_does_not_stop_the_work(orin: Command) -> None:
    process = orin.popen("up", *orin.words)
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=300) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    status = orin("status", "--json").json
    assert (status["state"], status["outcome"]) == ("running", "done")


def test_an_end_that_no_rule_explains_is_told_in_the_servers_words(orin: Command) -> None:
    failed = orin.up("--set", "lora=/no/such/adapter")
    assert failed.code == 1
    assert "/no/such/adapter" in failed.err
    assert "hint: orin-deploy logs" in failed.err


@pytest.mark.skipif(Path("/run/systemd/system").is_dir(), reason="systemd runs here")
def test_systemd_where_it_does_not_run_is_refused_before_anything_is_done(orin: Command) -> None:
    refused = orin.up("--set", "service.manager=systemd", "--json")
    assert (refused.code, refused.json["error"]["code"]) == (4, 4)
    assert not (orin.home / "deployments").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_that_goes_away_is_like_an_interrupt(orin: Command, number: int) -> None:
    process = orin.popen("up", *orin.words)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("- start llama-server"):
            break
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert orin("status", "--name", "host", "--json").json["outcome"] == "interrupted"
    assert orin.up().code == 0


DAMAGED = ('{"undo": [3]}', '{"undo": [{"do": "remove", "path": 3}]}')


def test_down_ends_the_server_although_what_to_undo_was_damaged(orin: Command) -> None:
    for text in DAMAGED:
        assert orin.up("--set", "ctx_size=256").code == 0
        pid = orin("status", "--json").json["pid"]
        (orin.home / "deployments/host/undo.json").write_text(text)
        down = orin("down", "--json")
        assert down.code == 0, (text, down.out)
        assert not Path(f"/proc/{pid}").exists(), text


@pytest.mark.parametrize("whom", ["server", "supervisor"])
def test_a_process_killed_behind_our_back(orin: Command, whom: str) -> None:
    assert orin.up().code == 0
    if orin("status", "--json").json["pid"] is None or not (orin.home / "deployments/host/state.json").exists():
        pytest.skip("systemd keeps the server running here")
    state = json.loads((orin.home / "deployments/host/state.json").read_text())
    os.kill(state[whom]["pid"], signal.SIGKILL)
    assert orin("status", "--json").code == 0
    assert orin.up().code == 0
    assert orin("status", "--json").json["state"] == "running"
    assert len(_processes(orin.home)) == 1, "one supervisor"


def _processes(home: Path) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # one that ended meanwhile
            words = file.read_bytes().decode("utf-8", "replace")
            found += [words] if "host.supervise" in words and str(home) in words else []
    return found
