"""A translation as the text of a profile, each value with the words it came from. Pure."""

from __future__ import annotations

import re
from typing import Any

from orin_deploy.intent import options
from orin_deploy.intent.spec import Value
from orin_deploy.intent.translate import Translation

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_/.+-]*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "y", "n"})  # what one reader of YAML or another makes of them


def nested(translation: Translation, include: str | None) -> dict[str, Any]:
    """The profile as a mapping, sections inside it."""
    found: dict[str, Any] = {"include": include} if include else {}
    found |= {"model": translation.model} if translation.model else {}
    for key, value in translation.values.items():
        place = found
        *sections, name = key.split(".", 2)
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = options.written(value) if isinstance(value, bool) else value
    return found


def profile_text(translation: Translation, include: str | None) -> str:
    """The profile as YAML, fit for a file that `profiles check` takes."""
    lines = ["description: Made by orin-deploy import."]
    _lines(nested(translation, include), (), translation.origin, lines)
    return "\n".join(lines) + "\n"


def _lines(table: dict[str, Any], where: tuple[str, ...], origin: dict[str, str], lines: list[str]) -> None:
    for name, value in sorted(table.items(), key=lambda item: isinstance(item[1], dict)):
        indent = "  " * len(where)
        if isinstance(value, dict):
            lines.append(f"{indent}{name}:")
            _lines(value, (*where, name), origin, lines)
            continue
        word = origin.get(".".join((*where, name)), "")
        shown = "".join(char if char.isprintable() else " " for char in word)
        lines.append(f"{indent}{name}: {_scalar(value)}" + (f"  # {shown}" if shown else ""))


def _scalar(value: Value) -> str:
    """A value as YAML 1.1 and 1.2 read it alike."""
    if not isinstance(value, str):
        return repr(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    import yaml

    return str(yaml.dump(value, default_style='"', allow_unicode=True, width=1 << 20)).strip()
