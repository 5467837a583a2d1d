"""The virtual board's kernel: its state, the files it shows, cores going on and off, clocks, and time passing."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.virtual import conf as confs
from tests.virtual.boards_table import BOARDS, MHZ, RELEASES
from tests.virtual.conf import Conf, Paths
from tests.virtual.physics import Clocks, Heat, settle

CPU = "/sys/devices/system/cpu"
EMC = "/sys/kernel/debug/bpmp/debug/clk/emc"
OWN = ".board"  # below the root: what no board has
OPP_KHZ = 76_800
FLOOR_KHZ = 115_200
GPU_FLOOR_HZ = 306_000_000
EMC_FLOOR_HZ = {"tegra264": 665_600_000}
CV_ZONES = ("cv0", "cv1", "cv2")


class Kernel:
    """A virtual board below `root`. Its files are the truth for every limit; the rest is in its own state file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data: dict[str, Any] = json.loads((root / OWN / "state.json").read_text())
        self.board, self.release = BOARDS[self.data["board"]], RELEASES[self.data["l4t"]]
        self.super: bool = self.data["super"]
        self.heat = Heat(**self.data["heat"])

    # Files.

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str | None:
        try:
            return self.path(path).read_text().strip()
        except OSError:
            return None

    def number(self, path: str) -> int:
        return int(self.read(path) or 0)

    def write(self, path: str, value: str | float) -> None:
        file = self.path(path)
        text = value if isinstance(value, str) else f"{int(value)}\n"
        try:
            if file.read_text() == text:
                return
        except FileNotFoundError:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            return
        # A temporary beside it, so that nobody reads half a file; through a link, as the kernel's own files are.
        file = file.resolve() if file.is_symlink() else file
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        temporary.write_text(text)
        temporary.replace(file)

    def write_if_there(self, path: str, value: int) -> None:
        if self.path(path).parent.is_dir():
            self.write(path, value)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the board's lock, with its state read anew and written with all it shows afterwards."""
        with (self.root / OWN / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.data = json.loads((self.root / OWN / "state.json").read_text())
            self.heat = Heat(**self.data["heat"])
            yield
            self.data["heat"] = vars(self.heat)
            self.publish()
            self.write(f"/{OWN}/state.json", json.dumps(self.data, indent=1) + "\n")

    # What it is.

    @property
    def knext(self) -> bool:
        """A kernel of 5.15 or later, where nvpmodel.conf's `_KNEXT` paths hold."""
        return self.release.major >= 36

    @property
    def paths(self) -> Paths:
        return confs.paths_of(self.board, self.knext)

    @property
    def cpu_max_khz(self) -> int:
        return round(self.board.cpu_mhz[self.super] * 1000)

    @property
    def gpu_max_hz(self) -> int:
        return round(self.board.gpu_mhz[self.super] * MHZ)

    @property
    def emc_max_hz(self) -> int:
        return round(self.board.emc_mhz[self.super] * MHZ)

    @property
    def emc_floor_hz(self) -> int:
        return EMC_FLOOR_HZ.get(self.board.soc, 204_000_000)

    def conf(self) -> Conf:
        return confs.parse(self.read("/etc/nvpmodel.conf") or "")

    def online(self) -> tuple[int, ...]:
        return tuple(cpu for cpu in self.board.cpus if self.number(f"{CPU}/cpu{cpu}/online"))

    def cluster(self, cpu: int) -> tuple[int, ...]:
        return next(cluster for cluster in self.board.clusters if cpu in cluster)

    def mask(self) -> int:
        file = confs.mask_arguments(self.board)[-1][2]
        return self.number(f"{self.paths.masks}/{file}")

    def tpcs(self) -> int:
        """Active TPCs, of two SM each; on Thor the mask's bits are unknown, so all ten."""
        return (
            10 if self.board.soc == "tegra264" else (8 if self.board.soc == "tegra234" else 4) - self.mask().bit_count()
        )

    def emc_cap_hz(self) -> int:
        cap = self.number(self.paths.emc)
        return min(cap, self.emc_max_hz) if cap > 0 else self.emc_max_hz

    def idle_states(self) -> tuple[str, str]:
        return {"tegra264": ("WFI", "cc7"), "tegra194": ("C1", "c6")}.get(self.board.soc, ("WFI", "c7"))

    # Clocks.

    def cpu_limits(self, cpu: int) -> tuple[int, int]:
        folder = confs.CPU_FREQ.format(cpu=cpu)
        return self.number(f"{folder}/scaling_min_freq"), self.number(f"{folder}/scaling_max_freq")

    def gpu_limits(self) -> tuple[int, int]:
        return self.number(f"{self.paths.gpu}/min_freq"), self.number(f"{self.paths.gpu}/max_freq")

    def emc_locked(self) -> bool:
        return self.number(f"{EMC}/mrq_rate_locked") == 1

    def cpu_khz(self, cpu: int, load: float | None = None) -> int:
        """The clock of a core now: the governor goes with the load, heat takes some of it."""
        least, most = self.cpu_limits(cpu)
        load = self.data["cpu_load"][cpu] if load is None else load
        wanted = least + (most - least) * min(1.0, load * 1.25)
        return max(min(least, most), round_to(min(wanted, most * self.heat.throttle), self._cpu_table(cpu)))

    def _cpu_table(self, cpu: int) -> list[int]:
        return list(
            map(int, (self.read(f"{confs.CPU_FREQ.format(cpu=cpu)}/scaling_available_frequencies") or "0").split())
        )

    def gpu_hz(self) -> int:
        least, most = self.gpu_limits()
        return max(min(least, most), int(most * self.heat.throttle)) if self.data["gpu_load"] > 0 else least

    def emc_hz(self) -> int:
        most = self.emc_cap_hz()
        busy = max(self.data["gpu_load"], *self.data["cpu_load"])
        return (
            most
            if self.emc_locked() or busy > 0.3
            else max(self.emc_floor_hz, min(most, 2_133_000_000) if busy else self.emc_floor_hz)
        )

    # Time.

    def advance(self, seconds: float) -> None:
        """Let time pass under the load that is set."""
        settle(self.board, self.heat, self._clocks(), self._cpu_mean(), self.data["gpu_load"], seconds)
        self.data["clock"] += seconds
        for cpu in self.online():
            busy, idle = self.data["jiffies"][cpu]
            load = self.data["cpu_load"][cpu]
            self.data["jiffies"][cpu] = [busy + 100 * seconds * load, idle + 100 * seconds * (1 - load)]

    def tick(self) -> None:
        """On a live board: let the time pass that has passed since the last tick, under the load of what runs."""
        now = time.time()
        passed, self.data["ticked"] = now - self.data["ticked"], now
        if self.data["live"] and passed > 0:
            from tests.virtual.tasks import observe

            observe(self, passed)
            self.advance(min(passed, 600.0))

    def _cpu_mean(self) -> float:
        loads: list[float] = [self.data["cpu_load"][cpu] for cpu in self.online()]
        return sum(loads) / len(loads)

    def _clocks(self) -> Clocks:
        """The clocks that load brings, as fractions: full ones, for the load counts already."""
        online = self.online()
        cpu = sum(self.cpu_limits(each)[1] for each in online) / len(online) / (self.board.cpu_mhz[1] * 1000)
        gpu = self.gpu_limits()[1] / (self.board.gpu_mhz[1] * MHZ)
        emc = self.emc_cap_hz() / (self.board.emc_mhz[1] * MHZ)
        return Clocks(cpu, gpu, emc, self.width(), len(online))

    def width(self) -> float:
        """The part of this module's GPU that the mode leaves on."""
        table = self.conf()
        name, argument, _ = confs.mask_arguments(self.board)[-1]
        masks = [
            int(value)
            for lines in table.settings.values()
            for one, two, value in lines
            if (one, two) == (name, argument)
        ]
        if self.board.soc == "tegra264":
            return 1.0 if self.mask() == masks[0] else 0.6
        size = 8 if self.board.soc == "tegra234" else 4
        return (size - self.mask().bit_count()) / (size - min(mask.bit_count() for mask in masks))

    # What its tools ask of it.

    def switch_core(self, cpu: int, on: bool) -> None:
        from tests.virtual.cores import set_online

        set_online(self, cpu, on)

    def reboot(self) -> None:
        from tests.virtual.booting import reboot

        reboot(self)

    # What it shows.

    def publish(self) -> None:
        from tests.virtual.show import show

        show(self)


def round_to(value: float, table: list[int]) -> int:
    """The highest clock of a table that is not above the value, silently, as the kernel does."""
    return max((clock for clock in table if clock <= value), default=table[0])
