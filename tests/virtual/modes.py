"""What nvpmodel and jetson_clocks do to a virtual board: a mode put into effect, clocks pinned, stored and restored."""

from __future__ import annotations

from tests.virtual import conf as confs
from tests.virtual.kernel import CPU, EMC, Kernel, round_to

STATUS = "/var/lib/nvpmodel/status"


def masks(kernel: Kernel, mode: int) -> dict[str, int]:
    """The GPU's power-gating masks in a mode, by argument."""
    wanted = {argument for _, argument, _ in confs.mask_arguments(kernel.board)}
    return {two: int(value) for _, two, value in kernel.conf().settings[mode] if two in wanted}


def needs_reboot(kernel: Kernel, mode: int) -> bool:
    """Whether the GPU's width would change: its context exists from the first second on."""
    conf = kernel.conf()
    for name, argument, _ in confs.mask_arguments(kernel.board):
        path = conf.params[name].path(argument, kernel.knext)
        if path is not None and kernel.number(path) != masks(kernel, mode)[argument]:
            return True
    return False


def apply_mode(kernel: Kernel, mode: int) -> None:
    """Put a mode into effect, as the tool does when it may and as a boot does; what was pinned is not pinned after."""
    unpin(kernel)
    conf = kernel.conf()
    for name, argument, value in conf.settings[mode]:
        if name == "CPU_ONLINE":
            kernel.switch_core(int(argument.rpartition("_")[2]), value == "1")
    for name, argument, value in conf.settings[mode]:
        param = conf.params[name]
        path = param.path(argument, kernel.knext)
        if path is None or name == "CPU_ONLINE" or "PWR_CNTL" in argument:
            continue
        if param.kind == "FILE":
            kernel.write(path, int(value))
        else:
            kernel.write(path, _clock(kernel, name, argument, int(value), param.path("FREQ_TABLE", kernel.knext)))
    kernel.data["mode"] = mode
    remember(kernel, mode)


def _clock(kernel: Kernel, name: str, argument: str, value: int, table: str | None) -> int:
    if name == "EMC":
        return kernel.emc_max_hz if value <= 0 else value
    if table is None:
        return 1_600_000_000 if value <= 0 else value
    clocks = list(map(int, (kernel.read(table) or "0").split()))
    if value < 0 or (value == 0 and argument == "MAX_FREQ"):
        return clocks[-1]
    return round_to(value, clocks)


def remember(kernel: Kernel, mode: int) -> None:
    kernel.write(STATUS, f"pmode:{mode:04d}\n")


def pin(kernel: Kernel) -> None:
    """jetson_clocks: every clock at the mode's maximum, no idle states."""
    for cpu in kernel.online():
        folder = confs.CPU_FREQ.format(cpu=cpu)
        kernel.write(f"{folder}/scaling_min_freq", kernel.number(f"{folder}/scaling_max_freq"))
    _idle_states(kernel, allowed=False)
    for folder in gpus(kernel):
        kernel.write(f"{folder}/min_freq", kernel.number(f"{folder}/max_freq"))
    kernel.write(f"{EMC}/mrq_rate_locked", 1)
    if kernel.release.major >= 39:
        kernel.write(f"{EMC}/min_rate", kernel.emc_cap_hz())


def unpin(kernel: Kernel) -> None:
    _idle_states(kernel, allowed=True)
    for folder in gpus(kernel):
        table = (kernel.read(f"{folder}/available_frequencies") or "0").split()
        kernel.write(f"{folder}/min_freq", int(table[0]))
    kernel.write(f"{EMC}/mrq_rate_locked", 0)
    kernel.write(f"{EMC}/min_rate", kernel.emc_floor_hz)


def _idle_states(kernel: Kernel, allowed: bool) -> None:
    """Of every core, also of one that is off, as captures show."""
    for cpu in kernel.board.cpus:
        for state in (0, 1):
            kernel.write(f"{CPU}/cpu{cpu}/cpuidle/state{state}/disable", int(not allowed))


def gpus(kernel: Kernel) -> tuple[str, ...]:
    """Every devfreq folder that jetson_clocks pins."""
    thor = ("/sys/class/devfreq/gpu-gpc-0", "/sys/class/devfreq/gpu-nvd-0")
    return thor if kernel.board.soc == "tegra264" else (kernel.paths.gpu,)


def stored(kernel: Kernel) -> list[str]:
    """What --store writes: a path and its value a line."""
    paths = [f"{EMC}/min_rate", f"{EMC}/mrq_rate_locked"]
    for folder in gpus(kernel):
        paths += [f"{folder}/min_freq", f"{folder}/max_freq"]
    for cpu in kernel.online():
        folder = confs.CPU_FREQ.format(cpu=cpu)
        paths += [f"{folder}/scaling_min_freq", f"{folder}/scaling_max_freq"]
    paths += [f"{CPU}/cpu{cpu}/cpuidle/state{state}/disable" for cpu in kernel.board.cpus for state in (0, 1)]
    return [f"{path}:{kernel.number(path)}" for path in paths]


def restore(kernel: Kernel, lines: list[str]) -> None:
    """Write back what was stored; a core that is off now is left alone."""
    for line in lines:
        path, _, value = line.rpartition(":")
        kernel.write_if_there(path, int(value))
