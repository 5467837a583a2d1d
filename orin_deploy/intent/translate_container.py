"""What is said of a container: a compose file's services, a pod's containers, entries of a swapper's list. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orin_deploy.intent.translate_split import expanded, statements

ENVIRONMENT_KEYS = frozenset({"environment", "env"})
_COMMAND_KEYS = ("entrypoint", "command", "cmd", "args")  # in the order in which their words stand
_VOLUME_KEYS = frozenset({"volumes", "volumeMounts"})
_VOLUME = (("source", "name"), ("target", "mountPath"))  # what names the outer side, and the inner one
_PORT = (("published", "hostPort"), ("target", "containerPort"))
_MOST_CHARS = 60

_UNREAD = ("it cannot be read in this form", None)
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
    **dict.fromkeys(("cpuset", *_COMMAND_KEYS), _UNREAD),
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
            yield container(service, str(name)) if isinstance(service, dict) else unread(f"{key}: {name}", service)


def container(table: Mapping[Any, Any], name: str) -> Container:
    """A service of a compose file, or whatever names its image and command alike."""
    asides: list[Aside] = []
    variables: list[tuple[str, str]] = []
    mounts: dict[str, str] = {}
    port, cpus = None, None
    for key, value in table.items():
        if key in ENVIRONMENT_KEYS:
            for variable in environment(key, value):
                if isinstance(variable, Aside):
                    asides.append(variable)
                else:
                    variables.append((variable[0], expanded(variable[1], {})))
        elif key in _VOLUME_KEYS:
            for word, text in _pairs(key, value, *_VOLUME):
                mounts |= mount(text)
                asides.append(_of_volume(word, text))
        elif key == "ports":
            port, more = _port(_pairs(key, value, *_PORT))
            asides += more
        elif key == "cpuset" and isinstance(value, str):
            cpus = (f"{key}: {value}", expanded(value, {}))
        elif key in _COMMAND_KEYS and isinstance(value, (str, list)):
            asides += (unread(key, each) for each in value if isinstance(each, (dict, list)))
        else:
            asides.append(Aside(f"{key}: {_shown(value)}", *_WHY.get(str(key), _OF_THE_CONTAINER)))
    image = expanded(str(table.get("image", "")), {})
    return Container(name, image, _commands(table), tuple(variables), mounts, port, cpus, tuple(asides))


def unread(name: str, value: Any) -> Aside:
    """An aside about a value of a kind that does not belong where it stands."""
    return Aside(f"{name}: {_shown(value)}", *_UNREAD)


def _commands(table: Mapping[Any, Any]) -> tuple[tuple[str, ...], ...]:
    """The commands that a container runs: what is said first stands before the first one of what follows."""
    found: list[list[str]] = []
    for key in _COMMAND_KEYS:
        value = table.get(key)
        more = commands_of(expanded(value, {}) if isinstance(value, str) else value)
        found = [*found[:-1], [*found[-1], *more[0]], *more[1:]] if found and more else [*found, *more]
    return tuple(tuple(expanded(word, {}) for word in words) for words in found)


def commands_of(value: Any) -> list[list[str]]:
    """The commands of a text, or the one that a list spells."""
    if isinstance(value, list):
        words = [str(each) for each in value if not isinstance(each, (dict, list))]
        return [words] if words else []
    return [words for _, words in statements(value)] if isinstance(value, str) else []


def environment(key: str, value: Any) -> Iterator[tuple[str, str] | Aside]:
    """The variables of a table, of a list of NAME=VALUE, or of a list of tables that hold name and value; what has no
    value there is an aside."""
    items = [{"name": name, "value": text} for name, text in value.items()] if isinstance(value, dict) else value
    for item in items if isinstance(items, list) else [items]:
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            name, text = item["name"], item.get("value")
            if isinstance(text, str) and (text or isinstance(value, list)):
                yield name, text
            else:
                yield Aside(f"{key}: {name}", "its value is not told here", f"paste it with its value: {name}=VALUE")
        elif match := re.fullmatch(r"([A-Za-z_][\w.]*)=(.*)", item if isinstance(item, str) else "", re.S):
            yield match[1], match[2]
        elif item:
            yield Aside(f"{key}: {_shown(item)}", "it gives no variable a value", "paste it as NAME=VALUE")


def mount(text: str) -> dict[str, str]:
    """A container's folder by the one outside, of docker's OUTER:INNER[:MODE]; none for a volume that only has a name,
    whose files lie where docker keeps them."""
    match = re.match(r"((?:[A-Za-z]:)?[./~$\\][^:]*):([^:]+)", text)
    return {match[2].rstrip("/") + "/": match[1].rstrip("/") + "/"} if match else {}


def host_port(text: str) -> str | None:
    """The port outside, of docker's [ADDRESS:]OUTER:INNER[/tcp]; None where none is told, or several."""
    match = re.search(r"(?:^|:)(\d+):\d*(?:/tcp)?$", text)
    return match[1] if match else None


def _port(ports: Iterable[tuple[str, str]]) -> tuple[tuple[str, str] | None, list[Aside]]:
    """The first port that is told outside, as (what was written, what it says), and why the others are left out."""
    port, asides = None, []
    for word, text in ports:
        found = host_port(text)
        if found and port is None:
            port = (word, found)
        else:
            what = "a server has one port, and another one stands first" if found else "it tells no single port outside"
            asides.append(Aside(word, what, None if found else "port: a number"))
    return port, asides


def _pairs(key: str, value: Any, outer: tuple[str, ...], inner: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The items of a list in docker's short form, OUTER:INNER, as they are written and with variables' defaults; a
    table of a list may name both."""
    for item in value if isinstance(value, list) else [value]:
        short = _shown(item)
        if isinstance(item, dict) and not item.keys().isdisjoint((*outer, *inner)):
            both = (next((str(item[name]) for name in names if name in item), "") for names in (outer, inner))
            short = ":".join(both).lstrip(":")
        if item:
            yield f"{key}: {short}", expanded(item if isinstance(item, str) else short, {})


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
