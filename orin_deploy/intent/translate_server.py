"""A server's options, in the words of llama.cpp's releases and of other tools, as today's keys. Pure."""

from __future__ import annotations

import json
import re

from orin_deploy.intent import options
from orin_deploy.intent.option_table import GONE, RENAMED, Old, Option
from orin_deploy.intent.translate_commands import of_mask
from orin_deploy.intent.translate_reading import FLAGS_OFF, FLAGS_ON, NAMES_OFF, NAMES_ON, Reading, plain
from orin_deploy.intent.translate_values import BOOLEAN_WORDS, TRUE_WORDS

_SUBCOMMANDS = frozenset({"serve", "server", "run", "cli", "chat", "completion"})
_BUILDS_OF_OTHERS = re.compile(r"vllm|sglang|ollama")


def of_arguments(reading: Reading, program: str, args: tuple[str, ...]) -> None:
    """The arguments of a server, one option after the other."""
    rest = list(args)
    if rest[:1] and rest[0] in _SUBCOMMANDS:
        rest.pop(0)
    while rest:
        word = rest.pop(0)
        if re.match(r"--?[A-Za-z]", word):
            _option(reading, word, rest)
        else:
            _positional(reading, program, word)


def _option(reading: Reading, word: str, rest: list[str]) -> None:
    """One option and the words that belong to it, which are taken off the rest."""
    flag, equals, inline = word.partition("=")
    flag = flag if flag in FLAGS_ON or not flag.startswith("--") else flag.replace("_", "-")
    if equals:
        rest.insert(0, inline)
    row, off = FLAGS_ON.get(flag), FLAGS_OFF.get(flag)
    name = plain(flag)
    old = RENAMED.get(name, RENAMED.get(name.lower()))
    if row is not None or off is not None:
        option = row or off
        assert option is not None
        value = _own_value(option, rest, bool(equals))
        said = flag if value is None else f"{flag} {value}"
        _take(reading, option, value, said, negative=row is None)
    elif old is not None:
        value = _taken(rest, switch=old.is_switch, inline=bool(equals), known=dict(old.values))
        _take_old(reading, old, value, flag if value is None else f"{flag} {value}")
    else:
        value = _taken(rest, switch=False, inline=bool(equals))
        _stranger(reading, name, flag if value is None else f"{flag} {value}", value)


def _own_value(option: Option, rest: list[str], inline: bool) -> str | None:
    if option.form in ("pair", "bare"):
        return _taken(rest, switch=True, inline=inline)
    text = option.kind in ("str", "list")
    value = _taken(rest, switch=False, inline=inline, any_text=text)
    if option.form == "two" and value is not None and re.fullmatch(r"\d+", value) and rest:
        value = f"{value},{rest.pop(0)}"
    return value


def _taken(
    rest: list[str], *, switch: bool, inline: bool, any_text: bool = False, known: dict[str, str] | None = None
) -> str | None:
    """The value that follows an option, taken off the rest; None where the next word is an option, or none follows."""
    if not rest:
        return None
    following = rest[0]
    if not inline:
        if switch and following.lower() not in BOOLEAN_WORDS and following not in (known or ()):
            return None
        flag = following.partition("=")[0]
        is_option = flag in FLAGS_ON or flag in FLAGS_OFF or (len(flag) > 2 and plain(flag) in RENAMED)
        looks_so = re.match(r"--?[A-Za-z]", following) is not None
        if looks_so and (is_option or not any_text):
            return None
    return rest.pop(0)


def _positional(reading: Reading, program: str, word: str) -> None:
    if _BUILDS_OF_OTHERS.match(program):
        what = f"{word} is a name of {program}'s own: llama.cpp serves GGUF files"
        reading.note(word, "invalid", what, "model: hf:owner/repo:Q4_K_M, or the path of a .gguf file")
    elif word.endswith(".gguf") and reading.model is None:
        reading.set("model", word, word)
    elif word not in ("\\", "^", "`"):
        reading.note(word, "unknown", f"{word} belongs to no option", "leave it out")


def of_name(reading: Reading, name: str, value: str, word: str) -> None:
    """A setting by name, as a profile, a preset, a Modelfile or the environment has it."""
    name = name.strip().lstrip("-").replace("-", "_")
    for each in dict.fromkeys((name, name.lower(), name.rpartition(".")[2])):
        number = each in RENAMED and value.isdigit()  # `draft: 16` of old is no draft
        if (row := NAMES_ON.get(each) or NAMES_OFF.get(each)) and not number:
            _take(reading, row, value, word, negative=each not in NAMES_ON)
            return
        if each.startswith("build.cmake."):
            reading.set(each, value, word)
            return
        if old := RENAMED.get(each):
            _take_old(reading, old, value, word)
            return
        if each in GONE or (each == "from" and _is_model_file(value)):
            break
    if name == "from" and _is_model_file(value):
        reading.set("model", value, word)
    elif name == "from":
        reading.note(word, "invalid", f"{value} is a name of Ollama's own: llama.cpp serves GGUF files",
                     "model: hf:owner/repo:Q4_K_M, or the path of a .gguf file")  # fmt: skip
    elif name not in ("description", "include"):
        _stranger(reading, name if name in GONE else name.rpartition(".")[2], word, value)


