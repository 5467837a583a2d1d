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

from tests.lab import trees, where
from tests.lab.commands import LabError, sh
from tests.virtual.boards_table import BOARDS

L4T = "36.4.3"
BOOT_S = 900  # 80 s alone on two cores; others may compute, or hold it for a while
# Emulated CPUs may wait for the workstation's: neither the kernel nor systemd is to take that for a fault.
_KERNEL_WORDS = (
    "console=ttyAMA0 root=/dev/vda rw panic=-1 rcupdate.rcu_cpu_stall_suppress=1 nowatchdog "
    "systemd.default_timeout_start_sec=900 systemd.default_device_timeout_sec=900 systemd.show_status=auto"
)
_KERNEL_KIB = 700_000  # of memory that the kernel keeps for itself, on top of a 64th for its page table


class Board:
    """One virtual board, running or not. State is on disk, so that any `scripts/lab` call can take it up."""

    def __init__(self, name: str) -> None:
        if name not in BOARDS:
            raise LabError(f"there is no board {name}", f"there are {', '.join(BOARDS)}")
        self.name, self.folder = name, where.board(name)
        self.console, self.disk = self.folder / "console.log", self.folder / "disk.qcow2"

    # Running.

    def up(self, fresh: bool = True, base: Path | None = None, rtc: str = "utc", wait: bool = True) -> float:
        """Start it and wait for its shell; returns the seconds that took. A fresh one begins with a clean disk."""
        if self.pid() is not None:
            raise LabError(f"{self.name} is running", f"scripts/lab down {self.name}")
        self.folder.mkdir(parents=True, exist_ok=True)
        if fresh or not self.disk.exists():
            self.disk.unlink(missing_ok=True)
            backing = base or where.disk()
            sh(("qemu-img", "create", "-q", "-f", "qcow2", "-b", backing, "-F", "qcow2", self.disk))
        port = _free_port()
        words = self._machine()
        tree = trees.make(self.name, words)
        self.console.unlink(missing_ok=True)
        began = time.monotonic()
        with (self.folder / "qemu.log").open("wb") as log:
            process = subprocess.Popen(
                ("nice", "-n", "5", *words, *self._devices(tree, port, rtc)),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self._state().write_text(json.dumps({"pid": process.pid, "port": port}))
        if wait:
            self.await_shell()
        return time.monotonic() - began

    def _machine(self) -> tuple[str, ...]:
        """What shapes the device tree. qemu knows equal clusters only: the tree's cpu-map is edited afterwards."""
        board = BOARDS[self.name]
        total = board.total_kib[int(L4T.split(".")[0])]
        mib = (total + total // 64 + _KERNEL_KIB) // 1024
        return ("qemu-system-aarch64", "-M", "virt,memory-backend=ram", "-cpu", "cortex-a76", "-smp",
                str(len(board.cpus)), "-m", f"{mib}M",
                # Not reserved: a board of 64 GB fits where it never uses them.
                "-object", f"memory-backend-ram,id=ram,size={mib}M,reserve=off")  # fmt: skip

    def _devices(self, tree: Path, port: int, rtc: str) -> tuple[str, ...]:
        kernel, share = where.kernel(), where.home() / "share.img"
        return ("-kernel", str(kernel / "Image"), "-initrd", str(kernel / "initrd.cpio"), "-dtb", str(tree),
                "-append", _KERNEL_WORDS,
                # unsafe: qemu's own death loses nothing that it was given, and that is the power cut here.
                "-drive", f"file={self.disk},if=virtio,format=qcow2,cache=unsafe",
                "-drive", f"file={share},if=virtio,format=raw,read-only=on",
                "-netdev", f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22",
                "-device", "virtio-net-pci,netdev=n,romfile=", "-device", "virtio-rng-pci", "-rtc", f"base={rtc}",
                "-display", "none", "-monitor", "none", "-serial", f"file:{self.console}")  # fmt: skip

    def _state(self) -> Path:
        return self.folder / "machine.json"

    def pid(self) -> int | None:
        """qemu's process, None when the board is off."""
        try:
            pid = int(json.loads(self._state().read_text())["pid"])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except (OSError, ValueError, KeyError):
            return None
        return pid if b"qemu-system-aarch64" in command and str(self.disk).encode() in command and not ended else None

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
            subprocess.run((*self.shell()[:-1], "-O", "exit", "root@127.0.0.1"), capture_output=True)
            socket_file.unlink(missing_ok=True)

    def _gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.pid() is not None and time.monotonic() < deadline:
            pid = self.pid()
            if pid is not None:
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
            time.sleep(2)
        raise LabError(f"{self.name} does not answer after {seconds:.0f} s", self.console_tail())

    def boot_id(self) -> str:
        return self.ssh("cat /proc/sys/kernel/random/boot_id").stdout.strip()

    def console_tail(self, lines: int = 30) -> str:
        try:
            text = self.console.read_text(errors="replace")
        except OSError:
            return "there is no console log"
        return f"the end of {self.console}:\n" + "\n".join(text.splitlines()[-lines:])

    def shell(self, *words: str, tty: bool = False) -> tuple[str, ...]:
        """The ssh command; one connection serves all calls, for a new one takes seconds under emulation."""
        port = json.loads(self._state().read_text())["port"]
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


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
