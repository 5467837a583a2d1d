"""A small systemd: units below the board's root, whose programs really run on this machine.

It knows what a deployment's units use: Type exec, simple, notify and oneshot, ExecStartPre, ExecStart, ExecStartPost,
ExecStop, RemainAfterExit, Environment, Restart with its delay and limits, the timeouts, After, Before, Requires,
BindsTo, Wants and PartOf. What isolates a service (users, folders, credentials) is ignored. A unit that runs has a
keeper, a process of its own that starts it, watches it and shows its process below the board's /proc.
"""

from __future__ import annotations

import fcntl
import fnmatch
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.virtual.kernel import OWN, Kernel

UNITS = "/etc/systemd/system"
START_WAIT_S = 120.0
_REPO = Path(__file__).resolve().parents[2]


def full(name: str) -> str:
    return name if "." in name.rpartition("/")[2] else f"{name}.service"


def journal(kernel: Kernel, unit: str) -> Path:
    return kernel.path(f"/var/log/journal/{unit}.log")


class Manager:
    """The units of the system, or with `user` of the calling user's own systemd."""

    def __init__(self, kernel: Kernel, user: bool = False) -> None:
        self.kernel = kernel
        home = os.environ.get("XDG_CONFIG_HOME") or f"{os.environ.get('HOME', '')}/.config"
        self.folder = f"{home}/systemd/user" if user else UNITS
        self.target = "default.target" if user else "multi-user.target"
        self.own = kernel.root / OWN / ("user-units" if user else "units")

    # Units as they were when they were last loaded.

    def text(self, unit: str) -> str | None:
        """A unit's text: as loaded, and loaded now when it never was."""
        loaded, disk = self.own / "loaded" / unit, self.kernel.path(f"{self.folder}/{unit}")
        if not loaded.exists() and disk.exists():
            loaded.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(disk, loaded)
        return loaded.read_text() if loaded.exists() else None

    def reload(self) -> None:
        shutil.rmtree(self.own / "loaded", ignore_errors=True)

    def known(self, patterns: list[str]) -> list[str]:
        """The units in memory or on disk that fit the patterns."""
        disk = [path.name for path in self.kernel.path(self.folder).glob("*.service")]
        names = {*disk, *(path.stem for path in self.own.glob("*.json"))}
        return sorted(name for name in names if any(fnmatch.fnmatch(name, full(pattern)) for pattern in patterns))

    def values(self, unit: str, key: str) -> list[str]:
        text = (self.text(unit) or "").replace("\\\n", " ")
        found = [line.partition("=")[2].strip() for line in text.splitlines() if line.startswith(f"{key}=")]
        return found[max((n + 1 for n, value in enumerate(found) if not value), default=0) :]

    def value(self, unit: str, key: str, default: str = "") -> str:
        return (self.values(unit, key) or [default])[-1]

    def names(self, unit: str, *keys: str) -> list[str]:
        return [name for key in keys for value in self.values(unit, key) for name in value.split()]

    # What they are doing.

    def state(self, unit: str) -> dict[str, Any]:
        try:
            state: dict[str, Any] = json.loads((self.own / f"{unit}.json").read_text())
        except (OSError, ValueError):
            return {"ActiveState": "inactive", "SubState": "dead", "MainPID": 0, "Result": "success", "keeper": 0}
        if state["keeper"] and not alive(state["keeper"]):  # killed with the machine
            state |= {"ActiveState": "inactive", "SubState": "dead", "MainPID": 0, "keeper": 0}
        return state

    def set_state(self, unit: str, **values: Any) -> None:
        self.own.mkdir(parents=True, exist_ok=True)
        file = self.own / f"{unit}.json"
        with (self.own / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            temporary = file.with_name(f".{unit}.{os.getpid()}")
            temporary.write_text(json.dumps(self.state(unit) | values))
            temporary.replace(file)

    def show(self, unit: str) -> dict[str, str]:
        state = self.state(unit)
        loaded = "loaded" if self.text(unit) is not None else "not-found"
        defaults = {"NRestarts": "0", "ExecMainCode": "0", "ExecMainStatus": "0", "LoadState": loaded, "Id": unit}
        enabled = {"UnitFileState": "enabled" if self.is_enabled(unit) else "disabled"}
        return defaults | enabled | {name: str(value) for name, value in state.items() if name != "keeper"}

    def link(self, unit: str) -> Path:
        return self.kernel.path(f"{self.folder}/{self.target}.wants/{unit}")

    def is_enabled(self, unit: str) -> bool:
        return self.link(unit).is_symlink()

    def enable(self, unit: str, on: bool) -> None:
        self.link(unit).unlink(missing_ok=True)
        if on:
            self.link(unit).parent.mkdir(parents=True, exist_ok=True)
            self.link(unit).symlink_to(f"{self.folder}/{unit}")

    # Starting and stopping.

    def start(self, unit: str, wait: bool = True) -> bool:
        """Start a unit and what it requires; with `wait` until it is up or has failed."""
        if self.state(unit)["ActiveState"] in ("active", "activating"):
            return True
        # Told before anything else starts, for two units may want each other.
        self.set_state(unit, ActiveState="activating", SubState="start", Result="success", NRestarts=0, MainPID=0)
        for other in self.names(unit, "Requires", "BindsTo"):
            if self.text(other) is not None:
                self.start(other, wait=True)
        words = [sys.executable, "-S", "-m", "tests.virtual.keeper", str(self.kernel.root), str(self.own), unit]
        scope = ["--user"] if self.own.name.startswith("user") else []
        environ = {**os.environ, "PYTHONPATH": str(_REPO)}
        keeper = subprocess.Popen(
            [*words, *scope], env=environ, cwd="/", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.set_state(unit, keeper=keeper.pid)
        self.start_wanted(unit)
        deadline = time.monotonic() + (START_WAIT_S if wait else 0)
        while time.monotonic() < deadline and self.state(unit)["ActiveState"] == "activating":
            keeper.poll()
            time.sleep(0.02)
        # It goes on without us.
        keeper.returncode = 0
        return not wait or self.state(unit)["Result"] == "success"

    def start_wanted(self, unit: str) -> None:
        for other in self.names(unit, "Wants"):
            if self.text(other) is not None:
                self.start(other, wait=False)

    def stop_bound(self, unit: str) -> None:
        """A unit has ended by itself: those that are bound to it end too."""
        for other in self.known(["*"]):
            if unit in self.names(other, "BindsTo"):
                self.stop(other, stopping=frozenset({unit}))

    def stop(self, unit: str, kill: bool = False, stopping: frozenset[str] = frozenset()) -> None:
        """Stop a unit and those that are part of it or cannot be without it."""
        stopping |= {unit}
        for other in self.known(["*"]):
            if other not in stopping and unit in self.names(other, "PartOf", "BindsTo", "Requires"):
                self.stop(other, kill, stopping)
        state = self.state(unit)
        if state["keeper"] and alive(state["keeper"]):
            os.kill(state["keeper"], signal.SIGUSR1 if kill else signal.SIGTERM)
            while alive(state["keeper"]):
                time.sleep(0.02)
        elif state["ActiveState"] == "active":  # a oneshot that remains
            for line in self.values(unit, "ExecStop"):
                run(self.kernel, unit, line, {})
        self.set_state(unit, ActiveState="inactive", SubState="dead", MainPID=0, keeper=0)

    def reset(self, unit: str) -> None:
        if self.state(unit)["ActiveState"] == "failed":
            self.set_state(unit, ActiveState="inactive", SubState="dead", Result="success")


def alive(pid: int) -> bool:
    """Whether a process is there and not just its remains."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def words_of(line: str, environ: dict[str, str]) -> tuple[list[str], bool]:
    """The words of an Exec line, and whether its failure counts; `$$`, `%%` and `$NAME` as systemd reads them."""
    counts = not line.startswith("-")
    words = []
    for word in shlex.split(line.lstrip("-@:+!")):
        parts = re.split(r"(\$\$)", word.replace("%%", "%"))
        words.append(
            "".join(
                "$" if part == "$$" else re.sub(r"\$\{?(\w+)\}?", lambda found: environ.get(found[1], ""), part)
                for part in parts
            )
        )
    return [word.replace("\\;", ";") for word in words], counts


def run(kernel: Kernel, unit: str, line: str, environ: dict[str, str]) -> bool:
    """Run an Exec line to its end; False when it failed and that counts."""
    words, counts = words_of(line, environ)
    file = journal(kernel, unit)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as log:
        try:
            done = subprocess.run(words, env=environ or None, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        except OSError as error:
            log.write(f"{words[0]}: {error.strerror}\n".encode())
            return not counts
    return done.returncode == 0 or not counts
