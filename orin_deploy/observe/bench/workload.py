"""Workloads: what a model is asked while it is measured, another prompt at every turn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from random import Random
from typing import Any

from orin_deploy.errors import UsageError

LANGUAGES = ("en", "zh")
OWN = "own"
"""The language of a user's own prompts: theirs."""

_OWN_TOKENS = 256
_PLACE = re.compile(r"\{([a-z]+)(?:\*(\d+))?\}")
_HINT = "one prompt a line, JSON lines with a `prompt` each, or a YAML list of texts"


@dataclass(frozen=True)
class Text:
    """A prompt with places, as `{sentence*7}`, and what can stand in each; without places `prompts` are whole."""

    prompt: str
    parts: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Workload:
    """One kind of work. `tokens` is the longest answer, `texts` the prompt by language, `prompts` a user's own."""

    name: str
    description: str
    tokens: int
    texts: Mapping[str, Text]
    prompts: tuple[str, ...] = ()

    @property
    def languages(self) -> tuple[str, ...]:
        return (OWN,) if self.prompts else tuple(self.texts)

    def prompt(self, language: str, number: int) -> str:
        """The prompt of that number, the same at every call. A server that remembers what it has seen (ngram-mod's
        table outlives a request) would know the answer to a prompt that comes twice, so shipped ones do not."""
        if self.prompts:
            return self.prompts[number % len(self.prompts)]
        text, random = self.texts[language], Random(f"{self.name} {language} {number}")
        single = [name for name, count in _PLACE.findall(text.prompt) if not count]
        ways = list(range(prod(len(text.parts[name]) for name in single)))
        Random(f"{self.name} {language}").shuffle(ways)
        way = ways[number % len(ways)]
        chosen: dict[str, str] = {}
        for name in single:
            way, which = divmod(way, len(text.parts[name]))
            chosen[name] = text.parts[name][which]

        def fill(place: re.Match[str]) -> str:
            if not place[2]:
                return chosen[place[1]]
            several = random.sample(text.parts[place[1]], int(place[2]))
            return _glue(several, language).join(several)

        return _PLACE.sub(fill, text.prompt)


def _glue(parts: Sequence[str], language: str) -> str:
    if any("\n" in part for part in parts):
        return "\n\n\n"
    if all(part.startswith("- ") for part in parts):
        return "\n"
    return "" if language == "zh" else " "


def filler(language: str, number: int, characters: int) -> str:
    """Text of about that length to stand before a prompt, for a context that is not short; no two lines are alike."""
    random = Random(f"filler {language} {number}")
    kind = "zh" if language == "zh" else "en"
    lines: list[str] = []
    length = 0
    while length < characters:
        line = _LINES[kind].format(
            day=len(lines) + 1,
            name=random.choice(_STATIONS[kind]),
            pump=random.randint(1, 60),
            bar=random.randint(20, 90) / 10,
            celsius=random.randint(-15, 40),
            minutes=random.randint(2, 600),
        )
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines)


_LINES = {
    "en": "Day {day}: pump {pump} at the {name} station ran for {minutes} minutes at {bar} bar and {celsius} degrees.",
    "zh": "第{day}天：{name}站的{pump}号水泵在{bar}巴和{celsius}度下运行了{minutes}分钟。",
}


_STATIONS = {
    "en": ("north", "river", "quarry", "harbour", "mill", "forest"),
    "zh": ("北", "河边", "采石场", "港口", "磨坊", "森林"),
}


def shipped(search: Sequence[Path]) -> tuple[Workload, ...]:
    """The workloads on the search path of profiles, in the folder `workloads` of each; the first of a name wins."""
    found: dict[str, Path] = {}
    for folder in search:
        for path in sorted(folder.glob("workloads/*.yaml")):
            found.setdefault(path.stem, path)
    return tuple(load(path) for _, path in sorted(found.items()))


def choose(known: Sequence[Workload], names: Sequence[str]) -> tuple[Workload, ...]:
    """The workloads of those names, all without any; raises UsageError for a name there is not."""
    by_name = {each.name: each for each in known}
    for name in names:
        if name not in by_name:
            from difflib import get_close_matches

            near = get_close_matches(name, by_name, n=1)
            there = f"there are {', '.join(by_name)}"
            raise UsageError(f"there is no workload {name}", f"did you mean {near[0]}? {there}" if near else there)
    return tuple(by_name[name] for name in dict.fromkeys(names)) or tuple(known)


def load(path: Path) -> Workload:
    """A workload's file; raises UsageError with what is wrong with it."""
    from orin_deploy.intent import yaml_text

    document = yaml_text.read(path)
    data = document.data
    try:
        if document.problems:
            raise ValueError(str(document.problems[0]))
        both = data.get("both", {})
        texts = {language: _text({**both, **data[language]}) for language in LANGUAGES if language in data}
        if not texts:
            raise ValueError(f"has none of {', '.join(LANGUAGES)}")
        return Workload(path.stem, str(data["description"]), int(data["tokens"]), texts)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"the workload {path.stem} is faulty: {what}", f"correct {path}") from error


def _text(data: Mapping[str, Any]) -> Text:
    parts = {str(name): tuple(map(str, items)) for name, items in data.items() if name != "prompt"}
    prompt = str(data["prompt"])
    for name, count in _PLACE.findall(prompt):
        if len(parts[name]) < int(count or 1):
            raise ValueError(f"{name} has {len(parts[name])} texts, the prompt wants {count or 1}")
    return Text(prompt, parts)


def own(path: Path) -> Workload:
    """A user's own prompts as one workload; raises UsageError for a file that holds none."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"the prompts {path} cannot be read: {reason}", f"name a file with {_HINT}") from error
    found = tuple(prompt for prompt in _prompts(path, text) if prompt.strip())
    if not found:
        raise UsageError(f"{path} holds no prompts", _HINT)
    return Workload(path.stem, f"the prompts of {path}", _OWN_TOKENS, {}, found)


def _prompts(path: Path, text: str) -> Iterator[str]:
    if path.suffix in (".yaml", ".yml"):
        from orin_deploy.intent import yaml_text

        data = yaml_text.read(path).data
        if not isinstance(data, list) or not all(isinstance(item, str) for item in data):
            raise UsageError(f"{path} is no list of texts", _HINT)
        yield from data
        return
    for number, line in enumerate(text.splitlines(), 1):
        if path.suffix == ".jsonl" and line.strip():
            yield _from_json(path, number, line)
        elif path.suffix != ".jsonl":
            yield line


def _from_json(path: Path, number: int, line: str) -> str:
    try:
        data = json.loads(line)
        prompt = data["prompt"] if isinstance(data, dict) else data
    except (ValueError, KeyError, RecursionError) as error:
        raise UsageError(f"{path}, line {number} is no JSON object with a `prompt`", _HINT) from error
    if not isinstance(prompt, str):
        raise UsageError(f"{path}, line {number}: the prompt is no text", _HINT)
    return prompt
