"""What the workstation gives the boards, on read-only disks: one seldom changes, one is made at every start."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

from tests.lab import digests, where
from tests.lab.commands import sh

# jetson-stats is AGPL and nobody's default: it is installed in a board by the check that reads it.
EXTRA_WHEELS = ("jetson-stats",)
_PLATFORMS = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_28_aarch64", "manylinux_2_34_aarch64")
_SOURCE = ("orin_deploy", "tests/virtual", "tests/lab/guest")  # the stub tools, and what they import
_SOURCE_FILES = ("tests/__init__.py", "tests/lab/__init__.py")
_GIVEN_SIZE = 32 * 2**20  # one size: a board that is restored keeps the size that it knew


def wheels() -> None:
    """Everything to install the product without a network: its own wheel, and its dependencies' for the boards."""
    product = _product()
    needed, folder = _dependencies(product), where.share() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / ".stamp"
    if stamp.exists() and stamp.read_text() == "\n".join(needed):
        return
    platforms = [word for name in _PLATFORMS for word in ("--platform", name)]
    binary = ("--python-version", where.PYTHON, "--only-binary=:all:", "-d", folder)
    sh((*_pip(), "download", *platforms, *binary, *needed))
    # A source package, so the workstation makes its wheel; what it needs is pure Python.
    sh((*_pip(), "wheel", "-w", folder, *EXTRA_WHEELS))
    stamp.write_text("\n".join(needed))


def _pip() -> tuple[str, ...]:
    return (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def _product() -> Path:
    """The product's wheel, made anew where its sources have changed."""
    folder, repo = where.product(), where.REPO
    sources = digests.of(repo / "orin_deploy", repo / "profiles", repo / "pyproject.toml", repo / "README.md")
    stamp, made = folder / ".stamp", sorted(folder.glob("orin_deploy-*.whl"))
    if made and stamp.exists() and stamp.read_text() == sources:
        return made[0]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sh((*_pip(), "wheel", "--no-deps", "-w", folder, repo))
    stamp.write_text(sources)
    return next(folder.glob("orin_deploy-*.whl"))


def _dependencies(wheel: Path) -> list[str]:
    """What a wheel says that it needs, extras left out."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = Parser().parsestr(archive.read(name).decode()).get_all("Requires-Dist") or []
    return [line for line in lines if "extra ==" not in line]


def share(engine: Path, model: Path) -> bool:
    """The disk at /opt/lab: the dependencies' wheels, engine, model. Made only where one of them changed; was it?"""
    folder, image, stamp = where.share(), where.share_image(), where.home() / "share.digest"
    for name, path in (("engine.tar.gz", engine), ("model.gguf", model)):
        copy = folder / name
        if not copy.exists() or not os.path.samefile(copy, path):
            copy.unlink(missing_ok=True)
            os.link(path, copy)
    now = digests.of(folder)
    if image.exists() and stamp.exists() and stamp.read_text() == now:
        return False
    stamp.unlink(missing_ok=True)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) * 5 // 4 + 64 * 2**20
    _image(image, folder, size)
    stamp.write_text(now)
    return True


def share_digest() -> str:
    return (where.home() / "share.digest").read_text()


def product_digest() -> str:
    return digests.of(*where.product().glob("*.whl"))


def source(board: Path) -> Path:
    """The disk at /opt/given for one board's start: the stub tools' source and the product's wheel, as they are now."""
    folder, image = board / "given", board / "given.img"
    shutil.rmtree(folder, ignore_errors=True)
    for name in _SOURCE:
        ignored = shutil.ignore_patterns("__pycache__", "test_*")
        shutil.copytree(where.REPO / name, folder / "source" / name, ignore=ignored)
    for name in _SOURCE_FILES:
        shutil.copy2(where.REPO / name, folder / "source" / name)
    (folder / "wheels").mkdir()
    for wheel in where.product().glob("*.whl"):
        shutil.copy2(wheel, folder / "wheels")
    _image(image, folder, _GIVEN_SIZE)
    shutil.rmtree(folder)
    return image


def _image(image: Path, folder: Path, size: int) -> None:
    partial = image.with_suffix(".partial")
    partial.unlink(missing_ok=True)
    sh(("truncate", "-s", str(size), partial))
    sh(("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", folder, partial))
    partial.rename(image)
