"""`import`: an old command line or profile as today's profile."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

from orin_deploy.cli.console import Console
from orin_deploy.deploy.lookup import profile_folders
from orin_deploy.errors import UsageError
from orin_deploy.facts.device import Device
from orin_deploy.facts.inspect import inspect
from orin_deploy.host import Host
from orin_deploy.intent import board, profile
from orin_deploy.intent.translate import Note, translate
from orin_deploy.intent.translate_board import on_board
from orin_deploy.intent.translate_profile import nested, profile_text
from orin_deploy.intent.translate_words import MAX_CHARS

_HINT = 'as in orin-deploy import "llama-server -m model.gguf -c 4096", or orin-deploy import --file run.sh'
_MOST_WRONG = 3


def import_(words: list[str], file: str | None, base: str, profiles: str | None, console: Console) -> None:
    """The profile on standard output, the notes on standard error. Raises UsageError when nothing could be read."""
    found = translate(_text(words, file))
    if found.is_empty:
        raise _nothing(found.notes)
    here, chosen, include = _base(base, profiles)
    found = on_board(found, chosen, here)
    console.document({
        "profile": nested(found, include),
        "sources": found.origin,
        "notes": [dataclasses.asdict(note) for note in found.notes],
    })  # fmt: skip
    if console.as_json:
        return
    console.say(profile_text(found, include).rstrip("\n"))
    for note in found.notes:
        console.tell(f"{note.verdict}: {note.word}: {note.what}" + (f" -> {note.next}" if note.next else ""))
    if found.model is None:
        console.tell(f"no model is named: it is that of the profile {include}")
    console.tell(f"next: {_next(console)}")


def _next(console: Console) -> str:
    """What to type with the profile: the file it went to by its name, where it went to one."""
    if console.out.is_terminal:
        return "the same with > my.yaml at its end, then orin-deploy plan --profile my.yaml"
    try:
        file = Path(f"/proc/self/fd/{sys.stdout.fileno()}").resolve(strict=True)
        named = file.is_file()
    except (OSError, ValueError, AttributeError):  # no /proc, no descriptor, no standard output
        named = False
    return f"orin-deploy plan --profile {shlex.quote(str(file)) if named else 'FILE, the file that this is kept in'}"


def _text(words: list[str], file: str | None) -> str:
    """The text to translate: several words are a command that was not quoted."""
    if (file is None) is not bool(words):
        raise UsageError("import takes a text, or a file", _HINT)
    if file is not None and file != "-":
        try:
            with open(os.open(Path(file).expanduser(), os.O_RDONLY | os.O_NONBLOCK), "rb") as source:
                text = source.read(MAX_CHARS + 1).decode("utf-8", "replace")
        except OSError as error:
            raise UsageError(f"{file} cannot be read: {error.strerror}", _HINT) from error
    elif file == "-" or words == ["-"]:
        text = sys.stdin.read(MAX_CHARS + 1)
    else:
        text = words[0] if len(words) == 1 else shlex.join(words)
    if len(text) > MAX_CHARS:
        raise UsageError(f"the text is longer than {MAX_CHARS // 1024} KiB", "paste only the command itself")
    return text


def _base(base: str, profiles: str | None) -> tuple[Device, profile.Profile, str]:
    """This machine, and the profile to start from, as it is and as `include` names it: it brings the board's facts, and
    a model where the text names none."""
    host = Host()
    search = profile_folders(host, profiles)
    here = inspect(host)
    chosen = profile.load(board.choose(here, search)[0] if base == "auto" else base, search)
    return board.assume_module(chosen, here), chosen, base if "/" in base else chosen.name


def _nothing(notes: Iterable[Note]) -> UsageError:
    """The error where no profile comes out: the values that are not allowed, else the nearest name for a word."""
    wrong = [note for note in notes if note.verdict == "invalid"]
    if wrong:
        said = "; ".join(f"{note.word}: {note.what}" for note in wrong[:_MOST_WRONG])
        return UsageError(f"nothing in this text can be set: {said}", wrong[0].next or _HINT)
    near = next(
        (note for note in notes if note.verdict == "unknown" and note.next and "did you mean" in note.next), None
    )
    hint = f"{near.word}: {near.next}; {_HINT}" if near else _HINT
    return UsageError("nothing in this text is a setting of a server", hint)
