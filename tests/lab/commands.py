"""Running programs of the workstation, and the lab's own error."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# Programs and the Debian package of each.
TOOLS = {
    "qemu-system-aarch64": "qemu-system-arm",
    "qemu-img": "qemu-utils",
    "qemu-aarch64-static": "qemu-user-static",
    "mmdebstrap": "mmdebstrap",
    "dtc": "device-tree-compiler",
    "aarch64-linux-gnu-g++": "crossbuild-essential-arm64",
    "mke2fs": "e2fsprogs",
    "depmod": "kmod",
    "cpio": "cpio",
    "ssh": "openssh-client",
    "tar": "tar",
    "dpkg-deb": "dpkg",
}


class LabError(Exception):
    """What went wrong with the lab itself: a sentence, then what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def require_tools() -> None:
    missing = sorted({package for program, package in TOOLS.items() if shutil.which(program) is None})
    if missing:
        raise LabError("the lab needs programs that are not here", f"sudo apt-get install {' '.join(missing)}")


def require_room(folder: Path, gib: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < gib * 2**30:
        raise LabError(
            f"{folder} has {free / 2**30:.1f} GiB free, and {gib} GiB may be needed",
            "make room there, or name another folder: ORIN_LAB_HOME=/somewhere scripts/lab …",
        )


def sh(argv: Sequence[str | Path], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """A command's standard output; raises LabError with the end of what it said."""
    words = [str(word) for word in argv]
    done = subprocess.run(words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        raise LabError(f"{words[0]} failed with exit code {done.returncode}: {' '.join(words)}", said)
    return done.stdout
