"""What went wrong in a build, read from its words: the real first error, and the likely cause with the way on.

The rules are data; `doctor` reads the same ones. Sources: the field reports named beside the rules.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from orin_deploy.intent.cmake import nearest
from orin_deploy.parts.engine.configured import unused_variables


@dataclass(frozen=True)
class Rule:
    """A kind of failure: the words that betray it, what is true, and what to do. `{0}` … are the pattern's groups."""

    name: str
    pattern: re.Pattern[str]
    message: str
    hint: str


@dataclass(frozen=True)
class Cause:
    """A rule that holds for a log, its texts filled in."""

    rule: str
    message: str
    hint: str


def _rule(name: str, pattern: str, message: str, hint: str) -> Rule:
    return Rule(name, re.compile(pattern, re.MULTILINE), message, hint)


KILLED = _rule(
    "build.jobs-from-memory",
    r"(?:Killed signal terminated program (\w+)"
    r"|'?(cicc|cudafe\+\+|ptxas|cc1plus)'? died due to signal 9"
    r"|Killed process \d+ \((cicc|cudafe\+\+|ptxas|cc1plus|cc1|nvcc|ld)\))",
    "the compiler was killed because memory ran out",
    "build with fewer jobs at a time: --set build.jobs=1; free memory first, or add swap on NVMe",
)

# Most telling first: the first rule that matches is the cause that is shown.
RULES: tuple[Rule, ...] = (
    KILLED,
    _rule(
        "build.no-space",
        r"No space left on device|Disk quota exceeded",
        "no space is left on the disk the build writes to",
        "free some space, or set ORIN_DEPLOY_HOME to a larger disk, then run the same command again",
    ),
    _rule(
        "build.no-permission",
        r"(?:error|ERROR|Error|fatal|cannot|can't|ninja)[^\n]*(?:Permission denied|Operation not permitted)",
        "no permission to write where the build writes",
        "run it with sudo, or set ORIN_DEPLOY_HOME to a folder of your own",
    ),
    # llama.cpp issues 2004 (Orin), 10555 (Xavier), 12826 (__Poly8x8_t): a header guard lets nvcc see NEON types.
    _rule(
        "build.nvcc-neon-fp16",
        r'identifier "__(?:fp16|(?:Poly|Int|Uint|Float|Bfloat)\d+x\d+_t)" is undefined',
        "a known defect of this llama.cpp revision with this CUDA compiler: nvcc is shown Arm's NEON types (__fp16), "
        "which it does not know; the machine and the settings are right",
        "move the pinned revision: --set build.source=package:llama-cpp-python==0.3.36 or git:URL@a newer tag",
    ),
    # ollama issue 7591.
    _rule(
        "build.i8mm-missing",
        r"\b(v(?:mmla|usmmla|usdot)q?_\w+)",
        "i8mm is not available here: {0} was compiled for a CPU or a compiler without the int8 matrix instructions",
        "take the architecture from the CPU at hand: --set build.arm_arch=auto "
        "(Orin's A78AE has dotprod and fp16, not i8mm)",
    ),
    # llama.cpp issues 3880 and 10963: the whole family, other names are as likely.
    _rule(
        "build.gcc-too-old-neon",
        r"\b(?:ggml_)?(vld1q_\w+?_x[234])\b",
        "this gcc is too old: it lacks the NEON load {0}",
        "gcc 9 or newer is needed (JetPack 4 ships 7.5): sudo apt install g++-9, then CC=gcc-9 CXX=g++-9",
    ),
    # llama.cpp issue 18430: without a GPU the driver's error text becomes the architecture's name.
    _rule(
        "build.arch-native-no-gpu",
        r"(?:Unsupported gpu architecture '(?:compute|sm)_|gpu-architecture=(?:compute|sm)_)(?!\d)([^'\n]*)",
        'CMAKE_CUDA_ARCHITECTURES is native (or empty) where no GPU can be asked: it became "{0}"',
        "name the architecture: --set build.cuda_architectures=87 for Orin (72 Xavier, 110 Thor), "
        "which sets CMAKE_CUDA_ARCHITECTURES",
    ),
    _rule(
        "build.arch-not-in-toolkit",
        r"(?:Unsupported gpu architecture '|ptxas fatal\s*: (?:Value|Unsupported)[^\n]*?')(?:compute|sm)_(\d+[af]?)",
        "this CUDA toolkit does not know GPU architecture {0}",
        "use the toolkit of the board's JetPack, or check what it knows: nvcc --list-gpu-arch",
    ),
    _rule(
        "build.libcuda-missing",
        r"cannot find -lcuda\b",
        "the driver's library libcuda is missing at link time; without a driver (an image build) there is only the "
        "toolkit's stub",
        "keep GGML_CUDA_NO_VMM=ON, which needs no libcuda; or link against the stub "
        "(-DCMAKE_LIBRARY_PATH=/usr/local/cuda/lib64/stubs) and never install it",
    ),
    _rule(
        "build.cublas-missing",
        r"cublas(?:_v2|Lt)?\.h: No such file|cannot find -lcublas|CUDA::cublas\b[^\n]*(?:not found|but)|CUDA::cublas$",
        "cuBLAS's headers or libraries are missing beside this CUDA toolkit",
        "sudo apt install libcublas-dev-12-6 (the two numbers are the toolkit's version)",
    ),
    # llama-cpp-python issue 1779: shells on Jetson lack /usr/local/cuda/bin.
    _rule(
        "build.nvcc-missing",
        r"Could not find nvcc|CUDA Toolkit not found|No CMAKE_CUDA_COMPILER could be found",
        "cmake did not find nvcc, so there is no CUDA in this build",
        "pass the compiler by its path (-DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc); `orin-deploy facts` "
        "lists the toolkits found",
    ),
    _rule(
        "build.openblas-missing",
        r"BLAS not found|cblas\.h: No such file|Could NOT find BLAS|cannot find -lopenblas",
        "OpenBLAS was asked for and is not installed",
        "sudo apt install libopenblas-dev pkg-config, or --set build.blas=off",
    ),
    _rule(
        "build.cmake-version",
        r"CMake ([\d.]+) or higher is required\.\s+You are running version ([\d.]+)",
        "cmake {1} is too old: this source needs {0}",
        "python3 -m pip install cmake; orin-deploy picks the newest it finds",
    ),
    _rule(
        "build.no-compiler",
        r"No CMAKE_C(?:XX)?_COMPILER could be found",
        "there is no C++ compiler",
        "sudo apt install g++",
    ),
    _rule(
        "build.clock-skew",
        r"Clock skew detected|manifest '[^']+' still dirty after \d+ tries|modification time [^\n]*in the future",
        "the clock is wrong: files of the source lie in the future",
        "set the clock (sudo timedatectl set-ntp true), then run the same command again",
    ),
    _rule(
        "build.index-unreachable",
        r"Could not find a version that satisfies the requirement (\S+)|NewConnectionError|Name or service not known",
        "the Python index cannot be reached, or does not have what was asked for",
        "check the network and pip's index (pip config list), then run the same command again",
    ),
)

