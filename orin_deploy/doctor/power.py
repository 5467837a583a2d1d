"""Rules about power modes, clocks and the supply."""

from __future__ import annotations

from pathlib import PurePosixPath

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.doctor.planned import profiled_board
from orin_deploy.errors import UsageError
from orin_deploy.facts import clocks
from orin_deploy.facts.clocks import Clock
from orin_deploy.facts.power import PowerMode, find
from orin_deploy.intent.placement import cpu_text
from orin_deploy.intent.power import foreign

_REBOOT = r"^(?:.*: )?NVPM WARN: Reboot required for changing to this power mode: (\d{1,6})"
_ALARM = r"soctherm.*\bOC ALARM (0x[0-9a-fA-F]+)"

# An input a twentieth below its nominal voltage is what the modules' documents call too low (5 V kits).
_LOW_INPUT_MV = 4750

_MANY_HZ = 1.05  # a table's top and a promise that differ by less than this are the same clock, rounded


def pending_reboot(evidence: Evidence) -> Finding | None:
    """A switch of mode that nvpmodel would only do with a reboot, and dropped when it was not given one."""
    asked = evidence.find(_REBOOT)
    if asked is None or evidence.find(r"NVPM WARN: rebooting"):
        return None
    modes = evidence.power_table.modes if evidence.power_table else ()
    said = None if evidence.power_wanted == "max" else evidence.power_wanted
    goal = next((mode.name for mode in modes if mode.id == int(asked[1])), said or f"number {asked[1]}")
    applied = evidence.power_mode is not None and evidence.power_mode.upper() == goal.upper()
    if applied:
        return None
    now = f": the mode is still {evidence.power_mode}" if evidence.power_mode else ""
    return Finding(
        "power.pending-reboot",
        "warn",
        f"mode {goal} changes the GPU's width, which needs a reboot, and without one nvpmodel dropped the request{now}",
        "`orin-deploy up --reboot` sets it and reboots; `--set power.mode=keep` goes on in the mode there is",
        why_not="nvpmodel did not fail: it asked, and got no yes",
        values={"applied": False, "wanted": goal, "mode": evidence.power_mode},
    )


def table_below_profile(evidence: Evidence) -> Finding | None:
    """A GPU whose table of clocks ends below what the mode's name and the board promise."""
    promised = evidence.gpu_max_mhz
    board = profiled_board(evidence)
    if promised is None and board is not None and evidence.power_mode == "MAXN_SUPER":
        promised = board.gpu_max_mhz
    if promised is None or not evidence.gpu_steps_hz:
        return None
    top = max(evidence.gpu_steps_hz) / 1e6
    if top * _MANY_HZ >= promised:
        return None
    mode = evidence.power_mode or "the mode"
    return Finding(
        "power.table-below-profile",
        "diagnose",
        f"{mode} is set, but the GPU's own table of clocks ends at {top:g} MHz where {promised:g} MHz are promised: "
        "the firmware is not that of a super image",
        "flash the board with JetPack 6.2 or newer, boot firmware included: the mode file brings no clocks",
        why_not=f"setting the mode again changes nothing; expect about {top / promised:.0%} of the speed in prompts",
        values={"top_mhz": top, "promised_mhz": promised},
    )


def table_for_other_module(evidence: Evidence) -> Finding | None:
    """A table of power modes whose CPUs are not this module's."""
    table, board = evidence.power_table, profiled_board(evidence)
    present = evidence.cpus or (board.cpus if board is not None else ())
    wrong = foreign(table, present) if table is not None else None
    if wrong is None:
        return None
    name = f" ({evidence.board.name})" if evidence.board else ""
    return Finding(
        "power.table-for-other-module",
        "refuse",
        f"the power modes are another module's: {wrong}{name}",
        "point /etc/nvpmodel.conf at the file of this module (ls /etc/nvpmodel/) and reboot; "
        "until then --set power.mode=keep",
        why_not="the mode that is asked for is not at fault: every mode of this file is wrong here",
        values={"cores": len(present)},
    )


