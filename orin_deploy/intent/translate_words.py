"""Pasted text cut into what it says: commands as their words, and settings by name. Pure; any text can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orin_deploy.intent.translate_container import (
    ENVIRONMENT_KEYS,
    Aside,
    Container,
    commands_of,
    compose_file,
    container,
    environment,
    is_container,
    unread,
)
from orin_deploy.intent.translate_split import NAME, expanded, statements, words_of
from orin_deploy.intent.yaml_text import MAX_BRACKETS, bracket_depth

MAX_CHARS = 64 * 1024
_MAX_DEPTH = 8  # of a document

_ASSIGNED = re.compile(rf"({NAME})=(.*)", re.S)
_SETTING = re.compile(r"([A-Za-z*][\w.-]*)(?:[ \t]+=[ \t]*|=[ \t]+)(.*)")
_CALL = re.compile(r"\bLlama(?:Cpp|CPP)?\(((?:[^()]|\([^()]*\))*)\)")
_ARGUMENT = re.compile(r"""(\w+)\s*=\s*("[^"]*"|'[^']*'|[^,\n]+)""")


@dataclass(frozen=True)
class Command:
    """A command as its words, assignments before it included."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Assigned:
    """A setting by name; `of` is "environment" or "profile" (a line of YAML, of a preset, of a Modelfile …)."""

    name: str
    value: str
    of: str


Said = Command | Assigned | Container | Aside


def read(text: str) -> tuple[Said, ...]:
    """What a pasted text says, in its order: shell lines, a profile, a preset, a unit, a compose file, Python."""
    text = text[:MAX_CHARS].replace("\r\n", "\n").replace("\r", "\n").lstrip("\ufeff")
    document = _document(text)
    if document is not None:
        return tuple(_of_table(document, ""))
    if calls := _CALL.findall(text):
        return tuple(
            Assigned(name, value.strip().strip("\"'"), "profile")
            for call in calls for name, value in _ARGUMENT.findall(call)
        )  # fmt: skip
    known: dict[str, str] = {}
    return tuple(said for line, words in statements(text) for said in _of_line(line, words, known))


def _of_line(line: str, words: list[str], known: dict[str, str]) -> Iterator[Said]:
    """What one line says; `known` are the shell's variables so far."""
    line = line.strip()
    if re.fullmatch(r"\[[^\]]*\]", line) or not words:
        return
    if match := re.fullmatch(r"(?:PARAMETER[ \t]+(\w+)|(FROM))[ \t]+(.*)", line):
        yield Assigned((match[1] or match[2]).lower(), match[3].strip().strip('"'), "profile")
    elif match := re.fullmatch(r"(?:CMD|ENTRYPOINT)[ \t]+(\[.*\])", line, re.S):
        yield from (Command(tuple(words)) for words in commands_of(_json(match[1])))
    elif match := re.fullmatch(r"Exec\w+=[-@:+!]*(.*)", line, re.S):
        yield from (Command(tuple(each)) for _, each in statements(match[1]))
    elif match := re.fullmatch(r"CPUAffinity=(.*)", line):
        yield Assigned("CPUAffinity", ",".join(match[1].split()), "environment")
    elif match := re.fullmatch(r"(?:Environment=|ENV[ \t]+)(.*)", line, re.S):
        yield from (each for word in words_of(match[1]) if (each := _assigned(word, "environment")))
    elif (match := _SETTING.fullmatch(line)) and not words[0].startswith("-"):
        yield Assigned(match[1], match[2].strip().strip('"'), "profile")
    else:
        words = [expanded(word, known) for word in words]
        named = words[1:] if words[0] in ("export", "set", "setx", "local", "declare") else words
        assigned = [_assigned(word, "environment") for word in named]
        if None in assigned:
            yield Command(tuple(words))
        for each in assigned if None not in assigned else ():
            assert each is not None
            known[each.name] = each.value
            yield each


def _assigned(word: str, of: str) -> Assigned | None:
    match = _ASSIGNED.fullmatch(word.removeprefix("$env:"))
    return Assigned(match[1], match[2], of) if match else None


# Documents.


def _document(text: str) -> dict[str, Any] | None:
    """The mapping that a text is, as YAML or JSON; None for a text that is none."""
    if not re.match(r"\s*(?:#.*\n\s*|---\s*\n)*(?:\{|[\"']?[A-Za-z][\w.-]*[\"']?:(?:\s|$))", text):
        return None
    if bracket_depth(text) > MAX_BRACKETS:
        return None
    import yaml

    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.BaseLoader)):
            return None  # a short text could say a great many things
        data = yaml.load(text, Loader=yaml.BaseLoader)  # words stay words, nothing is constructed
    except (yaml.YAMLError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and all(isinstance(key, str) for key in data) else None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _of_table(table: Mapping[Any, Any], path: str, depth: int = 0) -> Iterator[Said]:
    if is_container(table):
        yield container(table, path.rstrip("."))
        return
    if not path and isinstance(table.get("services"), dict):
        yield from compose_file(table)
        return
    for key, value in table.items():
        name = str(key)
        if name in ENVIRONMENT_KEYS and isinstance(value, (dict, list)):
            for each in environment(name, value):
                yield each if isinstance(each, Aside) else Assigned(*each, "environment")
        elif isinstance(value, str):
            yield Assigned(path + name, value, "profile")
        elif depth == _MAX_DEPTH:
            yield unread(path + name, value)
        else:
            for item in value if isinstance(value, list) else (value,):
                if isinstance(item, dict):
                    yield from _of_table(item, f"{path}{name}.", depth + 1)
                elif not isinstance(item, str):
                    yield unread(path + name, item)
            words = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
            yield from (Assigned(path + name, ",".join(words), "profile"),) if words else ()
