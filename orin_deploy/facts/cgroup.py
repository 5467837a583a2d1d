"""Where the process's own control groups lie, for the limits they set on memory and CPUs."""

from __future__ import annotations

import re

from orin_deploy.host.machine import Machine

ROOT = "/sys/fs/cgroup"


def own_folders(machine: Machine, controller: str) -> tuple[str, ...]:
    """The folders of a controller ("memory", "cpuset") from the process's own group up to the top one in sight.

    Empty when /proc/self/cgroup cannot be read. In a container the top one is the container's own group: its
    namespace shows the path as "/", and without a namespace the path is not below the mount, so only the top exists.
    """
    return folders(machine.read("/proc/self/cgroup") or "", controller)


def service_folders(machine: Machine, controller: str) -> tuple[str, ...]:
    """The folders of the group in which systemd starts a new service of ours, up to the top; empty without systemd.

    As root that is system.slice. A user's services lie in app.slice below the user's own manager, which is known from
    our own group when we are below it too.
    """
    text = machine.read("/proc/self/cgroup") or ""
    own = folders(text, controller)
    if not own or not machine.exists("/run/systemd/system"):
        return ()
    if re.search(r"^Uid:\s+\d+\s+0\b", machine.read("/proc/self/status") or "", re.MULTILINE):
        return _upwards(own[-1], "system.slice")
    manager = next((folder for folder in own if re.search(r"/user@\d+\.service$", folder)), None)
    return _upwards(own[-1], f"{manager.removeprefix(own[-1])}/app.slice") if manager else ()


def folders(text: str, controller: str) -> tuple[str, ...]:
    """`own_folders` from the text of /proc/self/cgroup; a version 1 hierarchy of the controller beats version 2."""
    unified: tuple[str, ...] = ()
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if not colon:
            continue
        if controller in controllers.split(","):
            return _upwards(f"{ROOT}/{controller}", path)
        if number == "0" and not controllers:
            unified = _upwards(ROOT, path)
    return unified


def _upwards(top: str, path: str) -> tuple[str, ...]:
    parts = [part for part in path.split("/") if part and "\0" not in part]
    # "/../x" is a group outside our namespace: nothing between it and the top can be seen.
    if ".." in parts:
        parts = []
    return tuple("/".join((top, *parts[:depth])) for depth in range(len(parts), -1, -1))
