"""Tenants: who holds memory, from /proc and NvMap's list, as far as they can be read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.facts import tenants
from orin_deploy.facts.device import MIB, Tenant
from orin_deploy.facts.programs import ancestors
from orin_deploy.facts.tenants import Process
from orin_deploy.host.machine import Machine
from orin_deploy.intent.relief import of_machine
from orin_deploy.intent.room import Room
from tests.specs import make_device

PAGE = 4096
DOCKER = "0::/system.slice/docker-" + "3f" * 32 + ".scope\n"


def board(root: Path, processes: dict[int, tuple[str, int, str]], nvmap: str | None = None) -> Machine:
    """A board with these processes: name, own MiB, the text of its control groups."""
    for pid, (name, size, group) in processes.items():
        folder = root / "proc" / str(pid)
        folder.mkdir(parents=True)
        pages = size * MIB // PAGE
        (folder / "statm").write_text(f"{pages * 3} {pages + 700} 700 20 0 {pages} 0\n")
        (folder / "comm").write_text(f"{name}\n")
        (folder / "cgroup").write_text(group)
    (root / "dev").mkdir()
    (root / "dev/nvmap").touch()
    if nvmap is not None:
        path = root / tenants.NVMAP_CLIENTS.lstrip("/")
        path.parent.mkdir(parents=True)
        path.write_text(nvmap)
    return Machine(root, {})


NVMAP = """\
CLIENT                        PROCESS      PID        SIZE
user                             Xorg      812      40960K
user                  gpu burn in py3     1500    2097152K
user                          python3     9999     102400K
kernel                         kernel        0       4096K
total                                             2244608K
"""

PROCESSES = {
    1: ("systemd", 6, "0::/init.scope\n"),
    77: ("kworker/0:1", 0, "0::/\n"),
    812: ("Xorg", 60, "0::/user.slice/user-1000.slice/session-2.scope\n"),
    900: ("gnome-shell", 300, "0::/user.slice/user-1000.slice/user@1000.service/session.slice/x.service\n"),
    1400: ("node", 90, DOCKER),
    1401: ("python3", 200, DOCKER),
    1500: ("gpu burn in py3", 120, "0::/system.slice/vision.service\n"),
    1600: ("firefox", 500, "0::/user.slice/user-1000.slice/session-2.scope\n"),
    1601: ("firefox", 250, "0::/user.slice/user-1000.slice/session-2.scope\n"),
    1700: ("small", 20, "0::/system.slice/small.service\n"),
    1800: ("llama-server", 400, "0::/a\n"),
    1801: ("llama-server", 300, "0::/a\n"),
}


def test_who_holds_what_as_root(tmp_path: Path) -> None:
    machine = board(tmp_path, PROCESSES, NVMAP)
    config = tmp_path / "var/lib/docker/containers" / ("3f" * 32) / "config.v2.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"ID":"3f","Name":"/detector"}')
    found, unread = tenants.read(machine)
    assert unread is None
    assert [(each.kind, each.name, each.bytes // MIB) for each in found] == [
        ("gpu", "gpu burn in py3", 120 + 2048),
        ("process", "firefox", 750),
        ("desktop", "desktop (gnome-shell, Xorg)", 360 + 40),
        ("process", "llama-server (1800)", 400),
        ("process", "llama-server (1801)", 300),
        ("container", "detector", 290),
        ("gpu", "python3 (9999)", 100),  # of another container: NvMap alone knows it
    ]
    assert (found[0].gpu_bytes, found[0].unit, found[0].pids) == (2048 * MIB, "vision.service", (1500,))
    assert found[5].unit == "docker"


def test_without_rights_sizes_stay_and_what_is_not_known_is_said(tmp_path: Path) -> None:
    machine = board(tmp_path, PROCESSES)
    (tmp_path / "proc/1600/fd").mkdir()
    (tmp_path / "proc/1600/fd/7").symlink_to("/dev/nvhost-ctrl-gpu")
    found, unread = tenants.read(machine)
    assert unread is not None
    assert "not readable without root" in unread
    by_name = {each.name: each for each in found}
    assert by_name["firefox"].kind == "gpu"
    assert by_name["firefox"].gpu_bytes is None
    assert by_name["gpu burn in py3"].bytes == 120 * MIB


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    assert tenants.read(Machine(tmp_path, {})) == ((), None)


@pytest.mark.parametrize(
    "text", ["", "x", "CLIENT PROCESS PID SIZE\nuser a b cK\n", "user p -5 7K\n", "user p 5 7M\n", "\0" * 50]
)
def test_a_list_of_clients_that_makes_no_sense_is_empty(text: str) -> None:
    assert tenants.nvmap_clients(text) == {}


def test_a_client_with_two_entries_counts_both() -> None:
    assert tenants.nvmap_clients("user a 5 7K\nuser a 5 1K\nuser kernel 0 9K\n") == {5: ("a", 8192)}


@given(
    st.lists(
        st.builds(
            Process,
            pid=st.integers(1, 99),
            name=st.sampled_from(["Xorg", "gnome-shell", "node", "python3", "llama-server"]),
            own_bytes=st.integers(0, 2**36),
            cgroup=st.sampled_from(["", DOCKER, "0::/system.slice/a.service\n"]),
            gpu_bytes=st.one_of(st.none(), st.integers(0, 2**36)),
        ),
        max_size=12,
    )
)
def test_nothing_is_counted_twice_and_the_largest_comes_first(processes: list[Process]) -> None:
    found = tenants.group(processes)
    whole = sum(each.own_bytes + (each.gpu_bytes or 0) for each in processes)
    assert sum(each.bytes for each in found) <= whole
    assert [each.bytes for each in found] == sorted((each.bytes for each in found), reverse=True)
    assert len(found) <= 8
    assert all(isinstance(each, Tenant) for each in found)


def test_a_process_of_this_machine_is_seen_with_its_own_size() -> None:
    words = "import sys,time; held = bytearray(b'x' * (90 * 2**20)); print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", words], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"held\n"
            found, _ = tenants.read(Machine())
            assert any(child.pid in each.pids and each.bytes >= 90 * MIB for each in found)
            assert all(os.getpid() not in each.pids for each in found)
        finally:
            child.kill()


def test_it_costs_little(tmp_path: Path) -> None:
    """A board has some 400 processes, most of them the kernel's."""
    few = dict.fromkeys(range(1000, 1100), ("python3", 40, DOCKER))
    machine = board(tmp_path, few | dict.fromkeys(range(1, 301), ("kworker", 0, "0::/\n")), NVMAP)
    tenants.read(machine)
    began = time.process_time()
    tenants.read(machine)
    assert time.process_time() - began < 0.25  # 12 ms on an idle x86 machine


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (b"/x/bin/python3\0-m\0orin_deploy.host.supervise\0/x/launch.json\0", "orin-deploy"),
        (b"python3\0-m\0orin_deploy\0up\0", "orin-deploy"),
        (b"python3\0serve.py\0-m\0model\0", "python3 serve.py (5)"),
        (b"", "python3 (5)"),
    ],
)
def test_our_own_supervisors_are_told_from_other_pythons(tmp_path: Path, command: bytes, name: str) -> None:
    """Their tenant is named as what is never to be ended: without its supervisor a deployment is nobody's."""
    machine = board(tmp_path, {5: ("python3", 90, "0::/a\n")})
    (tmp_path / "proc/5/cmdline").write_bytes(command)
    (found,) = tenants.read(machine)[0]
    assert found.name == name
    ended = [each.command for each in of_machine(Room(0, "MemAvailable"), replace(make_device(), tenants=(found,)))]
    assert ended == ([] if name == "orin-deploy" else ["kill 5"])


