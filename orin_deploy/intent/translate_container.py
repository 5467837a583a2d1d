"""What is said of a container: a compose file's services, a pod's containers, entries of a swapper's list. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orin_deploy.intent.translate_split import statements

ENVIRONMENT_KEYS = frozenset({"environment", "env"})
_COMMAND_KEYS = ("entrypoint", "command", "cmd", "args")  # in the order in which their words stand
_VOLUME_KEYS = frozenset({"volumes", "volumeMounts"})
_MOST_CHARS = 60

_WHY = {
    **dict.fromkeys(
        ("image", "build"), ("orin-deploy builds the engine and serves on the board itself, without a container", None)
    ),
    **dict.fromkeys(
        ("runtime", "gpus", "deploy", "devices", "resources"), ("without a container the GPU is at hand as it is", None)
    ),
    "restart": ("the service that `up` makes is started again by itself", None),
    "healthcheck": ("`up` proves the server by a real completion", None),
    "env_file": ("what is in that file is not read", "paste its LLAMA_ARG_ lines, too"),
    **dict.fromkeys(("mem_limit", "memory"), ("a container's limit", "memory.limit_mib bounds what is planned")),
}
_OF_THE_CONTAINER = ("it is about the container, and there is none", None)


@dataclass(frozen=True)
class Aside:
    """Something that is not about serving, and why; `next` is what to do about it, where that is anything."""

    word: str
    what: str
    next: str | None = None


@dataclass(frozen=True)
class Container:
    """A container as it is described. `commands` are those it runs, as words; `mounts` its folders, inner ones by outer
    ones; `port` and `cpus` what was written and what it says; `asides` all else that is said of it."""

    name: str
    image: str = ""
    commands: tuple[tuple[str, ...], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    mounts: dict[str, str] = field(default_factory=dict)
    port: tuple[str, str] | None = None
    cpus: tuple[str, str] | None = None
    asides: tuple[Aside, ...] = ()


def is_container(table: Mapping[Any, Any]) -> bool:
    return "image" in table or not table.keys().isdisjoint(_COMMAND_KEYS)


def compose_file(table: Mapping[Any, Any]) -> Iterator[Container | Aside]:
    """What a compose file says: its services, and what stands beside them."""
    for key, value in table.items():
        if key != "services":
            yield Aside(f"{key}: {_shown(value)}", "it is the compose file's own")
            continue
        for name, service in value.items():
            if isinstance(service, dict):
                yield container(service, str(name))


def container(table: Mapping[Any, Any], name: str) -> Container:
    """A service of a compose file, or whatever names its image and command alike."""
    mounts: dict[str, str] = {}
    asides: list[Aside] = []
    port, cpus = None, None
    variables: list[tuple[str, str]] = []
    for key, value in table.items():
        word = f"{key}: {_shown(value)}"
        if key in _COMMAND_KEYS:
            continue
        if key in ENVIRONMENT_KEYS and isinstance(value, (dict, list)):
            variables += environment(value)
        elif key in _VOLUME_KEYS and isinstance(value, list):
            for each in map(_volume, value):
                mounts |= mount(each)
                asides.append(_of_volume(f"{key}: {each}", each))
        elif key == "ports" and isinstance(value, list) and (found := _published(value)):
            port = port or (word, found)
        elif key == "cpuset" and isinstance(value, str):
            cpus = (word, value)
        else:
            asides.append(Aside(word, *_WHY.get(str(key), _OF_THE_CONTAINER)))
    return Container(
        name, str(table.get("image", "")), _commands(table), tuple(variables), mounts, port, cpus, tuple(asides)
    )


def _commands(table: Mapping[Any, Any]) -> tuple[tuple[str, ...], ...]:
    """The commands that a container runs: what is said first stands before the first one of what follows."""
    found: list[list[str]] = []
    for key in _COMMAND_KEYS:
        more = commands_of(table.get(key))
        found = [*found[:-1], [*found[-1], *more[0]], *more[1:]] if found and more else [*found, *more]
    return tuple(map(tuple, found))


def commands_of(value: Any) -> list[list[str]]:
    """The commands of a text, or the one that a list spells."""
    if isinstance(value, list):
        return [[str(each) for each in value]] if value else []
    return [words for _, words in statements(value)] if isinstance(value, str) else []


def environment(value: Any) -> Iterator[tuple[str, str]]:
    """The variables of a table, of a list of NAME=VALUE, or of a list of tables that hold name and value."""
    if isinstance(value, dict):
        yield from ((str(name), str(text)) for name, text in value.items())
        return
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and "name" in item:
            yield str(item["name"]), str(item.get("value", ""))
        elif match := re.fullmatch(r"([A-Za-z_][\w.]*)=(.*)", str(item), re.S):
            yield match[1], match[2]


def mount(text: str) -> dict[str, str]:
    """A container's folder by the one outside, of docker's OUTER:INNER[:MODE]; none for a volume that only has a name,
    whose files lie where docker keeps them."""
    text = re.sub(r"\$\{\w{1,99}:?-([^}]*)\}", r"\1", text)  # a variable's default
    match = re.match(r"((?:[A-Za-z]:)?[./~$\\][^:]*):([^:]+)", text)
    return {match[2].rstrip("/") + "/": match[1].rstrip("/") + "/"} if match else {}


def host_port(text: str) -> str | None:
    """The port outside, of docker's [ADDRESS:]OUTER:INNER[/tcp]; None where none is told."""
    match = re.search(r"(\d+):\d+(?:/tcp)?$", text)
    return match[1] if match else None


def _published(ports: list[Any]) -> str | None:
    """The first port that is told outside."""
    told = (str(each.get("published", "")) if isinstance(each, dict) else host_port(str(each)) for each in ports)
    return next((each for each in told if each), None)


def _volume(value: Any) -> str:
    """A volume as docker's short form writes it."""
    if not isinstance(value, dict):
        return str(value)
    outer = value.get("source", value.get("name", ""))
    return f"{outer}:{value.get('target', value.get('mountPath', ''))}"


def _of_volume(word: str, text: str) -> Aside:
    if known := mount(text):
        ((inner, outer),) = known.items()
        return Aside(word, f"it only tells where the files are: {inner} is {outer} here")
    what = "the files of a volume without a path are docker's, and no path here is theirs"
    return Aside(word, what, "copy the model out with docker cp, or name it by hf:owner/repo")


def _shown(value: Any) -> str:
    """A value in one short line."""
    if isinstance(value, dict):
        text = ", ".join(map(str, value))
    else:
        text = ", ".join(map(_shown, value)) if isinstance(value, list) else " ".join(str(value).split())
    return text if len(text) <= _MOST_CHARS else text[: _MOST_CHARS - 1] + "…"