def mode_differs(evidence: Evidence) -> Finding | None:
    """A board in another mode than the one asked for."""
    wanted = _wanted(evidence)
    mode = evidence.power_mode
    if wanted is None or not mode or mode == wanted.name:
        return None
    if pending_reboot(evidence) or table_for_other_module(evidence):  # they say why
        return None
    return Finding(
        "power.mode-differs",
        "warn",
        f"the board is in {mode} and not in {wanted.name}: slow answers are what that mode gives",
        f"`orin-deploy up` sets {wanted.name}; by hand: sudo nvpmodel -m {wanted.id}",
        why_not="model and engine need no change before this",
        values={"mode": mode, "target": wanted.name, "target_id": wanted.id},
    )


def clocks_locked(evidence: Evidence) -> Finding | None:
    """Whether the clocks are locked, read from the limits of the CPUs that are on, against what jtop believes."""
    locked, online = evidence.clocks_locked, evidence.cpus
    if evidence.cpu_limits:
        locked = clocks.locked(Clock(*limits) for limits in evidence.cpu_limits.values())
        online = tuple(sorted(evidence.cpu_limits))
    if locked is None or evidence.clocks_flag is None or locked is evidence.clocks_flag:
        return None
    state, flag = ("locked", "free") if locked else ("free", "locked")
    return Finding(
        "power.clocks-locked",
        "accept",
        f"the clocks are {state}: so say the limits of the CPUs that are on ({cpu_text(online)})",
        "nothing is to be done" if locked else "sudo jetson_clocks, or `orin-deploy up`, which locks and reads back",
        why_not=f"jtop's flag says {flag}: it is a guess over all CPUs, those that are off included",
        values={"clocks_locked": locked, "online": list(online)},
    )


def oc_alarm(evidence: Evidence) -> Finding | None:
    """An over-current alarm, which is as often an input that sags as a load that is too high."""
    alarm = evidence.find(_ALARM)
    if alarm is None:
        return None
    mv, ma = evidence.input_mv, evidence.input_ma
    who = evidence.board.name if evidence.board else "this module"
    read = "" if mv is None else f"; the input is at {mv} mV" + ("" if ma is None else f" and {ma} mA")
    low = mv is not None and mv < _LOW_INPUT_MV
    cause = ": too low, so it is the supply and not the load" if low else ""
    return Finding(
        "power.oc-alarm",
        "diagnose",
        f"the module's power monitor raised alarm {alarm[1]}{read}{cause}",
        "input voltage first: a shorter, thicker cable and a supply of enough current; only then a lower power mode",
        why_not=f"what the code means differs by module family; on {who} it is no proof of too much load",
        values={"alarm": alarm[1], "input_mv": mv, "input_ma": ma},
    )


def is_of_the_supply(evidence: Evidence) -> bool:
    """Whether the question is about the supply, for rules that would otherwise speak of the board's software."""
    return evidence.find(_ALARM) is not None


def sysfs_late(evidence: Evidence) -> Finding | None:
    """nvpmodel at boot, before the devices that it sets are there."""
    late = evidence.find(r"NVPM ERROR: Error opening (/sys/\S+?):? (?:2|No such file)")
    failed = evidence.find(r"NVPM ERROR: failed to set power mode|nvpmodel\S*\.service: (?:Main process exited|Failed)")
    if late is None or failed is None:
        return None
    return Finding(
        "power.sysfs-late",
        "diagnose",
        f"nvpmodel ran before {PurePosixPath(late[1].rstrip(':')).name} below /sys was there, and gave up at once",
        "retry: sudo systemctl restart nvpmodel. orin-deploy's own boot unit waits for the devices and tries again",
        why_not="neither the mode nor its file is at fault: the same command works a few seconds later",
        values={"path": late[1].rstrip(":")},
    )


def _wanted(evidence: Evidence) -> PowerMode | None:
    if evidence.power_table is None or evidence.power_wanted in (None, "keep"):
        return None
    try:
        return find(evidence.power_table, str(evidence.power_wanted))
    except UsageError:
        return None
