"""Making the lab: Debian's packages once, then what boards are given, anew at every call."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path
from typing import TypeVar

from tests.lab import kernel, root, where
from tests.lab.commands import LabError, require_tools, sh
from tests.lab.manifest import Package, differences, document
from tests.lab.packages import Apt

Made = TypeVar("Made")

# jetson-stats is AGPL and nobody's default: it is installed in a board by the check that reads it.
EXTRA_WHEELS = ("jetson-stats",)
_PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_28_aarch64", "manylinux_2_34_aarch64")


def build(again: bool = False) -> dict[str, float]:
    """Make what is missing, or with `again` all of it; the seconds that each part took."""
    require_tools()
    if os.geteuid() != 0:
        raise LabError("making a root file system needs root", "sudo scripts/lab build")
    where.home().mkdir(parents=True, exist_ok=True)
    taken: dict[str, float] = {}
    guest = Path(__file__).parent / "guest"
    packages: list[Package] = []
    apt = Apt()
    made = (where.kernel() / "Image").exists() and where.root_tar().exists()
    if again or not made:
        timed(taken, "package lists", apt.update)
        packages += timed(taken, "kernel and initrd", lambda: kernel.make(apt))
        packages += timed(taken, "root file system", lambda: root.make(apt))
        _record(tuple(packages))
    if again or not where.disk().exists() or _older(where.disk(), guest) or not made:
        timed(taken, "disk", lambda: root.make_disk(guest))
    timed(taken, "wheels", wheels)
    return taken


def timed(taken: dict[str, float], name: str, work: Callable[[], Made]) -> Made:
    """Do one part of the work, and note its seconds."""
    print(f"lab: {name} …", file=sys.stderr, flush=True)
    began = time.monotonic()
    result = work()
    taken[name] = round(time.monotonic() - began, 1)
    return result


def _older(disk: Path, folder: Path) -> bool:
    made = disk.stat().st_mtime
    files = (*folder.glob("*.service"), Path(root.__file__))
    return any(file.stat().st_mtime > made for file in files)


def _record(packages: tuple[Package, ...]) -> None:
    """The manifest; where it differs from the one of the build before, that is said."""
    file, now = where.home() / "manifest.json", document(packages)
    if file.exists():
        for sentence in differences(json.loads(file.read_text()), now):
            print(f"lab: {sentence}", file=sys.stderr)
    file.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")


def wheels() -> None:
    """Everything to install the product without a network: its own wheel, and its dependencies' for the boards."""
    folder = where.share() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    for old in folder.glob("orin_deploy-*"):
        old.unlink()
    sh((*pip, "wheel", "--no-deps", "-w", folder, where.REPO))
    needed = _dependencies(next(folder.glob("orin_deploy-*.whl")))
    stamp = folder / ".stamp"
    if stamp.exists() and stamp.read_text() == "\n".join(needed):
        return
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    binary = ("--python-version", where.PYTHON, "--only-binary=:all:", "-d", folder)
    sh((*pip, "download", *platforms, *binary, *needed))
    # A source package, so the workstation makes its wheel; what it needs is pure Python.
    sh((*pip, "wheel", "-w", folder, *EXTRA_WHEELS))
    stamp.write_text("\n".join(needed))


def _dependencies(wheel: Path) -> list[str]:
    """What a wheel says that it needs, extras left out."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []
    return [line for line in lines if "extra ==" not in line]


def share(engine: Path | None, model: Path | None) -> None:
    """The read-only disk that boards mount at /opt/lab: source of the stub tools, wheels, engine, model."""
    folder, image = where.share(), where.home() / "share.img"
    for name in ("orin_deploy", "tests/virtual", "tests/lab/guest"):
        place = folder / "source" / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(where.REPO / name, place, ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    for name in ("tests/__init__.py", "tests/lab/__init__.py"):
        shutil.copy2(where.REPO / name, folder / "source" / name)
    for name, path in (("engine.tar.gz", engine), ("model.gguf", model)):
        if path is not None and (not (folder / name).exists() or not os.path.samefile(folder / name, path)):
            (folder / name).unlink(missing_ok=True)
            shutil.copy2(path, folder / name)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) * 5 // 4 + 64 * 2**20
    partial = image.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    sh(("truncate", "-s", str(size), partial))
    sh(("mke2fs", "-q", "-t", "ext4", "-L", root.LABEL, "-m", "0", "-d", folder, partial))
    partial.rename(image)
