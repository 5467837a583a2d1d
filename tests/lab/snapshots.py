"""A board with the product on it, kept in the middle of its run: each check begins there seconds later, without a boot.

One disk file holds them all. Its name tells what it was made of; each snapshot's, the product that is in it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab import build, digests, given, product, qemu, trees
from tests.lab.commands import LabError, require_room, sh
from tests.lab.machine import Board


@dataclass
class Snapshots:
    """The snapshots of one board, of the product that was there when it began: one made meanwhile is another run's.

    `boots` are the seconds of its boots, `restores` those of going on at a snapshot.
    """

    board: Board
    product: str = field(default_factory=given.product_digest)
    boots: list[float] = field(default_factory=list)
    restores: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.board.disk = self.board.folder / f"tested-{base(self.board)}.qcow2"

    def has(self, name: str) -> bool:
        return self._tag(name) in self.board.saved()

    def begin(self, name: str) -> None:
        """Let the board go on where `name` was kept."""
        self.board.cut()
        self.restores.append(self.board.restore(self._tag(name)))

    def keep(self, name: str) -> None:
        require_room(self.board.folder, 4)
        self.board.save(self._tag(name))

    def boot(self, rtc: str = "utc") -> None:
        """Boot the board with its disk as it is now."""
        self.boots.append(self.board.up(fresh=False, rtc=rtc))

    def install(self, again: bool) -> str:
        """A running board with the product of now, kept as "installed"; tells how it came to be."""
        board = self.board
        board.must_be_off()
        for old in board.folder.glob("tested-*.qcow2"):
            if again or old != board.disk:
                old.unlink()
        if self.has("installed"):
            self.begin("installed")
            return "begun from its snapshot"
        if older := [tag for tag in board.saved() if tag.startswith("installed-")]:
            self.restores.append(board.restore(older[0]))
            product.upgrade(board)
            how = "the product's wheel over an older one"
        else:
            self.boots.append(board.up(fresh=True))
            product.install(board)
            how = "offline, from wheels"
        self.keep("installed")
        board.cut()
        for tag in board.saved():
            if not tag.endswith(f"-{self.product}"):
                board.forget(tag)
        self.begin("installed")
        return how

    def twin(self, name: str) -> Snapshots:
        """A second board of the kind, with a copy of the disk of this one, which must be off."""
        other = Snapshots(Board(self.board.kind, twin=True), self.product)
        other.board.must_be_off()
        other.board.folder.mkdir(parents=True, exist_ok=True)
        require_room(other.board.folder, 4 + self.board.disk.stat().st_size // 2**30)
        for old in other.board.folder.glob("*.qcow2"):
            old.unlink()
        sh(("cp", "--reflink=auto", "--sparse=auto", self.board.disk, other.board.disk))
        if not other.has(name):
            raise LabError(f"{other.board.name} has no snapshot {name}", f"look at qemu-img info {other.board.disk}")
        return other

    def _tag(self, name: str) -> str:
        return f"{name}-{self.product}"


def base(board: Board) -> str:
    """Of what a board with a product is made, but for the product: a snapshot goes on only in the machine it was of."""
    emulator = Path(shutil.which("qemu-system-aarch64") or "/dev/null")
    words = (*board.machine(), build.disk_digest(), given.share_digest(), product.installation(board))
    return digests.of(*words, emulator, Path(qemu.__file__), Path(trees.__file__))
