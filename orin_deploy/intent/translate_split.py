"""Commands in pasted text cut into words, as sh, cmd and PowerShell do and as blogs bend them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

NAME = r"[A-Za-z_][\w.]*"
"""A variable's name."""

_PROMPT = re.compile(
    r"^[ \t]*(?:\$ |PS [^>\n]*> ?|[A-Z]:\\[^>\n]*> ?|[\w.-]+@[\w.-]+:[^$#\s]*[$#] |>(?!\S) ?|```.*$)", re.M
)
_WHOLE = re.compile(r"\$\([^)\n]{0,200}\)|<\w[\w ./-]{0,200}>")  # $(a command) and <a placeholder>
_REDIRECTION = re.compile(r"[<>]+&?[ \t]*[^\s;|&]*")
_QUOTES = {"'": "'", '"': '"', "“": "”", "‘": "’"}


def expanded(text: str, known: Mapping[str, str]) -> str:
    """The text with the variables that are known, and with the defaults of the others."""
    pattern = rf"\$\{{({NAME})(?::?-([^}}]{{0,200}}))?\}}|\$({NAME})"
    return re.sub(pattern, lambda m: known.get(m[1] or m[3], m[2] if m[2] is not None else m[0]), text)


def words_of(text: str) -> list[str]:
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
