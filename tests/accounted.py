"""`orin-deploy` as a child that accounts for itself: what it imported, which programs it started, what it opened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = """
import atexit, json, os, sys

started, opened = [], []

def audit(event, words):
    if event == "subprocess.Popen":
        started.append([os.fsdecode(word) for word in words[1]])
    elif event == "open" and isinstance(words[0], (str, bytes)):
        opened.append(os.fsdecode(words[0]))

def tell():
    told = {"modules": sorted(sys.modules), "started": started, "opened": opened}
    with open(os.environ["ACCOUNT"], "w") as file:
        json.dump(told, file)

atexit.register(tell)
sys.addaudithook(audit)
from orin_deploy.cli.main import main
main()
"""


@dataclass(frozen=True)
class Account:
    """How one command ended and what it took; `opened` are the files in the order in which they were."""

    code: int
    out: str
    err: str
    modules: frozenset[str]
    started: tuple[tuple[str, ...], ...]
    opened: tuple[str, ...]

    def times_opened(self, path: Path) -> int:
        return self.opened.count(str(path))


def accounted(*words: str, folder: Path, environ: Mapping[str, str]) -> Account:
    """Run a verb; its account lies in `folder`."""
    path = folder / "account.json"
    done = subprocess.run(
        (sys.executable, "-c", _PROGRAM, *words),
        env={**os.environ, **environ, "ACCOUNT": str(path)}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    told = json.loads(path.read_text())
    started = tuple(map(tuple, told["started"]))
    return Account(
        done.returncode, done.stdout, done.stderr, frozenset(told["modules"]), started, tuple(told["opened"])
    )
