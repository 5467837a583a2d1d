"""What the virtual kernel shows of its state: the files below /sys and /proc that change with time, load and mode."""

from __future__ import annotations

from tests.virtual.boards_table import Rail
from tests.virtual.kernel import CPU, CV_ZONES, EMC, Kernel

I2C = "/sys/devices/platform/c240000.i2c/i2c-1"
SOCTHERM = "/sys/devices/platform/soctherm-oc-event/hwmon/hwmon3"
THERMAL = "/sys/devices/virtual/thermal"
FAN = "/sys/devices/platform/pwm-fan/hwmon/hwmon0"
RAIL_MV = {"VDD_GPU": 19_864, "VDD_CPU_SOC_MSS": 19_856, "VIN": 20_000}
UNREADABLE = "/proc/self/mem"  # it opens, and reading its beginning fails: what a gated zone looks like to a reader

# Offsets from the junction's temperature in millidegrees, in the order of the zones.
ORIN_ZONES = {
    "cpu": -700, "gpu": -300, "cv0": -900, "cv1": -900, "cv2": -900,
    "soc0": -500, "soc1": -1100, "soc2": -1900, "tj": 0,
}  # fmt: skip
XAVIER_ZONES = {
    "CPU": 0,
    "GPU": -300,
    "AUX": -1500,
    "AO": -1000,
    "PMIC": 0,
    "Tboard": -3000,
    "Tdiode": -500,
    "thermal": -600,
}
THOR_ZONES = {"cpu": -1500, "tj": 0, "soc012": -1400, "gpu": -100, "soc345": -1450}

_FEATURES = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp uscat ilrcpc "
    "flagm paca pacg"
)
# Variant and revision of Carmel, and its features, are unverified but for the lack of dotprod.
_CORES = {
    "tegra234": ("62.50", _FEATURES, "0x41", "0xd42", "1"),
    "tegra264": ("2000.00", _FEATURES + " sve sve2 i8mm bf16", "0x41", "0xd83", "1"),
    "tegra194": ("62.50", _FEATURES[: _FEATURES.index(" lrcpc")] + " dcpop", "0x4e", "0x004", "0"),
}  # fmt: skip


def zones(kernel: Kernel) -> dict[str, int]:
    """The thermal zones of the SoC, in their order, with their offsets."""
    return {"tegra194": XAVIER_ZONES, "tegra264": THOR_ZONES}.get(kernel.board.soc, ORIN_ZONES)


def gated(kernel: Kernel, zone: str) -> bool:
    """The zone lies in a part that is switched off: the vision units, and an AGX's GPU while it idles."""
    idle_gpu = zone == "gpu" and kernel.data["gpu_load"] == 0 and kernel.board.module.startswith("p3701")
    return kernel.board.soc == "tegra234" and (zone in CV_ZONES or idle_gpu)


def millidegrees(kernel: Kernel, zone: str) -> int:
    if zone == "PMIC":
        return 100_000
    exact = round(kernel.heat.celsius * 1000) + zones(kernel)[zone]
    return exact - exact % (500 if kernel.board.soc == "tegra194" else 1)


def show(kernel: Kernel) -> None:
    """Write every file whose content follows from the state."""
    _cores(kernel)
    _gpu(kernel)
    _memory_clock(kernel)
    _power(kernel)
    _temperatures(kernel)
    _memory(kernel)