def _is_model_file(value: str) -> bool:
    return value.endswith(".gguf") or value.startswith(("/", "./", "hf:"))


def _take(reading: Reading, row: Option, value: str | None, word: str, *, negative: bool) -> None:
    """One of today's options."""
    if row.owned is not None:
        _take_owned(reading, row, value, word)
        return
    if row.key == "predict" and reading.is_one_run:
        what = "the length of one run: a server would cut every answer there whose request names no max_tokens"
        reading.note(word, "passed", what, "left out")
        return
    if row.form in ("pair", "bare") and row.section == "server":
        on = value is None or value.lower() in TRUE_WORDS
        if value is not None and value.lower() not in BOOLEAN_WORDS:
            reading.set(row.key, value, word)  # which says what is allowed
        else:
            reading.set(row.key, "on" if on is not negative else "off", word)
    elif value is None and "on" in row.choices:
        reading.set(row.key, "on", word)
        what = f"{word} takes {', '.join(row.choices)} today, and without one swallows the next word"
        reading.note(word, "changed", what, f"{row.key}: on")
    elif value is None:
        reading.note(word, "invalid", f"{word} stands without a value", f"allowed is {options.allowed(row)}")
    else:
        reading.set(row.key, value, word)


def _take_old(reading: Reading, old: Old, value: str | None, word: str) -> None:
    """A name of before, or another tool's: the keys it sets today."""
    table = dict(old.values)
    if table:
        raw = "true" if value is None else value
        raw = raw if raw in table else {"on": "true", "1": "true", "yes": "true"}.get(raw.lower(), raw)
        raw = raw if raw in table else {"off": "false", "0": "false", "no": "false"}.get(raw.lower(), raw)
        value = table.get(raw, raw)
    elif value is None:
        reading.note(word, "invalid", f"{word} stands without a value", f"write {old.today}")
        return
    keys = old.keys if value else ()
    if "spec_draft_model" in keys and re.search(r"prompt-?lookup|\[ngram\]", value, re.IGNORECASE):
        keys, value = ("spec_type",), "ngram-simple"
    done = []
    for key in keys:
        if (row := NAMES_ON.get(key)) is not None and row.owned is not None:
            _take_owned(reading, row, value, word)
        else:
            done.append(reading.set(key, value, word))
    if old.fate:
        reading.note(word, old.fate, old.why, ", ".join(filter(None, done)) or "leave it out")


_REFERENCES = {"hf_repo": ("model", "hf:"), "model_url": ("model", ""), "spec_draft_hf": ("draft", "hf:")}


def _take_owned(reading: Reading, row: Option, value: str | None, word: str) -> None:
    """An option that orin-deploy decides: where a key says the same, the key; else the reason."""
    assert row.owned is not None
    reason, _, advice = row.owned.partition(": ")
    if row.key in _REFERENCES and value:
        key, scheme = _REFERENCES[row.key]
        reading.set(key, scheme + value, word)
        return
    if row.key == "hf_file" and value and (reading.model or "").startswith("hf:"):
        repo = str(reading.model).removeprefix("hf:").split(":")[0]
        reading.model = None  # it was the repository alone
        reading.set("model", f"hf:{'/'.join(repo.split('/')[:2])}/{value}", word)
        return
    if row.key in ("cpu_mask", "cpu_range") and value:
        reading.pin(word, of_mask(value) or value if row.key == "cpu_mask" else value)
        return
    reading.has_key |= row.key == "api_key"
    if row.key in ("api_key", "hf_token"):
        word = f"{word.split('=')[0].split()[0]} …"  # neither a terminal nor a file should keep it
    verdict = "no-effect" if re.search(r"never uses|no effect", row.owned) else "owned"
    reading.note(word, verdict, reason, advice or None)


def _stranger(reading: Reading, name: str, word: str, value: str | None) -> None:
    """A name that sets nothing today."""
    if name == "speculative_config" and value:
        _speculative_config(reading, value)
    elif why := GONE.get(name, GONE.get(name.lower())):
        reading.note(word, "gone", why, "leave it out")
    else:
        near = options.nearest(name)
        reading.note(word, "unknown", f"nobody here knows {name}", f"did you mean {near}?" if near else "leave it out")


def _speculative_config(reading: Reading, text: str) -> None:
    """vLLM's: a JSON object, the words of which are in the table."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError):
        table = None
    for key, value in (table if isinstance(table, dict) else {}).items():
        if key != "method":
            of_name(reading, "speculative_model" if key == "model" else str(key), str(value), f"{key}: {value}")
    if not isinstance(table, dict):
        reading.note(text, "invalid", "speculative_config is no JSON object", "write spec_type and spec_draft_model")
