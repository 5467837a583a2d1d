"""The public command as a child process, in a data folder of its own, with the shared engine and model by path."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class Command:
    """`orin-deploy` for one test: `home` is its data folder, `up` the words that deploy the shared engine and model.

    Without speculation, which would be measured first; a --draft of a test's own comes later and wins.
    """

    home: Path
    engine: Path
    model: Path
    port: int

    @property
    def words(self) -> tuple[str, ...]:
        return (
            "--profile", "host", "--model", str(self.model),
            "--set", f"build.engine={self.engine}", "--set", f"port={self.port}", "--draft", "none",
        )  # fmt: skip

    def environ(self) -> dict[str, str]:
        return {**os.environ, "ORIN_DEPLOY_HOME": str(self.home)}

    def popen(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            (sys.executable, "-m", "orin_deploy", *words),
            env=self.environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, *words: str) -> Result:
        process = self.popen(*words)
        out, err = process.communicate(timeout=300)
        return Result(process.returncode, out, err)

    def up(self, *words: str) -> Result:
        return self("up", *self.words, *words)

    def plan(self, *words: str) -> Result:
        return self("plan", *self.words, *words)


@contextmanager
def command(home: Path, engine: Path, model: Path) -> Iterator[Command]:
    """A command whose deployments are taken down at the end, whatever happened."""
    each = Command(home, engine, model, free_port())
    try:
        yield each
    finally:
        for path in (home / "deployments").glob("*"):
            each("down", "--name", path.name)
