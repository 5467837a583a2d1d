"""Tenants: who else holds the machine's memory, by name and size, as far as it can be read without asking anybody.

A process's own size is its resident pages less those of files and those that are shared (statm(5)): what would be
free without it. GPU memory is in no resident size on a Jetson; NvMap lists it by process (nvmap_dev.c), for root only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orin_deploy.facts.device import MIB, Tenant
from orin_deploy.facts.memory import KIB, page_bytes
from orin_deploy.facts.programs import ancestors, is_interpreter, name_of
from orin_deploy.host.machine import Machine

NVMAP_CLIENTS = "/sys/kernel/debug/nvmap/iovmm/clients"

_LOOKED_AT_BYTES = 2 * MIB  # a process's own, from which on its name is read
_NAMED_BYTES = 32 * MIB  # of a tenant; the desktop is named at any size
_MOST = 8

# What a graphical session of GNOME, KDE, Xfce, LXDE or Unity consists of; names as the kernel cuts them, 15 characters.
_DESKTOP = re.compile(
    r"Xorg|Xwayland|gnome-|gdm|gsd-|gjs|mutter|nautilus|evolution-|tracker-|ibus-|goa-|gvfs|xdg-desktop|at-spi|"
    r"lightdm|sddm|kwin|plasma|ksmserver|kded|xfce4-|xfwm4|xfdesktop|lxsession|lxpanel|openbox|pcmanfm|unity-|compiz|"
    r"update-notifier|update-manager|snap-store|gnome|nvidia-settings|nm-applet|blueman|pulseaudio|pipewire|wireplumber"
)
_CONTAINER = re.compile(
    r"(?:docker|libpod|crio|cri-containerd|containerd)[-/]([0-9a-f]{64})|/kubepods[^/\n]*/(?:\S*/)?([0-9a-f]{64})|"
    r"/(?:lxc\.payload\.|lxc/)([\w.-]+)"
)
_UNIT = re.compile(r"/system\.slice/(?:\S+/)?([\w@.:\\-]+\.service)")
_ENGINES = ("llama-", "ggml-rpc-")  # told apart by number: some may be deployments of ours
_GPU_DEVICES = ("/dev/nvmap", "/dev/nvhost", "/dev/nvgpu", "/dev/nvidia")


@dataclass(frozen=True)
class Process:
    """One process that holds memory of its own; `gpu_bytes` is None where it is not known.

    One that `is_interpreter` has nothing to do with others of its name; one that is `needed` this command runs in.
    """

    pid: int
    name: str
    own_bytes: int
    cgroup: str = ""
    gpu_bytes: int | None = None
    has_gpu_open: bool = False
    is_interpreter: bool = False
    needed: bool = False


def read(machine: Machine) -> tuple[tuple[Tenant, ...], str | None]:
    """Who holds memory, the largest first, and what could not be read; never fails."""
    listed = machine.read(NVMAP_CLIENTS)
    clients = nvmap_clients(listed or "")
    has_gpu = any(machine.exists(device) for device in ("/dev/nvmap", "/dev/nvidia0", "/dev/nvhost-gpu"))
    found = tuple(_processes(machine, clients, look_for_gpu=listed is None and has_gpu))
    names = {kind: _container_name(machine, kind) for kind in {_container(process.cgroup) for process in found} if kind}
    unread = None
    if has_gpu and listed is None:
        unread = "GPU memory by process is not readable without root (NvMap's list of clients)"
    return group(found, names), unread


def nvmap_clients(text: str) -> dict[int, tuple[str, int]]:
    """NvMap's clients by process number: the process's name, and bytes; the kernel's own (number 0) are left out."""
    lines = re.findall(r"^\S+ +(\S.*?) +([0-9]{1,9}) +([0-9]{1,15})K\s*$", text, re.MULTILINE)
    clients: dict[int, tuple[str, int]] = {}
    for name, pid, size in lines:
        clients[int(pid)] = (name, clients.get(int(pid), ("", 0))[1] + int(size) * KIB)
    return {pid: client for pid, client in clients.items() if pid}


def group(processes: Iterable[Process], containers: Mapping[str, str] | None = None) -> tuple[Tenant, ...]:
    """Processes as tenants: a container, the desktop, each program one; the largest first, small ones left out.

    `containers` gives names for the identifiers of containers.
    """
    tenants: dict[tuple[str, str], list[Process]] = {}
    for process in processes:
        tenants.setdefault(_whose(process, containers or {}), []).append(process)
    made = [_tenant(kind, name, members) for (kind, name), members in tenants.items()]
    told = [each for each in made if each.bytes >= _NAMED_BYTES or each.kind == "desktop"]
    return tuple(sorted(told, key=lambda each: (-each.bytes, each.name))[:_MOST])


