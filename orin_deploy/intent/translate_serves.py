"""Which container, or program, of a pasted text serves a model: its image, its name, its words tell. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from orin_deploy.intent.option_table import RENAMED
from orin_deploy.intent.translate_commands import Launch, program_name
from orin_deploy.intent.translate_reading import Reading

# Images whose own program serves a model, and is named no further in most files; and those that only ask such a one.
_SERVES = r"(?<![a-z\d])(?:llama|ollama|vllm|sglang|koboldcpp|text-generation)"
_ASKS = r"(?<!text-generation-)web-?ui|(?<![a-z\d])(?:ui|exporter|index|proxy|client)(?![a-z\d])|llama-?index"
_ANYTHING = frozenset({"server", "main"})  # llama.cpp's once, and many another's
_OF_ADDRESSES = frozenset({"--host", "--port", "-p"})


def surely(image: str, launched: Iterable[Launch]) -> bool:
    """Whether the image's or a program's name says that it serves, whatever else is said of it."""
    name = re.split("[@:]", image.rpartition("/")[2])[0].lower()
    if re.search(_SERVES, name) and not re.search(_ASKS, name):
        return True
    return any(each.kind == "server" and _named(each) for each in launched)


def perhaps(reading: Reading, launched: Iterable[Launch], variables: Iterable[tuple[str, str]]) -> bool:
    """Whether anything else says so: a server's variable, or an option that is about more than an address."""
    if any(_is_of_server(*variable) for variable in variables):
        return True
    flags = (word for each in launched for word in each.args if word.startswith("-") and reading.knows(word))
    return any(word.partition("=")[0] not in _OF_ADDRESSES for word in flags)


def _named(launched: Launch) -> bool:
    return program_name(launched.program) not in ("", *_ANYTHING)


def _is_of_server(name: str, value: str) -> bool:
    """Whether a variable is one that servers read. Who asks a server sets OLLAMA_HOST to its address, too."""
    if name == "OLLAMA_HOST":
        return re.match(r"(?:https?://)?(?:0\.0\.0\.0|\[?::)", value) is not None
    return name.startswith("LLAMA_ARG_") or (name.startswith("OLLAMA_") and name.lower() in RENAMED)
