"""The evidence: what files, logs and a live machine say, in our own words, whoever wrote them down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from orin_deploy.doctor.boards import Board
from orin_deploy.facts.device import CudaToolkit, Memory, Tenant, Tool
from orin_deploy.facts.power import PowerTable
from orin_deploy.facts.vocabulary import Vocabulary
from orin_deploy.intent import speculation_choice

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
class Reading:
    """What a runtime says of a device's memory, in MiB as it says it."""

    device: str
    total_mib: int
    free_mib: int


@dataclass(frozen=True)
class Revision:
    """A revision of the engine that was tried, and whether its smoke test passed."""

    name: str
    passed: bool


@dataclass(frozen=True)
class CachedTrial:
    """One measurement in tokens per second, and the page cache there was before it."""

    name: str
    tps: float
    cached_mib: float


@dataclass(frozen=True)
class CacheSpeed:
    """Speeds with one type of KV cache: prompt and generation, tokens per second."""

    kind: str
    prompt: float
    generation: float | None


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
    # Memory.
    needs: Mapping[str, int] = field(default_factory=dict)  # bytes by purpose that somebody planned
    holders: tuple[Tenant, ...] = ()
    readings: tuple[Reading, ...] = ()
    ram_bytes: int | None = None  # as somebody says it, of a whole module
    ram_used: int | None = None  # of tegrastats, with its total
    ram_total: int | None = None
    largest_block: int | None = None
    swap_rates: tuple[tuple[int, int], ...] = ()  # swapped in and out, KiB/s, in order
    zram_total: int | None = None
    zram_used: int | None = None
    boot_target: str | None = None
    # How the model was to be served.
    shape: Mapping[str, int] = field(default_factory=dict)  # of a header in plain words: context, blocks, heads
    ctx_wanted: int | None = None
    ctx_given: bool | None = None  # whether a profile names a context
    kv_limit_bytes: int | None = None
    kv_v: str | None = None  # the type of the values' cache that a profile asks for
    flash_attn: str | None = None
    kv_speeds: tuple[CacheSpeed, ...] = ()
    cached_trials: tuple[CachedTrial, ...] = ()
    revisions: tuple[Revision, ...] = ()  # oldest first
    measured: tuple[tuple[tuple[str, str], ...], ...] = ()  # the conditions of each measurement
    repeats: tuple[tuple[float, ...], ...] = ()  # of one measurement
    # Drafts, flags and starts.
    commands: tuple[tuple[str, ...], ...] = ()  # that start a server
    settings: tuple[tuple[str, str], ...] = ()  # of a profile, as written
    vocabularies: tuple[Vocabulary, ...] = ()
    arms: tuple[speculation_choice.Trial, ...] = ()
    workload: str | None = None
    probes: tuple[tuple[str, int], ...] = ()  # an endpoint's paths and the statuses they gave
    storage_mb_s: float | None = None
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
