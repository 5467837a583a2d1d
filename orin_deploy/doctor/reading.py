"""Reading evidence from a file or a folder: bounded in bytes and files, safe for any content."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from orin_deploy.doctor import documents, texts
from orin_deploy.doctor.evidence import Claims, Evidence
from orin_deploy.errors import OrinError, UsageError

MAX_FILES = 256
MAX_ENTRIES = 4096  # folder entries looked at, whatever they are
MAX_DEPTH = 4
HEAD_BYTES = 256 * 1024  # of a long text; a log tells how it began …
TAIL_BYTES = 768 * 1024  # … and above all how it ended
TOTAL_BYTES = 16 * 1024 * 1024

_PROSE_SUFFIXES = frozenset({".md", ".rst", ".adoc"})  # speaks about a case, is no evidence of it
_MODEL_SUFFIXES = frozenset({".gguf", ".ggml", ".bin", ".safetensors"})
_MODEL_MAGICS = (b"GGUF", b"FUGG", b"lmgg", b"fmgg", b"tjgg", b"algg")


def read_evidence(path: Path) -> Evidence:
    """What a file, or a folder of files, tells. Raises UsageError or OrinError when `path` itself cannot be read."""
    path = Path(path)
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
        if is_folder:
            os.scandir(path).close()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    documented: list[Claims] = []  # said on purpose, so it holds before what a text happens to say
    other: list[Claims] = []
    unread: list[str] = []
    room = TOTAL_BYTES
    for number, file in enumerate(_files(path) if is_folder else (path,)):
        if number >= MAX_FILES or room <= 0:
            unread.append(f"{file.name} and what follows it: too much to read")
            break
        try:
            claim, length = _claims(file)
        except (OSError, ValueError) as error:
            unread.append(f"{file.name}: {getattr(error, 'strerror', None) or error}")
            continue
        room -= length
        (other if claim.keys() & {"logs", "models"} else documented).append(claim)
    return merge([*documented, *other, {"unread": tuple(unread)}])


def _claims(file: Path) -> tuple[Claims, int]:
    """What one file says, known by its content and the kind its suffix names, and how many bytes were read for it."""
    suffix = file.suffix.lower()
    if suffix in _PROSE_SUFFIXES:
        return {}, 0
    if suffix in _MODEL_SUFFIXES:
        return {"models": (file,)}, 0
    raw = read_ends(file)
    if raw.startswith(_MODEL_MAGICS):
        return {"models": (file,)}, len(raw)
    text = texts.decode(raw)
    if text is None:
        return {}, len(raw)
    document = documents.parse(text, suffix)
    return documents.claims(document) if document is not None else texts.claims(file.name, text), len(raw)


def merge(claims: Iterable[Claims]) -> Evidence:
    """One evidence of many claims: lists and tables are joined, of two plain answers the first holds."""
    plain: Claims = {}
    joined: dict[str, dict[Any, Any]] = {}
    for claim in claims:
        for name, value in claim.items():
            if isinstance(value, tuple):
                joined.setdefault(name, {}).update(dict.fromkeys(value))
            elif isinstance(value, dict):
                plain[name] = {**value, **plain.get(name, {})}
            else:
                plain.setdefault(name, value)
    plain.update((name, tuple(items)) for name, items in joined.items())
    return Evidence(**plain)


def _files(folder: Path) -> Iterator[Path]:
    """Files below a folder, by name, links to files followed and links to folders not."""
    waiting = [(folder, 1)]
    seen = 0
    while waiting:
        here, depth = waiting.pop(0)
        try:
            with os.scandir(here) as entries:
                some = sorted(itertools.islice(entries, MAX_ENTRIES - seen), key=lambda entry: entry.name)
                found = [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in some]
        except OSError:
            continue
        seen += len(found)
        for path, is_folder in found:
            if not is_folder:
                yield path
            elif depth < MAX_DEPTH:
                waiting.append((path, depth + 1))


def read_ends(file: Path) -> bytes:
    """A regular file's bytes; of a long one its head and its tail. Never waits for a pipe or a device."""
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as source:
        status = os.fstat(source.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a file")
        raw = _read(source.fileno(), HEAD_BYTES + TAIL_BYTES)
        if status.st_size <= len(raw):
            return raw
        os.lseek(source.fileno(), -TAIL_BYTES, os.SEEK_END)
        return raw[:HEAD_BYTES] + b"\n" + _read(source.fileno(), TAIL_BYTES)


def _read(descriptor: int, limit: int) -> bytes:
    parts = []
    while limit > 0 and (part := os.read(descriptor, limit)):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


def _unreadable(path: Path, error: Exception) -> OrinError:
    if isinstance(error, FileNotFoundError):
        return UsageError(f"{path} does not exist", "give a log, a model file or a folder of evidence")
    reason = getattr(error, "strerror", None) or str(error)
    return OrinError(f"{path} cannot be read: {reason}", f"ls -ld {path}")
