"""What has been read so far of a pasted text: values by today's keys, where each came from, and notes. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orin_deploy.errors import UsageError
from orin_deploy.intent import options, reference
from orin_deploy.intent.option_table import GONE, OWN, OWNED, RENAMED, SERVER, Option
from orin_deploy.intent.spec import Value
from orin_deploy.intent.speculation.kinds import meant
from orin_deploy.intent.speculation.wish import check_word
from orin_deploy.intent.translate_values import convert

FLAGS_ON = {flag: row for row in (*SERVER, *OWNED) for flag in row.flags[0]}
FLAGS_OFF = {flag: row for row in (*SERVER, *OWNED) for flag in row.flags[1]}


def plain(flag: str) -> str:
    """A flag's name as keys are written."""
    return flag.lstrip("-").replace("-", "_")


NAMES_ON = {row.key: row for row in OWN} | {
    name: row for row in (*SERVER, *OWNED) for name in (row.key, *map(plain, row.flags[0]))
}
NAMES_OFF = {plain(flag): row for flag, row in FLAGS_OFF.items()}


@dataclass(frozen=True)
class Note:
    """What is to be said about a word: `verdict` is one of VERDICTS, `next` what to do or what was done."""

    word: str
    verdict: str
    what: str
    next: str | None = None


VERDICTS = {
    "removed": "llama-server knew it once, and it has another name now",
    "gone": "nothing takes its place",
    "never": "llama-server never knew it",
    "foreign": "another tool's word",
    "changed": "the value was put in today's form",
    "added": "it was missing, and nothing would have happened without it",
    "no-effect": "it is accepted and does nothing",
    "owned": "orin-deploy decides it itself",
    "kept": "it is taken as it is, and may not be what was meant",
    "invalid": "the value is not allowed",
    "repeated": "it was said twice",
    "unknown": "nobody knows it",
    "passed": "it is not about serving",
}


@dataclass
class Reading:
    """The state of one translation. `pending` are settings of the n-gram kind that is not known before the end, and
    `mounts` the folders of a container, inner ones by outer ones. `is_one_run` holds while the words of a program are
    read that answers once and ends, `has_key` once an API key was named. `has_server` says that something in the text
    surely serves, so that what only may is not read as a server."""

    model: str | None = None
    values: dict[str, Value] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    pending: list[tuple[str, str, str]] = field(default_factory=list)
    mounts: dict[str, str] = field(default_factory=dict)
    is_one_run: bool = False
    has_key: bool = False
    has_server: bool = False

    def note(self, word: str, verdict: str, what: str, next: str | None = None) -> None:
        assert verdict in VERDICTS, verdict
        self.notes.append(Note(word, verdict, what, next))

    def knows(self, flag: str) -> bool:
        """Whether a flag is one of today's, or of those that have a new name or none."""
        name = flag.partition("=")[0]
        return name in FLAGS_ON or name in FLAGS_OFF or plain(name) in RENAMED or plain(name) in GONE

    def set(self, key: str, raw: str, word: str) -> str | None:
        """Set a key from a word's value; what is not allowed becomes a note. Returns "key: value", None for none."""
        if "{kind}" in key:
            self.pending.append((key, raw, word))
            return f"{key.format(kind='KIND')}: {raw}"
        if key == "model":
            return self._set_model(raw, word)
        if key in ("draft", "spec_draft_model"):
            key, raw = self._draft(key, raw)
        if key == "draft" and (named := meant(raw)) not in (None, raw):
            self.note(word, "changed", f"no kind of speculation is called {raw}", f"draft: {named}")
            raw = str(named)
        option = options.find(key)
        raw, remark = convert(option, self._outside(raw) if option.kind == "str" else raw)
        try:
            value = options.parse(option, raw)
            if key == "draft":
                check_word(raw)
        except UsageError as error:
            self.note(word, "invalid", error.message, error.hint)
            return None
        if remark:
            self.note(word, "changed", remark, f"{option.key}: {options.written(value)}")
        self._lay(option, value, word)
        return f"{option.key}: {options.written(value)}"

    def _lay(self, option: Option, value: Value, word: str) -> None:
        """Lay a value over an earlier one: kinds of speculation and ways of loading add up, else the last one holds."""
        key, before = option.key, self.values.get(option.key)
        if before is not None and before != value:
            if key == "spec_type":
                value = ",".join(dict.fromkeys(f"{before},{value}".split(",")))
                word = f"{self.origin[key]} {word}"
            elif key == "load_mode" and (both := _both_modes(str(before), str(value))):
                value, word = both, f"{self.origin[key]} {word}"
            else:
                self.note(word, "repeated", f"{key} was said before ({self.origin[key]}): the last one holds")
        self.values[key], self.origin[key] = value, word

    def _set_model(self, raw: str, word: str) -> str | None:
        path = self._outside(raw)
        is_old = path.endswith(".bin")
        try:
            found = str(reference.parse(f"./{path}" if is_old and not re.search("[/:]", path) else path))
        except UsageError as error:
            self.note(word, "invalid", error.message, error.hint)
            return None
        if self.model is not None and self.model != found:
            self.note(word, "repeated", f"the model was named before ({self.origin['model']}): the last one holds")
        if found.startswith("file:") and not found.startswith(("file:/", "file:~")):
            self.note(
                word, "changed", "a relative path holds from the folder in which `up` is typed", f"model: {found}"
            )
        if is_old:
            what = "by its name a file from before GGUF, the only format that llama.cpp reads since August 2023"
            self.note(word, "kept", what, "name a .gguf file of the same model, or hf:owner/repo:Q4_K_M")
        self.model, self.origin["model"] = found, word
        return found

    def _draft(self, key: str, raw: str) -> tuple[str, str]:
        """The key `draft` for a draft model that can be found by reference: its kind is read from its file then."""
        try:
            return "draft", str(reference.parse(self._outside(raw)))
        except UsageError:
            return key, raw

    def _outside(self, path: str) -> str:
        """A path inside a container as it is outside."""
        for inner, outer in self.mounts.items():
            if path.startswith(inner):
                return outer + path.removeprefix(inner)
        return path

    def pin(self, word: str, cpus: str) -> None:
        """CPUs that stood before the program, or in a mask of its own."""
        if self.set("placement.cpus", cpus, word) is not None:
            self.note(word, "changed", "orin-deploy pins the whole process itself", f'placement.cpus: "{cpus}"')

    def ordered(self) -> dict[str, Value]:
        """The values in the table's order, cmake's own variables last."""
        known = [key for key in options.OPTIONS if key in self.values]
        return {key: self.values[key] for key in (*known, *(key for key in self.values if key not in known))}


def _both_modes(first: str, second: str) -> str | None:
    """What --mlock with --mmap or --no-mmap was, in any order: two switches, now one word."""
    modes = {first, second}
    if modes == {"none", "mmap+mlock"}:
        return "mlock"
    return "mmap+mlock" if modes == {"mmap", "mmap+mlock"} else None
