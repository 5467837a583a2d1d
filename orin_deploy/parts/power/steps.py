"""From power as it is to power as it shall be."""

from __future__ import annotations

import re

from orin_deploy.actions import Action, Link, Reboot, Remove, Run, Write
from orin_deploy.facts.power import CONF, FAN_CONF, PowerState
from orin_deploy.host import Host
from orin_deploy.intent.placement import cpu_text
from orin_deploy.intent.spec import Power, Spec
from orin_deploy.parts.power.causes import QUESTION
from orin_deploy.parts.power.in_force import differences
from orin_deploy.parts.power.script import script_text, unit_text
from orin_deploy.parts.power.state import NAME, Current
from orin_deploy.parts.power.where import Where, where
from orin_deploy.parts.step import Step

_RELOAD = Run(("systemctl", "daemon-reload"))
_FAN_STATUS = "/var/lib/nvfancontrol/status"  # nvfancontrol prefers it to its configuration


def plan(spec: Spec, now: Current) -> tuple[Step, ...]:
    """A step each for the mode, the clocks, the fan and the next boot; none for what shall be kept."""
    power = spec.power
    if power is None:
        return ()
    steps = [_mode(spec, power, now)] if power.mode else []
    if power.clocks:
        steps.append(_clocks(spec, now, mode_changes=any(step.actions for step in steps)))
    if power.fan:
        steps.append(_fan(power.fan, now))
    if (power.mode or power.clocks) and spec.service.manager == "systemd":
        steps.append(_boot(spec, power, now))
    return tuple(steps)


def _mode(spec: Spec, power: Power, now: Current) -> Step:
    name = f"set power mode {power.mode}"
    hint = "sudo nvpmodel -q --verbose shows each value; --set power.mode=keep goes on without"
    table = spec.device.power.table if spec.device.power else None
    mode = table.named(power.mode) if table else None
    if table is None or mode is None:
        raise ValueError(f"no table has the mode {power.mode}")
    reasons = "; ".join(differences(table, mode, now, spec.device.cpu.present))
    if not reasons:
        cores = f" with CPUs {cpu_text(power.cores)}" if power.cores else ""
        return Step(NAME, name, f"already {mode.name}{cores}, its clock limits in force", hint=hint)
    argv = ("nvpmodel", "-m", str(power.mode_id))
    switch: Action = Reboot(argv, QUESTION) if power.reboot_allowed else Run(argv, log=now.where.log)
    return Step(NAME, name, reasons, (*_keep(spec, now), switch), _back(spec, now), hint)


def _clocks(spec: Spec, now: Current, mode_changes: bool) -> Step:
    name, hint = "pin the clocks", "sudo jetson_clocks --show shows them; --set power.clocks=keep goes on without"
    if now.clocks is not None and now.clocks.locked and not mode_changes:
        return Step(NAME, name, f"CPUs {cpu_text(tuple(now.clocks.cpus))}, GPU and memory are pinned", hint=hint)
    why = "not pinned: they vary with the load" if now.clocks else "not known to be pinned"
    why = "a switch of mode unpins them" if mode_changes else why
    keep = () if mode_changes else _keep(spec, now)
    pin = Run(("jetson_clocks",), log=now.where.log)
    return Step(NAME, name, why, (*keep, pin), _back(spec, now), hint)


def _keep(spec: Spec, now: Current) -> tuple[Action, ...]:
    """Put on disk what was there before the first change, once: the mode's name and every clock.

    jetson_clocks asks before it overwrites a file, and may be stopped half-way: it writes to a name of its own.
    """
    actions: list[Action] = []
    has, place = spec.device.power or PowerState(None, None), now.where
    if not now.stored and (has.jetson_clocks or spec.device.assumed):
        part = f"{place.clocks}.part"
        actions += [
            Remove(part),
            Run(("jetson_clocks", "--store", part), log=place.log),
            Run(("mv", part, place.clocks)),
        ]
    if now.before is None and now.mode is not None:
        actions.append(Write(place.before, f"{now.mode}\n"))
    return tuple(actions)


def _back(spec: Spec, now: Current) -> tuple[Action, ...]:
    return put_back(now.where, _script(spec, now.where), now.before or now.mode)


def put_back(place: Where, script: Write, mode: str | None) -> tuple[Action, ...]:
    """What puts mode and clocks back. The mode comes first: setting it sets clocks too."""
    shell = ("/bin/sh", place.script)
    back = (Run((*shell, "back", mode), log=place.log),) if mode is not None else ()
    return (script, *back, Run((*shell, "restore", place.clocks), log=place.log), Remove(place.folder))


def leftovers(host: Host, name: str) -> tuple[Action, ...]:
    """What puts power back where the list of what to undo was lost: by the files that the first change left."""
    place = where(host, name, CONF)
    if not host.exists(place.folder) and not host.exists(place.unit_file):
        return ()
    script = Write(place.script, script_text(place, host.which("nvpmodel"), host.which("jetson_clocks")), mode=0o755)
    return *_no_boot(place), *put_back(place, script, host.read(place.before) or None)


def _no_boot(place: Where) -> tuple[Action, ...]:
    return Remove(place.enabled), Remove(place.unit_file), _RELOAD


def _script(spec: Spec, place: Where) -> Write:
    has = spec.device.power or PowerState(None, None)
    return Write(place.script, script_text(place, has.nvpmodel, has.jetson_clocks), mode=0o755)


def _fan(profile: str, now: Current) -> Step:
    name, conf = f"set fan profile {profile}", now.fan_conf or ""
    if now.fan == profile:
        return Step(NAME, name, f"already {profile}")
    wanted = re.sub(r"(?m)^([ \t]*FAN_DEFAULT_PROFILE[ \t]+)\S+", rf"\g<1>{profile}", conf)
    again = (Remove(_FAN_STATUS), Run(("systemctl", "restart", "nvfancontrol.service")))
    why = f"{now.fan or 'none'} is set"
    return Step(NAME, name, why, (Write(FAN_CONF, wanted), *again), (Write(FAN_CONF, conf), *again))


def _boot(spec: Spec, power: Power, now: Current) -> Step:
    place = now.where
    name, why = "set power again at every boot", "pinned clocks do not survive a reboot, nor going headless"
    script = _script(spec, place)
    unit = Write(place.unit_file, unit_text(place, spec.name, spec.service.unit, power.mode, power.clocks))
    if now.script == script.text and now.unit == unit.text and now.enabled:
        return Step(NAME, name, f"{place.unit} does it, before the server starts")
    return Step(NAME, name, why, (script, unit, Link(place.enabled, place.unit_file), _RELOAD), _no_boot(place))
