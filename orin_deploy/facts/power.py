"""Power modes: what nvpmodel.conf says that each of them switches, which one is active, which tools set them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orin_deploy.errors import UsageError
from orin_deploy.host.machine import Machine

CONF = "/etc/nvpmodel.conf"
STATUS = "/var/lib/nvpmodel/status"
FAN_CONF = "/etc/nvfancontrol.conf"

_NO_CAP = (2**31 - 1, 2**63 - 1)  # how JetPack 5 and 6 print -1
_TPCS = 8  # of a whole ga10b; elsewhere only the order counts
_KNEXT = "_KNEXT"


@dataclass(frozen=True)
class PowerMode:
    """One mode of nvpmodel.conf.

    `cores` are the CPUs online in it; `cpu_max_khz` caps by the first CPU of a cpufreq policy; a cap of None is none.
    `gpu_mask` holds the power-gating masks: a switch between modes with equal masks is live, any other needs a reboot.
    """

    id: int
    name: str
    cores: tuple[int, ...]
    cpu_max_khz: dict[int, int | None]
    gpu_max_hz: int | None
    emc_max_hz: int | None
    gpu_mask: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class PowerTable:
    """The modes of one nvpmodel.conf, and the one that a freshly flashed board is in.

    `gpu_max_path` is the file with the GPU's highest allowed clock, `gpu_clocks_path` the one that lists all it knows.
    """

    path: str
    modes: tuple[PowerMode, ...]
    default_id: int | None
    gpu_max_path: str | None = None
    gpu_clocks_path: str | None = None

    def named(self, name: str | None) -> PowerMode | None:
        return next((mode for mode in self.modes if mode.name == name), None)


@dataclass(frozen=True)
class PowerState:
    """Power as it is: the modes there are, the active one's name, the tools' paths, the fan's profiles and its own."""

    table: PowerTable | None
    current: str | None
    nvpmodel: str | None = None
    jetson_clocks: str | None = None
    fan: str | None = None
    fans: tuple[str, ...] = ()


def read(machine: Machine, kernel: str | None) -> PowerState | None:
    """The power facts of a Jetson; None where it has neither the table nor the tools, as in most containers."""
    text, fans = machine.read(CONF), machine.read(FAN_CONF) or ""
    nvpmodel, clocks = machine.which("nvpmodel"), machine.which("jetson_clocks")
    if text is None and nvpmodel is None and clocks is None:
        return None
    table = None if text is None else parse_conf(text, kernel)
    table = table if table is not None and table.modes else None
    return PowerState(table, active_mode(machine, table), nvpmodel, clocks, fan_profile(fans), fan_profiles(fans))


def active_mode(machine: Machine, table: PowerTable | None) -> str | None:
    """The active mode's name as nvpmodel says it, else by the number in its status file."""
    return current_mode(machine.ask("nvpmodel", "-q") or "") or noted_mode(machine.read(STATUS) or "", table)


def current_mode(said: str) -> str | None:
    """The name in what `nvpmodel -q` prints; NVPM lines of any kind may stand around it."""
    match = re.search(r"NV Power Mode: *(\S+)", said)
    return match[1] if match else None


def noted_mode(status: str, table: PowerTable | None) -> str | None:
    """The name of the mode whose number nvpmodel's status file notes ("pmode:0002")."""
    match = re.match(r"pmode:([0-9]{1,6})\b", status)
    if table is None or match is None:
        return None
    return next((mode.name for mode in table.modes if mode.id == int(match[1])), None)


def parse_conf(text: str, kernel: str | None) -> PowerTable:
    """The table in the text of an nvpmodel.conf.

    An ARG_KNEXT path is the one of kernel 5.15 and later. No cap is -1, and 0 in the memory clocks of JetPack 5.
    """
    paths: dict[tuple[str, str], str] = {}
    modes: list[tuple[int, str, dict[tuple[str, str], str]]] = []
    default: int | None = None
    section = ""
    for line in (raw.partition("#")[0].strip() for raw in text.splitlines()):
        words = line.strip("<> \t").replace("=", " ").split()
        if line.startswith("<") and words:
            tags = dict(zip(words[1::2], words[2::2], strict=False))
            section = f"PARAM {tags.get('NAME', '')}" if words[0] == "PARAM" else words[0]
            if words[0] == "POWER_MODEL" and tags.get("ID", "").isdigit() and "NAME" in tags:
                modes.append((int(tags["ID"]), tags["NAME"], {}))
            if words[0] == "PM_CONFIG" and tags.get("DEFAULT", "").isdigit():
                default = int(tags["DEFAULT"])
        elif section.startswith("PARAM ") and len(words) == 2:
            paths[section[6:], words[0]] = words[1]
        elif section == "POWER_MODEL" and len(words) == 3 and modes:
            modes[-1][2][words[0], words[1]] = words[2]
    paths = _of_kernel(paths, kernel)
    gpu = _gpu(paths)
    made = tuple(_mode(number, name, values, paths, gpu) for number, name, values in modes)
    return PowerTable(CONF, made, default, paths.get((gpu, "MAX_FREQ")), paths.get((gpu, "FREQ_TABLE")))


