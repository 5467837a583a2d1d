"""Following a command that prints for as long as it runs, without ever waiting for it longer than one chooses."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from threading import Condition, Thread

from orin_deploy.errors import CommandFailed

_CHUNK_BYTES = 64 * 1024  # also what is kept of a line that never ends
_PATIENCE_S = 0.5


class Lines:
    """The newest line of a running command (standard output only). Close it: the command ends with its whole group.

    A thread takes what comes at once, so that the command never waits for its reader and no line is an old one.
    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start the command, its program by its path; raises CommandFailed when that cannot be done."""
        try:
            self._process = subprocess.Popen(
                list(argv),
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # an interrupt at the terminal is ours to pass on
            )
        except OSError as error:
            raise CommandFailed(tuple(argv), 127, cause=f"{argv[0]} cannot be started: {error.strerror}") from error
        self.ended = False
        self._line: bytes | None = None
        self._changed = Condition()
        self._reader = Thread(target=self._read, name="lines", daemon=True)
        self._reader.start()

    def newest(self, timeout_s: float) -> str | None:
        """The newest whole line since the last call, waiting for one; None when none comes or the command ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._line is not None or self.ended, timeout_s)
            line, self._line = self._line, None
        return None if line is None else line.decode("utf-8", "replace").rstrip("\r")

    def _read(self) -> None:
        assert self._process.stdout is not None
        rest = b""
        while part := os.read(self._process.stdout.fileno(), _CHUNK_BYTES):
            *lines, rest = (rest + part)[-_CHUNK_BYTES:].split(b"\n")
            whole = [line for line in lines if line.strip()]
            if whole:
                with self._changed:
                    self._line = whole[-1]
                    self._changed.notify()
        with self._changed:
            self.ended = True
            self._changed.notify()

    def close(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_PATIENCE_S)
                break
        self._process.wait()
        # One that left the group may still hold the pipe: its reader is left behind then.
        self._reader.join(_PATIENCE_S)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()
