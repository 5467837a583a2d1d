"""The toolchain: compilers, build tools and CUDA toolkits, found where people and packages put them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from orin_deploy.facts.device import CrossCompiler, CudaToolkit, Tool, Toolchain
from orin_deploy.host.machine import Machine

MAX_LINKS = 40  # as the kernel's own limit for one path


def read(machine: Machine) -> Toolchain:
    """What can build here. Each program found is asked once for its version."""
    return Toolchain(
        cxx=_tool(machine, "g++", "c++", "clang++"),
        cc=_tool(machine, "gcc", "cc", "clang"),
        cmakes=_cmakes(machine),
        ninja=_tool(machine, "ninja", "ninja-build"),
        ccache=_tool(machine, "ccache"),
        git=_tool(machine, "git"),
        cuda=_toolkits(machine),
    )


def read_cross(machine: Machine, triplet: str) -> CrossCompiler | None:
    """gcc and g++ that compile for the machine of a GNU triplet, None where one of them is missing."""
    cc, cxx = _tool(machine, f"{triplet}-gcc"), _tool(machine, f"{triplet}-g++")
    return CrossCompiler(triplet, cc, cxx) if cc and cxx else None


def version_of(text: str) -> tuple[int, ...]:
    """The version in what `PROGRAM --version` prints: the first dotted number outside parentheses, else empty.

    In parentheses stand packages: "g++ (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0".
    """
    return numbers(re.sub(r"\([^()]*\)", "", text))


def numbers(text: str) -> tuple[int, ...]:
    """The first dotted number of a text, as numbers."""
    match = re.search(r"(?<![0-9.])[0-9]{1,9}(?:\.[0-9]{1,9})+", text)
    return tuple(map(int, match[0].split("."))) if match else ()


def nvcc_version(text: str) -> tuple[int, ...]:
    """The version in what `nvcc --version` prints: "release 12.6, V12.6.68" is (12, 6, 68)."""
    match = re.search(r"\bV([0-9.]+)", text)
    return numbers(match[1]) if match else ()


def json_version(text: str) -> tuple[int, ...]:
    """The version in a toolkit's version.json (CUDA 11.1 and later): nvcc's own, else the toolkit's."""
    try:
        data = json.loads(text)
        versions = [data[name]["version"] for name in ("cuda_nvcc", "cuda") if name in data]
        return numbers(versions[0]) if versions else ()
    except (ValueError, TypeError, KeyError, RecursionError):
        return ()


def architectures_of(text: str) -> tuple[str, ...] | None:
    """What `nvcc --list-gpu-arch` lists: "compute_87" is "87". None when it lists nothing."""
    return tuple(re.findall(r"^compute_([0-9]{2,4}[a-z]?)$", text, re.MULTILINE)) or None


def resolve(machine: Machine, path: str) -> str:
    """A path with every symbolic link followed, below the machine's root; where links go round, the path as it is."""
    todo = list(PurePosixPath(path).parts[1:])
    done = PurePosixPath("/")
    links = 0
    while todo:
        part = todo.pop(0)
        done = done.parent if part == ".." else done / part
        if (target := machine.link_target(str(done))) is not None:
            links += 1
            if links > MAX_LINKS:
                return path
            pure = PurePosixPath(target)
            todo = [*(pure.parts[1:] if pure.is_absolute() else pure.parts), *todo]
            done = PurePosixPath("/") if pure.is_absolute() else done.parent
    return str(done)


@dataclass(frozen=True)
class _Program:
    """A program found: its path as on the machine, and the word that runs it from here."""

    path: str
    word: str


def _on_path(machine: Machine, name: str) -> _Program | None:
    found = machine.which(name)
    if found is None:
        return None
    return _Program(_inside(machine, found), found)


def _in_folder(machine: Machine, folder: str, name: str) -> _Program | None:
    path = f"{folder}/{name}"
    # One byte rather than `exists`: it also tells a folder from a file, and never fails.
    there = machine.read_bytes(resolve(machine, path), 1) is not None
    return _Program(path, str(machine.path(path))) if there else None


