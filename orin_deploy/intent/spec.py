"""The spec: everything decided, before anything is done; each value knows where it came from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from orin_deploy.facts.device import CrossCompiler, Device
from orin_deploy.facts.model import Model
from orin_deploy.intent.budget import Budget
from orin_deploy.intent.measured import Decision, ToMeasure

Value: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True)
class Setting:
    """A value and its source: "profile agx32", "--set", "default", "fitted to memory", "device", …"""

    value: Value
    source: str


@dataclass(frozen=True)
class Source:
    """Where the engine's source code comes from.

    `kind` is "package", "git", "tree" or "archive"; `location` a package name, URL or path; `version` a package
    version or git ref; `sha256` of the archive where it is pinned.
    """

    kind: str
    location: str
    version: str | None = None
    sha256: str | None = None
    commit: str | None = None
    build_number: int | None = None


@dataclass(frozen=True)
class Build:
    """How the engine is built. `key` names its folder in the engine cache and covers all that shapes the result."""

    key: str
    folder: str  # the engine's folder in the cache; its programs are in `bin` below it
    source: Source
    cmake: tuple[str, ...]  # the -D words, in order
    targets: tuple[str, ...]
    cuda: bool
    cuda_architectures: tuple[str, ...]
    blas: bool
    jobs: int
    cmake_program: str | None  # None: taken from the Python index
    ninja_program: str | None
    nvcc: str | None
    cpu_features: frozenset[str]  # what the CPU backend must report, in ggml's names ("DOTPROD", "AVX2")
    estimate_s: float
    engine: str | None = None  # a folder of ready binaries (`build.engine`): used as it is, nothing is built
    needs: tuple[str, ...] = ()  # what must be there before the build, each with the command that installs it
    warnings: tuple[str, ...] = ()
    cross: CrossCompiler | None = None  # what compiles it for another machine than the one that builds
    libraries: tuple[tuple[str, str], ...] = ()  # the newest symbols there: ("GLIBC", "2.35")

    @property
    def bin(self) -> str:
        return self.engine or f"{self.folder}/bin"


@dataclass(frozen=True)
class Weights:
    """The model's files: reference and where each part will lie, with size and hash where they are known."""

    reference: str
    files: tuple[WeightFile, ...]


@dataclass(frozen=True)
class WeightFile:
    """One file of a model. `path` is where it is or will be; a local `file:` reference is used where it lies."""

    reference: str
    path: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Power:
    """The power mode that will be active, whether clocks are pinned in it, and the fan's profile.

    A `mode` of None leaves the mode alone, a `fan` of None the fan. `cores` are the CPUs online then. `reboot_needed`
    is what the GPU's masks say before anything is tried; `reboot_allowed` is the user's --reboot.
    """

    mode: str | None
    mode_id: int | None
    clocks: bool
    fan: str | None
    cores: tuple[int, ...]
    reboot_needed: bool = False
    reboot_allowed: bool = False
    source: str = "default"
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placement:
    """The CPUs the server's process may use and its thread counts for generation and for prompts (batch).

    `draft_cpus` are those of the draft's own process, never one of the server's; empty without such a process.
    """

    cpus: tuple[int, ...]
    threads: int
    threads_batch: int
    why: str
    draft_cpus: tuple[int, ...] = ()
    draft_threads: int = 0


@dataclass(frozen=True)
class Draft:
    """How tokens are drafted for the target to verify.

    `kind` is what llama-server's --spec-type names, `others` are kinds asked for beside it. With `optional` a server
    that does not speculate serves on without.
    """

    kind: str
    weights: Weights | None = None
    model: Model | None = None
    why: str = ""
    optional: bool = False
    source: str = "--draft"
    n_max: int = 0  # the most tokens drafted at once
    n_min: int = 0
    others: tuple[str, ...] = ()
    # Of a process of the draft's own:
    device: str = ""  # what it computes on, as ggml names it: "CPU", "CUDA0"
    port: int = 0  # of the loopback address
    argv: tuple[str, ...] = ()  # ggml-rpc-server and its arguments, without taskset

    @property
    def kinds(self) -> tuple[str, ...]:
        return (*self.others, self.kind)

    @property
    def where(self) -> str:
        """In "process" (the draft's own: ggml-rpc-server), "inline" (the server's) or "draftless" (no draft model: by
        n-grams, or by the target's own layers)."""
        return "process" if self.argv else "inline" if self.weights is not None else "draftless"


@dataclass(frozen=True)
class LeftOut:
    """Speculation that a deployment could do without, given up because it did not work with this engine."""

    kind: str
    reference: str | None
    build: str
    why: str


@dataclass(frozen=True)
class Service:
    """How the server is kept running. `manager` is "systemd" or "process"; `user` None means the caller's own."""

    manager: str
    unit: str
    user: str | None
    start_timeout_s: int
    restart_delay_s: int
    host: str
    port: int
    argv: tuple[str, ...]  # llama-server and its arguments, without taskset
    env: tuple[tuple[str, str], ...]
    log: str
    api_key_file: str | None = None

    @property
    def endpoint(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "localhost") else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


@dataclass(frozen=True)
class Spec:
    """All that shall be, for one deployment. Two equal specs mean the same machine state."""

    name: str
    profile: str
    device: Device
    model: Model
    weights: Weights
    build: Build
    settings: dict[str, Setting]  # server options by key, all that are passed
    placement: Placement
    service: Service
    budget: Budget
    sources: dict[str, str] = field(default_factory=dict)  # every key (build.blas, ctx_size …) to its source
    warnings: tuple[str, ...] = ()
    draft: Draft | None = None
    left_out: LeftOut | None = None
    no_draft: str | None = None  # why there is none, where one was wished for that need not be
    decision: Decision | None = None  # what draft=auto goes by
    to_measure: ToMeasure | None = None  # what draft=auto has no record of
    power: Power | None = None  # None where there is nothing to set: no Jetson
    ctx_fitted: bool = False  # the context is what memory allows, nobody chose it

    @property
    def draft_process(self) -> Draft | None:
        """The draft, where it has a process of its own."""
        return self.draft if self.draft is not None and self.draft.where == "process" else None

    @property
    def files(self) -> tuple[WeightFile, ...]:
        """All files that the server loads: the model's, then its draft's."""
        draft = self.draft.weights if self.draft is not None else None
        return (*self.weights.files, *(draft.files if draft is not None else ()))
