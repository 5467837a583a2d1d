"""The root folder of a virtual board: the files that stay, and its first start."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tests.virtual import conf as confs
from tests.virtual import show
from tests.virtual.boards_table import BOARDS, MHZ, RELEASES, TABLES, Board, Release, Table
from tests.virtual.booting import boot_id
from tests.virtual.cores import show_core
from tests.virtual.kernel import EMC, GPU_FLOOR_HZ, OWN, Kernel
from tests.virtual.modes import apply_mode


def make(root: Path, name: str, l4t: str, live: bool) -> None:
    """Write the board's files below an empty folder and switch it on, in its default mode."""
    board, release = BOARDS[name], RELEASES[l4t]
    assert l4t in board.releases, f"{name} has no L4T {l4t}: {', '.join(board.releases)}"
    super_modes = board.super and release.major >= 36
    count = max(board.cpus) + 1
    state = {
        "board": name, "l4t": l4t, "super": super_modes, "live": live, "ticked": time.time(), "clock": 0.0,
        "mode": None, "cpu_load": [0.0] * count, "gpu_load": 0.0, "taken_kib": 0, "process_kib": 0,
        "jiffies": [[1000.0, 100_000.0]] * count, "heat": {}, "boots": 0, "seen": {},
    }  # fmt: skip
    (root / OWN).mkdir(parents=True)
    (root / OWN / "state.json").write_text(json.dumps(state))
    kernel = Kernel(root)
    _identity(kernel, board, release, super_modes)
    _sysfs(kernel)
    _conf(kernel, board, release, super_modes)
    _toolkit(kernel, release)
    _fan(kernel)
    for cpu in board.cpus:
        kernel.write(f"/sys/devices/system/cpu/cpu{cpu}/online", 1)
        show_core(kernel, cpu)
    boot_id(kernel, 1)
    with kernel.changing():
        kernel.data["boots"] = 1
        apply_mode(kernel, kernel.conf().default)
        kernel.advance(0.001)


def identity(board: Board, super_modes: bool) -> tuple[tuple[str, ...], str]:
    """The device tree's compatible strings, and its model."""
    kit = f"nvidia,{board.carrier}+{board.module}{'-super' if super_modes else ''}"
    strings = ("nvidia,p2972-0000",) if board.carrier == "p2972-0000" else (kit, f"nvidia,{board.module}")
    model = board.super_model if super_modes and board.super_model else board.model
    return (*strings, f"nvidia,{board.soc}"), model


def _identity(kernel: Kernel, board: Board, release: Release, super_modes: bool) -> None:
    strings, model = identity(board, super_modes)
    tree = {"compatible": "".join(f"{each}\0" for each in strings), "model": f"{model}\0"}
    for name, text in tree.items():
        kernel.write(f"/proc/device-tree/{name}", text)
    first, _, rest = release.revision.partition(".")
    line = (
        f"# R{first} (release), REVISION: {rest}, GCID: {release.gcid}, BOARD: {release.board}, EABI: aarch64, "
        f"DATE: {release.date}\n"
    )
    library = "TARGET_USERSPACE_LIB_DIR=nvidia\nTARGET_USERSPACE_LIB_DIR_PATH=usr/lib/aarch64-linux-gnu/nvidia\n"
    variant = f"# KERNEL_VARIANT: oot\n{library}"
    kernel.write("/etc/nv_tegra_release", line + (variant if release.major >= 36 else ""))
    if board.tnspec is not None:
        kernel.write("/etc/nv_boot_control.conf", f"TNSPEC {board.tnspec}\nCOMPATIBLE_SPEC {board.tnspec}\n")
    version = release.ubuntu.split()[0]
    kernel.write(
        "/etc/os-release",
        f'PRETTY_NAME="Ubuntu {release.ubuntu}"\nNAME="Ubuntu"\nID=ubuntu\nVERSION_ID="{version[:5]}"\n',
    )
    kernel.write("/etc/group", "root:x:0:\nvideo:x:44:\nrender:x:104:\n")
    kernel.write("/proc/sys/kernel/osrelease", f"{release.kernel}\n")
    kernel.write("/proc/1/comm", "systemd\n")
    kernel.write("/proc/1/cgroup", "0::/init.scope\n")
    kernel.write("/proc/self/cgroup", "0::/user.slice\n")
    kernel.write("/proc/self/status", f"Name:\tsh\nCpus_allowed_list:\t0-{max(board.cpus)}\n")
    kernel.path("/run/systemd/system").mkdir(parents=True)
    kernel.path("/etc/systemd/system/multi-user.target.wants").mkdir(parents=True)
    # Time and listening sockets are this machine's own: processes on the board are its processes.
    for name in ("uptime", "net"):
        kernel.path(f"/proc/{name}").symlink_to(f"/proc/{name}")


