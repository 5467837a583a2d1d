"""The environment: architecture, kernel, distribution, whether systemd runs, whether this is a container."""

from __future__ import annotations

import os
import re

from orin_deploy.host.machine import Machine

# ELF's e_machine (the ELF specification, elf.h) for the machines llama.cpp builds on here.
_ELF_MACHINES = {62: "x86_64", 183: "aarch64"}

# What the control group of PID 1 is called in a container, most telling first.
_CGROUP_NAMES = (
    ("kubepods", "kubernetes"),
    ("libpod", "podman"),
    ("/docker/", "docker"),
    ("/docker-", "docker"),
    ("/lxc", "lxc"),
)


def machine_name(machine: Machine, features: frozenset[str]) -> str:
    """The architecture as `uname -m` says it; below another root told by the CPU's features, else by its programs."""
    if str(machine.root) == "/":
        return os.uname().machine
    if "asimd" in features:
        return "aarch64"
    if "lm" in features:  # long mode
        return "x86_64"
    headers = (machine.read_bytes(path, 20) or b"" for path in ("/bin/sh", "/usr/bin/env"))
    return next((name for header in headers if (name := elf_machine(header))), "unknown")


def elf_machine(header: bytes) -> str | None:
    """The architecture in the first 20 bytes of a little-endian ELF file; None when it is none we know."""
    if header[:4] != b"\x7fELF" or len(header) < 20:
        return None
    return _ELF_MACHINES.get(int.from_bytes(header[18:20], "little"))


def os_name(machine: Machine) -> str | None:
    """The distribution's name for people, as in "Ubuntu 22.04.5 LTS"."""
    text = machine.read("/etc/os-release") or machine.read("/usr/lib/os-release") or ""
    match = re.search(r"""^PRETTY_NAME=(["']?)([^"'].*)\1$""", text, re.MULTILINE)
    return match[2].strip() if match else None


def kernel(machine: Machine) -> str | None:
    return machine.read("/proc/sys/kernel/osrelease") or None


def systemd_runs(machine: Machine) -> bool:
    """Whether systemd is the init that runs, not just installed: sd_booted(3), and PID 1 as a witness in containers."""
    return machine.exists("/run/systemd/system") and machine.read("/proc/1/comm") == "systemd"


def container(machine: Machine) -> str | None:
    """What kind of container this is, None for none; the marks are those that systemd-detect-virt knows."""
    cgroup = machine.read("/proc/1/cgroup") or ""
    if "KUBERNETES_SERVICE_HOST" in machine.environ:
        return "kubernetes"
    if machine.exists("/run/.containerenv"):
        return "podman"
    said = machine.read("/run/systemd/container") or container_variable(machine.read_bytes("/proc/1/environ") or b"")
    if said:
        return said
    if machine.exists("/.dockerenv"):
        return "docker"
    return next((kind for mark, kind in _CGROUP_NAMES if mark in cgroup), None)


def container_variable(environ: bytes) -> str | None:
    """The value of `container` in the NUL-separated environment of PID 1, where container managers put their name."""
    match = re.search(rb"(?:^|\0)container=([\w.-]+)", environ)
    return match[1].decode() if match else None
