"""What the kernel tells of processes and ports, compared with what this test knows of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from orin_deploy.host import procfs


@pytest.fixture
def listener() -> socket.socket:
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    probe.listen()
    return probe


def test_threads_and_their_cpus() -> None:
    before = os.sched_getaffinity(0)
    one = min(before)
    found: dict[int, tuple[int, ...]] = {}

    def pin_and_read() -> None:
        os.sched_setaffinity(0, {one})
        found.update(procfs.threads(os.getpid()))
        found[0] = found[threading.get_native_id()]

    thread = threading.Thread(target=pin_and_read)
    thread.start()
    thread.join()
    assert found[0] == (one,)
    assert found[os.getpid()] == tuple(sorted(before))


def test_a_list_of_cpus_that_is_none_is_no_fault(tmp_path: Path) -> None:
    for number, text in {1: "0-1,3", 2: "x,2-", 3: ""}.items():
        (tmp_path / f"7/task/{number}").mkdir(parents=True)
        (tmp_path / f"7/task/{number}/status").write_text(f"Name:\ta\nCpus_allowed_list:\t{text}\nMems: 0\n")
    assert procfs.threads(7, tmp_path) == {1: (0, 1, 3), 2: ()}


def test_memory_counts_what_is_taken() -> None:
    before = procfs.memory(os.getpid())["anon"]
    block = b"x" * (64 * 1024 * 1024)
    assert procfs.memory(os.getpid())["anon"] - before > 0.9 * len(block)


def test_a_process_that_is_gone_has_nothing() -> None:
    done = subprocess.Popen(["true"])
    done.wait()
    assert procfs.threads(done.pid) == {}
    assert procfs.memory(done.pid) == {}
    assert procfs.command(done.pid) is None
    assert procfs.environment(done.pid) is None
    assert procfs.program(done.pid) is None
    assert procfs.cgroup(done.pid) == ""


def test_own_words_and_environment() -> None:
    code = "print(flush=True); input()"
    environ = {**os.environ, "MARKED": "a=b"}
    with subprocess.Popen([sys.executable, "-c", code], env=environ, stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert procfs.command(child.pid) == (sys.executable, "-c", code)
        assert (procfs.environment(child.pid) or {})["MARKED"] == "a=b"
        child.communicate("\n")


@pytest.mark.parametrize("likely", [None, 1, os.getpid()])
def test_who_holds_a_port(listener: socket.socket, likely: int | None) -> None:
    with listener:
        port = listener.getsockname()[1]
        holder = procfs.port_holder(port, likely=likely)
        assert holder is not None
        assert holder[0] == os.getpid()
        assert "python" in holder[1] or "pytest" in holder[1]
        assert procfs.port_holder(port, "0.0.0.0") is not None
        assert procfs.port_holder(port, "localhost") is not None
        assert procfs.port_holder(port, "127.0.0.2") is None
    assert procfs.port_holder(port) is None


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_a_listener_on_every_address_holds_the_port_of_each() -> None:
    with socket.socket(socket.AF_INET6) as everywhere:
        everywhere.bind(("::", 0))
        everywhere.listen()
        holder = procfs.port_holder(everywhere.getsockname()[1], "127.0.0.1")
        assert holder is not None
        assert holder[0] == os.getpid()


def listed(port: int) -> str:
    """The kernel's table with one listener that no process has: its own has ended."""
    return f"header\n 0: 0100007F:{port:04X} 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 424242 1\n"


def test_a_process_that_is_ending_holds_no_port(tmp_path: Path) -> None:
    table = tmp_path / "net/tcp"
    table.parent.mkdir()
    table.write_text(listed(4000))
    looks = 0

    class Proc(type(tmp_path)):  # type: ignore[misc]
        """A /proc in which the socket is gone at the third look."""

        def __truediv__(self, name: str) -> Path:
            nonlocal looks
            if name == "net":
                looks += 1
                if looks > 4:  # two tables a look
                    table.write_text("header\n")
            return Path(tmp_path, name)

    assert procfs.port_holder(4000, proc=Proc(tmp_path)) is None
    table.write_text(listed(4000))
    assert procfs.port_holder(4000, proc=tmp_path) == (None, "a program that cannot be looked into from here")
