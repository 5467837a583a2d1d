"""The stub of systemctl: programs that really run, and what the board shows of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orin_deploy.host import procfs
from tests.virtual import VirtualJetson
from tests.virtual.conftest import Make, ask
from tests.virtual.kernel import Kernel
from tests.virtual.systemd import alive
from tests.waiting import until

UNIT = "/etc/systemd/system/sleeper.service"


def write(board: VirtualJetson, text: str, path: str = UNIT) -> None:
    board.kernel.write(path, text)


def sleeper(board: VirtualJetson, cpus: str = "1-3", more: str = "") -> str:
    return (
        f"[Unit]\nDescription=x\nStartLimitBurst=3\n[Service]\nType=exec\nExecStartPre=/bin/echo begins\n"
        f"ExecStart={board.bin}/taskset -c {cpus} /bin/sh -c 'echo $$NAME; exec sleep 300'\n"
        f'Environment="NAME=a b"\n{more}[Install]\nWantedBy=multi-user.target\n'
    )


def main_pid(board: VirtualJetson, unit: str = "sleeper") -> int:
    said = ask(board, "systemctl", "show", unit, "-p", "MainPID,ActiveState").stdout
    return int(said.split("MainPID=")[1].split()[0])


def test_start_shows_the_process_with_the_cpus_asked_for(make: Make) -> None:
    board = make("nano8", "36.4.3")
    write(board, sleeper(board))
    assert ask(board, "systemctl", "start", "sleeper").returncode == 0
    pid, proc = main_pid(board), board.root / "proc"
    until(lambda: (procfs.command(pid, proc) or ("",))[0].endswith("sleep"))
    assert os.sched_getaffinity(pid) <= os.sched_getaffinity(0)
    until(lambda: set(procfs.threads(pid, proc).values()) == {(1, 2, 3)})
    assert procfs.cgroup(pid, proc) == "0::/system.slice/sleeper.service\n"
    assert ask(board, "journalctl", "-u", "sleeper", "-o", "cat").stdout == "begins\na b\n"
    assert ask(board, "taskset", "-pc", str(pid)).stdout == f"pid {pid}'s current affinity list: 1-3\n"
    assert ask(board, "systemctl", "stop", "sleepe[r]").returncode == 0
    assert not alive(pid)
    assert not (proc / str(pid)).exists()
    assert ask(board, "systemctl", "is-active", "sleeper").stdout == "inactive\n"


def test_restart_on_failure_gives_up(make: Make) -> None:
    board = make()
    write(board, "[Unit]\nStartLimitBurst=2\n[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=0.05\n")
    ask(board, "systemctl", "start", "--no-block", "sleeper")
    until(lambda: ask(board, "systemctl", "is-failed", "sleeper").returncode == 0)
    assert "ExecMainStatus=1\n" in ask(board, "systemctl", "show", "sleeper").stdout
    ask(board, "systemctl", "reset-failed", "sleepe[r]")
    assert ask(board, "systemctl", "is-active", "sleeper").stdout == "inactive\n"


def test_a_killed_program_comes_back(make: Make) -> None:
    board = make()
    write(board, sleeper(board, more="Restart=always\nRestartSec=0.05\n"))
    ask(board, "systemctl", "restart", "sleeper")
    first = main_pid(board)
    os.kill(first, 9)
    until(lambda: main_pid(board) not in (0, first))
    assert "NRestarts=1\n" in ask(board, "systemctl", "show", "sleeper").stdout


def test_a_text_counts_from_the_reload_on(make: Make) -> None:
    board = make()
    write(board, "[Service]\nType=oneshot\nExecStart=/bin/echo one\n")
    ask(board, "systemctl", "start", "sleeper")
    write(board, "[Service]\nType=oneshot\nExecStart=/bin/echo two\n")
    ask(board, "systemctl", "start", "sleeper")
    ask(board, "systemctl", "daemon-reload")
    ask(board, "systemctl", "start", "sleeper")
    assert ask(board, "journalctl", "-u", "sleeper").stdout.split() == ["one", "one", "two"]
    assert ask(board, "systemctl", "start", "nothing").returncode == 5
    assert ask(board, "systemctl", "stop", "nothin[g].service").returncode == 0


@pytest.mark.parametrize("cut", [False, True])
def test_a_reboot_starts_what_is_enabled_in_order(make: Make, cut: bool) -> None:
    board = make("nano8", "36.4.3")
    write(board, sleeper(board))
    first = f"[Unit]\nBefore=sleeper.service\n[Service]\nType=oneshot\nExecStart={board.bin}/jetson_clocks\n"
    write(board, first, "/etc/systemd/system/zz-first.service")
    ask(board, "systemctl", "enable", "--now", "sleeper", "zz-first")
    before, boot = main_pid(board), board.kernel.read("/proc/sys/kernel/random/boot_id")
    ask(board, "nvpmodel", "-m", "2")
    if cut:
        board.power_cut()
    else:
        board.reboot()
    assert not alive(before)
    until(lambda: main_pid(board) not in (0, before))
    assert board.mode == "MAXN_SUPER"
    assert board.kernel.emc_locked()  # the unit before it has pinned the clocks
    assert board.kernel.read("/proc/sys/kernel/random/boot_id") != boot


def test_what_belongs_to_a_unit_starts_and_stops_with_it(make: Make) -> None:
    board = make()
    write(board, sleeper(board).replace("Description=x", "Requires=draft.service"))
    draft = sleeper(board, "0").replace("Description=x", "PartOf=sleeper.service")
    write(board, draft, "/etc/systemd/system/draft.service")
    ask(board, "systemctl", "start", "sleeper")
    pid = main_pid(board, "draft")
    assert alive(pid)
    ask(board, "systemctl", "stop", "sleeper")
    assert not alive(pid)


def test_two_units_that_cannot_be_without_each_other(make: Make) -> None:
    """A server that is bound to its draft: whichever ends takes the other along, and both come back."""
    board = make()
    more = "Restart=always\nRestartSec=0.05\n"
    write(board, sleeper(board, more=more).replace("Description=x", "BindsTo=draft.service\nAfter=draft.service"))
    draft = sleeper(board, "0", more).replace("Description=x", "PartOf=sleeper.service\nWants=sleeper.service")
    write(board, draft, "/etc/systemd/system/draft.service")
    ask(board, "systemctl", "start", "sleeper")
    pids = main_pid(board), main_pid(board, "draft")
    assert all(map(alive, pids))
    os.kill(pids[1], 9)
    until(lambda: not alive(pids[0]))
    until(lambda: main_pid(board) not in (0, pids[0]) and main_pid(board, "draft") not in (0, pids[1]))
    ask(board, "systemctl", "stop", "sleeper")
    assert ask(board, "systemctl", "is-active", "sleeper", "draft").stdout.split() == ["inactive", "inactive"]


def test_taskset_refuses_what_is_offline(make: Make) -> None:
    board = make("nx16", "35.4.1")  # CPUs 4-7 are off in its default mode
    done = ask(board, "taskset", "-c", "4-7", "/bin/true")
    assert (done.returncode, done.stderr) == (1, "taskset: failed to set pid 0's affinity: Invalid argument\n")
    assert ask(board, "taskset", "f0f", "/bin/echo", "runs").stdout == "runs\n"


def test_load_follows_what_runs(make: Make) -> None:
    board = make("nano8", "36.4.3", live=True)
    write(board, sleeper(board, "2").replace("exec sleep 300", "while :; do :; done"))
    ask(board, "systemctl", "start", "sleeper")
    until(lambda: board.kernel.number("/sys/devices/platform/17000000.gpu/load") > 100)
    until(lambda: Kernel(board.root).data["cpu_load"][2] > 0.1)
    assert Kernel(board.root).data["cpu_load"][4] < 0.1


def test_people_get_a_shell(tmp_path: Path) -> None:
    import subprocess
    import sys

    words = [sys.executable, "-m", "tests.virtual", "nano8", "--l4t", "36.4.3", "--root", str(tmp_path / "board")]
    lines = (
        "nvpmodel -q",
        "tegrastats | head -n 1",
        "orin-deploy facts --json | grep -o p3767-0005 | head -n 1",
        "nvpmodel -m 2",
    )
    script = "\n".join(lines) + "\n"
    done = subprocess.run(
        words, input=script, text=True, capture_output=True, cwd=Path(__file__).parents[2], timeout=60
    )
    said = done.stdout.splitlines()
    assert said[:2] == ["NV Power Mode: 25W", "1"], done.stderr
    assert "RAM" in said[2]
    assert "p3767-0005" in said[3]
    again = subprocess.run(
        [*words, "--", "nvpmodel", "-q"], text=True, capture_output=True, cwd=Path(__file__).parents[2]
    )
    assert again.stdout == "NV Power Mode: MAXN_SUPER\n2\n"
