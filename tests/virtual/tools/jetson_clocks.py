"""jetson_clocks: show, pin, store and restore the clocks, in the layouts of L4T 35, 36, 38 and 39."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.virtual import show
from tests.virtual.kernel import CPU, EMC, Kernel
from tests.virtual.modes import gpus, pin, restore, stored
from tests.virtual.tools import is_root


def main(kernel: Kernel, words: list[str]) -> int:
    if not is_root():
        print("Error: Run this script(/usr/bin/jetson_clocks) as a root user", file=sys.stderr)
        return 1
    match words:
        case ["--show"]:
            with kernel.changing():
                kernel.tick()
            print("\n".join(_show(kernel)))
        case ["--store", *rest]:
            return _store(kernel, _file(kernel, rest))
        case ["--restore", *rest]:
            return _restore(kernel, _file(kernel, rest))
        case [] | ["--fan"]:
            with kernel.changing():
                pin(kernel)
            if kernel.board.soc == "tegra264":
                print("Enabled Legacy persistence mode for GPU 00000000:01:00.0.\nAll done.")
        case _:
            print("usage: jetson_clocks [--show | --store [file] | --restore [file] | --fan]", file=sys.stderr)
            return 1
    return 0


def _file(kernel: Kernel, words: list[str]) -> Path:
    """The state file; a path of the board lies below its root, unless only this machine has its folder."""
    path = Path(words[0]) if words else Path(os.environ.get("HOME", "/root"), "l4t_dfs.conf")
    inside = kernel.path(str(path))
    return path if path.is_relative_to(kernel.root) or not (inside.parent.is_dir() or not words) else inside


def _store(kernel: Kernel, file: Path) -> int:
    if file.exists():  # the question of the script as it is on boards; no capture shows it
        print(f"File {file} already exists. Can I overwrite it? Y/N:", flush=True)
        if sys.stdin.readline().strip().upper() != "Y":
            return 1
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(stored(kernel)) + "\n")
    return 0


def _restore(kernel: Kernel, file: Path) -> int:
    if not file.exists():  # no capture shows these words
        print(f"Error: Can't find state file {file}", file=sys.stderr)
        return 1
    with kernel.changing():
        restore(kernel, file.read_text().splitlines())
    return 0


def _show(kernel: Kernel) -> Iterator[str]:
    major, online = kernel.release.major, kernel.online()
    offline = tuple(cpu for cpu in kernel.board.cpus if cpu not in online)
    model = (kernel.read("/proc/device-tree/model") or "").rstrip("\0")
    yield f"SOC family:{kernel.board.soc}  Machine:{model}"
    ends = f", Offline CPUs: {show.cpu_list(offline)}" if major >= 38 else ""
    yield f"Online CPUs: {show.cpu_list(online)}{ends}"
    cpus = kernel.board.cpus if major < 38 else online
    for cpu in sorted(cpus, key=str) if major < 36 else cpus:
        yield _core(kernel, cpu, cpu in online)
    yield from _gpu(kernel)
    yield _memory(kernel)
    yield from _engines(kernel)
    control = "FAN Dynamic Speed Control=nvfancontrol hwmon0_pwm1"
    yield f"{control}={kernel.number(f'{show.FAN}/pwm1')}"
    if major >= 38:
        yield f"{control}_enable=1"
    yield f"NV Power Mode: {kernel.conf().names[kernel.data['mode']]}"


def _core(kernel: Kernel, cpu: int, on: bool) -> str:
    least, most = kernel.cpu_limits(cpu) if on else (729_600, kernel.cpu_max_khz)
    now = kernel.cpu_khz(cpu) if on else least
    states = "".join(
        f"{name}={1 - kernel.number(f'{CPU}/cpu{cpu}/cpuidle/state{number}/disable')} "
        for number, name in enumerate(kernel.idle_states())
    )
    online = f"Online={int(on)} " if kernel.release.major < 38 else ""
    clocks = f"Governor=schedutil MinFreq={least} MaxFreq={most} CurrentFreq={now}"
    return f"{f'cpu{cpu}:':<7}{online}{clocks} IdleStates: {states}"


def _gpu(kernel: Kernel) -> Iterator[str]:
    for folder in gpus(kernel):
        least, most = kernel.number(f"{folder}/min_freq"), kernel.number(f"{folder}/max_freq")
        now = kernel.gpu_hz() if folder == kernel.paths.gpu else least
        name = folder.rpartition("/")[2] if kernel.board.soc == "tegra264" else "GPU"
        yield f"{name} MinFreq={least} MaxFreq={most} CurrentFreq={now}"
    if kernel.board.soc == "tegra234":
        yield f"Active GPU TPCs: {kernel.tpcs()}"


def _memory(kernel: Kernel) -> str:
    most = kernel.emc_cap_hz()
    text = f"EMC MinFreq={kernel.number(f'{EMC}/min_rate')} MaxFreq={most} CurrentFreq={kernel.emc_hz()}"
    return text if kernel.release.major >= 39 else f"{text} FreqOverride={int(kernel.emc_locked())}"


def _engines(kernel: Kernel) -> Iterator[str]:
    """The vision engines of an AGX, at what its mode leaves them."""
    if not kernel.board.module.startswith("p3701"):
        return
    conf = kernel.conf()
    names = (("DLA0_CORE", "DLA0_CORE:  "), ("DLA0_FALCON", "DLA0_FALCON:"), ("DLA1_CORE", "DLA1_CORE:  "),
             ("DLA1_FALCON", "DLA1_FALCON:"), ("PVA0_VPS", "PVA0_VPS0:"), ("PVA0_AXI", "PVA0_AXI: "))  # fmt: skip
    for name, label in names:
        clock = kernel.number(conf.params[name].path("MAX_FREQ", kernel.knext) or "")
        yield f"{label} Online=1 MinFreq=0 MaxFreq={clock} CurrentFreq={clock}"
