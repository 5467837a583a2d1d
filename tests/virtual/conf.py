"""nvpmodel.conf: our own text from the mode tables, and the reader that the stub tools use on it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tests.virtual.boards_table import MHZ, Board, Mode, Table

CPU_FREQ = "/sys/devices/system/cpu/cpu{cpu}/cpufreq"
_HOST1X = (
    "/sys/devices/platform/13e40000.host1x/{unit}/acm/clk_cap",
    "/sys/devices/platform/bus@0/13e00000.host1x/{unit}/clk_cap",
)
_ENGINES = (
    ("DLA0_CORE", "15880000.nvdla0", "dla0_core"),
    ("DLA1_CORE", "158c0000.nvdla1", "dla1_core"),
    ("DLA0_FALCON", "15880000.nvdla0", "dla0_falcon"),
    ("DLA1_FALCON", "158c0000.nvdla1", "dla1_falcon"),
    ("PVA0_VPS", "16000000.pva0", "pva0_vps"),
    ("PVA0_AXI", "16000000.pva0", "pva0_cpu_axi"),
)  # fmt: skip
_ENGINE_ORDER = (0, 2, 1, 3, 4, 5)  # of a mode's caps, in the order above


@dataclass(frozen=True)
class Param:
    """A PARAM block: its type (FILE or CLOCK), name, and a path for each argument, `_KNEXT` from kernel 5.15 on."""

    kind: str
    name: str
    paths: dict[str, str]

    def path(self, argument: str, knext: bool) -> str | None:
        return (self.paths.get(f"{argument}_KNEXT") if knext else None) or self.paths.get(argument)


@dataclass
class Conf:
    """A parsed nvpmodel.conf: parameters by name, per mode ID its name and (parameter, argument, value) lines."""

    params: dict[str, Param] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    settings: dict[int, list[tuple[str, str, str]]] = field(default_factory=dict)
    default: int = 0


@dataclass(frozen=True)
class Paths:
    """Where a generation of L4T has the GPU's devfreq folder, the folder of its masks and the memory's cap."""

    gpu: str
    masks: str
    emc: str


OLD = Paths(
    "/sys/devices/17000000.{chip}/devfreq/17000000.{chip}",
    "/sys/devices/gpu.0",
    "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap",
)
NEW = Paths(
    "/sys/devices/platform/17000000.gpu/devfreq_dev", "/sys/devices/platform/gpu.0", "/sys/kernel/nvpmodel_clk_cap/emc"
)
THOR = Paths("/sys/class/devfreq/gpu-gpc-0", "/sys/class/devfreq/gpu-gpc-0/device", NEW.emc)


def paths_of(board: Board, knext: bool) -> Paths:
    """The paths on this board with the older kernel (5.10) or a newer one (`knext`)."""
    if board.soc == "tegra264":
        return THOR
    if knext:
        return NEW
    chip = "gv11b" if board.soc == "tegra194" else "ga10b"
    return Paths(OLD.gpu.format(chip=chip), OLD.masks, OLD.emc)


def cpu_clocks(board: Board, super_modes: bool) -> dict[str, int]:
    """The conf's CPU clock parameters and the CPU each names: one a cluster, one a CPU in the super confs."""
    firsts = board.cpus if super_modes else tuple(cluster[0] for cluster in board.clusters)
    kind = {"tegra194": "CPU_DENVER", "tegra264": "CPU_NEOVERSE"}.get(board.soc, "CPU_A78")
    return {f"{kind}_{number}": cpu for number, cpu in enumerate(firsts)}


def mask_arguments(board: Board) -> tuple[tuple[str, str, str], ...]:
    """Parameter, argument and file of the GPU's power gating; Thor's names are unverified."""
    if board.soc == "tegra264":
        return (("GPU_POWER_GATING", "GPU_PG_MASK", "gpu_pg_mask"),)
    tpc = ("TPC_POWER_GATING", "TPC_PG_MASK", "tpc_pg_mask")
    return (("FBP_POWER_GATING", "FBP_PG_MASK", "fbp_pg_mask"), tpc) if board.module.startswith("p3767") else (tpc,)