@pytest.mark.parametrize(
    ("comm", "command", "name"),
    [
        ("python3.10", "/usr/bin/python3.10 -u -W ignore /opt/jobs/train.py --model x", "python3.10 train.py (5)"),
        ("python3", "python3 -m http.server 80", "python3 http.server (5)"),
        ("python3", "python3 -c import(time)", "python3 (5)"),
        ("java", "java -Xmx2g -cp /a/b.jar:/c org.acme.Main", "java org.acme.Main (5)"),
        ("java", "java -jar /srv/app.jar", "java app.jar (5)"),
        ("MainThread", "/usr/bin/node /srv/server.js", "node server.js (5)"),
        ("bash", "bash ./run.sh", "bash run.sh (5)"),
        ("gunicorn", "/usr/bin/python3 /usr/bin/gunicorn app", "gunicorn (5)"),
        ("perl", "", "perl (5)"),
        ("vlc", "/usr/bin/vlc a.mkv", "vlc"),
        ("nodeset", "/usr/bin/nodeset", "nodeset"),
    ],
)
def test_an_interpreter_goes_by_what_it_runs(tmp_path: Path, comm: str, command: str, name: str) -> None:
    machine = board(tmp_path, {5: (comm, 90, "0::/a\n")})
    (tmp_path / "proc/5/cmdline").write_text(command.replace(" ", "\0") + "\0")
    assert [each.name for each in tenants.read(machine)[0]] == [name]


