"""Inspecting a machine: every fact a decision starts from, read once."""

from __future__ import annotations

from orin_deploy.facts import cpu, environment, jetson, memory, power, tenants, toolchain
from orin_deploy.facts.device import Device
from orin_deploy.host.machine import Machine


def inspect(machine: Machine) -> Device:
    """The machine as it is now, from files below its root and the versions its tools say; never fails."""
    processors = cpu.read(machine)
    kernel, board = environment.kernel(machine), jetson.read(machine)
    held, unread = tenants.read(machine)
    return Device(
        machine=environment.machine_name(machine, processors.features),
        os=environment.os_name(machine),
        kernel=kernel,
        cpu=processors,
        memory=memory.read(machine),
        toolchain=toolchain.read(machine),
        jetson=board,
        systemd=environment.systemd_runs(machine),
        container=environment.container(machine),
        power=power.read(machine, kernel) if board else None,
        tenants=held,
        tenants_unread=unread,
    )
