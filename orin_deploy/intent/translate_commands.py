"""What stands around a server's options in a command: pinning, containers, interpreters, the program's name. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from orin_deploy.intent.placement import cpu_text
from orin_deploy.intent.translate_container import host_port, mount
from orin_deploy.intent.translate_split import statements

# Programs by what they are today, the first pattern that fits a name without folder and .exe decides.
_PROGRAMS = (
    ("rpc", r"(?:ggml-)?rpc-server"),
    ("power", r"nvpmodel|jetson_clocks"),
    ("build", r"cmake|make|ninja|pip3?"),
    ("measure", r"llama-(?:bench|batched-bench|perplexity|quantize|imatrix|tokenize|fit-params|gguf-split)|quantize"
                r"|perplexity"),
    ("server", r"llama|llama-.*|server|main|llamafile|.*\.llamafile|koboldcpp.*|llama_cpp\.server|vllm.*|sglang.*"
               r"|speculative(?:-simple)?|ollama|llama_cpp_server"),
)  # fmt: skip
# The options of wrappers that take a word; every other one of theirs stands alone.
_VALUES = {
    name: frozenset(flags.split(" "))
    for name, flags in {
        "docker": "-v --volume -p --publish -e --env --env-file --name --gpus --runtime --network --net --ipc "
        "--restart -w --workdir -u --user --entrypoint --shm-size -m --memory --cpuset-cpus --cpus --device --ulimit "
        "-l --label --mount --log-opt --hostname -h --group-add --cap-add --security-opt --platform --pull",
        "sudo": "-u -g -E --user",
        "nice": "-n",
        "stdbuf": "-o -e -i",
        "ionice": "-c -n",
        "timeout": "-s -k",
        "numactl": "-C --physcpubind -N --cpunodebind -m --membind -i --interleave -p --preferred",
        "systemd-run": "-p --property --unit",
    }.items()
}
_PLAIN = frozenset({*_VALUES, "nohup", "time", "exec", "env", "setsid", "call", "chrt"})
_TAKEN = frozenset({"-e", "--env", "-p", "--publish", "--cpuset-cpus"})  # of docker's, used where they can be read
_MOST_CPUS = 1024


@dataclass
class Launch:
    """A command taken apart. `kind` is that of the program, None for one that is not known; `cpus` is the pinning that
    stood before it, as (what was typed, CPUs); `wrapped` are words around it that say nothing here, `container` what is
    a container's alone. A container's `image` has a program of its own, which serves where none is named."""

    kind: str | None = None
    program: str = ""
    args: tuple[str, ...] = ()
    cpus: tuple[str, str] | None = None
    environment: list[tuple[str, str]] = field(default_factory=list)
    mounts: dict[str, str] = field(default_factory=dict)
    port: tuple[str, str] | None = None
    wrapped: list[str] = field(default_factory=list)
    container: tuple[str, ...] = ()
    image: str = ""


def launch(words: tuple[str, ...]) -> Launch:
    """Take a command apart; what follows the program, or everything from the first option on, are its arguments."""
    found = Launch()
    rest = list(words)
    for _ in range(32):
        while rest and (match := re.fullmatch(r"([A-Za-z_]\w*)=(.*)", rest[0], re.S)):
            found.environment.append((match[1], match[2]))
            rest.pop(0)
        if not rest or rest[0].startswith("-"):
            break
        name = program_name(rest[0])
        peel = _PEEL.get(name, _peel_plain if name in _PLAIN else None)
        if peel is None:
            break
        rest = peel(found, rest)
    if rest and not rest[0].startswith("-"):
        found.program, rest = rest[0], rest[1:]
        found.kind = next((kind for kind, names in _PROGRAMS if re.fullmatch(names, program_name(found.program))), None)
    elif rest or found.image:
        found.kind = "server"
    found.args = tuple(rest)
    return found


def program_name(word: str) -> str:
    """A program's name without its folder and .exe."""
    return re.split(r"[/\\]", word)[-1].lower().removesuffix(".exe")


