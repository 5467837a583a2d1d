"""A board's facts as profiles tell them: the rows that say what may be told, and the Board they are read into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orin_deploy.facts.power import PowerMode
from orin_deploy.intent import options
from orin_deploy.intent.option_table import Option

_MIB = 2**24  # 16 TiB, more than any board will have

BOARD = (
    Option(
        "board.modules", "list", "The modules this is, by SKU.",
        pattern="p[0-9]{4}-[0-9]{4}", shape="SKUs such as p3701-0004",
    ),
    Option("board.machine", "enum", "As `uname -m` says.", choices=("aarch64", "x86_64")),
    Option("board.cpu_model", "str", "The CPU core's name."),
    Option(
        "board.clusters", "list", "CPUs that share a cache, one range a cluster.",
        pattern="[0-9]{1,4}(-[0-9]{1,4})?", shape='ranges of CPUs such as ["0-3", "4-7"]',
    ),
    Option(
        "board.features", "list", "CPU features as /proc/cpuinfo names them.",
        pattern="[a-z0-9_]+", shape="names of CPU features",
    ),
    Option("board.memory_total_mib", "int", "MemTotal in MiB.", low=256, high=_MIB),
    Option("board.memory_idle_mib", "int", "MiB in use before anything is deployed.", low=0, high=_MIB),
    Option("board.bandwidth_gbs", "float", "Memory bandwidth in GB/s.", low=1, high=1e6),
    Option("board.cpu_max_mhz", "float", "The CPU's highest clock.", low=1, high=1e5),
    Option("board.gpu_sm", "int", "Streaming multiprocessors of the GPU in its widest mode.", low=1, high=4096),
    Option("board.gpu_max_mhz", "float", "The GPU's highest clock.", low=1, high=1e5),
    Option("board.gpu_max_mhz_before_super", "float", "The same on an image that is not super.", low=1, high=1e5),
    Option("board.power", "map", "The power modes of nvpmodel.conf, for a board that is not at hand."),
    Option("board.power_default", "str", "The mode a freshly flashed board is in."),
    Option("board.power_before_super", "map", "The power modes of an image that is not super."),
    Option("board.power_before_super_default", "str", "The mode such an image is in when freshly flashed."),
    Option("board.cuda", "bool", "Whether the board has a CUDA GPU."),
    Option("board.evidence", "enum", "What the facts rest on.", choices=("hardware", "captured", "documents")),
    Option("board.sources", "map", "Where each fact is from, by its key."),
)  # fmt: skip

POWER_TABLES = ("power", "power_before_super")

POWER_MODE = (
    Option("mode.id", "int", "The number nvpmodel has for it.", low=0, high=255),
    Option("mode.name", "str", "The name, as in MODE_30W."),
    Option(
        "mode.cores", "str", "The CPUs that are on.",
        pattern="[0-9]{1,4}(-[0-9]{1,4})?", shape='a range of CPUs such as "0-3"',
    ),
    *(
        Option(f"mode.{unit}_max_mhz", "float", f"Cap of the {name}'s clock; none without it.", low=1, high=1e5)
        for unit, name in (("cpu", "CPU"), ("gpu", "GPU"), ("emc", "memory"))
    ),
    Option("mode.masks", "map", "Which parts of the GPU are off; modes with equal masks switch without a reboot."),
    *(
        Option(f"mode.masks.{name}", "int", "The bits of nvpmodel.conf.", low=0, high=2**32 - 1)
        for name in ("FBP_PG_MASK", "TPC_PG_MASK", "GPU_PG_MASK")
    ),
)  # fmt: skip

_NEEDED = ("modules", "machine", "clusters", "memory_total_mib", "memory_idle_mib", "evidence")


@dataclass(frozen=True)
class Board:
    """Facts of a board. `modules` are SKUs ("p3701-0004"), `clusters` CPU numbers; `sources` say where each is from.

    `evidence` is "hardware", "captured" (from somebody's board) or "documents". None is unknown. The two power tables
    are those of nvpmodel.conf on an image that is super, or that knows no such thing, and on one from before it.
    """

    modules: tuple[str, ...]
    machine: str
    clusters: tuple[tuple[int, ...], ...]
    memory_total_mib: int
    memory_idle_mib: int
    evidence: str
    cpu_model: str | None = None
    features: tuple[str, ...] = ()
    cpu_max_mhz: float | None = None
    bandwidth_gbs: float | None = None
    gpu_sm: int | None = None
    gpu_max_mhz: float | None = None
    gpu_max_mhz_before_super: float | None = None
    cuda: bool = False
    power: tuple[PowerMode, ...] = ()
    power_default: str | None = None
    power_before_super: tuple[PowerMode, ...] = ()
    power_before_super_default: str | None = None
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def cpus(self) -> tuple[int, ...]:
        return tuple(cpu for cluster in self.clusters for cpu in cluster)


def faults(told: Mapping[str, Any]) -> list[str]:
    """What the facts told of a board, each valid by itself, lack or contradict as a whole."""
    sources: Mapping[str, str] = told["sources"]
    facts = [key for key in told if key not in ("sources", "evidence")]
    found = [f"lacks {key}" for key in _NEEDED if key not in told]
    found += [f"names no source for {key}" for key in facts if key not in sources]
    found += [f"names a source for {key}, which it does not tell" for key in sources if key not in facts]
    return found or [fault for table in POWER_TABLES for fault in _table_faults(table, told)]


def _table_faults(table: str, told: Mapping[str, Any]) -> list[str]:
    modes, default = told.get(table, ()), told.get(f"{table}_default")
    if (default is None) != (not modes):
        return [f"tells {table} or {table}_default, and needs both"]
    names, ids = [str(mode["name"]) for mode in modes], [mode["id"] for mode in modes]
    present = {cpu for cpus in _words("clusters", told) for cpu in _range(cpus)}
    found = [f"has two modes of one name or number in {table}"] * (len({*names}) < len(names) or len({*ids}) < len(ids))
    found += [f"has no mode {default}, its {table}_default"] if modes and str(default) not in names else []
    return found + [
        f"has no CPU for the cores {mode['cores']} of mode {mode['name']}"
        for mode in modes
        if not present.issuperset(_range(str(mode["cores"])))
    ]


def read(told: Mapping[str, Any]) -> Board:
    """The board that facts without faults describe."""
    tables = {table: told[table] for table in POWER_TABLES if table in told}
    plain = {key: raw for key, raw in told.items() if key != "sources" and key not in tables}
    values: dict[str, Any] = {key: options.parse(_row(key), raw) for key, raw in plain.items()}
    values |= {key: _words(key, told) for key in ("modules", "features") if key in told}
    values["clusters"] = tuple(_range(cpus) for cpus in _words("clusters", told))
    for table, modes in tables.items():
        values[table] = tuple(_mode(mode, values["clusters"]) for mode in modes)
    return Board(**values, sources=told["sources"])


def _row(key: str) -> Option:
    return next(row for row in BOARD if row.key == f"board.{key}")


def _words(key: str, told: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(options.parse(_row(key), told[key])).split(","))


def _mode(told: Mapping[str, Any], clusters: tuple[tuple[int, ...], ...]) -> PowerMode:
    """A mode as facts.power reads it from nvpmodel.conf; the cap of a cluster stands with its first CPU."""
    cores = _range(str(told["cores"]))
    firsts = (cluster[0] for cluster in clusters if cluster[0] in cores)
    khz = round(told["cpu_max_mhz"] * 1000) if "cpu_max_mhz" in told else None
    return PowerMode(
        id=told["id"],
        name=str(told["name"]),
        cores=cores,
        cpu_max_khz=dict.fromkeys(firsts, khz),
        gpu_max_hz=_hz(told.get("gpu_max_mhz")),
        emc_max_hz=_hz(told.get("emc_max_mhz")),
        gpu_mask=tuple(sorted(told["masks"].items())),
    )


def _hz(mhz: float | None) -> int | None:
    return None if mhz is None else round(mhz * 1_000_000)


def _range(text: str) -> tuple[int, ...]:
    first, _, last = text.partition("-")
    return tuple(range(int(first), int(last or first) + 1))
