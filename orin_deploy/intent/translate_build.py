"""Commands that build llama.cpp or set the board's power, as today's keys. Pure."""

from __future__ import annotations

import itertools
import re

from orin_deploy.errors import UsageError
from orin_deploy.intent import cmake, options
from orin_deploy.intent.build_words import base_architecture
from orin_deploy.intent.translate_reading import Reading

_WORD = re.compile(r"(?:-D)?([A-Za-z_][A-Za-z0-9_]*)(?::[A-Z]+)?=(.*)")
_ON = frozenset({"on", "1", "true", "yes", "y"})


def of_build(reading: Reading, words: tuple[str, ...]) -> None:
    """cmake's -D words, make's NAME=1, and CMAKE_ARGS."""
    found = []
    for at, word in enumerate(words):
        text = f"-D{words[at + 1]}" if word == "-D" and at + 1 < len(words) else word
        if (match := _WORD.fullmatch(text)) and (text.startswith("-D") or words[:1] == ("make",)):
            found.append((match[1], match[2].strip("\"'"), text))
    for name, value, word in found:
        _variable(reading, name, value, word)
    if not found and words and not words[0].startswith("-"):
        reading.note(" ".join(words[:3]), "passed", "orin-deploy builds the engine itself", "leave it out")


def _variable(reading: Reading, name: str, value: str, word: str) -> None:
    """One cmake variable: a key of ours where one decides it, else build.cmake.NAME."""
    today = cmake.RENAMED.get(name)
    if today is not None:
        key, _, fixed = today.partition("=")
        if key.startswith("nothing"):
            reading.note(word, "removed", f"{name} is no build option of llama.cpp any more", today)
            return
        on = value.lower() in _ON
        reading.note(word, "removed", f"{name} is no build option of llama.cpp any more", f"{key}: {fixed or value}")
        if on or key in ("build.cuda", "build.blas") or not fixed:
            reading.set(key, value if not fixed else fixed if on else "off", word)
    elif name in cmake.OWNED:
        _owned(reading, cmake.OWNED[name], value, word)
    else:
        try:
            cmake_name = options.find(f"build.cmake.{name}").key
        except UsageError as error:
            reading.note(word, "unknown", error.message, error.hint)
            return
        reading.set(cmake_name, value, word)


def _owned(reading: Reading, key: str, value: str, word: str) -> None:
    if options.OPTIONS[key].kind in ("bool", "enum"):
        value = "on" if value.lower() in _ON else "off"
    if key == "build.cuda_architectures" and value.lower() in ("native", "all", "all-major"):
        what = f"{value} asks a driver, or builds for boards that are not there"
        reading.note(word, "owned", what, "orin-deploy takes the board's own architecture")
        return
    if key == "build.cuda_architectures":
        value = re.sub(r"\b(?:sm|compute)_(\d+)", lambda match: base_architecture(match[0]), value)
    reading.set(key, value, word)


def of_power(reading: Reading, program: str, args: tuple[str, ...]) -> None:
    """nvpmodel and jetson_clocks."""
    said = " ".join((program, *args))
    if program == "jetson_clocks":
        if not args or args == ("--fan",):
            reading.set("power.clocks", "on", said)
        if "--fan" in args:
            reading.note(said, "changed", "the fan is a setting of its own", "power.fan: cool")
        return
    wanted = next((b for a, b in itertools.pairwise(args) if a in ("-m", "--mode")), None)
    wanted = wanted or next((word[2:] for word in args if re.fullmatch(r"-m\d+", word)), None)
    if wanted is None:
        return
    if wanted == "0":
        what = "mode 0 is the fastest on most boards, and 15 W on an Orin Nano: modes are named, not numbered, here"
        reading.set("power.mode", "max", said)
        reading.note(said, "changed", what, "power.mode: max")
    elif wanted.isdigit():
        what = f"mode {wanted} is another one on every board: modes are named here"
        reading.note(said, "invalid", what, "power.mode: NAME, of those in `orin-deploy facts`; or max")
    else:
        reading.set("power.mode", wanted, said)
