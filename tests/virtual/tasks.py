"""Processes on a virtual board: this machine's own, shown below its /proc with the CPUs asked of the board."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.virtual.kernel import OWN, Kernel

_LINKS = ("cmdline", "environ", "exe", "stat", "fd", "comm")
_TICKS = os.sysconf("SC_CLK_TCK")


def record(root: Path, pid: int, cpus: str) -> None:
    """Remember the CPUs that taskset gave a process, as its own list."""
    folder = root / OWN / "affinity"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(pid)).write_text(cpus)


def recorded(root: Path, pid: int) -> str | None:
    """The CPUs recorded for a process or the nearest of its parents; None when none was pinned."""
    while pid > 1:
        file = root / OWN / "affinity" / str(pid)
        if file.exists():
            return file.read_text()
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return None
    return None


def mirror(kernel: Kernel, pid: int, unit: str) -> None:
    """Show a process below the board's /proc: its own files through links, its threads with the recorded CPUs."""
    place = kernel.path(f"/proc/{pid}")
    cpus = recorded(kernel.root, pid) or f"0-{max(kernel.board.cpus)}"
    place.mkdir(exist_ok=True)
    for name in _LINKS:
        if not (place / name).is_symlink():
            (place / name).symlink_to(f"/proc/{pid}/{name}")
    if not (place / "cgroup").exists():
        kernel.write(f"/proc/{pid}/cgroup", f"0::/system.slice/{unit}\n")
    try:
        threads = {
            name: Path(f"/proc/{pid}/task/{name}/status").read_text() for name in os.listdir(f"/proc/{pid}/task")
        }
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:  # it ends
        return
    kernel.write(f"/proc/{pid}/status", _masked(status, cpus))
    shown = {path.name: path for path in place.glob("task/*")}
    for name in shown.keys() - threads.keys():
        shutil.rmtree(shown[name], ignore_errors=True)
    for name, text in threads.items():
        # Its name alone: what counts up all the time would have to be written all the time.
        kernel.write(f"/proc/{pid}/task/{name}/status", _masked(text.splitlines()[0], cpus))


def _masked(status: str, cpus: str) -> str:
    kept = [line for line in status.splitlines() if not line.startswith("Cpus_allowed")]
    return "\n".join((*kept, f"Cpus_allowed_list:\t{cpus}", ""))


def forget(kernel: Kernel, pid: int) -> None:
    """Take away a process that has ended."""
    shutil.rmtree(kernel.path(f"/proc/{pid}"), ignore_errors=True)
    (kernel.root / OWN / "affinity" / str(pid)).unlink(missing_ok=True)


def mirrored(kernel: Kernel) -> list[int]:
    return sorted(int(path.name) for path in kernel.path("/proc").glob("[0-9]*") if path.name != "1")


def observe(kernel: Kernel, seconds: float) -> None:
    """The load of what runs: each process's share of this machine's time goes to the CPUs recorded for it and, since
    the engine here stands for one on the GPU, to the GPU; resident memory counts as taken."""
    loads = [0.01] * len(kernel.data["cpu_load"])
    busiest, resident, seen = 0.0, 0, {}
    for pid in mirrored(kernel):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        used = (int(fields[11]) + int(fields[12])) / _TICKS
        seen[str(pid)] = used
        share = max(0.0, used - kernel.data["seen"].get(str(pid), used)) / seconds
        busiest = max(busiest, min(1.0, share))
        resident += next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0)
        cpus = [cpu for cpu in numbers(recorded(kernel.root, pid) or "") if cpu in kernel.online()] or [0]
        for cpu in cpus:
            loads[cpu] = min(1.0, loads[cpu] + share / len(cpus))
    kernel.data |= {"cpu_load": loads, "gpu_load": round(busiest, 3), "process_kib": resident, "seen": seen}


def numbers(text: str) -> tuple[int, ...]:
    """The CPU numbers of a list such as "0-3,6"."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return tuple(found)
