"""The virtual board's kernel where a real one is below it: its CPUs, their clocks and reboots are the real one's."""

from __future__ import annotations

import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.virtual.kernel import CPU, Kernel

BOARD = Path("/var/lib/lab-board")  # the files that this machine lacks
QUERY = BOARD / ".board/query"  # what `nvpmodel -q` says now
_REAL = re.compile(rf"{CPU}/cpu\d+/(online|cpufreq/\w+)|/etc/nvpmodel(\.conf|/.*)|/var/lib/nvpmodel/status")


class LabKernel(Kernel):
    """The stub tools' kernel in the lab: what the machine has is used, the rest are files below `BOARD`."""

    def __init__(self, root: Path = BOARD) -> None:
        super().__init__(root)

    def path(self, path: str) -> Path:
        return Path(path) if _REAL.fullmatch(path) else super().path(path)

    def write(self, path: str, value: str | float) -> None:
        if not path.startswith("/sys/") or not _REAL.fullmatch(path):
            super().write(path, value)
            return
        with suppress(OSError):  # a core that is off has no clock to set
            Path(path).write_text(value if isinstance(value, str) else f"{int(value)}\n")

    def switch_core(self, cpu: int, on: bool) -> None:
        if cpu != 0 and self.number(f"{CPU}/cpu{cpu}/online") != int(on):
            self.write(f"{CPU}/cpu{cpu}/online", int(on))

    def online(self) -> tuple[int, ...]:
        return tuple(cpu for cpu in self.board.cpus if self.read(f"{CPU}/cpu{cpu}/online") != "0")

    def publish(self) -> None:
        super().publish()
        if self.data["mode"] is not None:
            QUERY.write_text(f"NV Power Mode: {self.conf().names[self.data['mode']]}\n{self.data['mode']}\n")

    def reboot(self) -> None:
        subprocess.run(("systemctl", "reboot"), check=True)

    def tick(self) -> None:
        """Let the time pass that has passed, under the load that /proc/stat tells."""
        now = time.time()
        passed, self.data["ticked"] = now - self.data["ticked"], now
        before, after = self.data.get("stat") or {}, _busy()
        self.data["stat"] = after
        for cpu in self.board.cpus:
            new, old = after.get(str(cpu), (0, 0)), before.get(str(cpu), (0, 0))
            busy, idle = new[0] - old[0], new[1] - old[1]
            self.data["cpu_load"][cpu] = busy / (busy + idle) if busy + idle > 0 else 0.0
        if passed > 0:
            self.advance(min(passed, 600.0))


def _busy() -> dict[str, list[int]]:
    """Busy and idle ticks of each CPU since it was switched on."""
    found = {}
    for number, text in re.findall(r"^cpu(\d+) (.*)$", Path("/proc/stat").read_text(), re.MULTILINE):
        ticks = [int(word) for word in text.split()]
        idle = ticks[3] + ticks[4]
        found[number] = [sum(ticks[:8]) - idle, idle]
    return found
