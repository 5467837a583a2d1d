"""The boards' engine, cross-built on the workstation by the product itself, and the real model."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.lab import where
from tests.lab.commands import sh

TRIPLET = "aarch64-linux-gnu"
MODEL = "smollm2-135m"


def archive() -> Path:
    return where.home() / "engine.tar.gz"


def model() -> Path:
    return where.home() / "model.gguf"


def build() -> None:
    """Build it unless it is there. All Orin boards of the lab have the same cores."""
    environ = os.environ | {"ORIN_DEPLOY_HOME": str(where.home() / "product"), "PYTHONPATH": str(where.REPO)}
    words = ("build", "--profile", "agx32", "--set", f"build.toolchain={TRIPLET}", "--set", "build.cuda=off",
             "--output", archive(), "--json")  # fmt: skip
    sh(("nice", "-n", "10", sys.executable, "-m", "orin_deploy", *words), env=environ)


def fetch() -> None:
    """The model's file, from the product's own catalogue."""
    if model().exists():
        return
    from orin_deploy.actions import Fetch
    from orin_deploy.host import Host
    from orin_deploy.intent import catalog

    entry = catalog.find(MODEL, (where.REPO / "profiles",))
    assert entry is not None
    file = entry.files[0]
    host = Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(where.home() / "product")})
    host.do(Fetch(f"{entry.references[0]}/{file.name}", str(model()), file.size, file.sha256))
