"""The host: the one door through which the program touches the world.

Reading is in `machine`, commands in `commands`, files in `files`, loopback requests in `http`, fetching in
`fetch`, supervised processes in `processes`. Everything that decides gets its facts from here and hands back actions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orin_deploy.actions import Action, Fetch, Link, Reboot, Remove, Run, Start, Stop, Unpack, Write
from orin_deploy.host import commands, files
from orin_deploy.host.machine import Machine

if TYPE_CHECKING:
    from orin_deploy.host.meters import Meters
    from orin_deploy.host.stream import Lines
    from orin_deploy.host.trial import Trial

__all__ = ["Host", "Machine", "Progress"]

Progress = Callable[[float | None, str], None]
"""Called while an action runs: the fraction done (None when unknown) and a short line of what is going on."""


def _silent(fraction: float | None, text: str) -> None:
    pass


class Host(Machine):
    """A machine that can be changed.

    `data` holds state, models and engines, `cache` what can be fetched again. As root they are
    /var/lib/orin-deploy and /var/cache/orin-deploy below `root`, else the XDG folders; ORIN_DEPLOY_HOME moves both.
    Without a `root` it is ORIN_DEPLOY_ROOT, a virtual machine's, else this machine's own.
    """

    def __init__(self, root: Path | str | None = None, environ: Mapping[str, str] | None = None) -> None:
        variables = os.environ if environ is None else environ
        super().__init__(root or variables.get("ORIN_DEPLOY_ROOT") or "/", environ)
        self.is_root = os.geteuid() == 0
        self.data, self.cache = self._folders()

    def _folders(self) -> tuple[Path, Path]:
        if home := self.environ.get("ORIN_DEPLOY_HOME", "").strip():
            base = Path(home).absolute()
            return base, base / "cache"
        if self.is_root:
            return self.path("/var/lib/orin-deploy"), self.path("/var/cache/orin-deploy")
        user = Path(self.environ.get("HOME", "~")).expanduser()
        return (
            Path(self.environ.get("XDG_DATA_HOME") or user / ".local/share") / "orin-deploy",
            Path(self.environ.get("XDG_CACHE_HOME") or user / ".cache") / "orin-deploy",
        )

    def path(self, path: str | Path) -> Path:
        """Where a path of this machine really lies: our own folders are themselves, all else is below the root."""
        path = Path(path)
        own = (getattr(self, "data", None), getattr(self, "cache", None))
        if any(folder is not None and path.is_relative_to(folder) for folder in own):
            return path
        return super().path(path)

    # The clock.

    def now(self) -> datetime:
        return datetime.now(timezone.utc).replace(microsecond=0)

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def sleep_between_looks(self, waited_s: float) -> None:
        """Sleep before the next look at something that has taken `waited_s` seconds so far: a tenth more, so that
        looking costs a slow machine little and a fast one is noticed at once."""
        self.sleep(min(max(0.05, waited_s / 10), 2.0))

    # Our own folders.

    def lock(self, command: str) -> AbstractContextManager[None]:
        """Hold the global lock while `command` changes things; the error of a second holder names the first."""
        holder = {"pid": os.getpid(), "command": command, "since": self.now().isoformat()}
        return files.lock(self.data / "lock", holder)

    def free_bytes(self, path: str | Path) -> int | None:
        """Bytes that can still be written where `path` is or will be, or None when that cannot be known."""
        real = self.path(path)
        for folder in (real, *real.parents):
            try:
                status = os.statvfs(folder)
            except OSError:
                continue
            return status.f_bavail * status.f_frsize
        return None

    # Loopback.

    def http(self, method: str, url: str, payload: Any = None, **options: Any) -> Any:
        """One small request to a server on this machine; see `http.request`."""
        from orin_deploy.host import http

        return http.request(method, url, payload, **options)

    def events(self, url: str, payload: Any, **options: Any) -> Iterator[Any]:
        """A streamed answer, document by document; see `http.events`."""
        from orin_deploy.host import http

        return http.events(url, payload, **options)

    # What runs for as long as we look.

    def lines(self, *argv: str) -> Lines:
        """Start a command that prints on and on, to be read line by line and closed; raises CommandFailed."""
        from orin_deploy.host.stream import Lines

        return Lines((self.which(argv[0]) or argv[0], *argv[1:]), self.environ)

    def trial(self, launch: str | Path) -> Trial:
        """Start the server of a launch file for as long as this program runs; see `trial.Trial`. Close it."""
        from orin_deploy.host.trial import Trial

        return Trial(self, self.path(launch))

    def free_port(self) -> int:
        """A loopback port that nobody has at this moment."""
        from orin_deploy.host import trial

        return trial.free_port()

    def meters(self) -> Meters | None:
        """What psutil tells of this machine; None when the root is another one, or psutil fails."""
        from orin_deploy.host import meters

        return meters.read() if self.root == Path("/") else None

    # Actions.

    def do(self, action: Action, progress: Progress = _silent) -> None:
        """Carry out one action; raises OrinError with what went wrong and what to do."""
        match action:
            case Run():
                self._run(action, progress)
            case Write():
                files.write(self.path(action.path), action.text, action.mode)
            case Fetch():
                from orin_deploy.host.fetch import fetch

                fetch(self, action, progress)
            case Unpack():
                progress(None, f"unpacking {Path(action.archive).name}")
                files.unpack(self.path(action.archive), self.path(action.path), action.prefix)
            case Link():
                files.link(self.path(action.path), action.target)
            case Remove():
                files.remove(self.path(action.path))
            case Start():
                from orin_deploy.host import processes

                processes.start(self, self.path(action.path))
            case Stop():
                from orin_deploy.host import processes

                processes.stop(self, self.path(action.path))
            case Reboot():
                commands.reboot(action.argv, action.question, self.environ)

    def _run(self, action: Run, progress: Progress) -> None:
        from orin_deploy.host.progress import reader

        environ = {**self.environ, **dict(action.env)}
        lines: list[str] = []
        read = reader(action.progress, progress)

        def on_line(line: str) -> None:
            if action.output is not None:
                lines.append(line)
            read(line)

        if action.cwd is not None:
            self.path(action.cwd).mkdir(parents=True, exist_ok=True)
        commands.follow(
            action.argv,
            environ,
            cwd=None if action.cwd is None else self.path(action.cwd),
            log=None if action.log is None else self.path(action.log),
            on_line=on_line,
        )
        if action.output is not None:
            files.write(self.path(action.output), "\n".join(lines) + "\n")
