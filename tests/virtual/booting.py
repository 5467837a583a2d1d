"""Going down and coming up: what a reboot, a power cut and going headless do to a virtual board."""

from __future__ import annotations

import re
import shutil

from tests.virtual.kernel import Kernel
from tests.virtual.modes import STATUS, apply_mode
from tests.virtual.systemd import Manager


def boot_id(kernel: Kernel, number: int) -> None:
    """The kernel's name for the time since it was switched on."""
    kernel.write("/proc/sys/kernel/random/boot_id", f"b0a2d000-0000-4000-8000-{number:012d}\n")


def enabled_in_order(manager: Manager) -> list[str]:
    """The enabled units, each behind those that its After and their Before name."""
    units = [
        path.name for path in sorted(manager.kernel.path(f"{manager.folder}/{manager.target}.wants").glob("*.service"))
    ]
    before = {
        unit: {
            other for other in units if other in manager.names(unit, "After") or unit in manager.names(other, "Before")
        }
        for unit in units
    }
    ordered: list[str] = []
    while units:
        ready = next((unit for unit in units if not before[unit] - set(ordered)), units[0])
        units.remove(ready)
        ordered.append(ready)
    return ordered


def shut_down(kernel: Kernel, kill: bool = False) -> None:
    """End every unit; with `kill` as a power cut does."""
    for user in (False, True):
        manager = Manager(kernel, user)
        for unit in manager.known(["*"]):
            manager.stop(unit, kill)
        shutil.rmtree(manager.own, ignore_errors=True)


def reboot(kernel: Kernel, power_cut: bool = False) -> None:
    """Down and up again: no process is left, clocks are the mode's, the mode is that of the status file, enabled
    units start. What asks for it goes on; on a board it would be gone."""
    shut_down(kernel, power_cut)
    with kernel.changing():
        kernel.data["boots"] += 1
        kernel.data |= {"taken_kib": 0, "process_kib": 0, "gpu_load": 0.0, "seen": {}}
        kernel.data["cpu_load"] = [0.0] * len(kernel.data["cpu_load"])
        boot_id(kernel, kernel.data["boots"])
        match = re.search(r"pmode:(\d+)", kernel.read(STATUS) or "")
        conf = kernel.conf()
        wanted = int(match[1]) if match else conf.default
        apply_mode(kernel, wanted if wanted in conf.names else conf.default)
    manager = Manager(kernel)
    for unit in enabled_in_order(manager):
        oneshot = manager.value(unit, "Type") == "oneshot"
        manager.start(unit, wait=oneshot)


def isolate(kernel: Kernel) -> None:
    """Going headless runs nvpmodel.service again, which drops what jetson_clocks pinned."""
    with kernel.changing():
        apply_mode(kernel, kernel.data["mode"])
