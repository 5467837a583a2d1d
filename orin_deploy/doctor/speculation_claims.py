"""What texts and documents tell of drafts: vocabularies, measured arms, command lines, and settings as words."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from orin_deploy.doctor.evidence import Claims
from orin_deploy.facts import vocabulary
from orin_deploy.intent.speculation_choice import NONE, Trial

_PLAIN_ARMS = frozenset({"baseline", "nodraft", "no_draft", "none", "off", "without"})
_SERVER = re.compile(r"(?:^|\s|=)((?:\S*/)?(?:llama-server|llama-cli|server|main)(?:\.exe)?\s+-.*)$", re.MULTILINE)
_MAX_COMMAND_CHARS, _MOST_COMMANDS = 4096, 16


def of_text(text: str) -> Claims:
    """The command lines in a text that start a server."""
    whole = re.sub(r"\\[ \t]*\n", " ", text)
    found = dict.fromkeys(match[1][:_MAX_COMMAND_CHARS] for match in _SERVER.finditer(whole))
    commands = tuple(words for command in itertools.islice(found, _MOST_COMMANDS) if (words := _words(command)))
    return {"commands": commands} if commands else {}


def _words(command: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError:  # a quote that is never closed
        return tuple(command.split())


def of_header(document: Mapping[Any, Any]) -> Claims:
    """The vocabulary that a GGUF header tells of, written out as JSON."""
    tokens = document.get("tokenizer.ggml.tokens")
    sizes = (
        value for key, value in document.items()
        if key in ("vocab", "n_vocab", "vocab_size") or str(key).endswith(".vocab_size")
    )  # fmt: skip
    size = len(tokens) if isinstance(tokens, list) else next((each for each in sizes if isinstance(each, int)), 0)
    found = vocabulary.describe(document, size)
    return {"vocabularies": (found,)} if found is not None else {}


def of_list(items: list[Any]) -> Claims:
    """Speeds at depths of the context, with a draft and without."""
    trials: list[Trial] = []
    for item in items:
        if isinstance(item, Mapping) and (depth := _number(item.get("depth"))) is not None:
            arms = {_arm(str(key)): value for key, value in item.items() if str(key).startswith("tps")}
            trials += _trials(f"depth {depth:g}", arms)
    return {"arms": tuple(trials)} if trials else {}


def of_table(document: Mapping[Any, Any]) -> Claims:
    """Measured arms, by workload or of one; the answers of endpoints; and a profile's settings as words."""
    arms = {_arm(key): value for key, value in document.items() if isinstance(key, str) and key.endswith("_tps")}
    trials = list(_trials("", arms)) if NONE in arms else []
    for workload, table in document.items():
        if isinstance(table, Mapping):
            named = {_arm(str(key)): value for key, value in table.items()}
            trials += _trials(str(workload), named) if NONE in named else ()
    found: Claims = {"arms": tuple(trials)} if trials else {}
    probes = [(key, value) for key, value in document.items() if str(key).startswith("/") and isinstance(value, int)]
    found |= {"probes": tuple(probes)} if probes else {}
    if isinstance(document.get("workload"), str):
        found["workload"] = document["workload"]
    if (speed := _number(document.get("measured_mb_s"))) is not None:
        found["storage_mb_s"] = speed
    if settings := tuple(_settings(document)):
        found["settings"] = settings
    return found


def _settings(table: Mapping[Any, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Keys with the words they are set to, one level of sections deep."""
    for key, value in table.items():
        if isinstance(value, Mapping) and not path:
            yield from _settings(value, f"{key}.")
        elif isinstance(key, str) and isinstance(value, (str, int, float)):
            yield f"{path}{key}", str(value)


def _arm(key: str) -> str:
    """The arm that a key names: "baseline_tps", "tps_nodraft", "draft"."""
    name = re.sub(r"^tps_|_tps$", "", key) if key != "tps" else "draft"
    return NONE if name.lower() in _PLAIN_ARMS else name


def _trials(workload: str, arms: Mapping[str, Any]) -> Iterator[Trial]:
    for arm, told in arms.items():
        values = [_number(each) for each in (told if isinstance(told, list) else [told])]
        speeds = tuple(value for value in values if value is not None and value > 0)
        if speeds and len(speeds) == len(values):
            yield Trial(workload, arm, speeds)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    return float(value) if re.fullmatch(r"\d{1,9}(?:\.\d{1,6})?", str(value).strip()) else None
