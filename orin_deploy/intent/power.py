"""Power: which mode shall be active, whether clocks are pinned, and the CPUs that leaves. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orin_deploy.errors import Refused, UsageError
from orin_deploy.facts.device import Cluster, Cpu, Device
from orin_deploy.facts.power import PowerMode, PowerState, PowerTable, find, needs_reboot
from orin_deploy.intent.spec import Power, Setting

_KEYS = ("power.mode", "power.clocks", "power.fan")
_NOTHING = PowerState(None, None)


def resolve(
    device: Device, values: Mapping[str, Setting], *, is_root: bool = True, reboot: bool = False
) -> Power | None:
    """What the three power options mean on this device; None where it is no Jetson and nothing is asked.

    `max` and pinned clocks are left out with a warning where they cannot be set. Raises UsageError for a mode or fan
    profile that is not there, Refused when the table is another module's.
    """
    wanted = {key: str(values[key].value) for key in _KEYS}
    if device.jetson is None and set(wanted.values()) == {"keep"}:
        return None
    has = device.power or _NOTHING
    warnings: list[str] = []
    mode = _mode(device, wanted["power.mode"], warnings)
    clocks = wanted["power.clocks"] == "on" and _can_pin(device, warnings)
    current = has.table.named(has.current) if has.table else None
    reboot_needed = mode is not None and needs_reboot(current, mode)
    if reboot_needed and mode is not None and not reboot:
        warnings.append(reboot_text(has.current, mode.name))
    if not is_root and device.assumed is None and (clocks or (mode and mode != current)):
        warnings.append("setting power mode and clocks needs root: sudo, or --no-power")
    return Power(
        mode=mode.name if mode else None,
        mode_id=mode.id if mode else None,
        clocks=clocks,
        fan=_fan(has, wanted["power.fan"]),
        cores=_cores(device.cpu, mode),
        reboot_needed=reboot_needed,
        reboot_allowed=reboot,
        source=values["power.mode"].source,
        warnings=tuple(warnings),
    )


def reboot_text(current: str | None, wanted: str) -> str:
    """Why a switch is not live, and the ways on."""
    return (
        f"power mode {wanted} gives the GPU another width than {current or 'the active one'}, which needs a reboot: "
        "--reboot does it, --set power.mode=keep goes on without"
    )


def in_mode(cpu: Cpu, power: Power | None, told: tuple[tuple[int, ...], ...] = ()) -> Cpu:
    """The processors as they will be in the mode that will be active, so that nothing is placed on an offline core.

    A cluster that is wholly off now cannot be read; it is as the board's profile tells it.
    """
    if power is None or power.mode is None:
        return cpu
    read = {number for cluster in cpu.clusters for number in cluster.cpus}
    unread = tuple(Cluster(cpus) for cpus in told if read.isdisjoint(cpus) and set(cpus) <= set(cpu.present))
    return replace(cpu, online=power.cores, clusters=tuple(sorted((*cpu.clusters, *unread), key=lambda c: c.cpus)))


def foreign(table: PowerTable, present: tuple[int, ...]) -> str | None:
    """Why a table is another module's, in words; None when its modes fit the CPUs that are present."""
    named = {cpu for mode in table.modes for cpu in mode.cores}
    if not present or not named - set(present):
        return None
    return f"{table.path} is for a module with {max(named) + 1} CPUs, and this one has {len(present)}"


def _mode(device: Device, wanted: str, warnings: list[str]) -> PowerMode | None:
    if wanted == "keep":
        return None
    has = device.power or _NOTHING
    why = _cannot_switch(device)
    if has.table is None or why is not None:
        if wanted != "max":
            raise UsageError(f"power mode {wanted} cannot be set: {why}", "--no-power goes on without")
        if device.jetson is not None:
            warnings.append(f"the power mode stays as it is: {why}")
        return None
    if other := foreign(has.table, device.cpu.present):
        raise Refused(other, "point /etc/nvpmodel.conf at this module's file in /etc/nvpmodel, or --no-power")
    return find(has.table, wanted)


def _cannot_switch(device: Device) -> str | None:
    """Why no mode can be set here; None when one can. On a board not at hand its tools count as there."""
    has = device.power or _NOTHING
    if device.assumed is not None:
        return None if has.table else "the modes are in the board's own /etc/nvpmodel.conf"
    if device.container is not None:
        return (
            f"in a container ({device.container}) nvpmodel changes nothing but its status file; "
            "set it on the host: sudo nvpmodel -m ID, sudo jetson_clocks"
        )
    if has.table is None:
        return "there is no power mode in /etc/nvpmodel.conf"
    return None if has.nvpmodel else "nvpmodel is not on this machine"


def _can_pin(device: Device, warnings: list[str]) -> bool:
    has = device.power or _NOTHING
    if device.jetson is None or device.assumed is not None:
        return device.jetson is not None and has.table is not None
    if device.container is not None:
        return False  # told with the mode
    if has.jetson_clocks is None:
        warnings.append("the clocks are not pinned: jetson_clocks is not on this machine")
    return has.jetson_clocks is not None


def _fan(has: PowerState, wanted: str) -> str | None:
    if wanted == "keep":
        return None
    if wanted not in has.fans:
        there = f"there are {', '.join(has.fans)}" if has.fans else "this board has no nvfancontrol"
        raise UsageError(f"there is no fan profile {wanted}", f"{there}; keep leaves the fan alone")
    return wanted


def _cores(cpu: Cpu, mode: PowerMode | None) -> tuple[int, ...]:
    """The CPUs online in a mode; a mode that names none leaves them as they are."""
    named = () if mode is None else tuple(number for number in mode.cores if number in cpu.present)
    return named or cpu.online