def text(board: Board, table: Table, super_modes: bool, old: bool) -> str:
    """The whole file. `old` writes "no cap" for the memory clock as 0, as files for JetPack 5 do."""
    before, after = paths_of(board, knext=False), paths_of(board, knext=True)
    engines = table.modes[0].engines is not None
    lines = ["# Written for a virtual Jetson, from its own tables.", "", "< PARAM TYPE=FILE NAME=CPU_ONLINE >"]
    lines += [f"CORE_{cpu} /sys/devices/system/cpu/cpu{cpu}/online" for cpu in board.cpus]
    for name, argument, file in mask_arguments(board):
        lines += ["", f"< PARAM TYPE=FILE NAME={name} >", *_pair(argument, before.masks, after.masks, file)]
    for name, argument in (("ENABLE", "GPU_PWR_CNTL_EN"), ("DISABLE", "GPU_PWR_CNTL_DIS")):
        lines += ["", f"< PARAM TYPE=FILE NAME=GPU_POWER_CONTROL_{name} >"]
        lines += _pair(argument, before.masks, after.masks, "power/control")
    for name, cpu in cpu_clocks(board, super_modes).items():
        folder = CPU_FREQ.format(cpu=cpu)
        lines += ["", f"< PARAM TYPE=CLOCK NAME={name} >"]
        for argument, file in (
            ("FREQ_TABLE", "scaling_available_frequencies"),
            ("MAX_FREQ", "scaling_max_freq"),
            ("MIN_FREQ", "scaling_min_freq"),
        ):
            lines += _pair(argument, folder, folder, file)
    lines += ["", "< PARAM TYPE=CLOCK NAME=GPU >"]
    for argument, file in (("FREQ_TABLE", "available_frequencies"), ("MAX_FREQ", "max_freq"), ("MIN_FREQ", "min_freq")):
        lines += _pair(argument, before.gpu, after.gpu, file)
    # Without the blank, as it stands in published files.
    lines += ["", "<PARAM TYPE=CLOCK NAME=EMC >", f"MAX_FREQ {before.emc}", f"MAX_FREQ_KNEXT {after.emc}"]
    for name, unit, file in _ENGINES if engines else ():
        lines += [
            "",
            f"< PARAM TYPE=CLOCK NAME={name} >",
            *_pair("MAX_FREQ", _HOST1X[0].format(unit=unit), _HOST1X[1].format(unit=unit), file),
        ]
    for number, mode in enumerate(table.modes):
        lines += ["", f"< POWER_MODEL ID={number} NAME={mode.name} >", *_mode(board, mode, super_modes, old)]
    return "\n".join((*lines, "", f"< PM_CONFIG DEFAULT={table.default} >", ""))


def parse(text: str) -> Conf:
    """Read a file of this syntax."""
    conf, mode = Conf(), -1
    paths: dict[str, str] = {}
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if match := re.match(r"<\s*PARAM\s+TYPE=(\w+)\s+NAME=(\w+)\s*>", line):
            paths = {}
            conf.params[match[2]] = Param(match[1], match[2], paths)
        elif match := re.match(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>", line):
            mode = int(match[1])
            conf.names[mode], conf.settings[mode] = match[2], []
        elif match := re.match(r"<\s*PM_CONFIG\s+DEFAULT=(\d+)\s*>", line):
            conf.default = int(match[1])
        elif words := line.split():
            if len(words) == 2:
                paths[words[0]] = words[1]
            else:
                conf.settings[mode].append((words[0], words[1], words[2]))
    return conf


def _pair(argument: str, before: str, after: str, file: str) -> list[str]:
    return [f"{argument} {before}/{file}", f"{argument}_KNEXT {after}/{file}"]


def _mode(board: Board, mode: Mode, super_modes: bool, old: bool) -> list[str]:
    lines = [f"CPU_ONLINE CORE_{cpu} {int(cpu < mode.cores)}" for cpu in board.cpus]
    for name, argument, _ in mask_arguments(board):
        lines.append(f"{name} {argument} {2 if argument == 'FBP_PG_MASK' else mode.mask}")
    lines.append("GPU_POWER_CONTROL_ENABLE GPU_PWR_CNTL_EN on")
    floor = 1_200_000 if board.conf == "t194" else 1_190_400 if board.conf == "t194_p3668" else 729_600
    for name, cpu in cpu_clocks(board, super_modes).items():
        if cpu < mode.cores:
            lines += [f"{name} MIN_FREQ {floor}", f"{name} MAX_FREQ {_cap(mode.cpu_mhz, 1000)}"]
    lines += [f"GPU MIN_FREQ {int(mode.gpu_min_mhz * MHZ)}", f"GPU MAX_FREQ {_cap(mode.gpu_mhz, MHZ)}"]
    lines.append("GPU_POWER_CONTROL_DISABLE GPU_PWR_CNTL_DIS auto")
    lines.append(f"EMC MAX_FREQ {0 if old and mode.emc_mhz is None else _cap(mode.emc_mhz, MHZ)}")
    if mode.engines is not None:
        for (name, _, _), number in zip(_ENGINES, _ENGINE_ORDER, strict=True):
            cap = mode.engines[number]
            lines.append(f"{name} MAX_FREQ {_cap(None if cap < 0 else cap, MHZ)}")
    return lines


def _cap(value: float | None, unit: int) -> int:
    return -1 if value is None else round(value * unit)
