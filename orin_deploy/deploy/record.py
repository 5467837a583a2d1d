"""Records: what was planned, what each step did, what was proved; JSON, one file a run, readable for ever."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

from orin_deploy import actions
from orin_deploy.actions import Action, Remove, Write
from orin_deploy.host import Host
from orin_deploy.intent import deployment
from orin_deploy.intent.spec import Spec, Value
from orin_deploy.parts import power, service

FORMAT = 1

_MEASURED = ("prompt_tokens", "prompt_per_s", "generated_tokens", "generated_per_s", "first_token_s", "spread")


def deployment_folder(host: Host, name: str) -> Path:
    return deployment.folder(host.data, name)


def deployments(host: Host) -> tuple[str, ...]:
    """Names of the deployments that exist: those something was done for and that `down` has not ended, and those that
    are served although their files are lost."""
    undo = (path.parent.name for path in deployment.folders(host.data).glob("*/undo.json"))
    return tuple(sorted({*undo, *service.kept(host)}))


def known(host: Host) -> tuple[str, ...]:
    """Names of all deployments that have left a record, up or down, and of those that are served without one."""
    records = (path.parent.parent.name for path in deployment.folders(host.data).glob("*/records/*.json"))
    return tuple(sorted({*records, *deployments(host)}))


class Record:
    """The record of one run of `up`, written whole after every step so that a power cut loses nothing."""

    def __init__(self, host: Host, name: str, command: str) -> None:
        self.host = host
        self.folder = deployment_folder(host, name) / "records"
        self.number = max((number for number, _ in _numbered(self.folder)), default=0) + 1
        self.data: dict[str, Any] = {
            "format": FORMAT,
            "record": self.number,
            "name": name,
            "command": command,
            "started": host.now().isoformat(),
            "finished": None,
            "outcome": "running",
            "error": None,
            "steps": [],
        }

    def update(self, **values: Any) -> None:
        """Set top-level fields and write the record to disk."""
        self.data.update(values)
        self._save()

    def step(self, part: str, name: str, why: str, outcome: str, seconds: float) -> None:
        """Add what became of one step."""
        self.data["steps"].append(
            {"part": part, "name": name, "why": why, "outcome": outcome, "seconds": round(seconds, 2)}
        )
        self._save()

    def finish(self, outcome: str, error: str | None = None, **values: Any) -> None:
        self.update(outcome=outcome, error=error, finished=self.host.now().isoformat(), **values)

    def _save(self) -> None:
        path = self.folder / f"{self.number:04d}.json"
        self.host.do(Write(str(path), json.dumps(plain(self.data), indent=1) + "\n"))


def latest(host: Host, name: str, outcome: str | None = None) -> dict[str, Any] | None:
    """The newest record of a deployment, or the newest that ended in `outcome` ("done", "failed", …)."""
    return next(
        (data for _, data in _newest_first(host, name) if data and outcome in (None, data.get("outcome"))), None
    )


def unread(host: Host, name: str) -> tuple[int, ...]:
    """The numbers of the records that cannot be read and that others now stand in for: those since the last that ended
    well, for nobody looks further back."""
    since = takewhile(lambda record: (record[1] or {}).get("outcome") != "done", _newest_first(host, name))
    return tuple(sorted(number for number, data in since if data is None))


def unread_text(host: Host, name: str) -> str | None:
    """What it means that records cannot be read, in a sentence; None where all can be."""
    numbers = unread(host, name)
    if not numbers:
        return None
    which = f"record{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))} of {name}"
    instead = latest(host, name)
    used = "there is no other" if instead is None else f"record {instead['record']} is used instead"
    folder = deployment_folder(host, name) / "records"
    return f"{which} cannot be read (in {folder}): {used}; what runs and what `down` restores are known without"


def _newest_first(host: Host, name: str) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The number of every record of a deployment, and what it says; None where it cannot be read."""
    for number, path in sorted(_numbered(deployment_folder(host, name) / "records"), reverse=True):
        data = _load(path)
        yield number, data if data is not None and _sound(data) else None


def _sound(data: dict[str, Any]) -> bool:
    """Whether what others read from a record is there and of its kind: one that is damaged, or of another version of
    this program, is passed over as one that is torn."""
    try:
        numbers = [data["record"]]
        if (spec := data.get("spec")) is not None:
            numbers += [spec["settings"]["ctx_size"]["value"], *(row["bytes"] for row in spec["budget"]["rows"])]
            named = (
                spec["weights"]["reference"],
                spec["build"]["folder"],
                *(f["path"] for f in spec["weights"]["files"]),
            )
            if not all(isinstance(text, str) for text in named):
                return False
        if (proof := data.get("proof")) is not None:
            numbers += [proof["pid"], *(row["bytes"] for row in proof["memory"])]
        if (measured := data.get("measurement")) is not None:
            numbers += [measured[key] for key in _MEASURED]
        return isinstance(data.get("started", ""), str) and all(isinstance(number, (int, float)) for number in numbers)
    except (KeyError, TypeError, AttributeError):
        return False


def spec_of(record: dict[str, Any] | None) -> Spec | None:
    """The spec a record holds; None when there is none, or one of another version of this program."""
    import cattrs

    converter = cattrs.Converter()
    converter.register_structure_hook_func(lambda kind: kind == Value, lambda value, _: value)
    try:
        return converter.structure((record or {})["spec"], Spec)
    except (KeyError, TypeError, ValueError, cattrs.BaseValidationError):
        return None


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    return [(int(path.stem), path) for path in folder.glob("*.json") if re.fullmatch(r"\d+", path.stem)]


def _load(path: Path) -> dict[str, Any] | None:
    """A JSON object from disk; None when it is absent, torn or no object: a bad file must not stop a run."""
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


# What undoes a deployment, on disk before the first change.


def remember_undo(host: Host, name: str, undo: tuple[Action, ...]) -> None:
    """Put a step's undo actions before those already remembered; the same action is kept once."""
    remembered, known = _remembered(host, name), pending_undo(host, name)
    fresh = tuple(action for action in undo if action not in known)
    if fresh or remembered is None:
        document = {"format": FORMAT, "undo": [actions.to_json(action) for action in fresh + known]}
        host.do(Write(str(_undo_path(host, name)), json.dumps(document, indent=1) + "\n", mode=0o600))


def pending_undo(host: Host, name: str) -> tuple[Action, ...]:
    """The actions that take a deployment back, in the order in which to do them; where that list is damaged or lost,
    those that follow from the files it left."""
    remembered = _remembered(host, name)
    return (*service.leftovers(host, name), *power.leftovers(host, name)) if remembered is None else remembered


def _remembered(host: Host, name: str) -> tuple[Action, ...] | None:
    """The list on disk; None where it is damaged or lost."""
    try:
        return tuple(actions.from_json(action) for action in (_load(_undo_path(host, name)) or {})["undo"])
    except (KeyError, TypeError, AttributeError):
        return None


def _undo_path(host: Host, name: str) -> Path:
    return deployment_folder(host, name) / "undo.json"


def forget_undo(host: Host, name: str) -> None:
    host.do(Remove(str(_undo_path(host, name))))


def plain(value: Any) -> Any:
    """A value as JSON knows it: dataclasses become objects of what they show of themselves, sets and tuples lists,
    paths text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value) if field.repr}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
