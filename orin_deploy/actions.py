"""Actions: what a plan will do, as plain data. `Host.do` is the only thing that carries them out."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Run:
    """Run a command to its end. With `output`, its standard output becomes that file, whole or not at all.

    `log` receives everything the command says; `progress` names the way to read its progress ("ninja" or "pip").
    """

    argv: tuple[str, ...]
    cwd: str | None = None
    env: tuple[tuple[str, str], ...] = ()
    log: str | None = None
    output: str | None = None
    progress: str | None = None

    def __str__(self) -> str:
        words = [f"{k}={shlex.quote(v)}" for k, v in self.env] + [shlex.quote(word) for word in self.argv]
        return " ".join(words) + (f" > {self.output}" if self.output else "")


@dataclass(frozen=True)
class Write:
    """Write a whole file, atomically; folders on the way are made."""

    path: str
    text: str = field(repr=False)
    mode: int = 0o644

    def __str__(self) -> str:
        return f"write {self.path}"


@dataclass(frozen=True)
class Fetch:
    """Fetch one file from a reference (`hf:`, `modelscope:`, `https:`, `package:`, `file:`) to `path`.

    `size` in bytes and `sha256` are checked where they are known; nothing appears under `path` before they hold.
    """

    reference: str
    path: str
    size: int | None = None
    sha256: str | None = None

    def __str__(self) -> str:
        return f"fetch {self.reference} to {self.path}"


@dataclass(frozen=True)
class Unpack:
    """Unpack the members below `prefix` of an archive (tar, zip, wheel) into the folder `path`, whole or not at all."""

    archive: str
    path: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"unpack {self.archive} to {self.path}"


@dataclass(frozen=True)
class Link:
    """Point the symbolic link `path` at `target`, atomically."""

    path: str
    target: str

    def __str__(self) -> str:
        return f"link {self.path} to {self.target}"


@dataclass(frozen=True)
class Remove:
    """Remove a file or a folder with all it holds; absent is fine."""

    path: str

    def __str__(self) -> str:
        return f"remove {self.path}"


@dataclass(frozen=True)
class Start:
    """Start a supervised process from the launch file at `path` (where systemd does not run)."""

    name: str
    path: str

    def __str__(self) -> str:
        return f"start {self.name}"


@dataclass(frozen=True)
class Stop:
    """Stop the supervised process started from the launch file at `path`; not running is fine."""

    name: str
    path: str

    def __str__(self) -> str:
        return f"stop {self.name}"


@dataclass(frozen=True)
class Reboot:
    """Run a command that may ask whether to reboot now, answer YES, and reboot if it did ask.

    Only planned where the user agreed to a reboot. `question` is the part of the text by which the question is known;
    a command that does not ask has done its work live.
    """

    argv: tuple[str, ...]
    question: str

    def __str__(self) -> str:
        return f"{shlex.join(self.argv)}, and reboot if it asks to"


Action: TypeAlias = Run | Write | Fetch | Unpack | Link | Remove | Start | Stop | Reboot

KINDS: dict[str, type[Any]] = {
    kind.__name__.lower(): kind for kind in (Run, Write, Fetch, Unpack, Link, Remove, Start, Stop, Reboot)
}


def to_json(action: Action) -> dict[str, Any]:
    """An action as a JSON object: `do` names the kind, the rest are its fields."""
    return {"do": type(action).__name__.lower(), **vars(action)}


def from_json(data: dict[str, Any]) -> Action:
    """The action that `to_json` wrote, so that what undoes a change can be read back after a crash.

    Raises KeyError, TypeError or AttributeError for anything else.
    """
    values = {k: _frozen(v) for k, v in data.items() if k != "do"}
    action: Action = KINDS[data["do"]](**values)
    if any(each.type == "str" and not isinstance(getattr(action, each.name), str) for each in fields(action)):
        raise TypeError(f"{data['do']}: a text is missing")
    return action


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, (list, tuple)) else value
