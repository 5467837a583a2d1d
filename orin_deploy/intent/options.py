"""Options: finding them by name, reading their values, writing them as llama-server's words. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from orin_deploy.errors import Refused, UsageError
from orin_deploy.intent import cmake
from orin_deploy.intent.help_flags import HelpFlag as HelpFlag
from orin_deploy.intent.help_flags import flags_in as flags_in
from orin_deploy.intent.option_table import GONE, INT_MAX, OWN, OWNED, RENAMED, SERVER, Option
from orin_deploy.intent.spec import Value

OPTIONS: dict[str, Option] = {row.key: row for row in (*SERVER, *OWN)}
"""Every option by its key, in the order in which they are written."""

_CMAKE, WORKLOAD = "build.cmake.", "speculation.workload."
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def _names(flags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(flag.lstrip("-").replace("-", "_") for flag in flags)


_SERVER = {row.key: row for row in SERVER}
_BY_NAME = {name: row for row in (*SERVER, *OWNED) for name in (row.key, *_names(row.flags[0]))} | {
    row.key: row for row in OWN
}
_NEGATIVE = {name: row for row in (*SERVER, *OWNED) for name in _names(row.flags[1])}


def names(option: Option) -> tuple[str, ...]:
    """Every name that `find` accepts for an option, its key first."""
    return tuple(dict.fromkeys((option.key, *(_names(option.flags[0]) if option.section == "server" else ()))))


def find(key: str) -> Option:
    """The option of that name: a key, one of its other names, with dashes or underscores.

    `build.cmake.NAME` and `speculation.workload.NAME` are options too. Raises UsageError, with today's name or the
    nearest one there is.
    """
    name = key.strip().lstrip("-")
    if name.startswith(_CMAKE):
        check_cmake(name.removeprefix(_CMAKE))
        return Option(name, "str", f"cmake's {name.removeprefix(_CMAKE)}.", cost="rebuild")
    if re.fullmatch(rf"{WORKLOAD}[a-z0-9][a-z0-9_-]*", name):
        return Option(name, "float", f"Weight of {name.removeprefix(WORKLOAD)}.", low=0, high=1e6)
    name = name.replace("-", "_")
    old_flag = key.strip().startswith("-") and name in RENAMED  # --draft was a number of tokens, draft is a key
    if (option := _BY_NAME.get(name)) and not old_flag:
        return option
    if option := _NEGATIVE.get(name):
        raise UsageError(f"{key} is the negative name of {option.key}", f"use {option.key}=off")
    if old := RENAMED.get(name):
        raise UsageError(f"llama-server has no option {key}", f"use {old.today}")
    if why := GONE.get(name):
        raise UsageError(f"llama-server has no option {key}", f"leave it out: {why}")
    near = nearest(name)
    raise UsageError(
        f"there is no option {key}", f"did you mean {near}?" if near else "see `orin-deploy profiles show`"
    )


def nearest(name: str) -> str | None:
    """The key that a misspelt name most likely means, or None."""
    from difflib import get_close_matches

    candidates = {known: row.key for known, row in _BY_NAME.items() if len(known) > 2 and row.owned is None}
    candidates |= {row.key.partition(".")[2] or row.key: row.key for row in OWN}
    candidates |= {name: old.today for name, old in RENAMED.items() if len(name) > 2}
    found = get_close_matches(name.lower().replace("-", "_"), candidates, n=1, cutoff=0.7)
    return candidates[found[0]] if found else None


def check_cmake(name: str) -> None:
    """Raise UsageError for a cmake variable that is misspelt, gone upstream, or decided by a key of ours.

    A name that resembles none we know may belong to another source tree: whether it exists is told by the build.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f'"{name}" cannot name a cmake variable', "write build.cmake.NAME=VALUE")
    if name in cmake.OWNED:
        raise UsageError(f"{name} is decided by {cmake.OWNED[name]}", f"set {cmake.OWNED[name]}")
    if name in cmake.RENAMED:
        raise UsageError(f"{name} is no build option of llama.cpp any more", f"use {cmake.RENAMED[name]}")
    if name not in cmake.KNOWN and (near := cmake.nearest(name)):
        raise UsageError(f"llama.cpp has no build option {name}", f"did you mean {near}?")


