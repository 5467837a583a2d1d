"""The evidence: what files, logs and a live machine say, in our own words, whoever wrote them down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from orin_deploy.doctor.boards import Board
from orin_deploy.facts.device import CudaToolkit, Memory, Tool
from orin_deploy.facts.power import PowerTable

# Lines of cmake, make, Ninja, nvcc, pip, and compilers.
_BUILD = re.compile(
    r"""^--\ | ^CMake\  | ^\[\ *\d+%\]\  | ^\[\d+/\d+\]\  | ^make\[\d+\] | ^ninja:\  | ^nvcc\  | ^\ *Building\ wheel
        | ^\S+(?:\(\d+\)|:\d+):\ error:\  """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Log:
    """A text file or a journal; its lines are free of colour codes and clipped."""

    name: str
    lines: tuple[str, ...]

    @property
    def is_of_a_build(self) -> bool:
        """Whether cmake, Ninja, make, pip or a compiler is speaking."""
        return any(_BUILD.search(line) for line in self.lines)


@dataclass(frozen=True)
class Listed:
    """A file that a listing (`ls`) names; `size` in bytes where the listing says."""

    path: str
    size: int | None = None
    target: str | None = None


@dataclass(frozen=True)
class Core:
    """A CPU as somebody listed it: its highest clock."""

    id: int
    max_khz: int


@dataclass(frozen=True)
class Trial:
    """One measurement in one power mode: tokens per second, and the watts it took."""

    mode: str
    tps: float
    watt: float


@dataclass(frozen=True)
class Sampled:
    """What one moment of a measurement yielded; None is a gap."""

    at: float
    value: float | None


@dataclass(frozen=True)
class Evidence:
    """All that is known about a case. Unknown is None or empty; `cuda_arch` "" is an answer: it was asked and is empty.

    `settled` tells that the facts are our own inspection of a machine, or a profile of ours: what our plan decides by
    itself there (architecture, cmake, flags) needs no advice.
    """

    logs: tuple[Log, ...] = ()
    listed: tuple[Listed, ...] = ()
    models: tuple[Path, ...] = ()
    header: Mapping[str, Any] = field(default_factory=dict)  # of a GGUF, as JSON
    # The machine.
    board: Board | None = None
    l4t: str | None = None
    jetpack: str | None = None
    jetpack_cuda: str | None = None
    cuda: str | None = None
    toolkits: tuple[CudaToolkit, ...] = ()
    nvcc_on_path: str | None = None
    nvcc_architectures: tuple[str, ...] = ()  # what nvcc lists, as numbers ("87")
    compute_capability: str | None = None
    gcc: str | None = None
    cmakes: tuple[Tool, ...] = ()
    cores: int | None = None
    memory: Memory | None = None
    cpu_features: frozenset[str] | None = None
    # Power, clocks, CPUs and telemetry.
    power_table: PowerTable | None = None
    power_mode: str | None = None  # the mode nvpmodel is in; "" is an answer: it was asked and names none
    power_wanted: str | None = None  # a mode's name, or "max"
    gpu_steps_hz: tuple[int, ...] = ()
    gpu_max_mhz: float | None = None  # what the board or the profile promises
    clocks_locked: bool | None = None
    clocks_flag: bool | None = None  # what jtop believes of it
    cpu_limits: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # kHz, of the CPUs that are on
    input_mv: int | None = None
    input_ma: int | None = None
    cpus: tuple[int, ...] = ()  # present or on, as a list in the kernel's form says
    core_table: tuple[Core, ...] = ()
    threads: int | None = None
    pinned: tuple[int, ...] = ()  # the CPUs that the target was to have
    masks: tuple[tuple[str, tuple[int, ...]], ...] = ()  # the CPUs that threads do have, by thread id or program
    trials: tuple[Trial, ...] = ()
    samples: tuple[Sampled, ...] = ()
    no_gpu_told: bool = False  # a table about the GPU, or of all there is, in which no GPU stands
    # What was wished and built.
    wants_cuda: bool | None = None
    cuda_arch: str | None = None
    cmake_flags: Mapping[str, str] = field(default_factory=dict)
    build_outputs: tuple[str, ...] | None = None
    compiled_archs: tuple[str, ...] = ()  # machine code ("sm_87") and PTX ("compute_80") in a built library
    revision: str | None = None
    built_build: int | None = None
    running_build: int | None = None
    binary_built: str | None = None
    binary_running: str | None = None
    # About the reading itself.
    settled: bool = False
    unread: tuple[str, ...] = ()

    @cached_property
    def text(self) -> str:
        """All logs as one text."""
        return "\n".join(line for log in self.logs for line in log.lines)

    @property
    def logs_of_a_build(self) -> bool:
        return any(log.is_of_a_build for log in self.logs)

    def find(self, pattern: str) -> re.Match[str] | None:
        """The first place in the logs where the pattern holds; `^` and `$` are line ends."""
        return re.search(pattern, self.text, re.MULTILINE)


Claims: TypeAlias = dict[str, Any]
"""Fields of `Evidence` that one source speaks of."""
