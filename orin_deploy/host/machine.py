"""Reading a machine: its files below a root folder, its programs, its answers. Nothing here changes anything."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path


class Machine:
    """A machine seen through its files and commands.

    `root` is `/` on a real device and any other folder for a captured or a virtual one: every path given to the
    methods is absolute as on that machine and is looked up below `root`. Commands run with `environ`.
    """

    def __init__(self, root: Path | str = "/", environ: Mapping[str, str] | None = None) -> None:
        self.root = Path(root)
        self.environ: dict[str, str] = dict(os.environ if environ is None else environ)

    def path(self, path: str | Path) -> Path:
        """Where a path of this machine really lies; a path already below the root is itself."""
        path = Path(path)
        if path.is_relative_to(self.root):
            return path
        return self.root / str(path).lstrip("/")  # "//x", as below a data folder "/", is no path below "/" to pathlib

    def read_bytes(self, path: str | Path, limit: int | None = None) -> bytes | None:
        """A file's bytes (the first `limit` of them), or None when it is absent or cannot be read."""
        try:
            with self.path(path).open("rb") as file:
                return file.read() if limit is None else file.read(limit)
        except (OSError, ValueError):
            return None

    def read(self, path: str | Path) -> str | None:
        """A file's text without trailing NULs and white space, or None when it is absent or cannot be read."""
        text = self.read_text(path)
        return None if text is None else text.rstrip("\0 \t\n")

    def read_text(self, path: str | Path) -> str | None:
        """A file's whole text, to its last byte, or None when it is absent or cannot be read."""
        raw = self.read_bytes(path)
        return None if raw is None else raw.decode("utf-8", "replace")

    def exists(self, path: str | Path) -> bool:
        try:
            return self.path(path).exists()
        except OSError:  # below a folder that may not be entered
            return False

    def glob(self, pattern: str) -> tuple[str, ...]:
        """The machine's paths that match an absolute pattern, sorted; none below a folder that may not be entered."""
        found = []
        with contextlib.suppress(OSError):  # Path.glob meets it at a named folder, up to Python 3.12
            for path in self.root.glob(pattern.lstrip("/")):
                found.append("/" + str(path.relative_to(self.root)))
        return tuple(sorted(found))

    def link_target(self, path: str | Path) -> str | None:
        """What a symbolic link says, or None when the path is not one."""
        try:
            return os.readlink(self.path(path))
        except OSError:
            return None

    def which(self, program: str) -> str | None:
        """The full path of a program on this machine's PATH, or None."""
        return shutil.which(program, path=self.environ.get("PATH", os.defpath))

    def ask(self, *argv: str, timeout_s: float = 20) -> str | None:
        """What a quick read-only command prints (standard output, stripped), or None when it is absent or fails."""
        from orin_deploy.host.commands import capture

        done = capture(argv, self.environ, timeout_s)
        return done.stdout.strip() if done is not None and done.returncode == 0 else None
