"""What is: the active mode and whether it is in force, the clocks, what was there before this deployment."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orin_deploy.facts import clocks as clock_facts
from orin_deploy.facts import cpu, power
from orin_deploy.facts.clocks import Clocks
from orin_deploy.facts.power import PowerState
from orin_deploy.host import Host
from orin_deploy.intent.spec import Spec
from orin_deploy.parts.power.where import Where, where

NAME = "power"


@dataclass(frozen=True)
class Limit:
    """The highest clock allowed now and the highest the hardware has, None where it does not say; kHz or Hz."""

    now: int
    top: int | None


@dataclass(frozen=True)
class Current:
    """Power as it is now. `before` is the mode from before the first change, once that is on disk."""

    where: Where
    mode: str | None
    online: tuple[int, ...] = ()
    cpu_limits: dict[int, Limit] = field(default_factory=dict)
    gpu_limit: Limit | None = None
    clocks: Clocks | None = None
    before: str | None = None
    stored: bool = False  # the clocks from before are on disk
    script: str | None = None
    unit: str | None = None
    enabled: bool = False
    fan: str | None = None  # the profile that nvfancontrol says it follows, else the one it is configured to
    fan_conf: str | None = None


def inspect(host: Host, spec: Spec) -> Current:
    """Read the power state; for a device not at hand it is what the device is said to be in."""
    has = spec.device.power or PowerState(None, None)
    table = has.table
    place = where(host, spec.name, power.CONF)
    if spec.power is None or spec.device.assumed is not None:
        return Current(place, has.current)
    pinning = spec.power.clocks and host.is_root
    shown = host.ask("jetson_clocks", "--show") if pinning else None
    return Current(
        where=place,
        mode=power.active_mode(host, table),
        online=cpu.parse_list(host.read(f"{cpu.SYSFS}/online") or ""),
        cpu_limits=_cpu_limits(host, spec),
        gpu_limit=_gpu_limit(host, table.gpu_max_path, table.gpu_clocks_path) if table else None,
        clocks=None if shown is None else clock_facts.parse_show(shown),
        before=host.read(place.before) or None,
        stored=host.exists(place.clocks),
        script=host.read_text(place.script),
        unit=host.read_text(place.unit_file),
        enabled=host.link_target(place.enabled) is not None,
        fan=_fan(host) if spec.power.fan else None,
        fan_conf=host.read_text(power.FAN_CONF),
    )


def _fan(host: Host) -> str | None:
    match = re.search(r"FAN_PROFILE:[ \t]*([\w-]+)", host.ask("nvfancontrol", "-q") or "")
    return match[1] if match else power.fan_profile(host.read(power.FAN_CONF) or "")


def _cpu_limits(host: Host, spec: Spec) -> dict[int, Limit]:
    """The limits of the CPUs that are online; an offline one keeps what it had."""
    found = {}
    for number in spec.device.cpu.present:
        folder = f"{cpu.SYSFS}/cpu{number}/cpufreq"
        now = _number(host.read(f"{folder}/scaling_max_freq"))
        if now is not None:
            found[number] = Limit(now, _number(host.read(f"{folder}/cpuinfo_max_freq")))
    return found


def _gpu_limit(host: Host, path: str | None, clocks: str | None) -> Limit | None:
    now = _number(host.read(path)) if path else None
    known = [int(word) for word in (host.read(clocks) or "").split() if word.isdigit()] if clocks else []
    return None if now is None else Limit(now, max(known, default=None))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
