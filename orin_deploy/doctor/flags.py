"""Rules about flags and keys: unknown, said twice, misspelt, and what a binary's own --help makes of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.errors import OrinError, UsageError
from orin_deploy.intent import options
from orin_deploy.intent.option_table import SERVER, Option
from orin_deploy.intent.schema import profile_schema, stranger_in_profile
from orin_deploy.intent.spec import Value
from orin_deploy.intent.translate import translate
from orin_deploy.intent.translate_reading import FLAGS_OFF, FLAGS_ON, Reading
from orin_deploy.intent.translate_server import of_name

_INVALID = r'error: invalid argument: (-\S+)|error while handling argument "(-[^"]+)": the argument has been removed'
_NEAR = 0.85  # of a key's letters: at that a word is a misspelling and no other word


def invalid_argument(evidence: Evidence) -> Finding | None:
    """A flag that the binary does not know, or knows no more: it ends at once, however often it is started."""
    match = evidence.find(_INVALID)
    if match is None:
        return None
    flag = match[1] or match[2]
    try:
        way = f"{flag} is of today's llama.cpp (key {options.find(flag).key}): the binary is older than the flag"
    except UsageError as error:
        way = str(error.hint)
    loop = evidence.find(r"restart counter is at (\d{1,9})")
    again = f"; systemd has started it {loop[1]} times, and each start ends the same way" if loop else ""
    return Finding(
        "flags.invalid-argument",
        "diagnose",
        f"this llama-server has no flag {flag}{again}",
        f"{way}; `orin-deploy import` translates the whole line, and plan checks flags against the binary's own --help",
        why_not="the machine, the model and memory are not at fault: nothing was loaded",
        values={"flag": flag} | ({"restarts": int(loop[1])} if loop else {}),
    )


def duplicate(evidence: Evidence) -> Finding | None:
    """Options that a command line gives twice: the last one holds, whoever wrote it."""
    for command in evidence.commands:
        rows: dict[str, list[str]] = {}
        for word in command[1:]:
            flag = word.partition("=")[0]
            if row := FLAGS_ON.get(flag) or FLAGS_OFF.get(flag):
                rows.setdefault(row.key, []).append(flag)
        named = {key: " and ".join(dict.fromkeys(flags)) for key, flags in rows.items() if len(flags) > 1}
        twice = [flags for key, flags in named.items() if key != "spec_type"]  # kinds add up
        if not twice:
            continue
        found = translate(shlex.join(command))
        slots = found.values.get("parallel", 1)
        many = isinstance(slots, int) and slots > 1 and {"draft", "spec_type"} & found.values.keys()
        return Finding(
            "flags.duplicate",
            "warn",
            f"{', '.join(twice)} {'are' if len(twice) > 1 else 'is'} given more than once: the last one holds",
            "give each once; a profile of orin-deploy has one value a key, and plan says whose it is"
            + (f"; with a draft and {slots} slots, try two requests at once before it is relied on" if many else ""),
            why_not="llama-server does not refuse it, it only warns: which one was meant, it cannot know",
            values={"flags": twice},
        )
    return None


def _helps(evidence: Evidence) -> dict[str, str]:
    """The texts that are a llama-server's --help, or a part of it, by file name."""
    return {
        log.name: "\n".join(log.lines)
        for log in evidence.logs
        if any(name in FLAGS_ON and name.startswith("--") for name in options.flags_in("\n".join(log.lines)))
    }


def _wished(evidence: Evidence) -> Iterator[tuple[Option, str, Value]]:
    """Settings of a profile that are server options, as (option, word, value)."""
    for key, word in evidence.settings:
        reading = Reading()
        of_name(reading, key, word, key)
        for name, value in reading.values.items():
            option = options.OPTIONS.get(name)
            if option is not None and option.section == "server":
                yield option, word, value


def enum_translated(evidence: Evidence) -> Finding | None:
    """A word of ours that is another one in the engine, checked against the binary's own help."""
    for name, help_text in _helps(evidence).items():
        for option, word, value in _wished(evidence):
            if word not in dict(option.synonyms):
                continue
            try:
                words = " ".join(options.render({option.key: value}, help_text))
            except OrinError as error:
                return Finding("flags.enum-translated", "refuse", error.message, error.hint or "leave it out")
            return Finding(
                "flags.enum-translated",
                "plan",
                f"{word} is {value} to the engine, and the help of {name} lists it",
                f"orin-deploy renders {words}",
                why_not=f"{option.flags[0][0]} {word} is what no build takes",
                values={"words": words},
            )
    return None


def common_spelling(evidence: Evidence) -> Finding | None:
    """Two helps of which one lacks an option's newest name: the name that both have is the one to write."""
    helps = _helps(evidence)
    if len(helps) < 2:
        return None
    known = [options.flags_in(text) for text in helps.values()]
    for row in SERVER:
        on = row.flags[0]
        own = f"--{row.key.replace('_', '-')}"
        common = [flag for flag in on if all(flag in flags for flags in known)]
        if common and any(own not in flags for flags in known) and any(own in flags for flags in known):
            return Finding(
                "flags.prefer-common-spelling",
                "plan",
                f"{common[0]} is known to all {len(helps)} binaries, {own} to some",
                f"orin-deploy renders {common[0]} for each of them, picked from its own --help",
                why_not="a name guessed from a pattern is no flag: both helps are read",
                values={"flag": common[0], "key": row.key},
            )
    return None


def arity(evidence: Evidence) -> Finding | None:
    """An option that takes a value in one binary and none in another."""
    helps = _helps(evidence)
    for option, _, value in _wished(evidence) if len(helps) > 1 else ():
        shapes = {
            flag.value is None
            for text in helps.values()
            if (flag := options.flags_in(text).get(option.flags[0][0])) is not None
        }
        if len(shapes) < 2:
            continue
        words = {name: " ".join(options.render({option.key: value}, text)) for name, text in helps.items()}
        told = ", ".join(f"{text} by {name}" for name, text in words.items())
        return Finding(
            "flags.arity",
            "plan",
            f"{option.flags[0][0]} takes a value in one of these binaries and none in the other: {told}",
            "orin-deploy renders it by the binary's own --help",
            why_not="a bare flag where a value is due swallows the next word, and the error names that word",
            values=words,
        )
    return None


def unknown_key(evidence: Evidence) -> Finding | None:
    """A key that no profile has, and that is nearly one."""
    keys = [key for key, _ in evidence.settings if re.search("[-_]", key) and "." not in key]
    known = profile_schema()["properties"] if keys else {}
    wrong = {key: told for key in keys if (told := _misspelt(key, known)) is not None}
    if not wrong:
        return None
    first = next(iter(wrong))
    return Finding(
        "profile.unknown-key",
        "refuse",
        "; ".join(f"{key} {told}" for key, told in wrong.items()),
        f"write it so; `orin-deploy import` turns a whole profile into today's keys, and profiles check reads {first}",
        why_not="a key that is not known is not passed over in silence: it would do nothing",
        values={"keys": list(wrong)},
    )


def _misspelt(key: str, known: dict[str, object]) -> str | None:
    """What to write for a top-level key that is written otherwise, or with a letter wrong; None for any other word."""
    from difflib import get_close_matches

    if key in known:
        return None
    try:
        if options.find(key).owned is not None:
            return None
    except UsageError:
        if not get_close_matches(key.replace("-", "_"), known, n=1, cutoff=_NEAR):
            return None
    return stranger_in_profile((key,))