def _options(rest: list[str], values: frozenset[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """A wrapper's own options as (name, value), and the words after them."""
    taken = []
    at = 0
    while at < len(rest) and rest[at].startswith("-") and rest[at] != "--":
        name, equals, value = rest[at].partition("=")
        if not equals and name in values and at + 1 < len(rest):
            at += 1
            value = rest[at]
        taken.append((name, value))
        at += 1
    return taken, rest[at + 1 :] if rest[at : at + 1] == ["--"] else rest[at:]


def _peel_plain(found: Launch, rest: list[str]) -> list[str]:
    name = program_name(rest[0])
    _, after = _options(rest[1:], _VALUES.get(name, frozenset()))
    if name in ("timeout", "chrt") and after and re.fullmatch(r"\d+[smh]?", after[0]):
        after = after[1:]
    if name in ("nice", "ionice", "chrt", "timeout"):
        found.wrapped.append(name)
    return after


def _peel_taskset(found: Launch, rest: list[str]) -> list[str]:
    """`taskset -c LIST command` or `taskset MASK command`; with -p it is about a process that runs already."""
    taken, after = _options(rest[1:], frozenset({"--cpu-list"}))
    letters = "".join(name[1:] for name, _ in taken if not name.startswith("--"))
    given = dict(taken).get("--cpu-list") or (after.pop(0) if after else "")
    cpus = listed(given) if "c" in letters or "--cpu-list" in dict(taken) else of_mask(given)
    if cpus:
        found.cpus = (f"taskset {given}", cpus)
    return [] if "p" in letters else after


def _peel_numactl(found: Launch, rest: list[str]) -> list[str]:
    taken, after = _options(rest[1:], _VALUES["numactl"])
    for name, value in taken:
        if name in ("-C", "--physcpubind") and (cpus := listed(value)):
            found.cpus = (f"numactl {name} {value}", cpus)
        else:
            found.wrapped.append(f"numactl {name}")
    return after


def _peel_python(found: Launch, rest: list[str]) -> list[str]:
    """`python -m module args`, `python script.py args`."""
    after = rest[1:]
    while after and after[0].startswith("-") and after[0] != "-m":
        after = after[1:]
    if after[:1] == ["-m"]:
        after = after[1:]
        return ["vllm" if after[:1] and after[0].startswith("vllm.") else after[0], *after[1:]] if after else []
    return after


def _peel_docker(found: Launch, rest: list[str]) -> list[str]:
    """`docker run OPTIONS IMAGE ARGS`; the image's own program serves unless one is named."""
    if "run" not in rest[1:3]:
        return ["docker-" + "-".join(rest[1:2])]
    taken, after = _options(rest[rest.index("run") + 1 :], _VALUES["docker"])
    left = []
    for name, value in taken:
        if name in ("-e", "--env") and "=" in value:
            found.environment.append((value.partition("=")[0], value.partition("=")[2]))
        elif name in ("-v", "--volume"):
            found.mounts |= mount(value)
            left.append(name)
        elif name in ("-p", "--publish") and found.port is None and (port := host_port(value)):
            found.port = (f"-p {value}", port)
        elif name == "--cpuset-cpus" and (cpus := listed(value)):
            found.cpus = (f"--cpuset-cpus {value}", cpus)
        elif name != "--entrypoint":
            left.append(f"{name} {value}" if name in _TAKEN else name)
    found.image = "".join(after[:1])
    found.container = (*dict.fromkeys(left), *after[:1])
    args = after[1:]
    if args and not args[0].startswith("-"):
        return args
    entry = [value for name, value in taken if name == "--entrypoint"]
    return [*entry[:1], *(args[1:] if args[:1] in (["--server"], ["-s"]) else args)]


def _peel_jetson_containers(found: Launch, rest: list[str]) -> list[str]:
    return ["docker", *rest[1:]] if "run" in rest[1:2] else ["jetson-containers"]


def _peel_shell(found: Launch, rest: list[str]) -> list[str]:
    """`bash -c "…"`: the words of the text."""
    at = next((i for i, word in enumerate(rest) if word in ("-c", "-lc", "/c")), None)
    inner = statements(rest[at + 1]) if at is not None and at + 1 < len(rest) else []
    return inner[-1][1] if inner else []


_PEEL: dict[str, Callable[[Launch, list[str]], list[str]]] = {
    "taskset": _peel_taskset,
    "numactl": _peel_numactl,
    "python": _peel_python,
    "python3": _peel_python,
    "docker": _peel_docker,
    "podman": _peel_docker,
    "jetson-containers": _peel_jetson_containers,
    "bash": _peel_shell,
    "sh": _peel_shell,
}


def listed(text: str) -> str | None:
    """CPUs as the kernel lists them, without a stride; None when it is no such list."""
    return text if re.fullmatch(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", text) else None


def of_mask(text: str) -> str | None:
    """The CPUs of a hexadecimal mask (0xF0 is 4-7), None when it is none."""
    digits = text.lower().removeprefix("0x").replace(",", "")
    if not re.fullmatch(r"[0-9a-f]{1,256}", digits):
        return None
    mask = int(digits, 16)
    cpus = tuple(cpu for cpu in range(_MOST_CPUS) if mask >> cpu & 1)
    return cpu_text(cpus) if cpus else None
