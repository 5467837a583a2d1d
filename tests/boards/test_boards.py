"""Every captured or rebuilt board: the facts found in its files are those that its expect.yaml lists."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from orin_deploy.facts import cpu, jetson
from orin_deploy.facts.device import Device
from orin_deploy.facts.inspect import inspect
from tests.boards.capture import Capture

BOARDS = sorted(folder.parent for folder in Path(__file__).parent.glob("*/ABOUT"))


def derived(device: Device) -> dict[str, Any]:
    """What follows from the facts by themselves."""
    toolkit, warning = jetson.toolkit_for(device.jetson, device.toolchain.cuda)
    module = device.jetson.module if device.jetson else None
    return {
        "arm_arch": cpu.arm_arch(device.cpu.features),
        "ggml_features": cpu.ggml_features(device.cpu.features, device.machine),
        "toolkit": toolkit.root if toolkit else None,
        "toolkit_warning": warning,
        "cuda_architecture": jetson.cuda_architecture(module, toolkit.version if toolkit else ()),
    }


def plain(value: Any) -> Any:
    """A value as YAML would hold it."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return sorted(value) if isinstance(value, frozenset) else value


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """What `expected` says otherwise than `found`; keys it does not name may be anything."""
    if isinstance(expected, dict) and isinstance(found, dict):
        absent = [f"{path}.{key}: no such fact" for key in expected if key not in found]
        inner = (differences(value, found[key], f"{path}.{key}") for key, value in expected.items() if key in found)
        return absent + [line for lines in inner for line in lines]
    return [] if expected == found else [f"{path}: expected {expected!r}, found {found!r}"]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_board(board: Path) -> None:
    device = inspect(Capture(board))
    found = plain(asdict(device)) | {"derived": plain(derived(device))}
    assert differences(yaml.safe_load((board / "expect.yaml").read_text()), found) == []


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_about_says_where_it_comes_from(board: Path) -> None:
    assert (board / "ABOUT").read_text().split(":")[0] in ("Captured", "Rebuilt", "Rebuilt by hand")


def test_every_folder_is_a_board() -> None:
    folders = {path for path in Path(__file__).parent.iterdir() if path.is_dir() and path.name[0] not in "._"}
    assert folders == set(BOARDS)
    assert len(BOARDS) > 1