def _of_kernel(paths: dict[tuple[str, str], str], kernel: str | None) -> dict[tuple[str, str], str]:
    match = re.match(r"([0-9]{1,3})\.([0-9]{1,3})", kernel or "")
    plain = {key: path for key, path in paths.items() if not key[1].endswith(_KNEXT)}
    if match is None or (int(match[1]), int(match[2])) < (5, 15):
        return plain
    newer = {(param, arg.removesuffix(_KNEXT)): path for (param, arg), path in paths.items() if arg.endswith(_KNEXT)}
    return plain | newer


def _gpu(paths: dict[tuple[str, str], str]) -> str:
    """The name of the GPU's clock: GPU on Orin and Xavier; Thor's text is not public, its clock is gpu-gpc."""
    clocks = [param for param, arg in paths if arg == "MAX_FREQ" and param.upper().startswith("GPU")]
    return "GPU" if "GPU" in clocks else next(iter(clocks), "GPU")


def _mode(
    number: int, name: str, values: dict[tuple[str, str], str], paths: dict[tuple[str, str], str], gpu: str
) -> PowerMode:
    cores = [_cpu(paths.get(key, ""), key[1]) for key, on in values.items() if key[0] == "CPU_ONLINE" and on == "1"]
    caps: dict[int, int | None] = {}
    for (param, arg), value in values.items():
        cpu = _cpu(paths.get((param, arg), ""), "") if arg == "MAX_FREQ" and param.startswith("CPU") else None
        if cpu is not None:
            caps[cpu] = _cap(value)
    masks = {arg: int(value, 0) for (_, arg), value in values.items() if arg.endswith("PG_MASK") and _number(value)}
    return PowerMode(
        id=number,
        name=name,
        cores=tuple(sorted(cpu for cpu in cores if cpu is not None)),
        cpu_max_khz=caps,
        gpu_max_hz=_cap(values.get((gpu, "MAX_FREQ"))),
        emc_max_hz=_cap(values.get(("EMC", "MAX_FREQ"))),
        gpu_mask=tuple(sorted(masks.items())),
    )


def _cpu(path: str, arg: str) -> int | None:
    """The CPU that a path is of; without a path, the number in an argument such as CORE_3."""
    match = re.search(r"/cpu/cpu([0-9]{1,4})/", path) or re.fullmatch(r"CORE_([0-9]{1,4})", arg)
    return int(match[1]) if match else None


def _number(text: str) -> bool:
    return re.fullmatch(r"-?(0[xX][0-9a-fA-F]{1,16}|[1-9][0-9]{0,19}|0)", text) is not None


def _cap(text: str | None) -> int | None:
    value = int(text, 0) if text is not None and _number(text) else -1
    return None if value <= 0 or value in _NO_CAP else value


def find(table: PowerTable, wanted: str) -> PowerMode:
    """The mode of that name in any case; `max` is the board's fastest, "25W" or "25" also means MODE_25W.

    Raises UsageError with the names there are.
    """
    if wanted == "max" and table.modes:
        named = (table.named(name) for name in ("MAXN_SUPER", "MAXN"))
        return next((mode for mode in named if mode), None) or max(table.modes, key=_speed)
    name = wanted.upper()
    watts = re.fullmatch(r"([0-9]{1,3})W?", name)
    names = (f"{watts[1]}W", f"MODE_{watts[1]}W") if watts else (name,)
    found = next((mode for name in names for mode in table.modes if mode.name.upper() == name), None)
    if found is None:
        present = ", ".join(mode.name for mode in table.modes)
        raise UsageError(f"there is no power mode {wanted} in {table.path}", f"there are {present}; or max, or keep")
    return found


def _speed(mode: PowerMode) -> tuple[float, ...]:
    """What orders the modes of a table without MAXN: GPU width times clock, then cores, memory and CPU clock."""
    gated = sum(bin(mask).count("1") for name, mask in mode.gpu_mask if name.startswith("TPC"))
    clocks = [_or_most(cap) for cap in mode.cpu_max_khz.values()]
    width = max(_TPCS - gated, 1)
    return width * _or_most(mode.gpu_max_hz), len(mode.cores), _or_most(mode.emc_max_hz), max(clocks, default=0)


def _or_most(cap: int | None) -> float:
    return float("inf") if cap is None else cap


def needs_reboot(current: PowerMode | None, wanted: PowerMode) -> bool:
    """Whether nvpmodel will ask to reboot: the GPU's width cannot change once something has used the GPU.

    Inferred from the tool's message (Golden image context is already created) and jtop's rule; so nvpmodel may ask
    all the same, and a mode counts only once it is read back.
    """
    return current is not None and current.gpu_mask != wanted.gpu_mask


def fan_profile(conf: str) -> str | None:
    """The profile that nvfancontrol starts with, from its configuration."""
    match = re.search(r"^[ \t]*FAN_DEFAULT_PROFILE[ \t]+(\S+)", conf, re.MULTILINE)
    return match[1] if match else None


def fan_profiles(conf: str) -> tuple[str, ...]:
    """The profiles that nvfancontrol's configuration describes."""
    return tuple(dict.fromkeys(re.findall(r"^[ \t]*FAN_PROFILE[ \t]+([\w-]+)[ \t]*\{?", conf, re.MULTILINE)))
