"""Relief: what would free memory, with the bytes each gives and what to type for it; nothing of it is done."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from orin_deploy.facts.device import MIB, Device, Tenant
from orin_deploy.facts.memory import COMPACT
from orin_deploy.facts.model import Model
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import Serving
from orin_deploy.intent.ways import Way, savings

_WORTH_BYTES = 16 * MIB  # less than this is no relief

# What a machine needs to run and to be reached; never named as something to end.
_NEEDED = re.compile(
    r"systemd|init\b|dbus|ssh\b|sshd|NetworkManager|wpa_supplicant|iwd\b|connman|dhc|netplan|tailscaled|zerotier|"
    r"openvpn|udev|polkit|login|su\b|sudo\b|tmux|screen\b|dockerd|docker\.|containerd|orin-deploy"
)
_SHELL = re.compile(r"(ba|da|z|k|fi|c|tc|a)?sh \(")  # at a prompt: it runs no script

_NO_DESKTOP = "sudo systemctl isolate multi-user.target"


@dataclass(frozen=True)
class Relief:
    """One thing that would free memory: in words, the bytes it gives, and the command or the words to add to one, where
    it is `options` of the deployment.

    0 bytes are given by what makes free memory usable and not more.
    """

    what: str
    bytes: int
    command: str
    options: tuple[tuple[str, str], ...] = ()


def relief(model: Model, serving: Serving, room: Room, device: Device) -> tuple[Relief, ...]:
    """All there is, the cheapest first: what costs nothing, what a smaller setting gives, what somebody has to miss.

    Where the limit is fixed only the settings help.
    """
    free, missed = ((), ()) if room.fixed else (_free(device), _missed(device))
    options = (_of_way(way, given) for way, given in savings(model, serving, room) if given >= _WORTH_BYTES)
    return (*free, *options, *missed)


def of_machine(room: Room, device: Device) -> tuple[Relief, ...]:
    """What the machine itself could give, whatever is served; nothing for a board that is not at hand, and where the
    limit is fixed."""
    return () if room.fixed else (*_free(device), *_missed(device))


def enough(reliefs: Sequence[Relief], missing_bytes: int, most: int = 3) -> tuple[Relief, ...]:
    """The fewest of the reliefs that give as much as is missing, the cheapest of equally few; none when all do not.

    Meant for those of the machine, which add up; two settings together give another sum than each alone.
    """
    for count in range(1, most + 1):
        for chosen in combinations([each for each in reliefs if each.bytes], count):
            if sum(each.bytes for each in chosen) >= missing_bytes:
                return chosen
    return ()


def _free(device: Device) -> Iterator[Relief]:
    memory = device.memory
    if device.assumed:
        return
    if memory.hugepages_free >= _WORTH_BYTES:
        yield Relief("no huge pages set aside", memory.hugepages_free, "sudo sysctl vm.nr_hugepages=0")
    if device.jetson is not None and memory.fragmented:
        yield Relief("the page cache dropped and memory compacted: larger free blocks, not more memory", 0, COMPACT)


def _missed(device: Device) -> Iterator[Relief]:
    """The desktop, then who else holds memory, the largest first."""
    if device.assumed:
        return
    desktop = [tenant for tenant in device.tenants if tenant.kind == "desktop"]
    for tenant in (*desktop, *(each for each in device.tenants if each.kind != "desktop")):
        if tenant.bytes + tenant.promised_bytes >= _WORTH_BYTES and not _is_needed(tenant):
            yield _without(tenant)


def _is_needed(tenant: Tenant) -> bool:
    """Whether ending it would end the machine's own services, a session of somebody's, or this very command. A desktop
    can be left even so, and a deployment or a container may be called anything."""
    if tenant.kind == "desktop":
        return False
    if tenant.kind in ("deployment", "container"):
        return tenant.needed
    names = (tenant.name, tenant.unit or "")
    return tenant.needed or any(map(_NEEDED.match, names)) or _SHELL.match(tenant.name) is not None


def _without(tenant: Tenant) -> Relief:
    given = tenant.bytes + tenant.promised_bytes
    match tenant.kind:
        case "desktop":
            return Relief("no desktop until graphical.target is isolated; programs in it end", given, _NO_DESKTOP)
        case "deployment":
            return Relief(
                f"the deployment {tenant.name} down", given, f"orin-deploy down --name {shlex.quote(tenant.name)}"
            )
        case "container" if tenant.unit in ("docker", "podman"):
            return Relief(
                f"the container {tenant.name} stopped", given, f"{tenant.unit} stop {shlex.quote(tenant.name)}"
            )
        case "container":
            return Relief(f"the container {tenant.name} stopped", given, f"end it by what runs it ({tenant.unit})")
    if tenant.unit is not None:
        return Relief(f"{tenant.name} stopped", given, f"sudo systemctl stop {shlex.quote(tenant.unit)}")
    return Relief(f"{tenant.name} ended", given, f"kill {' '.join(map(str, tenant.pids))}")


def _of_way(way: Way, given: int) -> Relief:
    return Relief(way.what, given, " ".join(way.words), way.options)
