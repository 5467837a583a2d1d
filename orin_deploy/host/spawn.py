"""Processes of a supervisor: the server, and the companions that it needs, which start before it and end after it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orin_deploy.host import procfs
from orin_deploy.host.supervisors import COMPANION

_PR_SET_PDEATHSIG = 1
_MOST_LAST_READS = 16
_LIBC = ctypes.CDLL(None)

Selector = selectors.BaseSelector
Writer = Callable[[bytes], None]


@dataclass(frozen=True)
class Child:
    """A process whose output goes on to the log for as long as the selector is asked."""

    process: subprocess.Popen[bytes]
    selector: Selector
    write: Writer

    def ended(self) -> bool:
        return self.process.poll() is not None

    def forget(self) -> None:
        """End the children that an ended process left, if it had any, and pass on its last words."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        out = self.process.stdout
        assert out is not None
        if out.fileno() in self.selector.get_map():
            self.selector.unregister(out)
        with contextlib.suppress(BlockingIOError):
            for _ in range(_MOST_LAST_READS):  # a child that left the group may talk on for ever
                self.write(os.read(out.fileno(), 65536))
        out.close()


def die_with(parent: int) -> None:
    """Make the kernel kill this process when `parent`, its parent, is gone; ends it where that is so already."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def spawn(argv: list[str], env: dict[str, str], selector: Selector, write: Writer) -> Child:
    """Start a process that dies with this one. Raises OSError when there is no such program."""
    supervisor = os.getpid()

    process = subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: die_with(supervisor),
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    selector.register(process.stdout, selectors.EVENT_READ, write)
    return Child(process, selector, write)


class Companion:
    """One companion of a launch file: `name`, `argv`, and the loopback `port` on which it serves."""

    def __init__(self, launch: dict[str, Any]) -> None:
        self.name: str = launch["name"]
        self.argv: list[str] = launch["argv"]
        self.port = int(launch["port"])
        self.child: Child | None = None

    def start(self, env: dict[str, str], selector: Selector, write: Writer) -> None:
        self.child = spawn(self.argv, env | {COMPANION: self.name}, selector, write)

    def serves(self) -> bool:
        """Whether it listens; told by the kernel, for a connection of ours could be taken for the server's."""
        pid = self.child.process.pid if self.child else None
        holder = procfs.port_holder(self.port, likely=pid)
        return holder is not None and holder[0] == pid

    def ended(self) -> bool:
        return self.child is not None and self.child.ended()

    def end(self, patience_s: float) -> None:
        """End it, whatever it does."""
        if self.child is None:
            return
        process = self.child.process
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.child.forget()
        self.child = None
