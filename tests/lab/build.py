"""Making the lab: what is missing or was made of something else; in the end nothing is left to do."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.lab import digests, engine, given, kernel, root, where
from tests.lab.commands import LabError, require_room, require_tools
from tests.lab.machine import running
from tests.lab.manifest import Package, differences, document
from tests.lab.packages import Apt

Made = TypeVar("Made")
GUEST = Path(__file__).parent / "guest"


def build(again: bool = False) -> dict[str, float]:
    """Make what is missing, or with `again` all of it but the engine; the seconds that each part took."""
    require_tools()
    if os.geteuid() != 0:
        raise LabError("making a root file system needs root", f"sudo scripts/lab {shlex.join(sys.argv[1:])}")
    where.home().mkdir(parents=True, exist_ok=True)
    taken: dict[str, float] = {}
    apt = Apt()
    if again or not ((where.kernel() / "initrd.cpio").exists() and where.root_tar().exists()):
        require_room(where.home(), 8)
        _no_board_runs()
        timed(taken, "package lists", apt.update)
        packages = timed(taken, "kernel", lambda: kernel.make(apt))
        packages += timed(taken, "root file system", lambda: root.make(apt))
        _record(tuple(packages))
    kernel.make_initrd()
    make_disk(taken)
    timed(taken, "wheels", given.wheels)
    timed(taken, "engine", engine.build)
    timed(taken, "model", engine.fetch)
    timed(taken, "share", lambda: given.share(engine.archive(), engine.model()))
    return taken


def timed(taken: dict[str, float], name: str, work: Callable[[], Made]) -> Made:
    """Do one part of the work, and note its seconds; what takes none is not told."""
    print(f"lab: {name} …", file=sys.stderr, flush=True)
    began = time.monotonic()
    result = work()
    taken[name] = round(time.monotonic() - began, 1)
    return result


def disk_digest() -> str:
    return (where.home() / "disk.digest").read_text()


def make_disk(taken: dict[str, float]) -> None:
    """The disk, made of the root, the modules and the lab's units. Boards' own disks stand on it and go with it."""
    stamp = where.home() / "disk.digest"
    units = [each.read_text() for each in sorted(GUEST.glob("*.service"))]
    now = digests.of((where.home() / "manifest.json").read_text(), Path(root.__file__), *units)
    if where.disk().exists() and stamp.exists() and stamp.read_text() == now:
        return
    require_room(where.home(), 4)
    _no_board_runs()
    for old in where.home().glob("boards/*/*.qcow2"):
        old.unlink()
    stamp.unlink(missing_ok=True)
    timed(taken, "disk", lambda: root.make_disk(GUEST))
    stamp.write_text(now)


def _no_board_runs() -> None:
    if boards := running():
        names = ", ".join(board.name for board in boards)
        raise LabError(f"{names} runs on what is to be made anew", f"scripts/lab down {boards[0].kind}")


def _record(packages: tuple[Package, ...]) -> None:
    """The manifest; where it differs from the one of the build before, that is said."""
    file, now = where.home() / "manifest.json", document(packages)
    if file.exists():
        for sentence in differences(json.loads(file.read_text()), now):
            print(f"lab: {sentence}", file=sys.stderr)
    file.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