def parse(option: Option, raw: object) -> Value:
    """An option's value from what YAML or `--set` gives; raises UsageError with the key, the value, what is allowed.

    on, off and auto stay words except where the option is a switch; lists become text with commas.
    """
    if option.owned is not None and raw != option.default:
        reason, _, advice = option.owned.partition(": ")
        raise UsageError(f"{option.key} cannot be set: {reason}", advice or "leave it out")
    if option.kind == "map":
        raise UsageError(f"{option.key} holds further names", f"write {option.key}.NAME=VALUE")
    value = _read(option, raw)
    if value is None and not (option.auto and raw == "auto"):
        raise UsageError(f"{option.key} cannot be {shown(raw)}: allowed is {allowed(option)}", _instead(option, raw))
    return value


def _instead(option: Option, raw: object) -> str:
    """What to write in place of a wrong value: the number that 4k or 8Ki stand for, the nearest of the words allowed,
    else one of them."""
    text = str(raw).strip().lower()
    if (match := re.fullmatch(r"([0-9]{1,7}) ?([km])i?b?", text)) and option.kind == "int":
        meant = int(match[1]) * {"k": 1024, "m": 1024**2}[match[2]]
        if _number(option, meant) is not None:
            return f"write {option.key}={meant}"
    if option.high == INT_MAX and re.fullmatch(r"[0-9]+", text) and int(text[:20]) > INT_MAX:
        return f"write at most {option.key}={INT_MAX}"
    from difflib import get_close_matches

    known = (*option.choices, *dict(option.synonyms))
    wrong = next((word for word in text.split(",") if word not in known), text)
    if near := get_close_matches(wrong, option.choices, n=1):
        return f"did you mean {near[0]}?"
    example = next((item for item in (*option.candidates, option.default) if item not in (None, "auto")), None)
    if example is None:
        example = "auto" if option.auto else option.low
    return f"leave {option.key} out" if example is None else f"for instance {option.key}={written(example)}"


def _read(option: Option, raw: object) -> Value:
    """The value, or None when it is not allowed."""
    if option.auto and raw == "auto":
        return option.default
    match option.kind:
        case "int" | "float":
            return _number(option, raw)
        case "bool":
            return {"on": True, "true": True, "off": False, "false": False}.get(written(raw))
        case "list":
            return _list(option, raw)
    text: str = written(raw) if isinstance(raw, (str, int)) else ""
    if option.key.startswith(_CMAKE):
        return text.upper() if text in ("on", "off") else _line(text)
    if option.kind == "enum":
        return text if text in option.choices and not isinstance(raw, bool) else None
    if option.pattern is not None and not re.fullmatch(option.pattern, text):
        return None
    return None if isinstance(raw, bool) else _line(text)


def _line(text: str) -> str | None:
    """One line of printable text; unit files and records hold nothing else."""
    return text.strip() if text.strip() and not _UNPRINTABLE.search(text) else None


def _number(option: Option, raw: object) -> int | float | str | None:
    if isinstance(raw, bool) or not isinstance(raw, (str, int, float)):
        return None
    if raw in option.choices:
        return str(raw)
    whole, text = option.kind == "int", str(raw).strip()
    number = r"[+-]?[0-9]{1,19}(\.0*)?" if whole else r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"
    if not re.fullmatch(number, text):
        return None
    value = int(text.partition(".")[0]) if whole else float(text)
    low, high = option.low, option.high
    outside = not math.isfinite(value) or (low is not None and value < low) or (high is not None and value > high)
    return None if outside else value


def _list(option: Option, raw: object) -> str | None:
    items = list(raw) if isinstance(raw, (list, tuple)) else re.split("[;,]", written(raw))
    if isinstance(raw, (bool, dict)) or any(isinstance(i, bool) or not isinstance(i, (str, int, float)) for i in items):
        return None
    words: list[str] = [dict(option.synonyms).get(written(item).strip(), written(item).strip()) for item in items]
    if words and all(word in option.choices for word in words) and option.choices:
        return ",".join(words)
    if option.pattern is None and option.choices:
        return None
    good = all(_line(word) and (option.pattern is None or re.fullmatch(option.pattern, word)) for word in words)
    return ",".join(words) if words and good else None


