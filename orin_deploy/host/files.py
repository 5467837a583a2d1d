"""Changing files: whole or not at all, and safe against a power cut."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orin_deploy.errors import OrinError

if TYPE_CHECKING:
    import tarfile


def write(path: Path, text: str | bytes, mode: int = 0o644) -> None:
    """Write a file atomically and durably: readers see the old text or the new one, also after a power cut."""
    import tempfile

    path.parent.mkdir(parents=True, exist_ok=True)
    data = text.encode() if isinstance(text, str) else text
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk names no file
        raise
    _sync_folder(path.parent)


def link(path: Path, target: str) -> None:
    """Point a symbolic link at `target`, replacing an older link atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    os.replace(temporary, path)
    _sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all it holds; absent is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def unpack(archive: Path, path: Path, prefix: str = "") -> None:
    """Unpack the members below `prefix` of a tar or zip archive into `path`, which appears whole or not at all."""
    import tempfile
    import zipfile

    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        count = _unpack_zip(archive, temporary, prefix) if zipfile.is_zipfile(archive) else 0
        if not count:
            count = _unpack_tar(archive, temporary, prefix)
        if not count:
            raise OrinError(f"{archive.name} holds nothing below {prefix or '/'}", "check the archive or its version")
        temporary.chmod(0o755)
        remove(path)
        os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _unpack_tar(archive: Path, folder: Path, prefix: str) -> int:
    import tarfile

    count = 0
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if not member.name.startswith(prefix) or not (member.isfile() or member.issym()):
                    continue
                member.name = member.name[len(prefix) :].lstrip("/")
                if member.name:
                    _extract(tar, member, folder)
                    count += 1
    except (tarfile.TarError, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise OrinError(f"{archive.name} is not a whole archive: {error}", "fetch it again") from error
    return count


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    import tarfile

    # The `data` filter (no absolute paths, nothing outside the folder) came to 3.10 with 3.10.12.
    if hasattr(tarfile, "data_filter"):
        tar.extract(member, folder, filter="data")
    elif ".." in Path(member.name).parts or member.issym():
        raise OrinError(f"the archive names a path outside its folder: {member.name}")
    else:
        tar.extract(member, folder)


def _unpack_zip(archive: Path, folder: Path, prefix: str) -> int:
    import zipfile

    count = 0
    with zipfile.ZipFile(archive) as source:
        for member in source.infolist():
            if not member.filename.startswith(prefix) or member.is_dir():
                continue
            member.filename = member.filename[len(prefix) :].lstrip("/")
            source.extract(member, folder)
            count += 1
    return count


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock(path: Path, holder: dict[str, Any]) -> Iterator[None]:
    """Hold the one lock of an installation; a second holder gets an error that names the first.

    The kernel drops the lock with the process, so no crash leaves it behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise OrinError(
                _held_by(path), "wait for it to end, or stop it, then run the same command again"
            ) from error
        os.ftruncate(descriptor, 0)
        with contextlib.suppress(OSError):  # on a full disk the holder stays unnamed, and `down` can still free it
            os.pwrite(descriptor, json.dumps(holder).encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _held_by(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"`{holder['command']}` (process {holder['pid']}, since {holder['since']}) is changing this machine"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another orin-deploy is changing this machine"
