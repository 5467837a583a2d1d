"""What a machine is: the values every decision starts from. Unknown is None, never a guess."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.facts.power import PowerState

MIB = 1024 * 1024
WHOLE_BLOCK_BYTES = 4 * MIB
"""The largest block that Linux keeps free lists of (order 10, pages of 4 KiB)."""


@dataclass(frozen=True)
class Cluster:
    """CPUs that share a cache no other CPU shares (on Arm a DynamIQ cluster); `cpus` counts offline ones too."""

    cpus: tuple[int, ...]


@dataclass(frozen=True)
class Cpu:
    """Processors by number: those that are present, switched on, and allowed to this process by cpuset and affinity."""

    model: str | None
    features: frozenset[str]
    clusters: tuple[Cluster, ...]
    present: tuple[int, ...]
    online: tuple[int, ...]
    allowed: tuple[int, ...]
    clusters_from: str  # how the clusters were found: "cluster_id", "cache", "cpufreq", "none", or "profile NAME"
    thread_siblings: tuple[tuple[int, ...], ...] = ()  # CPUs that are hardware threads of one core; empty without SMT

    @property
    def usable(self) -> tuple[int, ...]:
        """CPUs that are both online and allowed."""
        return tuple(cpu for cpu in self.online if cpu in self.allowed)


@dataclass(frozen=True)
class Memory:
    """Bytes, from /proc/meminfo and the control groups.

    `cgroup_limit` is the tightest limit on the path from our own group to the root, `service_limit` that on the path
    from `service_group`, the one in which systemd would start a service of ours. `doubts` tells, in words, which
    readings were implausible and what was taken instead.
    """

    total: int
    available: int
    free: int
    swap_total: int = 0
    swap_free: int = 0
    zram_total: int = 0
    hugepages_total: int = 0  # bytes set aside for huge pages, unusable for anything else
    hugepages_free: int = 0
    cgroup_limit: int | None = None
    cgroup_used: int | None = None
    cached: int = 0  # page cache that can be dropped
    zram_used: int = 0  # bytes swapped out to zram, before compression
    largest_block: int | None = None  # the largest free block of contiguous memory ("lfb"), and how many there are
    largest_blocks: int = 0
    service_group: str | None = None
    service_limit: int | None = None
    service_used: int | None = None
    doubts: tuple[str, ...] = ()

    @property
    def fragmented(self) -> bool:
        """Whether not one whole block is free; not known counts as no."""
        return self.largest_block is not None and self.largest_block < WHOLE_BLOCK_BYTES


@dataclass(frozen=True)
class Tenant:
    """Somebody else who holds memory: "desktop", "deployment", "container", "gpu" or "process".

    `bytes` is what would be free without it: its processes' own pages (no files, nothing shared) and, where it can be
    read, the GPU memory that no resident size shows; `gpu_bytes` is that part, None where it is not known.
    `promised_bytes` is what a deployment of ours was planned to take and has not taken yet. `needed` is what this very
    command runs in, as its shell and session: nobody offers to end it.
    """

    kind: str
    name: str
    bytes: int
    gpu_bytes: int | None = None
    promised_bytes: int = 0
    pids: tuple[int, ...] = ()
    unit: str | None = None  # the systemd service it runs in; of a container, what runs it ("docker", "podman" …)
    needed: bool = False


@dataclass(frozen=True)
class Tool:
    """A program found: its path and its version as numbers, empty when it would not say."""

    path: str
    version: tuple[int, ...]

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version)) or "unknown"


@dataclass(frozen=True)
class CudaToolkit:
    """A CUDA toolkit folder; `architectures` is what its nvcc lists, None when it was not asked or will not say."""

    root: str
    version: tuple[int, ...]
    on_path: bool
    architectures: tuple[str, ...] | None = None

    @property
    def nvcc(self) -> str:
        return f"{self.root}/bin/nvcc"

    @property
    def version_text(self) -> str:
        return ".".join(map(str, self.version))


@dataclass(frozen=True)
class CrossCompiler:
    """A compiler for another machine, named by that machine's GNU triplet."""

    triplet: str
    cc: Tool
    cxx: Tool

    @property
    def machine(self) -> str:
        """As `uname -m` says it there."""
        return self.triplet.partition("-")[0]


@dataclass(frozen=True)
class Toolchain:
    """What can build here. All cmakes found are kept, best first, so that a refusal can name them."""

    cxx: Tool | None = None
    cc: Tool | None = None
    cmakes: tuple[Tool, ...] = ()
    ninja: Tool | None = None
    ccache: Tool | None = None
    git: Tool | None = None
    cuda: tuple[CudaToolkit, ...] = ()


@dataclass(frozen=True)
class Jetson:
    """What only a Jetson has: device-tree identity, L4T release, JetPack and the CUDA version that belongs to it."""

    model: str | None
    compatible: tuple[str, ...]
    module: str | None  # the SKU, as in "p3701-0004"; None for a compatible string we do not know
    l4t: str | None
    jetpack: str | None
    jetpack_cuda: str | None
    module_from: str | None = None  # where the module is told, in words
    is_super: bool | None = None  # whether the device tree is that of a super image; None where there is none to read


@dataclass(frozen=True)
class Device:
    """A machine at one moment. `assumed` tells that no device is at hand and a profile's board stands in for it."""

    machine: str  # as `uname -m` says: "aarch64", "x86_64"
    os: str | None
    kernel: str | None
    cpu: Cpu
    memory: Memory
    toolchain: Toolchain
    jetson: Jetson | None
    systemd: bool
    container: str | None  # "docker", "podman", "lxc", "systemd-nspawn", "kubernetes" or None
    assumed: str | None = None
    power: PowerState | None = None  # on a Jetson: modes, tools, the active mode
    tenants: tuple[Tenant, ...] = ()  # who else holds memory, the largest first
    tenants_unread: str | None = None  # what of them cannot be read, and why

    @property
    def board(self) -> str:
        """The kind of machine, by which is kept what was measured on it: a Jetson's module, else what its CPUs are."""
        module = self.jetson.module if self.jetson else None
        return module or f"{self.machine} {self.cpu.model}, {len(self.cpu.usable)} CPUs"
