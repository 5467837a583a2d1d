"""nvpmodel: query and set the power mode, in the words that public captures show."""

from __future__ import annotations

import sys

from tests.virtual import conf as confs
from tests.virtual.kernel import Kernel
from tests.virtual.modes import apply_mode, needs_reboot, remember
from tests.virtual.tools import is_root

_NO_CAP = {True: 9_223_372_036_854_775_807, False: 2_147_483_647}
_FAILED = 1  # no capture tells the tool's own exit codes; any but 0


def main(kernel: Kernel, words: list[str]) -> int:
    verbose = "--verbose" in words or "-v" in words
    if "-q" in words or "--query" in words:
        return _query(kernel, verbose)
    if "-p" in words or "--parse" in words:
        return _parse(kernel, verbose)
    if "-m" in words or "--mode" in words:
        place = words.index("-m" if "-m" in words else "--mode") + 1
        wanted = words[place] if place < len(words) else ""
        return _set(kernel, int(wanted)) if wanted.isdecimal() else _say("NVPM ERROR: bad input!", _FAILED)
    return _say("Usage: nvpmodel [-q [--verbose]] [-p [--verbose]] [-m <mode ID>]", _FAILED)


def _say(text: str, code: int = 0) -> int:
    print(text, flush=True)
    return code


def _query(kernel: Kernel, verbose: bool) -> int:
    conf, mode = kernel.conf(), kernel.data["mode"]
    if not kernel.knext and not is_root():
        path = confs.OLD.emc
        _say(f"NVPM ERROR: Error opening {path}: 13")
        _say(f"NVPM ERROR: failed to read PARAM EMC: ARG MAX_FREQ: PATH {path}")
    elif not kernel.knext:
        _say("NVPM WARN: fan mode is not set!")
    before = "NVPM VERB: Current mode: " if verbose else ""
    if verbose:
        _say("NVPM VERB: Config file: /etc/nvpmodel.conf\nNVPM VERB: parsing done for /etc/nvpmodel.conf")
    _say(f"{before}NV Power Mode: {conf.names[mode]}\n{mode}")
    for name, argument, value in conf.settings[mode] if verbose else ():
        path = conf.params[name].path(argument, kernel.knext) or ""
        real = kernel.read(path)
        if value == "-1":
            value = str(_NO_CAP[kernel.knext])
        _say(f"NVPM VERB: PARAM {name}: ARG {argument}: PATH {path}: REAL_VAL: {real} CONF_VAL: {value}")
    return 0


def _parse(kernel: Kernel, verbose: bool) -> int:
    conf = kernel.conf()
    if verbose:
        _say("NVPM VERB: Config file: /etc/nvpmodel.conf\nNVPM VERB: parsing done for /etc/nvpmodel.conf")
        for number, name in conf.names.items():
            _say(f"NVPM VERB: POWER_MODEL: ID={number} NAME={name}")
        _say(f"NVPM VERB: PM_CONFIG: DEFAULT={conf.names[conf.default]}({conf.default})")
    return 0


def _set(kernel: Kernel, mode: int) -> int:
    if mode not in kernel.conf().names:
        return _say(f"NVPM ERROR: request for bad power mode {mode}", _FAILED)
    if not is_root():
        # The words of a query without rights; those of a switch are in no capture.
        path = "/sys/devices/system/cpu/cpu1/online"
        return _say(f"NVPM ERROR: Error opening {path}: 13", _FAILED)
    if kernel.path("/.dockerenv").exists():  # a container: the state file is all that changes
        remember(kernel, mode)
        return 0
    if needs_reboot(kernel, mode):
        return _ask(kernel, mode)
    with kernel.changing():
        apply_mode(kernel, mode)
    return 0


def _ask(kernel: Kernel, mode: int) -> int:
    if kernel.board.soc != "tegra264":
        _say("NVPM WARN: Golden image context is already created")
    _say(f"NVPM WARN: Reboot required for changing to this power mode: {mode}")
    _say("NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:")
    answer = sys.stdin.readline() if sys.stdin is not None else ""
    if answer.strip() in ("YES", "yes"):
        remember(kernel, mode)
        _say("NVPM WARN: rebooting")
        kernel.reboot()
        return 0
    if not answer:
        _say("NVPM ERROR: bad input!")
    return _say("NVPM ERROR: optMask is 1, no request for power mode", _FAILED)
