"""The supervisor: keeps one server running where systemd does not run.

`python -m orin_deploy.host.supervise LAUNCH` puts itself into the background, so that it outlives the command and the
terminal it was started from. One supervisor a launch file; it keeps `state.json` beside it and the server's log
bounded. A server that ends is started again, later each time, until it has failed too often in a row.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Any

from orin_deploy.host.processes import (
    ALREADY_SUPERVISED,
    BACKING_OFF,
    FAILED,
    RUNNING,
    START_MARK,
    STOP_TIMEOUT_S,
    Identity,
    State,
    end,
    identify,
    in_words,
    read_state,
    state_path,
    without_options,
    write_state,
)

START_LIMIT = 5

_LONGEST_DELAY_S = 60.0
_LOG_BYTES = 10 * 1024 * 1024
_LOG_FILES = 3
_PR_SET_PDEATHSIG = 1


class Log:
    """The server's output on disk, of bounded size: the file, then `.1` and `.2`, oldest last."""

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self.limit = limit
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = self._open()

    def write(self, data: bytes) -> None:
        # A full disk loses log lines; it must not block the server, whose pipe this drains.
        with contextlib.suppress(OSError):
            if self.file.closed:  # the disk was full in the middle of a rotation
                self.file = self._open()
            if self.file.tell() + len(data) > self.limit:
                self._rotate()
            self.file.write(data)

    def _open(self) -> FileIO:
        return FileIO(self.path, "ab")

    def _rotate(self) -> None:
        self.file.close()
        for number in range(_LOG_FILES - 1, 0, -1):
            older = self.path if number == 1 else self.path.with_name(f"{self.path.name}.{number - 1}")
            with contextlib.suppress(FileNotFoundError):
                older.replace(self.path.with_name(f"{self.path.name}.{number}"))
        self.file = self._open()


class Supervisor:
    """Starts the server of a launch file again and again until it is told to stop or the server fails too often."""

    def __init__(self, path: Path, launch: dict[str, Any]) -> None:
        self.path = path
        self.argv: list[str] = launch["argv"]
        self.env = without_options(dict(os.environ)) | dict(launch["env"])
        self.delay_s = float(launch["restart_delay_s"])
        self.healthy_after_s = float(launch["start_timeout_s"])
        self.stop_timeout_s = float(launch.get("stop_timeout_s", STOP_TIMEOUT_S))
        self.start_limit = int(launch.get("start_limit", START_LIMIT))
        self.log = Log(Path(launch["log"]), int(launch.get("log_bytes", _LOG_BYTES)))
        self.libc = ctypes.CDLL(None)
        self.selector = selectors.DefaultSelector()
        self.stopping = False
        self.starts = self.failures = 0
        self.exit: str | None = None
        self.ready: int | None = None

    def run(self, ready: int) -> None:
        """Supervise to the end. A byte on the descriptor `ready` says that the first state is on disk."""
        self.ready = ready
        self._listen_to_signals()
        if (old := read_state(self.path)) is not None and old.server is not None:
            end(old.server, self.stop_timeout_s)  # left over from a supervisor that was killed
        while not self.stopping:
            began = time.monotonic()
            self._serve()
            lived = time.monotonic() - began
            self.failures = 1 if lived > self.healthy_after_s else self.failures + 1
            if self.stopping:
                break
            if self.failures >= self.start_limit:
                self._note(FAILED)
                return
            self._note(BACKING_OFF)
            self._wait(min(self.delay_s * 2 ** (self.failures - 1), _LONGEST_DELAY_S))
        state_path(self.path).unlink(missing_ok=True)

    def _listen_to_signals(self) -> None:
        reader, writer = os.pipe()
        for descriptor in (reader, writer):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(writer)
        self.selector.register(reader, selectors.EVENT_READ)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # its byte wakes the selector
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    def _serve(self) -> None:
        """Start the server once and copy its output to the log until it ends by itself or is told to."""
        self.starts += 1
        self.log.write(f"{START_MARK}, start {self.starts}, {time.strftime('%Y-%m-%dT%H:%M:%S%z')}\n".encode())
        try:
            server = self._spawn()
        except OSError as error:
            self.log.write(f"cannot start {self.argv[0]}: {error.strerror}\n".encode())
            self.exit = "exit code 127"
            return
        assert server.stdout is not None
        os.set_blocking(server.stdout.fileno(), False)
        self.selector.register(server.stdout, selectors.EVENT_READ, self.log.write)
        self._note(RUNNING, identify(server.pid))
        kill_at: float | None = None
        while server.poll() is None:
            if self.stopping and kill_at is None:
                server.terminate()
                kill_at = time.monotonic() + self.stop_timeout_s
            if kill_at is not None and time.monotonic() > kill_at:
                server.kill()
            self._turn(None if kill_at is None else 0.1)
        self._turn(0)  # its last words
        if server.stdout.fileno() in self.selector.get_map():
            self.selector.unregister(server.stdout)
        server.stdout.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(server.pid, signal.SIGKILL)  # the server's own children, if it had any
        self.exit = in_words(server.returncode)

    def _spawn(self) -> subprocess.Popen[bytes]:
        supervisor = os.getpid()

        def die_with_the_supervisor() -> None:
            self.libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != supervisor:
                os._exit(1)

        return subprocess.Popen(
            self.argv,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with_the_supervisor,
        )

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.stopping and (left := until - time.monotonic()) > 0:
            self._turn(left)

    def _turn(self, timeout_s: float | None) -> None:
        """Sleep until a signal, output or the time, and pass on what came."""
        for key, _ in self.selector.select(timeout_s):
            try:
                while data := os.read(key.fd, 65536):
                    if key.data is not None:
                        key.data(data)
                self.selector.unregister(key.fd)
            except BlockingIOError:
                pass

    def _note(self, state: str, server: Identity | None = None) -> None:
        me = identify(os.getpid())
        assert me is not None
        # Losing the state (a full disk, a removed folder) must not take the server down.
        with contextlib.suppress(OSError):
            write_state(self.path, State(state, me, server, self.starts, self.failures, self.exit))
        if self.ready is not None:
            os.write(self.ready, b"1")
            os.close(self.ready)
            self.ready = None


def _detach() -> int | None:
    """Leave the command's session. In the command's own process: None, once the daemon is ready or gone."""
    reader, writer = os.pipe()
    if os.fork() != 0:
        os.close(writer)
        if not os.read(reader, 1):
            raise OSError("the supervisor ended before it had started the server")
        return None
    os.close(reader)
    os.setsid()
    os.chdir("/")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(null, descriptor)
    os.close(null)
    return writer


def main(path: Path) -> int:
    """Supervise the launch file at `path` in the background; returns when the server was started once."""
    lock = os.open(path.with_name("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    state = read_state(path)
    leaving = state is not None and state.state == FAILED  # its supervisor, if still there, is about to end
    try:
        fcntl.flock(lock, fcntl.LOCK_EX if leaving else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return ALREADY_SUPERVISED
    supervisor = Supervisor(path, json.loads(path.read_text()))
    if (ready := _detach()) is not None:
        supervisor.run(ready)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]).absolute()))
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