def _sysfs(kernel: Kernel) -> None:
    board, paths = kernel.board, kernel.paths
    _gpu(kernel)
    for _, argument, file in confs.mask_arguments(board):
        kernel.write(f"{paths.masks}/{file}", 2 if argument == "FBP_PG_MASK" else 0)
    kernel.write(f"{paths.masks}/power/control", "auto\n")
    kernel.write(paths.emc, kernel.emc_max_hz)
    for name, value in (("min_rate", kernel.emc_floor_hz), ("max_rate", kernel.emc_max_hz), ("mrq_rate_locked", 0)):
        kernel.write(f"{EMC}/{name}", value)
    for number, rail in enumerate(show.meters(kernel), start=1):
        kernel.write(f"{show.I2C}/1-0040/hwmon/hwmon1/in{number}_label", f"{rail.label}\n")
        volts = show.RAIL_MV.get(rail.label, 5000)
        most = round(board.limit_mw * 1000 / volts) if rail.label == board.sum_rail else 32_760
        for kind in ("max", "crit"):
            kernel.write(f"{show.I2C}/1-0040/hwmon/hwmon1/curr{number}_{kind}", most)
    kernel.write(f"{show.I2C}/1-0040/hwmon/hwmon1/in7_label", "sum of shunt voltages\n")
    kernel.write(f"{show.I2C}/1-0040/hwmon/hwmon1/in7_input", 680)
    devices = {"1-0040": ("ina3221", "hwmon1")}
    if board.soc == "tegra264":
        devices["1-0044"] = ("ina238", "hwmon4")
        kernel.write(f"{show.I2C}/1-0044/hwmon/hwmon4/label", "VIN\n")
    for device, (chip, hwmon) in devices.items():
        kernel.write(f"{show.I2C}/{device}/name", f"{chip}\n")
        kernel.write(f"{show.I2C}/{device}/hwmon/{hwmon}/name", f"{chip}\n")
        _link(kernel, f"/sys/bus/i2c/devices/{device}", f"{show.I2C}/{device}")
        _link(kernel, f"/sys/class/hwmon/{hwmon}", f"{show.I2C}/{device}/hwmon/{hwmon}")
    kernel.write(f"{show.SOCTHERM}/name", "soctherm_oc\n")
    for number in (1, 2, 3):
        kernel.write(f"{show.SOCTHERM}/oc{number}_throt_en", 1)
    kernel.write(f"{show.FAN}/name", "pwmfan\n")
    if kernel.release.major >= 38:
        kernel.write(f"{show.FAN}/pwm1_enable", 1)
    _link(kernel, "/sys/class/hwmon/hwmon3", show.SOCTHERM)
    _link(kernel, "/sys/class/hwmon/hwmon0", show.FAN)
    suffix = "therm" if kernel.release.major < 36 else "thermal"
    for number, zone in enumerate(show.zones(kernel)):
        folder = f"{show.THERMAL}/thermal_zone{number}"
        kind = zone.upper() if kernel.release.major < 36 and zone != "tj" else zone
        kernel.write(f"{folder}/type", f"{kind}-{suffix}\n")
        kernel.write(f"{folder}/trip_point_0_temp", 99_000)
        kernel.write(f"{folder}/trip_point_0_type", "passive\n")
        _link(kernel, f"/sys/class/thermal/thermal_zone{number}", folder)


