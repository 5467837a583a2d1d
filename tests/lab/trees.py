"""Device trees: qemu's own, made that of a board. Pure but for `make`.

What the board has and qemu has not becomes nodes without a driver: the kernel makes their folders below
/sys/devices/platform, and inside a board its files are mounted over them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.lab.commands import LabError, sh
from tests.virtual.boards_table import MHZ, Board
from tests.virtual.kernel import FLOOR_KHZ, OPP_KHZ
from tests.virtual.root import identity

# The kernel's cpufreq-dt stays away from a tegra234, which has a driver of its own; but it first asks for compatible
# strings that it always serves. This one belongs to no arm64 kernel code but that.
CPUFREQ = "marvell,berlin"

NODES = (
    ("gpu@17000000", 0x17000000),
    ("gpu.0", None),
    ("i2c@c240000", 0xC240000),
    ("soctherm-oc-event", None),
    ("pwm-fan", None),
    ("bus@0", None),
)


def edit(text: str, board: Board, super_modes: bool) -> str:
    """The source of a device tree as dtc prints qemu's, made that of a board: identity, clusters, clocks, devices."""
    strings, model = identity(board, super_modes)
    text = _replaced(text, r"\n\tcompatible = [^;]*;", f"\n\tcompatible = {_quoted((*strings, CPUFREQ))};")
    text = _replaced(text, r"\n\tmodel = [^;]*;", f'\n\tmodel = "{model}";')
    text = _replaced(text, r"\n\t\tcpu-map \{.*?\n\t\t\};", "\n" + _cpu_map(board.clusters, _phandles(text)))
    top = round(board.cpu_mhz[super_modes] * MHZ)
    for number, cluster in enumerate(board.clusters):
        for cpu in cluster:
            words = (
                f"\n\t\t\toperating-points-v2 = <&opp{number}>;\n\t\t\tclocks = <&cpuclock{number}>;"
                # A CPU that can be slowed when it is hot: with one the kernel makes its folder of thermal zones.
                "\n\t\t\t#cooling-cells = <2>;"
            )
            text = _replaced(text, rf"(\n\t\tcpu@{cpu} \{{)", rf"\g<1>{words}")
    clocks = "".join(_clocks(number, top) for number in range(len(board.clusters)))
    nodes = "".join(_node(name, address) for name, address in NODES)
    end = text.rindex("};")
    return f"{text[:end]}{clocks}{nodes}{text[end:]}"


def _replaced(text: str, pattern: str, by: str) -> str:
    text, count = re.subn(pattern, by.replace("\\0", "\\\\0"), text, count=1, flags=re.DOTALL)
    if count != 1:
        raise LabError(f"qemu's device tree has no {pattern!r}", "this qemu is another than the lab was written for")
    return text


def _quoted(strings: Sequence[str]) -> str:
    return ", ".join(f'"{each}"' for each in strings)


def _phandles(text: str) -> dict[int, str]:
    found = re.findall(r"\n\t\tcpu@(\d+) \{\s*phandle = <(0x[0-9a-f]+)>", text)  # qemu counts them in decimals
    return {int(cpu): phandle for cpu, phandle in found}


def _cpu_map(clusters: tuple[tuple[int, ...], ...], phandles: dict[int, str]) -> str:
    lines = ["\t\tcpu-map {", "\t\t\tsocket0 {"]
    for number, cluster in enumerate(clusters):
        lines.append(f"\t\t\t\tcluster{number} {{")
        lines += [f"\t\t\t\t\tcore{core} {{ cpu = <{phandles[cpu]}>; }};" for core, cpu in enumerate(cluster)]
        lines.append("\t\t\t\t};")
    return "\n".join((*lines, "\t\t\t};", "\t\t};"))


def _clocks(number: int, top_hz: int) -> str:
    """A cluster's clock and its steps. The clock is fixed, which the clock framework takes as any rate asked for."""
    steps = [*range(FLOOR_KHZ * 1000, top_hz, OPP_KHZ * 1000), top_hz]
    points = "".join(f"\t\topp-{hz} {{ opp-hz = /bits/ 64 <{hz}>; }};\n" for hz in steps)
    return (
        f'\n\tcpuclock{number}: cpu-clock-{number} {{\n\t\tcompatible = "fixed-clock";\n\t\t#clock-cells = <0>;\n'
        f"\t\tclock-frequency = <{top_hz}>;\n\t}};\n"
        f'\n\topp{number}: opp-table-{number} {{\n\t\tcompatible = "operating-points-v2";\n\t\topp-shared;\n'
        f"{points}\t}};\n"
    )


def _node(name: str, address: int | None) -> str:
    place = f" reg = <0 {address:#x} 0 0x1000>;" if address is not None else ""
    return f'\n\t{name} {{ compatible = "orin-deploy,lab";{place} }};\n'


def make(board: Board, folder: Path, words: Sequence[str]) -> Path:
    """The compiled tree for a board, in its folder, from that of the qemu which `words` start."""
    folder.mkdir(parents=True, exist_ok=True)
    base, source, tree = folder / "qemu.dtb", folder / "board.dts", folder / "board.dtb"
    machine = [f"{word},dumpdtb={base}" if word.startswith("virt,") else word for word in words]
    sh((*machine, "-net", "none", "-display", "none"))
    source.write_text(edit(sh(("dtc", "-q", "-I", "dtb", "-O", "dts", base)), board, board.super))
    sh(("dtc", "-q", "-I", "dts", "-O", "dtb", "-o", tree, source))
    return tree