def cpu_list(cpus: tuple[int, ...]) -> str:
    """CPU numbers as the kernel writes them: "0-3,6"."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and runs[-1][-1] == cpu - 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _cores(kernel: Kernel) -> None:
    online = kernel.online()
    offline = tuple(cpu for cpu in kernel.board.cpus if cpu not in online)
    for name, cpus in (
        ("present", kernel.board.cpus),
        ("possible", kernel.board.cpus),
        ("online", online),
        ("offline", offline),
    ):
        kernel.write(f"{CPU}/{name}", cpu_list(cpus) + "\n")
    for cluster in kernel.board.clusters:
        on = [cpu for cpu in cluster if cpu in online]
        if on:
            clock = max(kernel.cpu_khz(cpu) for cpu in on)
            for name in ("scaling_cur_freq", "cpuinfo_cur_freq"):
                kernel.write(f"{CPU}/cpufreq/policy{cluster[0]}/{name}", clock)
    bogo, features, implementer, part, revision = _CORES[kernel.board.soc]
    block = (
        "processor\t: {cpu}\n"
        f"BogoMIPS\t: {bogo}\nFeatures\t: {features}\nCPU implementer\t: {implementer}\nCPU architecture: 8\n"
        f"CPU variant\t: 0x0\nCPU part\t: {part}\nCPU revision\t: {revision}\n"
    )
    kernel.write("/proc/cpuinfo", "\n".join(block.format(cpu=cpu) for cpu in online))
    lines = []
    for cpu in online:
        busy, idle = (int(each) for each in kernel.data["jiffies"][cpu])
        lines.append(f"cpu{cpu} {busy - busy // 10} 0 {busy // 10} {idle} 0 0 0 0 0 0")
    total = [sum(int(line.split()[column]) for line in lines) for column in range(1, 11)]
    kernel.write("/proc/stat", "\n".join((f"cpu  {' '.join(map(str, total))}", *lines, "btime 1700000000", "")))


def _gpu(kernel: Kernel) -> None:
    # The limits lie in the same folder and are set by nvpmodel and jetson_clocks.
    kernel.write(f"{kernel.paths.gpu}/cur_freq", kernel.gpu_hz())
    kernel.write(f"{kernel.paths.gpu}/device/load", round(kernel.data["gpu_load"] * 1000))


def _memory_clock(kernel: Kernel) -> None:
    kernel.write(f"{EMC}/rate", kernel.emc_hz())
    kernel.write("/sys/kernel/debug/cactmon/mc_all", round(emc_percent(kernel) / 100 * kernel.emc_hz() / 1000))


def emc_percent(kernel: Kernel) -> int:
    busy: float = max(kernel.data["gpu_load"], *kernel.data["cpu_load"])
    return round(60 * busy)


def _power(kernel: Kernel) -> None:
    for number, rail in enumerate(meters(kernel), start=1):
        volts = RAIL_MV.get(rail.label, 5000)
        folder = f"{I2C}/1-0040/hwmon/hwmon1"
        kernel.write(f"{folder}/in{number}_input", volts)
        kernel.write(
            f"{folder}/curr{number}_input", round(kernel.heat.power.get(rail.label, rail.idle_mw) * 1000 / volts)
        )
    if kernel.board.soc == "tegra264":
        kernel.write(f"{I2C}/1-0044/hwmon/hwmon4/power1_input", round(kernel.heat.power.get("VIN", 19_780) * 1000))
    for number, count in enumerate(kernel.heat.events, start=1):
        kernel.write(f"{SOCTHERM}/oc{number}_event_cnt", int(count))
    kernel.write(f"{FAN}/pwm1", max(48, min(255, round((kernel.heat.celsius - 30) * 4))))


def meters(kernel: Kernel) -> tuple[Rail, ...]:
    """The rails that the ina3221 measures: all, but on Thor the input has a meter of its own."""
    return tuple(rail for rail in kernel.board.rails if rail.label != "VIN")


def _temperatures(kernel: Kernel) -> None:
    for number, zone in enumerate(zones(kernel)):
        path = f"{THERMAL}/thermal_zone{number}/temp"
        off = gated(kernel, zone)
        if off and kernel.release.major >= 36:
            if not kernel.path(path).is_symlink():
                kernel.path(path).unlink(missing_ok=True)
                kernel.path(path).symlink_to(UNREADABLE)
            continue
        if kernel.path(path).is_symlink():
            kernel.path(path).unlink()
        kernel.write(path, -256_000 if off else millidegrees(kernel, zone))


def used_kib(kernel: Kernel) -> int:
    """Memory in use, page cache not counted: the idle system, what was taken, what processes hold."""
    wanted = int(kernel.board.idle_mib * 1024 + kernel.data["taken_kib"] + kernel.data["process_kib"])
    return min(wanted, total_kib(kernel) - 65_536)


def total_kib(kernel: Kernel) -> int:
    return kernel.board.total_kib[kernel.release.major]


def swap_kib(kernel: Kernel) -> int:
    """zram, half of the memory; JetPack 7 has none."""
    return total_kib(kernel) // 2 if kernel.release.major < 38 else 0


def _memory(kernel: Kernel) -> None:
    """/proc/meminfo: what is not used is one third page cache, as on a board that has just read a model."""
    total, used, swap = total_kib(kernel), used_kib(kernel), swap_kib(kernel)
    cached = (total - used) // 3
    rows = {
        "MemTotal": total, "MemFree": total - used - cached, "MemAvailable": total - used - cached // 20,
        "Buffers": cached // 5, "Cached": cached - cached // 5, "SwapCached": 0, "Active": used // 2,
        "Inactive": cached, "SwapTotal": swap, "SwapFree": swap, "AnonPages": used // 3,
        "Mapped": 86_996, "Shmem": 65_536, "KReclaimable": 144_568, "Slab": 239_900,
        "SReclaimable": 144_568, "SUnreclaim": 95_332, "CmaTotal": 262_144, "CmaFree": 0,
    }  # fmt: skip
    text = "".join(f"{name + ':':<15}{value:>9} kB\n" for name, value in rows.items())
    text += (
        "HugePages_Total:       0\nHugePages_Free:        0\nHugepagesize:       2048 kB\nHugetlb:               0 kB\n"
    )
    kernel.write("/proc/meminfo", text)
    lines = ["Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"]
    count = len(kernel.board.cpus) if swap else 0
    for number in range(count):
        lines.append(f"/dev/zram{number}                              partition\t{swap // count}\t\t0\t\t5")
        kernel.write(f"/sys/block/zram{number}/disksize", swap // count * 1024)
    kernel.write("/proc/swaps", "\n".join(lines) + "\n")
