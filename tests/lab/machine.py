"""A board of the lab: its qemu, its disk, its console, and a shell on it. Loopback ports only."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.lab import given, qemu, trees, where
from tests.lab.commands import LabError, require_room, sh
from tests.virtual.boards_table import BOARDS

L4T = "36.4.3"
_NICE = 5
_LONGEST = 107 - len("/monitor.socket") - 17
BOOT_S = 900  # 60 s alone on two cores; others may compute, or hold it for a while


class Board:
    """One virtual board, running or not. State is on disk, so that any `scripts/lab` call can take it up.

    `twin` is a second board of the same kind, which can run beside it.
    """

    def __init__(self, name: str, twin: bool = False) -> None:
        if name not in BOARDS:
            raise LabError(f"there is no board {name}", f"there are {', '.join(BOARDS)}")
        self.kind, self.table = name, BOARDS[name]
        self.name = f"{name}-twin" if twin else name
        self.folder = where.board(self.name)
        self.console, self.disk = self.folder / "console.log", self.folder / "disk.qcow2"

    # Running.

    def up(self, fresh: bool = True, rtc: str = "utc") -> float:
        """Boot it and wait for its shell; returns the seconds that took. A fresh one begins with a clean disk."""
        if fresh or not self.disk.exists():
            self.must_be_off()
            self.disk.parent.mkdir(parents=True, exist_ok=True)
            self.disk.unlink(missing_ok=True)
            sh(("qemu-img", "create", "-q", "-f", "qcow2", "-b", where.disk(), "-F", "qcow2", self.disk))
        began = time.monotonic()
        self._start(rtc)
        self.await_shell()
        return time.monotonic() - began

    def restore(self, tag: str) -> float:
        """Go on at a snapshot, in the middle of its run: memory, disk, processes. Its clock is set to now."""
        began = time.monotonic()
        self._start("utc", "-loadvm", tag)
        self.await_shell()
        # Time stood still for it, and the small disk was made anew under it.
        self.ssh(f"date -s @{time.time():.1f} && umount /opt/given && mount /opt/given")
        return time.monotonic() - began

    def save(self, tag: str) -> float:
        """Keep it as it runs now, memory and all, in its disk's file; returns the seconds that took."""
        began = time.monotonic()
        self.ssh("sync")
        self._hang_up()
        if said := qemu.monitor(self.folder, f"savevm {tag}"):
            raise LabError(f"{self.name} could not be kept: {said}", f"df -h {self.folder}")
        return time.monotonic() - began

    def forget(self, tag: str) -> None:
        sh(("qemu-img", "snapshot", "-q", "-d", tag, self.disk))

    def saved(self) -> tuple[str, ...]:
        """The snapshots in its disk's file."""
        if not self.disk.exists():
            return ()
        said = json.loads(sh(("qemu-img", "info", "-U", "--output=json", self.disk)))
        return tuple(each["name"] for each in said.get("snapshots", ()))

    def machine(self) -> tuple[str, ...]:
        return qemu.machine(self.table, L4T)

    def must_be_off(self) -> None:
        """Raise LabError when it runs, or when it could not run for want of room or for its folder's name."""
        if self.pid() is not None:
            raise LabError(f"{self.name} is running", f"scripts/lab down {self.kind}")
        require_room(where.home(), 4)
        if len(str(self.folder)) > _LONGEST:  # ssh puts 17 letters behind its socket's name
            raise LabError(f"{self.folder} is too long a name for sockets in it", "ORIN_LAB_HOME=/short scripts/lab …")

    def _start(self, rtc: str, *more: str) -> None:
        self.must_be_off()
        self._hang_up()  # from a board that is gone
        port, words = _free_port(), self.machine()
        tree, source = trees.make(self.table, self.folder, words), given.source(self.folder)
        self.console.unlink(missing_ok=True)
        words += (*qemu.devices(self.folder, self.disk, tree, source, port, rtc), *more)
        with (self.folder / "qemu.log").open("wb") as log:
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )  # fmt: skip
        self._state().write_text(json.dumps({"pid": process.pid, "port": port}))
        while self.pid() is None and process.poll() is None:  # a program that begins shows no words for a moment
            time.sleep(0.01)
        with suppress(OSError):  # it lets others go first
            os.setpriority(os.PRIO_PROCESS, process.pid, _NICE)

    def _state(self) -> Path:
        return self.folder / "machine.json"

    def pid(self) -> int | None:
        """qemu's process, None when the board is off: not before its last thread has let go of the disk."""
        try:
            pid = int(json.loads(self._state().read_text())["pid"])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            if ended and len(os.listdir(f"/proc/{pid}/task")) > 1:
                return pid
        except (OSError, ValueError, KeyError, TypeError):
            return None
        ours = b"qemu-system-aarch64" in command and f"{self.folder}/".encode() in command
        return pid if ours and not ended else None

    def cut(self) -> None:
        """Cut its power: what it has not written is gone."""
        pid = self.pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            self._gone(60)
        self._hang_up()

    def down(self) -> None:
        if self.pid() is None:
            return
        self.ssh("systemctl poweroff", check=False, timeout=60)
        if not self._gone(240):
            self.cut()
        self._hang_up()

    def _hang_up(self) -> None:
        """End the ssh that keeps the connection; it would wait minutes for a board that is off."""
        socket_file = self.folder / "ssh.socket"
        if socket_file.exists():
            words = ("ssh", "-o", f"ControlPath={socket_file}", "-O", "exit", "root@127.0.0.1")
            subprocess.run(words, capture_output=True)
            socket_file.unlink(missing_ok=True)

    def _gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while (pid := self.pid()) is not None and time.monotonic() < deadline:
            with suppress(ChildProcessError):  # an earlier call of scripts/lab started it
                os.waitpid(pid, os.WNOHANG)
            time.sleep(0.2)
        return self.pid() is None

    # Its shell.

    def await_shell(self, other_boot: str | None = None, seconds: float = BOOT_S) -> None:
        """Wait until it has booted as far as it will; with `other_boot` until the boot is another than that one."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.pid() is None:
                raise LabError(f"{self.name} died while it booted", self.console_tail())
            if "Kernel panic" in self.console_tail():
                raise LabError(f"{self.name}'s kernel panicked", self.console_tail(60))
            done = self.ssh("cat /proc/sys/kernel/random/boot_id", check=False, timeout=60)
            if done.returncode == 0 and done.stdout.strip() != other_boot:
                self.ssh("systemctl is-system-running --wait", check=False, timeout=seconds)
                return
            time.sleep(0.5)
        raise LabError(f"{self.name} does not answer after {seconds:.0f} s", self.console_tail())

    def boot_id(self) -> str:
        return self.ssh("cat /proc/sys/kernel/random/boot_id").stdout.strip()

    def console_tail(self, lines: int = 30) -> str:
        said = []
        for log in (self.folder / "qemu.log", self.console):
            with suppress(OSError):
                text = log.read_text(errors="replace").splitlines()[-lines:]
                said += [f"the end of {log}:", *text] if text else []
        return "\n".join(said) or "there is no console log"

    def shell(self, *words: str, tty: bool = False) -> tuple[str, ...]:
        """The ssh command; one connection serves all calls, for a new one takes seconds under emulation."""
        try:
            port = json.loads(self._state().read_text())["port"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise LabError(f"{self.name} does not run", f"scripts/lab up {self.kind}") from error
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR", "BatchMode=yes",
                   "ConnectTimeout=30", "ServerAliveInterval=60", "ServerAliveCountMax=10", "ControlMaster=auto",
                   f"ControlPath={self.folder}/ssh.socket", "ControlPersist=600")  # fmt: skip
        flags = [each for option in options for each in ("-o", option)]
        return ("ssh", *flags, "-i", str(where.key()), *(("-t",) if tty else ()), "-p", str(port), "root@127.0.0.1",
                *words)  # fmt: skip

    def ssh(self, command: str, check: bool = True, timeout: float = 900) -> subprocess.CompletedProcess[str]:
        """Run a shell command on it. With `check` a failure raises LabError, with the console of a dead board."""
        try:
            done = subprocess.run(
                self.shell(command), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired as error:
            done = subprocess.CompletedProcess(error.args, 124, "", f"no end after {timeout:.0f} s")
        if check and done.returncode != 0:
            alive = self.pid() is not None
            said = "\n".join((done.stdout + done.stderr).splitlines()[-25:])
            raise LabError(
                f"on {self.name}: exit code {done.returncode} of {shlex.quote(command)}",
                said if alive else f"{said}\n{self.console_tail()}",
            )
        return done


def running() -> list[Board]:
    """The boards that run, twins included."""
    boards = (Board(name, twin) for name in BOARDS for twin in (False, True))
    return [board for board in boards if board.pid() is not None]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
