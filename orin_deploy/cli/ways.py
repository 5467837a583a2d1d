"""What a refusal for lack of memory tells beside its sentence: sizes, and whole commands that make it fit."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orin_deploy.errors import OrinError

if TYPE_CHECKING:
    from orin_deploy.intent.refusal import DoesNotFit
    from orin_deploy.intent.relief import Relief
    from orin_deploy.intent.ways import Way

_OF_THIS_RUN = ("--json", "--debug")
_SETTING = ("--set", "-s", "--draft")


def of_lack_of_memory(error: OrinError) -> DoesNotFit | None:
    """The error, if it is one for lack of memory; without loading the module it is from for every other error."""
    if not hasattr(error, "need_bytes"):
        return None
    from orin_deploy.intent.refusal import DoesNotFit

    return error if isinstance(error, DoesNotFit) else None


def lines(error: DoesNotFit) -> Iterator[str]:
    """Each change in words with the memory it takes, and the command that makes it; then what would free memory."""
    from orin_deploy.intent.serving import mib

    if error.ways:
        yield "hint: what makes it fit"
    for way in error.ways:
        yield f"  {way.what} ({mib(way.total_bytes)}):"
        yield f"    {command(dict(way.options))}"
    if error.reliefs:
        together = " together" if len(error.reliefs) > 1 else ""
        yield f"{'or' if error.ways else 'hint:'} what would free enough memory{together}"
    if not error.ways and not error.reliefs:
        yield f"hint: {error.hint}"
        yield from ("what would free memory, though not enough",) if error.frees else ()
    for relief in error.reliefs or (() if error.ways else error.frees):
        yield f"  {relief.what} ({mib(relief.bytes)}):"
        yield f"    {_whole(relief)}"


def document(error: DoesNotFit) -> dict[str, Any]:
    """What the JSON error has beside message, hint and code."""
    from orin_deploy.deploy.record import plain

    return {
        "need_bytes": error.need_bytes,
        "limit_bytes": error.limit_bytes,
        "limit_source": error.limit_source,
        "largest": plain(error.largest),
        "ways": [way_document(way, command(dict(way.options))) for way in error.ways],
        "reliefs": [_relief_document(relief) for relief in error.reliefs],
        "frees": [_relief_document(relief) for relief in error.frees],
    }


def _relief_document(relief: Relief) -> dict[str, Any]:
    return {"what": relief.what, "bytes": relief.bytes, "command": _whole(relief)}


def _whole(relief: Relief) -> str:
    """The command to type: of what is a setting, the one that was typed with it."""
    return command(dict(relief.options)) if relief.options else relief.command


def way_document(way: Way, whole: str) -> dict[str, Any]:
    return {"what": way.what, "words": list(way.words), "command": whole, "total_bytes": way.total_bytes}


def command(options: Mapping[str, str], argv: Sequence[str] | None = None) -> str:
    """The command that was typed, with these options instead of those of the same names."""
    from orin_deploy.intent.speculation import CHOOSING

    contradicting = ("draft", *CHOOSING) if "--draft" in options else ()
    replaced = {*options, *contradicting}
    typed = iter(sys.argv[1:] if argv is None else argv)
    words = ["orin-deploy"]
    for word in typed:
        name, equals, value = word.partition("=")
        if name not in _SETTING:
            words += [] if word in _OF_THIS_RUN else [word]
            continue
        value = value if equals else next(typed, "")
        if _key(name, value) not in replaced:
            words += [word] if equals else [word, value]
    for key, value in options.items():
        words += [key, value] if key == "--draft" else ["--set", f"{key}={value}"]
    return shlex.join(words)


def _key(name: str, value: str) -> str:
    """The option's name as the options know it."""
    from orin_deploy.intent.options import find

    try:
        return name if name == "--draft" else find(value.partition("=")[0]).key
    except OrinError:
        return value