def written(value: object) -> str:
    """A value as people write it: switches as on and off."""
    return ("on" if value else "off") if isinstance(value, bool) else "" if value is None else str(value)


def shown(raw: object) -> str:
    """A wrong value as an error names it."""
    if isinstance(raw, dict):
        return "a mapping"
    if isinstance(raw, bool):
        return f'"{str(raw).lower()}"'
    text = ", ".join(map(str, raw)) if isinstance(raw, (list, tuple)) else written(raw)
    return f'"{text}"' if text else "empty"


def allowed(option: Option) -> str:
    """What an option may be set to, in words."""
    if option.kind in ("int", "float"):
        what = "a whole number" if option.kind == "int" else "a number"
        low, high = option.low, None if option.high == INT_MAX else option.high
        if low is not None and high is not None:
            what += f" from {low:g} to {high:g}" if high < 1e6 else f" from {low:g} to {int(high)}"
        elif low is not None:
            what += f" of at least {low:g}"
        return _either((what, *option.words))
    if option.kind == "bool":
        return "on or off"
    if option.kind == "enum":
        return _either(option.choices)
    if option.kind == "list" and option.choices and option.pattern is None:
        return "a comma-separated list of " + _either(option.choices)
    what = option.shape or ("a comma-separated list" if option.kind == "list" else "a line of text")
    return _either((what, *option.words))


def _either(words: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def render(settings: Mapping[str, Value], help_text: str | None) -> tuple[str, ...]:
    """llama-server's words for these settings, spelt and shaped as its captured --help says.

    Without a help (nothing is built yet) the pinned build's spellings are used. A value of None is not passed.
    Raises Refused for an option or value that the binary does not have.
    """
    if strangers := settings.keys() - _SERVER.keys():
        raise ValueError(f"no server options: {sorted(strangers)}")
    flags = None if help_text is None else flags_in(help_text)
    words: list[str] = []
    for key, option in _SERVER.items():
        value = settings.get(key)
        if value is not None:
            words += _words(option, value, _pinned(option) if flags is None else flags)
    return tuple(words)


def _pinned(option: Option) -> dict[str, HelpFlag]:
    """What the pinned build's help says about an option."""
    on, off = option.flags
    value = {"value": "VALUE", "digit": "<0|1>", "two": "FIRST LAST"}.get(option.form)
    return {name: HelpFlag(on, off, value) for name in (*on, *off)}


def _words(option: Option, value: Value, flags: Mapping[str, HelpFlag]) -> tuple[str, ...]:
    name = next((name for name in option.flags[0] if name in flags), None)
    if name is None:
        if value is False and option.form == "bare":
            return ()
        raise _lacking(option, flags)
    flag = flags[name]
    if flag.value is None:
        return _switch(option, name, flag, value)
    if isinstance(value, bool):
        value = written(value) if "on" in flag.choices else int(value)
    if option.form == "two":
        return (name, *re.split("[ ,]", str(value)))
    if option.auto and value == "auto":
        raise ValueError(f"{option.key} is still to be decided")
    unknown = set(str(value).split(",")) - set(flag.choices) if flag.choices and option.kind != "int" else ()
    if unknown:
        raise Refused(
            f"this llama-server's {name} does not take {', '.join(sorted(unknown))}",
            f"it takes {_either(flag.choices)}",
        )
    return (name, str(value))


def _switch(option: Option, name: str, flag: HelpFlag, value: Value) -> tuple[str, ...]:
    """Words for a flag without a value: the name, its negative form, or nothing."""
    if value in (True, "on"):
        return (name,)
    if value is False and flag.negative:
        return (next((off for off in option.flags[1] if off in flag.negative), flag.negative[0]),)
    if value in (False, "off", "auto"):
        return ()  # a bare flag that is not given is off; builds as old as that know no auto
    raise Refused(f"this llama-server's {name} takes no value", f"leave {option.key} out, or use on or off")


def _lacking(option: Option, flags: Mapping[str, HelpFlag]) -> Refused:
    from difflib import get_close_matches

    near = get_close_matches(option.flags[0][0], flags, n=1)
    hint = f"take {option.key} out of the profile, or use a newer build.source"
    return Refused(
        f"this llama-server has no {option.flags[0][0]} (option {option.key})",
        f"{hint}; it has {near[0]}" if near else hint,
    )
