"""tegrastats: a line every interval, in the layout of the board's L4T generation."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.virtual import show
from tests.virtual.boards_table import MHZ
from tests.virtual.kernel import Kernel
from tests.virtual.tools import is_root

_ORDER = ("cv0", "cpu", "soc2", "soc0", "cv1", "gpu", "tj", "soc1", "cv2")
_XAVIER_ORDER = ("AO", "GPU", "Tdiode", "PMIC", "AUX", "CPU", "thermal", "Tboard")
_THOR_ORDER = ("cpu", "tj", "soc012", "gpu", "soc345")


class History:
    """What the averages and maxima of the lines are taken over: everything since the tool was started."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.tops: dict[str, float] = {}
        self.count = 0

    def add(self, values: dict[str, float]) -> None:
        self.count += 1
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0) + value
            self.tops[name] = max(self.tops.get(name, value), value)


def main(kernel: Kernel, words: list[str]) -> int:
    interval = int(words[words.index("--interval") + 1]) / 1000 if "--interval" in words else 1.0
    history = History()
    while True:
        with kernel.changing():
            kernel.tick()
        print(line(kernel, history), flush=True)
        time.sleep(interval)


def line(kernel: Kernel, history: History) -> str:
    """One line for the board as it is now."""
    rails = {rail.label: kernel.heat.power.get(rail.label, rail.idle_mw) for rail in kernel.board.rails}
    heats = {
        zone: show.millidegrees(kernel, zone) / 1000 for zone in show.zones(kernel) if not show.gated(kernel, zone)
    }
    history.add(rails | {f"{zone}@": value for zone, value in heats.items()})
    parts = [*_stamp(kernel), *_memory(kernel), _cpus(kernel), *_emc(kernel), *_gpu(kernel), *_engines(kernel)]
    return " ".join((*parts, *_zones(kernel, history, heats), *_rails(kernel, history, rails)))


def _stamp(kernel: Kernel) -> Iterator[str]:
    """Xavier's JetPack 5 captures have no time."""
    if kernel.board.soc != "tegra194":
        seconds = 1_767_225_600 + kernel.data["clock"]  # the board's own clock begins with 2026
        yield time.strftime("%m-%d-%Y %H:%M:%S", time.gmtime(seconds))


def _memory(kernel: Kernel) -> Iterator[str]:
    used, whole = round(show.used_kib(kernel) / 1024), round(show.total_kib(kernel) / 1024)
    block = 2 if kernel.release.major >= 39 and kernel.board.module.startswith("p3701") else 4
    yield f"RAM {used}/{whole}MB (lfb {max(1, (whole - used) // 200)}x{block}MB)"
    if swap := show.swap_kib(kernel):
        yield f"SWAP 0/{round(swap / 1024)}MB (cached 0MB)"


def _cpus(kernel: Kernel) -> str:
    online = kernel.online()
    cells = (
        f"{round(kernel.data['cpu_load'][cpu] * 100)}%@{kernel.cpu_khz(cpu) // 1000}" if cpu in online else "off"
        for cpu in kernel.board.cpus
    )
    return f"CPU [{','.join(cells)}]"


def _emc(kernel: Kernel) -> Iterator[str]:
    if is_root() or kernel.release.major < 36:
        yield f"EMC_FREQ {show.emc_percent(kernel)}%@{kernel.emc_hz() // MHZ}"


def _gpu(kernel: Kernel) -> Iterator[str]:
    percent, clock = round(kernel.data["gpu_load"] * 100), kernel.gpu_hz() // MHZ
    if kernel.board.soc == "tegra264":
        yield f"GR3D_FREQ @[{clock},{clock},{clock}]"
    elif kernel.board.soc == "tegra194":
        yield f"GR3D_FREQ {percent}%@{clock}"
    elif kernel.release.major < 36:
        running = clock if percent else 0
        yield f"GR3D_FREQ {percent}%@{running} GR3D2_FREQ {percent}%@{running}"
    elif is_root():
        clocks = f"{clock},{clock}" if kernel.board.module.startswith("p3701") else f"{clock}"
        yield f"GR3D_FREQ {percent}%@[{clocks}]"
    else:
        yield f"GR3D_FREQ {percent}%"


def _engines(kernel: Kernel) -> Iterator[str]:
    major, nano = kernel.release.major, kernel.board.module.startswith("p3767")
    if kernel.board.soc == "tegra264":
        yield (
            f"NVENC0_FREQ @{314} NVENC1_FREQ @314 NVDEC0_FREQ @314 NVDEC1_FREQ @314 NVJPG0_FREQ @314 VIC off "
            "OFA_FREQ @315 PVA0_FREQ off APE 300"
        )
    elif kernel.board.soc == "tegra194":
        yield "APE 150 MTS fg 0% bg 0%"
    elif major < 36:
        yield "VIC_FREQ 729 APE 174"
    elif is_root() and nano:
        yield (
            "NVDEC off NVJPG off VIC off OFA off APE 200"
            if major < 39
            else "NVDEC0 off NVJPG0 off NVJPG1 off VIC off OFA off APE 200"
        )
    elif is_root():
        first = "" if major < 39 else "0"
        yield (
            f"NVENC{first} off NVDEC{first} off NVJPG{first} off NVJPG1 off VIC off OFA off NVDLA0 off NVDLA1 off "
            "PVA0_FREQ off APE 174"
        )


def _zones(kernel: Kernel, history: History, heats: dict[str, float]) -> Iterator[str]:
    order = {"tegra194": _XAVIER_ORDER, "tegra264": _THOR_ORDER}.get(kernel.board.soc, _ORDER)
    old = kernel.release.major < 36
    for zone in order:
        name = zone.upper() if old and kernel.board.soc == "tegra234" and zone != "tj" else zone
        if zone in heats:
            top = f"/{_degrees(history.tops[f'{zone}@'])}C" if kernel.release.major >= 39 else ""
            yield f"{name}@{_degrees(heats[zone])}C{top}"
        elif old:
            yield f"{name}@-256C"


def _degrees(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _rails(kernel: Kernel, history: History, rails: dict[str, float]) -> Iterator[str]:
    xavier = kernel.board.soc == "tegra194"
    unit = "" if xavier else "mW"
    for name, value in rails.items():
        top = f"/{int(history.tops[name])}{unit}" if kernel.release.major >= 39 else ""
        yield f"{name} {int(value)}{unit}/{int(history.sums[name] / history.count)}{unit}{top}"
