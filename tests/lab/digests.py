"""What a thing is made of, as a short word: a lab makes anew what was made of something else. Pure but for reading."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

LENGTH = 12


def of(*parts: str | Path) -> str:
    """The digest of texts, files and folders; of a folder every file with its name, of a wheel what is packed in it."""
    whole = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            whole.update(f"text {len(part)} {part}\n".encode())
            continue
        for file in _files(part):
            whole.update(f"{file.relative_to(part)} {_content(file)}\n".encode())
    return whole.hexdigest()[:LENGTH]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = (file for file in path.rglob("*") if file.is_file() and file.suffix != ".pyc")
    return sorted(file for file in found if not any(part.startswith(".") for part in file.relative_to(path).parts))


def _content(file: Path) -> str:
    if file.suffix == ".whl":  # two wheels of the same files differ by the times in them
        with zipfile.ZipFile(file) as archive:
            return " ".join(f"{each.filename}:{each.CRC:x}:{each.file_size}" for each in archive.infolist())
    whole = hashlib.sha256()
    with file.open("rb") as opened:
        while block := opened.read(1 << 20):
            whole.update(block)
    return whole.hexdigest()
