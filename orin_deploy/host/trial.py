"""A server for as long as we look at it: it ends with this program, however that ends.

`python -m orin_deploy.host.trial LAUNCH PARENT` is the ordinary supervisor (its log, its companions, its state file)
that stays in the foreground, starts the server once, and is killed by the kernel when its parent is gone; the server
and its companions die with it in the same way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from orin_deploy.host import spawn
from orin_deploy.host.machine import Machine
from orin_deploy.host.processes import STOP_TIMEOUT_S, Running, running, state_path
from orin_deploy.host.supervise import Supervisor


def free_port() -> int:
    """A loopback port that nobody has at this moment."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Trial:
    """The server of a launch file, which must not be supervised already. Close it, or use it with `with`."""

    def __init__(self, host: Machine, launch: Path) -> None:
        import orin_deploy

        self._host = host
        self._launch = launch
        state_path(launch).unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "orin_deploy.host.trial", str(launch), str(os.getpid())],
            cwd=Path(orin_deploy.__file__).parents[1],  # so that `-m` finds this very package
            env=host.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # an interrupt at the terminal is ours to pass on
        )

    def running(self) -> Running | None:
        """The server as it is now; None before it has started, and when its supervisor is gone."""
        return running(self._launch, self._host.path("/proc"))

    @property
    def ended(self) -> bool:
        """Whether it is over: the server ended by itself, or could not start."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the server and its companions, whatever they do."""
        self._process.terminate()
        try:
            self._process.wait(2 * STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def main(launch: Path, parent: int) -> None:
    """Supervise one start of the launch file's server, for no longer than the process `parent` lives."""
    spawn.die_with(parent)
    Supervisor(launch, json.loads(launch.read_text()) | {"start_limit": 1}).run(None)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), int(sys.argv[2]))