def relieved(machine: Machine) -> list[str]:
    here = replace(make_device(), tenants=tenants.read(machine)[0])
    return [each.command for each in of_machine(Room(0, "MemAvailable"), here)]


def test_unrelated_programs_of_one_interpreter_are_never_ended_together(tmp_path: Path) -> None:
    session, unit = "0::/user.slice/session-2.scope\n", "0::/system.slice/vision.service\n"
    places = {5: session, 6: session, 7: "0::/system.slice/hass.service\n", 8: unit, 9: unit}
    machine = board(tmp_path, {pid: ("python3", 40 + pid, group) for pid, group in places.items()})
    for pid in places:
        (tmp_path / f"proc/{pid}/cmdline").write_text(f"python3\0/srv/{pid}.py\0" if pid < 8 else "python3\0-c\0x\0")
    assert relieved(machine) == [
        "sudo systemctl stop vision.service", "sudo systemctl stop hass.service", "kill 6", "kill 5",
    ]  # fmt: skip


def test_what_this_command_runs_in_is_not_offered_to_be_ended(tmp_path: Path) -> None:
    """sshd, its shell, an editor's server, and what they started: a shell at its prompt and one that runs a script."""
    parents = {1: 0, 30: 1, 31: 30, 32: 31, 33: 32, 40: 30, 41: 30, 42: 30}
    names = ("init", "sshd-session", "code", "bash (x)", "python3", "zsh", "sh", "code")
    machine = board(tmp_path, {pid: (name, 60 + pid, "0::/\n") for pid, name in zip(parents, names, strict=True)})
    for pid, parent in parents.items():
        (tmp_path / f"proc/{pid}/stat").write_text(f"{pid} (a) b) S {parent} 1 1 0\n")
    (tmp_path / "proc/41/cmdline").write_bytes(b"sh\0train.sh\0")
    (tmp_path / "proc/self").symlink_to("33")
    assert ancestors(machine) == {1, 30, 31, 32, 33}
    assert relieved(machine) == ["kill 41"], "the other `code` is counted with the one that we run in"


def test_this_process_knows_its_own_ancestors() -> None:
    assert {os.getpid(), os.getppid()} <= ancestors(Machine())


@pytest.mark.parametrize("stat", ["", "5", "5 (a", "5 (a) S", "5 (a) S x 1", "33 (a) S 33 1 1"])
def test_a_damaged_stat_ends_the_search(tmp_path: Path, stat: str) -> None:
    machine = board(tmp_path, {33: ("python3", 60, "0::/\n")})
    (tmp_path / "proc/33/stat").write_text(stat)
    (tmp_path / "proc/self").symlink_to("33")
    assert ancestors(machine) == {33}
