"""Values as posts write them, in the form an option takes today. Pure."""

from __future__ import annotations

import re

from orin_deploy.intent.option_table import LAYERS, Option

_BOOLEANS = {"1": "on", "true": "on", "yes": "on", "0": "off", "false": "off", "no": "off"}
BOOLEAN_WORDS = frozenset({*_BOOLEANS, "on", "off"})
TRUE_WORDS = frozenset({"on", *(word for word, value in _BOOLEANS.items() if value == "on")})
# What -1, 0 or a number beyond any model meant, by key.
_ALL_LAYERS = "all the layers there are is what it meant"
_TO_FIT = "the model's own context was meant; auto is as much of it as fits"


def convert(option: Option, raw: str) -> tuple[str, str | None]:
    """The value in today's form, and what to say where its meaning needed one; nonsense stays as it is."""
    text = raw.strip()
    lowered = text.lower()
    if option.kind == "bool":
        return _BOOLEANS.get(lowered, lowered), None
    if option.key in ("gpu_layers", "spec_draft_ngl"):
        return _layers(text)
    if option.key == "ctx_size" and lowered in ("0", "-1"):
        return "auto", _TO_FIT
    if option.kind == "int" and option.auto and lowered in ("0", "-1"):
        return "auto", "the number is chosen by orin-deploy"
    if option.key == "cache_ram":
        return _mib(text)
    if option.kind == "int":
        return _whole(text)
    if option.kind == "enum":
        return _word(option, text)
    return text, None


def _layers(text: str) -> tuple[str, str | None]:
    number = int(text) if re.fullmatch(r"-?\d{1,10}", text) else 0
    return ("all", _ALL_LAYERS) if number < 0 or number == 99 or number > LAYERS else (text.lower(), None)


def _whole(text: str) -> tuple[str, str | None]:
    """A whole number; 4k is 4096 tokens."""
    if match := re.fullmatch(r"(\d{1,6})[kK]i?", text):
        number = int(match[1]) * 1024
        return str(number), f"llama-server would have read {match[1]}: it stops at the first letter"
    return re.sub(r"(?<=\d)_(?=\d)", "", text), None


def _mib(text: str) -> tuple[str, str | None]:
    match = re.fullmatch(r"(\d{1,6}) ?([GM])i?B?", text)
    if match is None:
        return text, None
    number = int(match[1]) * (1024 if match[2] == "G" else 1)
    return str(number), f"llama-server counts MiB and would have read {match[1]}"


def _word(option: Option, text: str) -> tuple[str, str | None]:
    """A word of an enum, whatever its case; a switch that has become one takes on and off."""
    lowered = text.lower()
    if "on" in option.choices and lowered in _BOOLEANS:
        return _BOOLEANS[lowered], f"{option.key} takes {', '.join(option.choices)}"
    return (lowered if lowered in option.choices else text), None
