"""At boot: make this machine look like the board that its device tree names.

`python -m tests.lab.guest.board` puts the board's files where programs read them; with `mode` it then does what
nvpmodel.service does. Files that a real board's kernel would make are mounted over folders that the lab's device tree
has the kernel make.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.lab.guest.kernel import BOARD, QUERY, LabKernel
from tests.virtual import root as roots
from tests.virtual.boards_table import BOARDS
from tests.virtual.modes import apply_mode

L4T = "36.4.3"

FILES = ("nv_tegra_release", "nv_boot_control.conf", "nvfancontrol.conf")

# The board's folder and the machine's.
MOUNTS = (
    ("/sys/devices/platform/17000000.gpu", "/sys/devices/platform/17000000.gpu"),
    ("/sys/devices/platform/gpu.0", "/sys/devices/platform/gpu.0"),
    ("/sys/devices/platform/c240000.i2c", "/sys/devices/platform/c240000.i2c"),
    ("/sys/devices/platform/soctherm-oc-event", "/sys/devices/platform/soctherm-oc-event"),
    ("/sys/devices/platform/pwm-fan", "/sys/devices/platform/pwm-fan"),
    ("/sys/devices/platform/bus@0", "/sys/devices/platform/bus@0"),
    ("/sys/class/devfreq", "/sys/class/devfreq"),
    ("/sys/class/hwmon", "/sys/class/hwmon"),
    ("/sys/bus/i2c/devices", "/sys/bus/i2c/devices"),
    ("/sys/devices/virtual/thermal", "/sys/devices/virtual/thermal"),
    ("/sys/class/thermal", "/sys/class/thermal"),
    ("/sys/kernel/debug", "/sys/kernel/debug"),
)

TOOLS = {"nvpmodel": "/usr/sbin", "jetson_clocks": "/usr/bin", "tegrastats": "/usr/bin"}
_TOOL = """#!/usr/bin/python3 -S
import sys
sys.pycache_prefix = "/var/cache/lab"
sys.path.insert(0, "/opt/given/source")
from tests.lab.guest.tools import run
run({tool!r})
"""


def main() -> int:
    name = board_of(Path("/proc/device-tree/compatible").read_text())
    if not (BOARD / ".board").is_dir():
        shutil.rmtree(BOARD, ignore_errors=True)  # half a board from before a power cut
        partial = BOARD.with_name(f"{BOARD.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        roots.make(partial, name, L4T, live=True)
        partial.rename(BOARD)
        _install()
    mount()
    if sys.argv[1:] == ["mode"]:
        _mode()
    return 0


def board_of(compatible: str) -> str:
    """The board whose module a device tree names."""
    strings = compatible.split("\0")
    return next(name for name, board in BOARDS.items() if f"nvidia,{board.module}" in strings)


def _install() -> None:
    """The files that stay: below /etc, and the vendor's tools."""
    for name in FILES:
        if (BOARD / "etc" / name).exists():
            shutil.copy2(BOARD / "etc" / name, Path("/etc", name))
    shutil.copytree(BOARD / "etc/nvpmodel", "/etc/nvpmodel", dirs_exist_ok=True)
    conf = Path("/etc/nvpmodel.conf")
    conf.unlink(missing_ok=True)
    conf.symlink_to((BOARD / "etc/nvpmodel.conf").readlink())
    for tool, folder in TOOLS.items():
        path = Path(folder, tool)
        path.write_text(_TOOL.format(tool=tool))
        path.chmod(0o755)
    # The vendor's program answers in milliseconds, and the jtop service gives up on one that takes seconds.
    program = Path(TOOLS["nvpmodel"], "nvpmodel")
    slow = program.rename(f"{program}.py")
    program.write_text(f'#!/bin/sh\n[ "$*" != -q ] || [ ! -r {QUERY} ] || exec cat {QUERY}\nexec {slow} "$@"\n')
    program.chmod(0o755)


def mount() -> None:
    """Mount the board's folders that are not mounted yet; what has no place is said, and is not shown then."""
    mounts = [line.split()[:3] for line in Path("/proc/mounts").read_text().splitlines()]
    there = {place for _, place, kind in mounts if kind == "ext4"}
    for source, place in MOUNTS:
        folder = BOARD / source.lstrip("/")
        if place in there:
            continue
        if folder.is_dir() and Path(place).is_dir():
            subprocess.run(("mount", "--bind", str(folder), place), check=True)
        else:
            print(f"not mounted: {folder} over {place}", file=sys.stderr)


def _mode() -> None:
    """What the vendor's service does at boot: the mode that is noted, else the default; masks only take effect now."""
    kernel = LabKernel()
    with kernel.changing():
        noted = kernel.read("/var/lib/nvpmodel/status") or ""
        number = noted.removeprefix("pmode:")
        conf = kernel.conf()
        wanted = int(number) if number.isdigit() and int(number) in conf.names else conf.default
        kernel.data |= {"ticked": kernel.data["ticked"], "stat": None}
        apply_mode(kernel, wanted)


if __name__ == "__main__":
    sys.exit(main())
