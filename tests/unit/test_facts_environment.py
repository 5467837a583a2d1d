"""The environment: architecture, distribution, systemd, containers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.facts import environment
from orin_deploy.host.machine import Machine


def machine(root: Path, files: dict[str, bytes], **environ: str) -> Machine:
    for name, raw in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(raw)
    return Machine(root, environ)


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, None),
        ({".dockerenv": b""}, "docker"),
        ({"run/.containerenv": b"", ".dockerenv": b""}, "podman"),
        ({"run/systemd/container": b"systemd-nspawn\n"}, "systemd-nspawn"),
        ({"proc/1/environ": b"PATH=/bin\0container=lxc\0TERM=xterm"}, "lxc"),
        ({"proc/1/environ": b"mycontainer=lxc\0container="}, None),
        ({"proc/1/cgroup": b"10:memory:/docker/0123\n"}, "docker"),
        ({"proc/1/cgroup": b"0::/kubepods.slice/pod1/cri-containerd-1.scope\n"}, "kubernetes"),
        ({"proc/1/cgroup": b"0::/machine.slice/libpod-1.scope\n"}, "podman"),
        ({"proc/1/cgroup": b"0::/init.scope\n"}, None),
    ],
)
def test_container(tmp_path: Path, files: dict[str, bytes], kind: str | None) -> None:
    assert environment.container(machine(tmp_path, files)) == kind


def test_kubernetes_tells_every_pod(tmp_path: Path) -> None:
    pod = machine(tmp_path, {".dockerenv": b""}, KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert environment.container(pod) == "kubernetes"


def test_systemd_must_be_the_init_that_runs(tmp_path: Path) -> None:
    assert not environment.systemd_runs(machine(tmp_path, {"proc/1/comm": b"systemd\n"}))
    (tmp_path / "run/systemd/system").mkdir(parents=True)
    assert environment.systemd_runs(Machine(tmp_path, {}))
    (tmp_path / "proc/1/comm").write_text("bash\n")
    assert not environment.systemd_runs(Machine(tmp_path, {}))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.5 LTS"\n', "Ubuntu 22.04.5 LTS"),
        (b"PRETTY_NAME=Alpine\n", "Alpine"),
        (b'PRETTY_NAME="torn', None),
        (b"", None),
    ],
)
def test_os_name(tmp_path: Path, text: bytes, name: str | None) -> None:
    assert environment.os_name(machine(tmp_path, {"etc/os-release": text})) == name


def test_architecture_of_another_root(tmp_path: Path) -> None:
    other = Machine(tmp_path, {})
    assert environment.machine_name(other, frozenset({"fp", "asimd"})) == "aarch64"
    assert environment.machine_name(other, frozenset({"lm"})) == "x86_64"
    assert environment.machine_name(other, frozenset()) == "unknown"
    arm = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + (183).to_bytes(2, "little")
    assert environment.machine_name(machine(tmp_path, {"bin/sh": arm}), frozenset()) == "aarch64"


def test_architecture_of_this_machine_is_in_its_programs_too() -> None:
    assert environment.elf_machine(Path("/bin/sh").read_bytes()[:20]) == os.uname().machine
    assert environment.machine_name(Machine(), frozenset()) == os.uname().machine


@given(st.binary(max_size=40))
def test_no_bytes_break_a_parser(raw: bytes) -> None:
    environment.elf_machine(raw)
    environment.elf_machine(b"\x7fELF" + raw)
    environment.container_variable(raw)
    environment.container_variable(b"container=" + raw)
