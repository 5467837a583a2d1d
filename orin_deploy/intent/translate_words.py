"""Pasted text cut into what it says: commands as their words, and settings by name. Pure; any text can be read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orin_deploy.intent.yaml_text import MAX_BRACKETS, bracket_depth

MAX_CHARS = 64 * 1024
_MAX_DEPTH = 8  # of a document

_PROMPT = re.compile(
    r"^[ \t]*(?:\$ |PS [^>\n]*> ?|[A-Z]:\\[^>\n]*> ?|[\w.-]+@[\w.-]+:[^$#\s]*[$#] |>(?!\S) ?|```.*$)", re.M
)
_NAME = r"[A-Za-z_][\w.]*"
_ASSIGNED = re.compile(rf"({_NAME})=(.*)", re.S)
_SETTING = re.compile(r"([A-Za-z*][\w.-]*)(?:[ \t]+=[ \t]*|=[ \t]+)(.*)")
_CALL = re.compile(r"\bLlama(?:Cpp|CPP)?\(((?:[^()]|\([^()]*\))*)\)")
_ARGUMENT = re.compile(r"""(\w+)\s*=\s*("[^"]*"|'[^']*'|[^,\n]+)""")
_WHOLE = re.compile(r"\$\([^)\n]{0,200}\)|<\w[\w ./-]{0,200}>")  # $(a command) and <a placeholder>
_REDIRECTION = re.compile(r"[<>]+&?[ \t]*[^\s;|&]*")
_QUOTES = {"'": "'", '"': '"', "“": "”", "‘": "’"}
_COMMAND_KEYS = frozenset({"command", "cmd", "args", "entrypoint"})
_ENVIRONMENT_KEYS = frozenset({"environment", "env"})


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


Said = Command | Assigned


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
        yield from _of_value("command", _json(match[1]))
    elif match := re.fullmatch(r"Exec\w+=[-@:+!]*(.*)", line, re.S):
        yield from (Command(tuple(each)) for _, each in statements(match[1]))
    elif match := re.fullmatch(r"CPUAffinity=(.*)", line):
        yield Assigned("CPUAffinity", ",".join(match[1].split()), "environment")
    elif match := re.fullmatch(r"(?:Environment=|ENV[ \t]+)(.*)", line, re.S):
        yield from (each for word in _words(match[1]) if (each := _assigned(word, "environment")))
    elif (match := _SETTING.fullmatch(line)) and not words[0].startswith("-"):
        yield Assigned(match[1], match[2].strip().strip('"'), "profile")
    else:
        words = [_expanded(word, known) for word in words]
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


def _expanded(word: str, known: Mapping[str, str]) -> str:
    """The word with the variables that the text itself set."""
    pattern = rf"\$\{{({_NAME})(?::?-([^}}]{{0,200}}))?\}}|\$({_NAME})"
    return re.sub(pattern, lambda m: known.get(m[1] or m[3], m[2] if m[2] is not None else m[0]), word)


# Shell words.


def _words(text: str) -> list[str]:
    return [word for _, words in statements(text) for word in words]


def statements(text: str) -> list[tuple[str, list[str]]]:
    """Commands as (raw text, words), in the ways of sh, cmd, PowerShell, and blogs that bend quotes and dashes."""
    windows = re.search(r"\.exe\b|[A-Za-z]:\\|[`^][ \t]*\n", text) is not None
    text = _PROMPT.sub("", text)
    text = re.sub(r"[\\`^][ \t]*\n" if windows else r"\\[ \t]*\n", " ", text)
    return _Splitter(text, windows).split()


class _Splitter:
    """A walk over the text, one character after the other."""

    def __init__(self, text: str, windows: bool) -> None:
        self.text, self.windows, self.at, self.begun = text, windows, 0, 0
        self.word: str | None = None
        self.words: list[str] = []
        self.found: list[tuple[str, list[str]]] = []

    def split(self) -> list[tuple[str, list[str]]]:
        while self.at < len(self.text):
            self._step(self.text[self.at])
        self._end_statement()
        return self.found

    def _step(self, char: str) -> None:
        rest = self.text[self.at + 1 :]
        if char in " \t\u00a0":
            self._end_word()
        elif char in "\n;|&":
            self._end_statement()
        elif char == "#" and self.word is None:
            self.at = self._find("\n") - 1
        elif char in _QUOTES and (char in "'\"" or not (self.word or "")[-1:].isalnum()) and _QUOTES[char] in rest:
            self._quoted(_QUOTES[char])
        elif char == "\\" and rest and not self.windows:
            self.at += 1
            self._add(rest[0])
        elif match := _WHOLE.match(self.text, self.at):
            self._add(match[0])
            self.at = match.end() - 1
        elif match := _REDIRECTION.match(self.text, self.at):  # which is no argument
            self.word = None if (self.word or "").isdigit() else self.word
            self._end_word()
            self.at = match.end() - 1
        elif char in "—–" and self.word is None:  # what a blog makes of -- and -
            name = re.match(r"\w*", rest)
            self._add("--" if char == "—" or (name and len(name[0]) > 4) else "-")
        else:
            self._add(char)
        self.at += 1

    def _quoted(self, closing: str) -> None:
        self._add("")
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != closing:
            char, following = self.text[self.at], self.text[self.at + 1 : self.at + 2]
            escapes = closing == '"' and char == "\\" and following in ('"', "$", "`", *("" if self.windows else "\\"))
            self.at += 1 if escapes and following else 0
            self._add(self.text[self.at])
            self.at += 1

    def _find(self, char: str) -> int:
        found = self.text.find(char, self.at)
        return len(self.text) if found < 0 else found

    def _add(self, text: str) -> None:
        self.word = (self.word or "") + text

    def _end_word(self) -> None:
        if self.word is not None:
            self.words.append(self.word)
        self.word = None

    def _end_statement(self) -> None:
        self._end_word()
        if self.words:
            self.found.append((self.text[self.begun : self.at], self.words))
        self.words, self.begun = [], self.at + 1


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
    is_service = bool(_COMMAND_KEYS & table.keys()) or "image" in table
    for key, value in table.items():
        name = str(key)
        if name in _COMMAND_KEYS or (name in _ENVIRONMENT_KEYS and isinstance(value, (dict, list))):
            yield from _of_value("command" if name in _COMMAND_KEYS else "environment", value)
        elif isinstance(value, str):
            yield from () if is_service else (Assigned(path + name, value, "profile"),)
        elif depth < _MAX_DEPTH:
            for item in value if isinstance(value, list) else (value,):
                yield from _of_table(item, f"{path}{name}.", depth + 1) if isinstance(item, dict) else ()
            words = [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
            yield from (Assigned(path + name, ",".join(words), "profile"),) if words and not is_service else ()


def _of_value(kind: str, value: Any) -> Iterator[Said]:
    """A command or an environment, as text, as a list or as a table."""
    if kind == "command" and isinstance(value, list):
        yield Command(tuple(map(str, value)))
    elif kind == "command":
        yield from (Command(tuple(words)) for _, words in statements(str(value)))
    elif isinstance(value, dict):
        yield from (Assigned(str(name), str(text), "environment") for name, text in value.items())
    else:
        for item in value if isinstance(value, list) else ():
            if isinstance(item, dict) and "name" in item:
                yield Assigned(str(item["name"]), str(item.get("value", "")), "environment")
            elif each := _assigned(str(item), "environment"):
                yield each
