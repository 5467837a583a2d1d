"""Rules about jtop: none of its faults stops a deployment, the next source of telemetry takes over."""

from __future__ import annotations

import re

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding, Verdict
from orin_deploy.observe.telemetry import jtop_faults
from orin_deploy.observe.telemetry.jtop_faults import Fault

_NONE = "nothing is to be done"


def unit_or_group_missing(evidence: Evidence) -> Finding | None:
    """An installation of jetson-stats without its unit, its group, or this user in the group."""
    no_unit = evidence.find(r"Unit jtop\.service (?:could not be found|not found)")
    if no_unit is None and evidence.find(r"\bjtop\b.*(?:permission|Permission denied)|Permission denied.*jtop") is None:
        return None
    texts = ["\n".join(log.lines) for log in evidence.logs]
    ids = [text for text in texts if re.search(r"^uid=\d+\(", text)]
    tables = [text for text in texts if re.search(r"^[a-z_][\w-]*:[^:\n]*:\d+:[\w,-]*$", text, re.MULTILINE)]
    groups = jtop_faults.group_names(tables[0]) if tables else None
    own = jtop_faults.group_names(ids[0]) if ids else None
    fault = jtop_faults.installation_fault(False if no_unit else None, groups, own)
    return _finding("jtop.unit-or-group-missing", "warn", fault)


def unknown_l4t(evidence: Evidence) -> Finding | None:
    """jetson-stats not knowing an L4T release, which is harmless."""
    return _finding("jtop.unknown-l4t", "accept", jtop_faults.unknown_release(evidence.text, evidence.text))


def gpu_missing(evidence: Evidence) -> Finding | None:
    """jtop telling no GPU where the kernel has one."""
    devfreq = [item.path for item in evidence.listed if item.path.startswith("/sys/class/devfreq/")]
    if not evidence.no_gpu_told or not devfreq:
        return None
    return _finding("jtop.gpu-missing", "warn", jtop_faults.gpu_fault({}, devfreq))


def no_power_mode(evidence: Evidence) -> Finding | None:
    """nvpmodel naming no mode, on which jtop's service dies again and again."""
    if evidence.power_mode != "":
        return None
    return _finding("jtop.no-power-mode", "diagnose", jtop_faults.no_power_mode(evidence.text))


def socket_is_directory(evidence: Evidence) -> Finding | None:
    """A container engine that made a directory where jtop's socket was to be."""
    said = evidence.find(r"jtop\.sock: +directory\b") or evidence.find(r"^d[-rwxsStT]{9}.*\bjtop\.sock$")
    return _finding("jtop.socket-is-directory", "diagnose", jtop_faults.socket_fault("directory")) if said else None


def _finding(rule: str, verdict: Verdict, fault: Fault | None) -> Finding | None:
    return None if fault is None else Finding(rule, verdict, fault.what, fault.next or _NONE, values=fault.values)
