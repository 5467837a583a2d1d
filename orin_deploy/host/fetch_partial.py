"""A file on its way: it lies beside its destination under a hidden name until every byte is there and checked."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from orin_deploy.errors import OrinError, Refused
from orin_deploy.host import files

if TYPE_CHECKING:
    from orin_deploy.host import Host, Progress

# Room left for logs and state; a full root file system stops a Jetson from booting its desktop.
SPACE_MARGIN = 128 * 1024 * 1024
BLOCK = 1024 * 1024
UNSEEN = 16 * 1024 * 1024  # how much of a file of unknown size may come between two looks at the free space
RESUMES = "run the same command again: it goes on from what is here"
GGUF = b"GGUF"
LOOK = 60  # bytes that tell a person what came instead


def size_text(count: int) -> str:
    """Bytes as people write file sizes: decimal units, three digits or a little more."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.{1 if count < 100 * factor else 0}f} {unit}"
    return f"{count} bytes"


class Partial:
    """The partial file `.NAME.part` of a destination, with what it is a part of in `.NAME.part.json`.

    `source` names the content: two sources with the same text have the same bytes at the same place. What an earlier
    run left of the same source is kept, `position` bytes of it. One process at a time: a second gets an OrinError.
    Use it as a context manager; `commit` makes the file appear under its final name.
    """

    def __init__(self, host: Host, path: Path, source: str) -> None:
        self.path = path
        self.part = path.with_name(f".{path.name}.part")
        self.note = path.with_name(f".{path.name}.part.json")
        self.source = source
        self.position = 0
        self.etag: str | None = None
        self.total: int | None = None
        self._host = host
        self._descriptor = -1
        self._digest = hashlib.sha256()
        self._start = b""  # the first bytes

    def __enter__(self) -> Partial:
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = _open_locked(self.part)
        try:
            self._take_up()
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.position == 0:
            self.discard()
        os.close(self._descriptor)

    def _take_up(self) -> None:
        try:
            note = json.loads(self.note.read_text())
            same = note["source"] == self.source
            self.etag, self.total = note["etag"], note["total"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            same = False
        if not same:
            self.reset()
            return
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            while block := file.read(BLOCK):
                self._start = self._start or block[:LOOK]
                self._digest.update(block)
                self.position += len(block)

    def reset(self) -> None:
        """Forget what is there: the next byte is the first."""
        with writing(self.path):
            os.ftruncate(self._descriptor, 0)
            os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.position, self.etag, self.total = 0, None, None
        self._digest, self._start = hashlib.sha256(), b""

    def expect(self, total: int | None, etag: str | None = None) -> None:
        """Note what the source says of itself, before its first byte; refuses when the rest does not fit the disk."""
        check_space(self._host, self.path, 0 if total is None else total - self.position)
        self.total, self.etag = total, etag
        with writing(self.path):
            files.write(self.note, json.dumps({"source": self.source, "etag": etag, "total": total}))

    def write(self, data: bytes, content_type: str | None = None) -> None:
        """Append bytes; the first ones of a .gguf must say so, else Refused tells what came instead."""
        if len(self._start) < len(GGUF):
            self._start += data[:LOOK]
            self._demand_gguf(content_type)
        if self.total is None and self.position // UNSEEN != (self.position + len(data)) // UNSEEN:
            check_space(self._host, self.path, UNSEEN)
        with writing(self.path):
            view = memoryview(data)
            while view:
                count = os.write(self._descriptor, view)
                self._digest.update(view[:count])
                self.position += count
                view = view[count:]

    def _demand_gguf(self, content_type: str | None = None, whole: bool = False) -> None:
        expected = GGUF if whole else GGUF[: len(self._start)]
        if self.path.suffix == ".gguf" and not self._start.startswith(expected):
            self.discard()
            raise Refused(*_not_gguf(self.path.name, self._start, content_type))

    def discard(self) -> None:
        """Remove the partial file and its note."""
        self.part.unlink(missing_ok=True)
        self.note.unlink(missing_ok=True)

    def commit(self, size: int | None, sha256: str | None) -> None:
        """Check size and hash, then let the file appear under its final name; what does not hold is removed."""
        digest = self._digest.hexdigest()
        self._demand_gguf(whole=True)
        if size is not None and self.position != size:
            self.discard()
            raise OrinError(
                f"{self.path.name} came with {self.position} bytes instead of {size}",
                "the file at the source has changed or is damaged: check the reference",
            )
        if sha256 is not None and digest != sha256.lower():
            self.discard()
            raise OrinError(
                f"{self.path.name} has SHA-256 {digest}, expected {sha256.lower()}; it was removed",
                "run the same command again; if it stays so, the file at the source is another one",
            )
        with writing(self.path):
            os.fchmod(self._descriptor, 0o644)  # the service may run as another user, whatever the umask here
            os.fsync(self._descriptor)
            os.replace(self.part, self.path)
            remember(self.path, digest)
            self.note.unlink(missing_ok=True)


def check_space(host: Host, path: Path, needed: int) -> None:
    """Refuse, with both numbers and the folder, when `needed` bytes and the margin do not fit where `path` will be."""
    free = host.free_bytes(path)
    if free is not None and needed + SPACE_MARGIN > free:
        raise Refused(
            f"{path.name} needs {size_text(needed)} and {size_text(SPACE_MARGIN)} to spare, "
            f"{size_text(free)} are free in {path.parent}",
            "free some space, or set ORIN_DEPLOY_HOME to a folder on a larger disk",
        )


def remember(path: Path, sha256: str) -> None:
    """Note a file's hash beside it, with the size and time that tell whether the note still holds."""
    status = path.stat()
    note = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": sha256}
    files.write(path.with_name(f"{path.name}.verified.json"), json.dumps(note))


def fits(path: Path, size: int | None, sha256: str | None, progress: Progress) -> bool:
    """Whether a whole file with this size and hash is already there; a hash found right is remembered."""
    if not path.is_file() or (size is not None and path.stat().st_size != size):
        return False
    if sha256 is None:
        return True
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            done += len(block)
            progress(done / total, f"checking {path.name}")
    if digest.hexdigest() != sha256.lower():
        return False
    with writing(path):
        remember(path, digest.hexdigest())
    return True


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the file system refuses into one clear line."""
    try:
        yield
    except OSError as error:
        hint = "set ORIN_DEPLOY_HOME to a folder that you can write to"
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            why = "it is read-only" if error.errno == errno.EROFS else "permission denied"
            raise OrinError(f"cannot write to {path.parent}: {why}", hint) from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            message = f"no space left in {path.parent} for {path.name}"
            raise OrinError(message, f"free some space, then {RESUMES}; ORIN_DEPLOY_HOME moves all of it") from error
        raise OrinError(f"cannot write {path}: {error.strerror or error}", hint) from error


def _open_locked(part: Path) -> int:
    while True:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before us may have renamed or removed the file between our open and our lock.
            if part.exists() and os.path.samestat(os.fstat(descriptor), part.stat()):
                return descriptor
        except BlockingIOError as error:
            os.close(descriptor)
            name = part.name[1 : -len(".part")]
            raise OrinError(f"another process is fetching {name}", "wait for it, then run this again") from error
        os.close(descriptor)


def _not_gguf(name: str, data: bytes, content_type: str | None) -> tuple[str, str]:
    start = data.decode("utf-8", "replace").split("\n")[0]
    said = f" ({content_type})" if content_type else ""
    if not data:
        return f"what came for {name} is empty", "check the reference"
    if data.startswith(b"version https://git-lfs"):
        return f"what came for {name} is a Git LFS pointer, not the model{said}", "use the file's download link"
    if data.lstrip()[:1] == b"<":
        hint = "use the file's direct download link; where it needs a login, set HF_TOKEN or fetch it by hand"
        return f"what came for {name} is a web page, not a model{said}: it starts with {start!r}", hint
    return f"what came for {name} is not a GGUF model{said}: it starts with {start!r}", "check the reference"
