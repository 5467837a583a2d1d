"""The keeper of one running unit: `python -m tests.virtual.keeper ROOT UNITS UNIT`."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

from tests.virtual import tasks
from tests.virtual.kernel import Kernel
from tests.virtual.systemd import Manager, journal, run, words_of

_LOOK_S = 0.05
_TICK_S = 0.5


class Keeper:
    """Starts a unit's program, shows it on the board, starts it again as its Restart says, ends it when told to."""

    def __init__(self, root: Path, unit: str, user: bool) -> None:
        self.kernel = Kernel(root)
        self.manager = Manager(self.kernel, user)
        self.unit = unit
        self.stopping = self.killing = False
        self.process: subprocess.Popen[bytes] | None = None
        self.starts: list[float] = []
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGUSR1, self._kill)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.stopping = True

    def _kill(self, number: int, frame: FrameType | None) -> None:
        """A power cut: nothing gets a last word."""
        self.stopping = self.killing = True

    def seconds(self, key: str, default: float) -> float:
        return float(self.manager.value(self.unit, key, str(default)).removesuffix("s") or default)

    def environ(self) -> dict[str, str]:
        pairs = [word for value in self.manager.values(self.unit, "Environment") for word in shlex.split(value)]
        kept = {
            name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "VIRTUAL_JETSON_USER")
        }
        return kept | dict(pair.replace("%%", "%").split("=", 1) for pair in pairs)

    def run(self) -> None:
        if self.manager.value(self.unit, "Type", "simple") == "oneshot":
            return self._once()
        restarts = 0
        while not self.stopping:
            self.starts = [
                start for start in self.starts if start > time.monotonic() - self.seconds("StartLimitIntervalSec", 10)
            ]
            if len(self.starts) >= self.seconds("StartLimitBurst", 5):
                self._note(ActiveState="failed", SubState="failed", MainPID=0, keeper=0)
                return None
            self.starts.append(time.monotonic())
            code = self._serve()
            if self.stopping:
                break
            self.manager.stop_bound(self.unit)
            policy = self.manager.value(self.unit, "Restart", "no")
            if not (policy == "always" or (policy == "on-failure" and code != 0)):
                ended = "inactive" if code == 0 else "failed"
                self._note(ActiveState=ended, SubState="dead" if code == 0 else "failed", MainPID=0, keeper=0)
                return None
            restarts += 1
            self._note(ActiveState="activating", SubState="auto-restart", MainPID=0, NRestarts=restarts)
            self._sleep(self.seconds("RestartSec", 0.1))
            if not self.stopping:
                self.manager.start_wanted(self.unit)
        if not self.killing:
            for line in self.manager.values(self.unit, "ExecStopPost"):
                run(self.kernel, self.unit, line, self.environ())
        self._note(ActiveState="inactive", SubState="dead", MainPID=0, keeper=0)
        return None

    def _note(self, **values: str | int) -> None:
        self.manager.set_state(self.unit, **values)

    def _once(self) -> None:
        good = all(
            run(self.kernel, self.unit, line, self.environ())
            for key in ("ExecStartPre", "ExecStart", "ExecStartPost")
            for line in self.manager.values(self.unit, key)
        )
        remains = self.manager.value(self.unit, "RemainAfterExit") in ("yes", "true", "1", "on")
        state = ("failed", "failed") if not good else ("active", "exited") if remains else ("inactive", "dead")
        self._note(ActiveState=state[0], SubState=state[1], Result="success" if good else "exit-code", keeper=0)

    def _serve(self) -> int:
        """Run the program once; returns how it ended."""
        environ = self.environ()
        for line in self.manager.values(self.unit, "ExecStartPre"):
            if not run(self.kernel, self.unit, line, environ):
                self._ended(1)
                return 1
        words, _ = words_of(self.manager.value(self.unit, "ExecStart"), environ)
        file = journal(self.kernel, self.unit)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("ab") as log:
            try:
                self.process = subprocess.Popen(
                    words, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            except OSError as error:
                log.write(f"{words[0]}: {error.strerror}\n".encode())
                self._ended(203)
                return 203
        pid = self.process.pid
        tasks.mirror(self.kernel, pid, self.unit)
        self._note(ActiveState="activating", SubState="start-post", MainPID=pid, Result="success")
        posts = [
            subprocess.Popen(
                words_of(line, environ | {"MAINPID": str(pid)})[0],
                env=environ | {"MAINPID": str(pid)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for line in self.manager.values(self.unit, "ExecStartPost")
        ]
        self._watch(posts)
        for post in posts:
            if post.poll() is None:
                post.kill()
            post.wait()
        tasks.forget(self.kernel, pid)
        code = self.process.wait()
        self._ended(code)
        return code

    def _watch(self, posts: list[subprocess.Popen[bytes]]) -> None:
        """Until the program has ended, by itself or by us."""
        assert self.process is not None
        until = time.monotonic() + self.seconds("TimeoutStartSec", 90)
        kill_at: float | None = None
        up, ticked = False, time.monotonic()
        while self.process.poll() is None:
            tasks.mirror(self.kernel, self.process.pid, self.unit)
            if time.monotonic() > ticked + _TICK_S:
                ticked = time.monotonic()
                with self.kernel.changing():
                    self.kernel.tick()
            if not up and all(post.poll() is not None for post in posts):
                up = True
                self._note(ActiveState="active", SubState="running")
            late = not up and time.monotonic() > until
            if (self.stopping or late) and kill_at is None:
                kill_at = time.monotonic() + (0 if self.killing else self.seconds("TimeoutStopSec", 90))
                self.process.send_signal(signal.SIGKILL if self.killing else signal.SIGTERM)
                if late:
                    self._note(Result="timeout")
            if kill_at is not None and time.monotonic() > kill_at:
                os.killpg(self.process.pid, signal.SIGKILL)
            time.sleep(_LOOK_S)

    def _ended(self, code: int) -> None:
        how, status = (1, code) if code >= 0 else (2, -code)
        result = self.manager.state(self.unit).get("Result", "success")
        if result != "timeout" and not self.stopping:
            result = "success" if code == 0 else "exit-code" if how == 1 else "signal"
        self._note(ExecMainCode=how, ExecMainStatus=status, Result=result, MainPID=0)

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self.stopping and time.monotonic() < until:
            time.sleep(_LOOK_S)


if __name__ == "__main__":
    Keeper(Path(sys.argv[1]), sys.argv[3], "--user" in sys.argv).run()
