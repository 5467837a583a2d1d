"""systemctl: the verbs that a deployment uses, on the units below the board's root."""

from __future__ import annotations

import sys

from tests.virtual import booting, systemd
from tests.virtual.kernel import Kernel
from tests.virtual.tools import is_root

_CHANGES = {
    "start",
    "stop",
    "restart",
    "enable",
    "disable",
    "daemon-reload",
    "reset-failed",
    "isolate",
    "reboot",
    "set-default",
}


def main(kernel: Kernel, words: list[str]) -> int:
    options = [word for word in words if word.startswith("-") and word != "-p"]
    plain: list[str] = []
    asked: list[str] | None = None
    rest = iter(words)
    for word in rest:
        if word in ("-p", "--property"):
            asked = [*(asked or ()), *next(rest, "").split(",")]
        elif word.startswith(("-p", "--property=")):
            asked = [*(asked or ()), *word.removeprefix("--property=").removeprefix("-p").split(",")]
        elif not word.startswith("-"):
            plain.append(word)
    verb, *units = plain or ["list-units"]
    if verb in _CHANGES and not is_root() and "--user" not in options:
        print("Failed to " + verb + ": Interactive authentication required.", file=sys.stderr)
        return 1
    manager = systemd.Manager(kernel, user="--user" in options)
    match verb:
        case "start" | "stop" | "restart":
            return _each(manager, verb, units, wait="--no-block" not in options)
        case "enable" | "disable":
            return _enable(manager, verb, units, "--now" in options)
        case "daemon-reload":
            manager.reload()
        case "reset-failed":
            for unit in manager.known(units):
                manager.reset(unit)
        case "show":
            values = manager.show(systemd.full(units[0]))
            print("\n".join(f"{name}={values.get(name, '')}" for name in (asked or values)))
        case "is-active" | "is-failed":
            states = [manager.show(systemd.full(unit))["ActiveState"] for unit in units]
            print("\n".join(states))
            return 0 if ("active" if verb == "is-active" else "failed") in states else 3
        case "is-enabled":
            on = [manager.is_enabled(systemd.full(unit)) for unit in units]
            print("\n".join("enabled" if each else "disabled" for each in on))
            return 0 if all(on) else 1
        case "is-system-running":
            print("running")
        case "cat":
            print(manager.text(systemd.full(units[0])) or "", end="")
        case "isolate":
            booting.isolate(kernel)
        case "get-default":
            print("multi-user.target")
        case "reboot":
            booting.reboot(kernel)
        case "set-default" | "list-units" | "status" | "kill":
            pass
        case _:
            print(f"Unknown command verb {verb}.", file=sys.stderr)
            return 1
    return 0


def _each(manager: systemd.Manager, verb: str, names: list[str], wait: bool) -> int:
    code = 0
    for name in names:
        globbed = any(character in name for character in "*?[")
        units = manager.known([name]) if globbed else [systemd.full(name)]
        for unit in units:
            if verb != "stop" and manager.text(unit) is None:
                print(f"Failed to {verb} {unit}: Unit {unit} not found.", file=sys.stderr)
                code = 5
                continue
            if verb in ("stop", "restart"):
                manager.stop(unit)
            if verb in ("start", "restart") and not manager.start(unit, wait):
                print(f"Job for {unit} failed because the control process exited with error code.", file=sys.stderr)
                code = 1
    return code


def _enable(manager: systemd.Manager, verb: str, names: list[str], now: bool) -> int:
    for unit in map(systemd.full, names):
        if manager.text(unit) is None:
            print(f"Failed to {verb} unit: Unit file {unit} does not exist.", file=sys.stderr)
            return 1
        manager.enable(unit, verb == "enable")
    return _each(manager, "start" if verb == "enable" else "stop", names, wait=True) if now else 0
