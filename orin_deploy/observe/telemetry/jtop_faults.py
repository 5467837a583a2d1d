"""Why jtop cannot be used, or says less than it should: pure answers from what a look at the machine shows.

None of these stops a deployment or a measurement: the next source takes over.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orin_deploy.facts.jetson import l4t_release
from orin_deploy.host.machine import Machine

_INSTEAD = "telemetry falls back to tegrastats or the kernel's files meanwhile"


@dataclass(frozen=True)
class Fault:
    """What is the case and the next command; `values` are what it was seen by."""

    what: str
    next: str | None
    values: Mapping[str, Any] = field(default_factory=dict)


def socket_kind(machine: Machine, path: str) -> str | None:
    """What lies at a path, in the words of `stat`: "socket", "directory", …; None for nothing."""
    try:
        mode = machine.path(path).stat().st_mode
    except OSError:
        return None
    if stat.S_ISSOCK(mode):
        return "socket"
    return "directory" if stat.S_ISDIR(mode) else "regular file"


def socket_fault(kind: str | None) -> Fault | None:
    """What is wrong with /run/jtop.sock; `kind` as `stat` names it, None when there is nothing (jetson_stats 417)."""
    if kind == "socket":
        return None
    if kind == "directory":
        return Fault(
            "/run/jtop.sock is a directory: a container that mounts it was started before the jtop service",
            "stop that container, then: sudo rmdir /run/jtop.sock && sudo systemctl start jtop",
            {"kind": kind},
        )
    if kind is None:
        return Fault("the jtop service does not run: there is no /run/jtop.sock", "sudo systemctl start jtop")
    return Fault(f"/run/jtop.sock is a {kind}, no socket", "sudo systemctl restart jtop", {"kind": kind})


def installation_fault(unit: bool | None, groups: Iterable[str] | None, own: Iterable[str] | None) -> Fault | None:
    """What the installation of jetson-stats left out: its unit, its group, or this user in that group.

    `groups` are all groups of the machine, `own` the user's; None is unknown. (jetson_stats issue 366.)
    """
    missing = []
    commands = []
    if unit is False:
        missing.append("the unit jtop.service")
        commands.append("sudo jtop --install-service")
    if groups is not None and "jtop" not in groups:
        missing.append("the jtop group")
        commands.append("sudo groupadd --system jtop")
    if own is not None and "jtop" not in own and "root" not in own:
        missing.append("this user in the jtop group")
        commands.append('sudo usermod -aG jtop "$USER"')
    if not missing:
        return None
    return Fault(f"jtop lacks {_listed(missing)}; fallback: {_INSTEAD}", " && ".join(commands), {"missing": missing})


def group_names(text: str) -> tuple[str, ...]:
    """Names of groups in the text of /etc/group or in what `id` prints after "groups="."""
    listed = re.search(r"\bgroups=(\S+)", text)
    if listed:
        return tuple(re.findall(r"\(([^()]+)\)", listed[1]))
    return tuple(re.findall(r"^([a-z_][\w-]{0,31}\$?):[^:\n]*:[0-9]+:", text, re.MULTILINE))


def unknown_release(log: str, release: str) -> Fault | None:
    """jetson-stats not knowing an L4T release: harmless; `release` is the text of /etc/nv_tegra_release.

    Its table is static and every release brings the same report (jetson_stats issue 827): nothing of ours reads it.
    """
    said = re.search(r"jetson-stats not supported for \[L4T ([0-9.]{1,20})\]", log)
    if said is None:
        return None
    l4t = l4t_release(release) or said[1]
    return Fault(
        f"jetson-stats does not know L4T {l4t} yet; its values are read all the same, the release comes from"
        " /etc/nv_tegra_release",
        None,
        {"l4t": l4t},
    )


def gpu_fault(gpu: Mapping[str, Any], devfreq: Iterable[str]) -> Fault | None:
    """jtop showing no GPU, as on Thor before jetson-stats 7; `devfreq` are paths of /sys/class/devfreq."""
    if gpu:
        return None
    thor = any(path.rstrip("/").endswith("gpu-gpc-0") for path in devfreq)
    return Fault(
        "jtop shows no GPU" + (": this is Thor, whose GPU has other names" if thor else "") + "; its load is unknown",
        "pip install --upgrade jetson-stats && sudo systemctl restart jtop",
        {"gpu_load": None},
    )


def no_power_mode(query: str) -> Fault | None:
    """nvpmodel naming no mode, on which the jtop service dies again and again; `query` is what `nvpmodel -q` prints."""
    named = re.search(r"^NV Power Mode:[ \t]*(.*)$", query, re.MULTILINE)
    if named is None or named[1].strip():
        return None
    return Fault(
        "no power mode is set: nvpmodel names none, and the jtop service ends at that",
        "sudo nvpmodel -m ID, with an ID of: grep POWER_MODEL /etc/nvpmodel.conf",
        {"mode": None},
    )


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
