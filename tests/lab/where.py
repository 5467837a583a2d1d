"""Where the lab keeps its things: outside the checkout, ORIN_LAB_HOME moves it."""

from __future__ import annotations

import os
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
PYTHON = "3.11"  # the suite's


def home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ORIN_LAB_HOME") or Path(cache) / "orin-deploy-lab")


def kernel() -> Path:
    return home() / "kernel"


def root_tar() -> Path:
    return home() / "root.tar"


def disk() -> Path:
    """The disk that every board's own begins as; nothing writes to it."""
    return home() / "disk.qcow2"


def share() -> Path:
    """What seldom changes of what boards are given: the dependencies' wheels, the engine, a model."""
    return home() / "share"


def share_image() -> Path:
    return home() / "share.img"


def product() -> Path:
    """The folder with the product's own wheel."""
    return home() / "wheel"


def key() -> Path:
    return home() / "key"


def board(name: str) -> Path:
    return home() / "boards" / name