def _gpu(kernel: Kernel) -> None:
    """The devfreq folder of the GPU and every way to it."""
    paths, top = kernel.paths, kernel.gpu_max_hz
    # Steps of 102 MHz, and what the modes name: captures show those limits exactly.
    caps = {round(mode.gpu_mhz * MHZ) for mode in _table(kernel).modes if mode.gpu_mhz is not None}
    table = sorted({*range(GPU_FLOOR_HZ, top, 102_000_000), *caps, top})
    devices = [(paths.gpu, table)]
    if kernel.board.soc == "tegra264":
        device = "/sys/devices/platform/bus@0/d0b0000000.pcie/pci0000:00/0000:00:00.0/0000:01:00.0"
        devices = [
            (f"{device}/devfreq/gpu-gpc-0", [315_000_000, *table[1:]]),
            (f"{device}/devfreq/gpu-nvd-0", [315_000_000, 1_692_000_000]),
        ]
    elif kernel.knext:
        device = "/sys/devices/platform/17000000.gpu"
        devices = [(f"{device}/devfreq/17000000.gpu", table)]
        _link(kernel, f"{device}/devfreq_dev", f"{device}/devfreq/17000000.gpu")
    else:
        device = str(Path(paths.gpu).parents[1])
    node = {"tegra194": "gv11b", "tegra264": "gpu"}.get(kernel.board.soc, "ga10b" if not kernel.knext else "gpu")
    kernel.write(f"{device}/of_node/name", f"{node}\0")
    for folder, clocks in devices:
        name = Path(folder).name
        for file, value in (
            ("governor", "nvhost_podgov\n"),
            ("min_freq", clocks[0]),
            ("max_freq", clocks[-1]),
            ("cur_freq", clocks[0]),
        ):
            kernel.write(f"{folder}/{file}", value)
        kernel.write(f"{folder}/available_frequencies", " ".join(map(str, clocks)) + "\n")
        _link(kernel, f"{folder}/device", device)
        _link(kernel, f"/sys/class/devfreq/{name}", folder)
    for file, value in (
        ("railgate_enable", "1\n"),
        ("enable_3d_scaling", "1\n"),
        ("power/control", "auto\n"),
        ("load", "0\n"),
    ):
        kernel.write(f"{device}/{file}", value)


def _table(kernel: Kernel) -> Table:
    return TABLES[f"{kernel.board.conf}_super" if kernel.super else kernel.board.conf]


def _link(kernel: Kernel, path: str, target: str) -> None:
    """A link that stays below the root, as a relative one does."""
    place = kernel.path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(os.path.relpath(kernel.path(target), place.parent))


def _conf(kernel: Kernel, board: Board, release: Release, super_modes: bool) -> None:
    """The files of /etc/nvpmodel, and the link that is made at the first boot."""
    plain = {board.conf: False} if board.conf in TABLES else {}
    files = plain | ({f"{board.conf}_super": True} if board.super else {})
    for name, is_super in files.items():
        text = confs.text(board, TABLES[name], is_super, release.major < 36 or board.soc == "tegra194")
        kernel.write(f"/etc/nvpmodel/nvpmodel_{name}.conf", text)
    chosen = f"{board.conf}_super" if super_modes else board.conf
    kernel.path("/etc/nvpmodel.conf").symlink_to(f"nvpmodel/nvpmodel_{chosen}.conf")
    conf = kernel.conf()
    for name, param in conf.params.items():
        path = param.path("MAX_FREQ", kernel.knext)
        if path is not None and ("DLA" in name or "PVA" in name):
            kernel.write(path, 1_600_000_000)


def _fan(kernel: Kernel) -> None:
    """A configuration of the fan's service in the syntax of its file, and a unit that does nothing."""
    profiles = "".join(f"    FAN_PROFILE {name} {{\n        # none\n    }}\n" for name in ("cool", "quiet"))
    kernel.write("/etc/nvfancontrol.conf", f"<FAN 1>\n{profiles}    FAN_DEFAULT_PROFILE quiet\n</FAN>\n")
    unit = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"
    kernel.write("/etc/systemd/system/nvfancontrol.service", unit)


def _toolkit(kernel: Kernel, release: Release) -> None:
    folder = f"/usr/local/cuda-{release.cuda}"
    versions = {
        "cuda": {"name": "CUDA SDK", "version": release.nvcc},
        "cuda_nvcc": {"name": "CUDA NVCC", "version": release.nvcc},
    }
    kernel.write(f"{folder}/version.json", json.dumps(versions, indent=1) + "\n")
    said = (
        f"nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) {release.nvcc_built}\n"
        f"Cuda compilation tools, release {release.cuda}, V{release.nvcc}"
    )
    known = " ".join(_architectures(release.cuda))
    kernel.write(
        f"{folder}/bin/nvcc",
        f'#!/bin/sh\ncase "$1" in\n--version) cat <<"E"\n{said}\nE\n;;\n'
        f'--list-gpu-arch) printf "compute_%s\\n" {known};;\n'
        '*) echo "nvcc: this is a virtual board, nothing can be compiled on it" >&2; exit 1;;\nesac\n',
    )
    kernel.path(f"{folder}/bin/nvcc").chmod(0o755)
    kernel.path("/usr/local/cuda").symlink_to(f"cuda-{release.cuda}")


def _architectures(cuda: str) -> tuple[str, ...]:
    """What each toolkit's nvcc lists, less what no Jetson is."""
    major, minor = map(int, cuda.split("."))
    if major >= 13:
        return ("75", "80", "86", "87", "89", "90", "100", "110", "120")
    return ("60", "70", "72", "75", "80", "86", "87", *(("89", "90") if minor > 4 else ()))