_FIRST = re.compile(
    r"^CMake Error|: (?:fatal )?error: |: error: identifier |\)?: error: |^nvcc (?:fatal|error)|^ptxas fatal"
    r"|\bld: cannot find|undefined reference to|\bld: .*No such file|^ERROR: |^error: |^fatal: (?!not a git)"
    r"|No space left on device|^Killed$|^ninja: error: "
)


def first_error(log_lines: Iterable[str]) -> str | None:
    """The first line that is an error (with the text cmake puts below its own), not the last words of Ninja or make."""
    lines = [line.rstrip() for line in log_lines]
    for index, line in enumerate(lines):
        if not _FIRST.search(line):
            continue
        if not line.startswith("CMake Error"):
            return line.strip()
        # cmake's sentence is wrapped and indented below; a line that is not ends it.
        below = itertools.takewhile(lambda text: not text or text.startswith("  "), lines[index + 1 :])
        return " ".join([line, *[text.strip() for text in below if text][:4]])
    return None


def causes(log_text: str) -> tuple[Cause, ...]:
    """Every rule that holds for a log, most telling first."""
    found = []
    for rule in RULES:
        if match := rule.pattern.search(log_text):
            groups = [group or "" for group in match.groups()]
            found.append(Cause(rule.name, rule.message.format(*groups), rule.hint))
    if unused := unused_variables(log_text):
        found.append(_unused_cause(unused))
    return tuple(found)


def cause(log_text: str) -> tuple[str, str] | None:
    """The likely cause of a failed build and what to do, or None when no rule knows it."""
    found = causes(log_text)
    return (found[0].message, found[0].hint) if found else None


def _unused_cause(names: tuple[str, ...]) -> Cause:
    near = {name: nearest(name) for name in names}
    hints = [f"{known} in place of {name}" for name, known in near.items() if known]
    return Cause(
        "build.unused-cmake-variable",
        f"this llama.cpp has no build option {' or '.join(names)}: cmake took it and ignored it",
        f"use {', '.join(hints)}" if hints else "check the name against the source's CMakeLists.txt",
    )
