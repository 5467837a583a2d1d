"""Reading YAML the 1.2 way: only true and false are booleans, and every key knows its line."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from orin_deploy.errors import UsageError

Where: TypeAlias = tuple[str | int, ...]
"""The way to a value: keys and list positions, as in ("board", "clusters", 0)."""

MAX_BRACKETS = 32
"""Brackets in one another that PyYAML shall be given at most: with thousands it takes minutes."""

_MAX_BYTES = 1024 * 1024
_MAX_DEPTH = 32

# The core schema of YAML 1.2, section 10.3.2, without .inf and .nan, which nothing here can use.
_CORE: tuple[tuple[str, Callable[[str], Any]], ...] = (
    (r"|~|null|Null|NULL", lambda text: None),
    (r"true|True|TRUE", lambda text: True),
    (r"false|False|FALSE", lambda text: False),
    (r"[-+]?[0-9]{1,18}", int),
    (r"0o[0-7]{1,18}", lambda text: int(text[2:], 8)),
    (r"0x[0-9a-fA-F]{1,15}", lambda text: int(text[2:], 16)),
    (r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?", float),
)
_RESOLVED = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map")


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a file: where (line from 1, and the key), and what is the case."""

    file: str
    line: int | None
    key: str
    message: str

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


@dataclass
class Document:
    """A YAML file's content as plain values, and the line of every key and list item."""

    file: str
    data: Any = None
    lines: dict[Where, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, where: Where) -> int | None:
        """The line of a value, or of the closest thing around it."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where)

    def problem(self, where: Where, message: str) -> Problem:
        return Problem(self.file, self.line(where), ".".join(map(str, where)), message)


def bracket_depth(text: str) -> int:
    """How deep brackets are nested, those in quotes counted too."""
    steps = (1 if char in "{[" else -1 for char in text if char in "{[]}")
    return max(itertools.accumulate(steps), default=0)


def read(path: Path) -> Document:
    """The document in a file; a file that is no YAML gives a problem, one that cannot be read raises UsageError."""
    try:
        # Not blocking, so that a pipe without a writer is told instead of waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            raw = file.read(_MAX_BYTES + 1) or b""
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "check the name and the permissions") from None
    if len(raw) > _MAX_BYTES:
        raise UsageError(f"{path} is larger than 1 MiB and no profile", "check the name")
    return parse(raw, str(path))


def parse(text: bytes | str, file: str) -> Document:
    """The document in a text."""
    import yaml

    document = Document(file)
    # Without implicit types: `on` and `no` would become booleans, 12:30 a number. libyaml where PyYAML has it.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        root = yaml.compose(text, Loader=loader)
        if root is not None:
            document.data = _value(root, (), document, set())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        document.problems.append(Problem(file, line, "", f"is no YAML: {error.problem or error.context}"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        document.problems.append(Problem(file, None, "", f"is no YAML: {reason}"))
    return document


def _value(node: Any, where: Where, document: Document, seen: set[int]) -> Any:
    document.lines.setdefault(where, node.start_mark.line + 1)
    if id(node) in seen or node.tag not in _RESOLVED or len(where) > _MAX_DEPTH:
        # A few aliases of aliases can stand for gigabytes; a profile that repeats itself includes a shared part.
        fault = "is nested too deep" if len(where) > _MAX_DEPTH else "anchors and tags are not read here"
        document.problems.append(document.problem(where, fault))
        return None
    seen.add(id(node))
    if node.id == "scalar":
        return node.value if node.style else _scalar(node.value)  # quoted or block text is text
    if node.id == "sequence":
        return [_value(item, (*where, i), document, seen) for i, item in enumerate(node.value)]
    return _mapping(node, where, document, seen)


def _mapping(node: Any, where: Where, document: Document, seen: set[int]) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if key_node.id != "scalar":
            document.problems.append(Problem(document.file, line, ".".join(map(str, where)), "a key must be a word"))
            continue
        key = key_node.value
        inner = (*where, key)
        if key in mapping:
            first = document.lines[inner]
            document.problems.append(
                Problem(document.file, line, ".".join(map(str, inner)), f"is there twice, first in line {first}")
            )
            continue
        document.lines[inner] = line
        mapping[key] = _value(value_node, inner, document, seen)
    return mapping


def _scalar(text: str) -> Any:
    for pattern, convert in _CORE:
        if re.fullmatch(pattern, text):
            return convert(text)
    return text
