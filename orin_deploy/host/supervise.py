"""The supervisor: keeps one server running where systemd does not run.

`python -m orin_deploy.host.supervise LAUNCH` puts itself into the background, so that it outlives the command and the
terminal it was started from. One supervisor a launch file; it keeps `state.json` beside it and the server's log
bounded. A server that ends is started again, later each time, until it has failed too often in a row.

Companions (a draft's own process) start before the server and end after it; when one ends by itself, the server is
ended too and all start again, for a server cannot take up a connection that broke.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
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
    START_LIMIT,
    START_MARK,
    STOP_TIMEOUT_S,
    Identity,
    State,
    children,
    end,
    identify,
    in_words,
    launched,
    read_state,
    state_path,
    without_options,
    write_state,
)
from orin_deploy.host.spawn import Companion, spawn

_LONGEST_DELAY_S = 60.0
_LOG_BYTES = 10 * 1024 * 1024
_LOG_FILES = 3
_LOOKS_EVERY_S = 0.05


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
        self.companions = [Companion(companion) for companion in launch.get("companions", ())]
        self.selector = selectors.DefaultSelector()
        self.stopping = False
        self.starts = self.failures = 0
        self.exit: str | None = None
        self.ready: int | None = None

    def run(self, ready: int | None) -> None:
        """Supervise to the end. A byte on the descriptor `ready`, if any, says that the first state is on disk."""
        self.ready = ready
        self._listen_to_signals()
        if (old := read_state(self.path)) is not None:
            for left in children(old):  # left over from a supervisor that was killed
                end(left, self.stop_timeout_s)
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
        """Start the companions and the server once, until the server ends by itself or is told to."""
        self.starts += 1
        self.log.write(f"{START_MARK}, start {self.starts}, {time.strftime('%Y-%m-%dT%H:%M:%S%z')}\n".encode())
        try:
            if self._start_companions():
                self._run_server()
        except OSError as error:
            self.log.write(f"cannot start {error.filename}: {error.strerror}\n".encode())
            self.exit = "exit code 127"
        finally:
            for companion in self.companions:
                companion.end(self.stop_timeout_s)

    def _start_companions(self) -> bool:
        """Start what the server needs; False when one ends before it serves, takes too long, or we are to stop."""
        for companion in self.companions:
            companion.start(self.env, self.selector, self.log.write)
            deadline = time.monotonic() + self.healthy_after_s
            while not companion.serves():
                if self.stopping or self._lost_companion():
                    return False
                if time.monotonic() > deadline:
                    self.exit = f"{companion.name} not serving after {self.healthy_after_s:.0f} s"
                    return False
                self._turn(_LOOKS_EVERY_S)
        return True

    def _lost_companion(self) -> bool:
        """Whether a companion has ended by itself; that is then how the server's run ended."""
        ended = next((companion for companion in self.companions if companion.ended()), None)
        if ended is not None and ended.child is not None:
            self.exit = f"{ended.name}'s {in_words(ended.child.process.returncode)}"
        return ended is not None

    def _run_server(self) -> None:
        server = spawn(self.argv, self.env, self.selector, self.log.write)
        self._note(RUNNING, identify(server.process.pid))
        kill_at: float | None = None
        lost = False
        while not server.ended():
            lost = lost or self._lost_companion()
            if (self.stopping or lost) and kill_at is None:
                server.process.terminate()
                kill_at = time.monotonic() + self.stop_timeout_s
            if kill_at is not None and time.monotonic() > kill_at:
                server.process.kill()
            self._turn(None if kill_at is None else 0.1)
        server.forget()
        # A server whose companion is gone aborts at its next word to it, often before we know of the companion.
        if not lost and not self._lost_companion():
            self.exit = in_words(server.process.returncode)
        self._note(BACKING_OFF)  # its companions may take their time to end

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
            beside = tuple(who for each in self.companions if each.child and (who := identify(each.child.process.pid)))
            write_state(self.path, State(state, me, server, self.starts, self.failures, self.exit, beside))
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
    if not (launch := launched(path.read_text())):
        raise ValueError("it is no whole launch file")
    supervisor = Supervisor(path, launch)
    if (ready := _detach()) is not None:
        supervisor.run(ready)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1]).absolute()))
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
