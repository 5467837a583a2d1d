"""Jetson: device-tree strings, L4T releases, the toolkit that belongs to a JetPack, the architecture of a module."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.facts import jetson
from orin_deploy.facts.device import CudaToolkit, Jetson
from orin_deploy.host.machine import Machine


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("# R32 (release), REVISION: 7.4, GCID: 33514132, BOARD: t210ref, EABI: aarch64, DATE: Fri …", "32.7.4"),
        ("# R35 (release), REVISION: 2.1, GCID: 32398013, BOARD: t186ref, EABI: aarch64, DATE: Sun …\n", "35.2.1"),
        ("# R36 (release), REVISION: 5.0, GCID: 43688277, BOARD: generic\n# KERNEL_VARIANT: oot\n", "36.5.0"),
        ("# R39 (release), REVISION: 2.0, GCID: 45755727, DATE: Mon Jun  1 09:28:48 PM UTC 2026", "39.2.0"),
        ("# R36 (release), REVISION: ", None),
        ("# R36", None),
        ("", None),
    ],
)
def test_release(text: str, release: str | None) -> None:
    assert jetson.l4t_release(text) == release


@pytest.mark.parametrize(
    ("compatible", "module"),
    [
        ("nvidia,p3768-0000+p3767-0005-super nvidia,p3767-0005 nvidia,tegra234", "p3767-0005"),
        ("nvidia,p3737-0000+p3701-0004 nvidia,p3701-0004 nvidia,tegra234", "p3701-0004"),
        ("nvidia,p3768-0000+p3767-0000-super nvidia,tegra234", "p3767-0000"),
        ("seeed,recomputer nvidia,p3767-0003 nvidia,tegra234", "p3767-0003"),
        ("nvidia,p3509-0000+p3668-0000 nvidia,p3668-0000 nvidia,tegra194", "p3668-0000"),
        ("nvidia,p3449-0000+p3668-0001 nvidia,tegra194", "p3668-0001"),
        ("nvidia,p2972-0000 nvidia,tegra194", "p2972-0000"),
        ("nvidia,p3449-0000-b00+p3448-0000-b00 nvidia,jetson-nano nvidia,tegra210", "p3448-0000"),
        ("raspberrypi,4-model-b brcm,bcm2711", None),
        ("", None),
    ],
)
def test_module(compatible: str, module: str | None) -> None:
    assert jetson.module_of(compatible.split()) == module


@pytest.mark.parametrize(
    ("module", "version", "architecture"),
    [
        ("p3701-0005", (12, 6), "87"),
        ("p3767-0003", (13, 2), "87"),
        ("p3668-0001", (11, 4), "72"),
        ("p2888-0004", (11, 4), "72"),
        ("p2972-0000", (11, 4), "72"),
        ("p3834-0008", (12, 8), "101"),
        ("p3834-0008", (13, 0, 48), "110"),
        ("p3834-0008", (13,), "110"),
        ("p3834-0008", (), "110"),
        ("p9999-0000", (13, 0), None),
        (None, (13, 0), None),
    ],
)
def test_architecture(module: str | None, version: tuple[int, ...], architecture: str | None) -> None:
    assert jetson.cuda_architecture(module, version) == architecture


def board(l4t: str) -> Jetson:
    jetpack, cuda = jetson.RELEASES.get(l4t, (None, None))
    return Jetson(None, (), "p3701-0005", l4t, jetpack, cuda)


def kit(version: str, on_path: bool = False) -> CudaToolkit:
    return CudaToolkit(f"/usr/local/cuda-{version}", tuple(map(int, version.split("."))), on_path)


def test_the_toolkit_of_the_jetpack_beats_the_one_on_path() -> None:
    chosen, warning = jetson.toolkit_for(board("35.2.1"), (kit("11.7", on_path=True), kit("11.4")))
    assert chosen == kit("11.4")
    assert warning is not None
    assert "11.4" in warning
    assert "11.7" in warning


def test_no_warning_where_path_names_none_or_the_right_one() -> None:
    assert jetson.toolkit_for(board("35.2.1"), (kit("11.7"), kit("11.4"))) == (kit("11.4"), None)
    assert jetson.toolkit_for(board("36.4.7"), (kit("12.6", on_path=True),)) == (kit("12.6", on_path=True), None)


def test_a_missing_toolkit_is_named() -> None:
    chosen, warning = jetson.toolkit_for(board("36.4.3"), (kit("13.0"),))
    assert chosen == kit("13.0")
    assert warning is not None
    assert "12.6" in warning
    assert "13.0" in warning


def test_without_a_known_jetpack_the_first_toolkit_is_taken() -> None:
    kits = (kit("12.8"), kit("13.0"))
    assert jetson.toolkit_for(None, kits) == (kits[0], None)
    assert jetson.toolkit_for(board("36.9.9"), kits) == (kits[0], None)
    assert jetson.toolkit_for(board("36.4.3"), ()) == (None, None)


def test_an_unknown_release_is_a_jetson_without_a_jetpack(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").write_text("# R40 (release), REVISION: 1.0, GCID: 1, BOARD: generic\n")
    found = jetson.read(Machine(tmp_path, {}))
    assert found == Jetson(model=None, compatible=(), module=None, l4t="40.1.0", jetpack=None, jetpack_cuda=None)


def test_another_board_with_a_device_tree_is_no_jetson(tmp_path: Path) -> None:
    folder = tmp_path / "proc/device-tree"
    folder.mkdir(parents=True)
    (folder / "compatible").write_bytes(b"raspberrypi,4-model-b\0brcm,bcm2711\0")
    assert jetson.read(Machine(tmp_path, {})) is None


@given(st.binary())
def test_no_bytes_break_a_parser(raw: bytes) -> None:
    strings = jetson.device_tree_strings(raw)
    jetson.module_of(strings)
    jetson.l4t_release(raw.decode("utf-8", "replace"))
    assert all(strings)
