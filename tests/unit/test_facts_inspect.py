"""Inspecting: this machine, an empty root, and a board whose files are torn, swapped for noise or gone."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from orin_deploy.facts.device import Toolchain
from orin_deploy.facts.inspect import inspect
from orin_deploy.host.machine import Machine

BOARD = Path(__file__).parent.parent / "boards/orin-nano-r36/root"
FILES = sorted(str(path.relative_to(BOARD)) for path in BOARD.rglob("*") if path.is_file() and not path.is_symlink())

DAMAGE = st.none() | st.binary(max_size=60) | st.floats(0, 1)


def test_this_machine() -> None:
    device = inspect(Machine())
    assert device.machine == os.uname().machine
    assert device.kernel == platform.release()
    assert device.cpu.usable
    assert 0 < device.memory.available <= device.memory.total
    assert device.assumed is None


def test_an_empty_root_has_no_facts(tmp_path: Path) -> None:
    device = inspect(Machine(tmp_path, {"PATH": "", "HOME": "relative", "CUDA_HOME": "relative"}))
    assert device.machine == "unknown"
    assert (device.os, device.kernel, device.jetson, device.container, device.systemd) == (
        None,
        None,
        None,
        None,
        False,
    )
    assert not device.cpu.present
    assert not device.cpu.clusters
    assert device.memory.total == 0
    assert device.toolchain == Toolchain()


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(FILES), DAMAGE, min_size=1, max_size=12))
def test_damaged_files_never_break_it(damage: dict[str, bytes | float | None]) -> None:
    """Each chosen file is removed, replaced by any bytes, or cut at a fraction of its length."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        shutil.copytree(BOARD, root, symlinks=True)
        for name, how in damage.items():
            if how is None:
                (root / name).unlink()
            elif isinstance(how, bytes):
                (root / name).write_bytes(how)
            else:
                raw = (root / name).read_bytes()
                (root / name).write_bytes(raw[: int(len(raw) * how)])
        cpu = inspect(Machine(root, {"PATH": ""})).cpu
    grouped = [number for cluster in cpu.clusters for number in cluster.cpus if number in cpu.online]
    assert sorted(grouped) == list(cpu.online)
    assert set(cpu.allowed) <= set(cpu.present)