def _inside(machine: Machine, path: str) -> str:
    """A path as on the machine: PATH holds real ones, also those of a virtual machine's stubs below its root."""
    pure = PurePosixPath(path)
    return f"/{pure.relative_to(machine.root)}" if pure.is_relative_to(machine.root) else path


def _tool(machine: Machine, *names: str) -> Tool | None:
    found = next((program for name in names if (program := _on_path(machine, name))), None)
    return _asked(machine, found) if found else None


def _asked(machine: Machine, program: _Program) -> Tool:
    return Tool(program.path, version_of(machine.ask(program.word, "--version") or ""))


def _cmakes(machine: Machine) -> tuple[Tool, ...]:
    """Every cmake on PATH and in the places installers use, newest first, each once however it is linked."""
    path = [_inside(machine, folder) for folder in _absolute(*machine.environ.get("PATH", "").split(":"))]
    home = [f"{folder}/.local/bin" for folder in _absolute(machine.environ.get("HOME", ""))]
    folders = [*path, "/usr/local/bin", "/opt/cmake/bin", *home]
    found = [_on_path(machine, "cmake"), *(_in_folder(machine, folder, "cmake") for folder in folders)]
    programs = {resolve(machine, program.path): program for program in reversed(found) if program}
    tools = [_asked(machine, program) for program in reversed(programs.values())]
    return tuple(sorted(tools, key=lambda tool: tool.version, reverse=True))


def _toolkits(machine: Machine) -> tuple[CudaToolkit, ...]:
    """CUDA toolkits: that of the nvcc on PATH, then those CUDA_HOME and /usr/local/cuda name, then newest first."""
    versioned = sorted(machine.glob("/usr/local/cuda-*"), key=numbers, reverse=True)
    folders = [*_absolute(machine.environ.get("CUDA_HOME", "")), "/usr/local/cuda", *versioned, "/usr/lib/cuda"]
    roots = dict.fromkeys(resolve(machine, folder) for folder in folders)
    found = ((root, _in_folder(machine, f"{root}/bin", "nvcc")) for root in roots)
    toolkits = [_toolkit(machine, root, nvcc) for root, nvcc in found if nvcc]
    on_path = _on_path(machine, "nvcc")
    return tuple(toolkits) if on_path is None else _with_on_path(machine, toolkits, on_path)


def _with_on_path(machine: Machine, toolkits: list[CudaToolkit], nvcc: _Program) -> tuple[CudaToolkit, ...]:
    """The toolkits with the one that the nvcc on PATH belongs to marked and first; it may be none of the usual ones."""
    root = str(PurePosixPath(resolve(machine, nvcc.path)).parent.parent)
    if all(toolkit.root != root for toolkit in toolkits):
        # A script that starts another folder's nvcc is told by its version.
        here = _toolkit(machine, root, nvcc)
        if not here.version:
            return tuple(toolkits)
        root = next((toolkit.root for toolkit in toolkits if toolkit.version[:2] == here.version[:2]), root)
        if root == here.root:
            toolkits = [here, *toolkits]
    marked = [replace(toolkit, on_path=toolkit.root == root) for toolkit in toolkits]
    return tuple(sorted(marked, key=lambda toolkit: not toolkit.on_path))


def _toolkit(machine: Machine, root: str, nvcc: _Program) -> CudaToolkit:
    version = json_version(machine.read(f"{root}/version.json") or "")
    version = version or nvcc_version(machine.ask(nvcc.word, "--version") or "") or numbers(PurePosixPath(root).name)
    architectures = architectures_of(machine.ask(nvcc.word, "--list-gpu-arch") or "")
    return CudaToolkit(root, version, on_path=False, architectures=architectures)


def _absolute(*folders: str) -> list[str]:
    return [folder.rstrip("/") for folder in folders if folder.startswith("/")]