def is_desktop(name: str) -> bool:
    """Whether a program of this name belongs to a graphical session."""
    return _DESKTOP.match(name) is not None


def _whose(process: Process, containers: Mapping[str, str]) -> tuple[str, str]:
    if found := _container(process.cgroup):
        return "container", containers.get(found) or found[:12]
    if is_desktop(process.name):
        return "desktop", "desktop"
    if not (process.is_interpreter or process.name.startswith(_ENGINES)):
        return "process", process.name
    unit = _unit(process) if process.is_interpreter else None
    return "process", f"{process.name} ({unit or process.pid})"


def _tenant(kind: str, name: str, members: list[Process]) -> Tenant:
    members.sort(key=lambda each: (-each.own_bytes - (each.gpu_bytes or 0), each.pid))
    known = [each.gpu_bytes for each in members if each.gpu_bytes is not None]
    if kind == "process" and any(each.gpu_bytes or each.has_gpu_open for each in members):
        kind = "gpu"
    if kind == "desktop":
        name = f"desktop ({', '.join(list(dict.fromkeys(each.name for each in members))[:3])})"
    units = {_unit(each) for each in members}
    return Tenant(
        kind=kind,
        name=name,
        bytes=sum(each.own_bytes for each in members) + sum(known),
        gpu_bytes=sum(known) if known else None,
        pids=tuple(each.pid for each in members),
        unit=_runtime(members[0].cgroup) if kind == "container" else next(iter(units)) if len(units) == 1 else None,
        needed=any(each.needed for each in members),
    )


def _unit(process: Process) -> str | None:
    match = _UNIT.search(process.cgroup)
    return match[1] if match else None


def _container(cgroup: str) -> str | None:
    match = _CONTAINER.search(cgroup)
    return next(filter(None, match.groups())) if match else None


def _runtime(cgroup: str) -> str:
    marks = (("libpod", "podman"), ("kubepods", "kubernetes"), ("docker", "docker"), ("lxc", "lxc"))
    return next((name for mark, name in marks if mark in cgroup), "containerd")


def _container_name(machine: Machine, identifier: str) -> str:
    """What Docker calls a container, where its own file can be read; else the start of its identifier."""
    config = machine.read(f"/var/lib/docker/containers/{identifier}/config.v2.json") or ""
    match = re.search(r'"Name":"/([\w.-]{1,80})"', config)
    return match[1] if match else identifier[:12]


def _processes(machine: Machine, clients: Mapping[int, tuple[str, int]], *, look_for_gpu: bool) -> Iterator[Process]:
    """Every process but our own that holds memory worth a look, or GPU memory."""
    page, myself, seen = page_bytes(machine), machine.link_target("/proc/self"), set()
    around = ancestors(machine) | {1}
    for number in _numbers(machine):
        own = _own_pages(machine, number) * page
        gpu = clients.get(int(number))
        if number == myself or (own < _LOOKED_AT_BYTES and gpu is None):
            continue
        seen.add(int(number))
        name, alone = name_of(machine, number)
        yield Process(
            pid=int(number),
            name=name or (gpu[0] if gpu else "?"),
            own_bytes=own,
            cgroup=machine.read(f"/proc/{number}/cgroup") or "",
            gpu_bytes=gpu[1] if gpu else 0 if clients else None,
            has_gpu_open=look_for_gpu and _has_gpu_open(machine, number),
            is_interpreter=alone,
            needed=int(number) in around,
        )
    for pid, (name, size) in clients.items():
        if pid not in seen:  # one of another container's: NvMap counts by the machine's numbers
            yield Process(pid, name, 0, gpu_bytes=size, is_interpreter=is_interpreter(name))


def _numbers(machine: Machine) -> list[str]:
    try:
        return [name for name in os.listdir(machine.path("/proc")) if name.isdecimal()]
    except OSError:
        return []


def _own_pages(machine: Machine, number: str) -> int:
    fields = (machine.read_bytes(f"/proc/{number}/statm", 200) or b"").split()
    if len(fields) < 3 or not (fields[1] + fields[2]).isdigit():
        return 0
    return max(int(fields[1]) - int(fields[2]), 0)


def _has_gpu_open(machine: Machine, number: str) -> bool:
    folder = f"/proc/{number}/fd"
    try:
        names = os.listdir(machine.path(folder))
    except OSError:  # another user's process, or one that ended meanwhile
        return False
    return any((machine.link_target(f"{folder}/{name}") or "").startswith(_GPU_DEVICES) for name in names)
