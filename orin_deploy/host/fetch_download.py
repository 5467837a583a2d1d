"""A download that goes on where it broke, in this run or an earlier one, and never mixes two versions of a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from orin_deploy.errors import OrinError
from orin_deploy.host.fetch_http import (
    DOWNLOAD,
    Patience,
    Remote,
    Trouble,
    broke,
    content_range,
    get,
    persist,
    pool,
    read,
)
from orin_deploy.host.fetch_partial import RESUMES, Partial, check_space, size_text

if TYPE_CHECKING:
    import urllib3

    from orin_deploy.host import Host, Progress

CHUNK = 64 * 1024  # what a broken connection can lose: urllib3 hands out whole chunks only
SAY_EVERY_S = 0.2


def download(host: Host, remote: Remote, partial: Partial, progress: Progress, patience: Patience = DOWNLOAD) -> None:
    """Bring the rest of a file into its partial file; raises OrinError, UsageError where there is no such file."""
    if remote.size is not None:
        check_space(host, partial.path, remote.size - partial.position)
    with pool(host, remote, patience) as connections:
        report = _reporter(host, partial, progress)
        persist(host, patience, lambda: _pull(connections, remote, partial, report), progress, lambda: partial.position)


def _pull(connections: urllib3.PoolManager, remote: Remote, partial: Partial, report: Callable[[], None]) -> None:
    if remote.size is not None and partial.position > remote.size:
        partial.reset()
    if partial.position and not (partial.etag or remote.sha256):
        partial.reset()  # nothing could tell that the rest belongs to the same file
    if partial.position and partial.position == remote.size:
        return
    with get(connections, remote, _resume_headers(remote, partial)) as response:
        if _place(response, remote, partial):
            return
        content_type = response.headers.get("Content-Type")
        while data := read(response, remote, CHUNK):
            if remote.size is not None and partial.position + len(data) > remote.size:
                partial.discard()
                raise OrinError(f"{remote.site} sends more of {remote.name} than its {remote.size} bytes", _DAMAGED)
            partial.write(data, content_type)
            report()
    if partial.total is not None and partial.position != partial.total:
        raise Trouble(broke(remote), f"check the network, then {RESUMES}")


def _resume_headers(remote: Remote, partial: Partial) -> dict[str, str]:
    if not partial.position:
        return {}
    headers = {"Range": f"bytes={partial.position}-"}
    # Where the hash is known it decides; a weak validator must not stand in If-Range (RFC 9110, 13.1.5).
    if partial.etag and not remote.sha256 and not partial.etag.startswith("W/"):
        headers["If-Range"] = partial.etag
    return headers


def _place(response: urllib3.BaseHTTPResponse, remote: Remote, partial: Partial) -> bool:
    """Make the partial file ready for the bytes of this answer; True when it already has all of them."""
    etag = response.headers.get("ETag") or response.headers.get("Last-Modified")
    start, total = content_range(response)
    if response.status == 416:
        if partial.position == total and partial.total in (None, total) and etag in (None, partial.etag):
            return True
        _start_again(remote, partial, total)
    if response.status == 206:
        same = remote.sha256 or (etag in (None, partial.etag) and partial.total in (None, total))
        if start != partial.position or not same:
            _start_again(remote, partial, None)
    else:
        length = response.headers.get("Content-Length", "")
        total = int(length) if length.isdigit() else None
        partial.reset()
    if total is not None and remote.size is not None and total != remote.size:
        raise OrinError(f"{remote.name} has {total} bytes at {remote.site} instead of {remote.size}", _DAMAGED)
    partial.expect(remote.size if total is None else total, etag)
    return False


def _start_again(remote: Remote, partial: Partial, total: int | None) -> NoReturn:
    promised, had = partial.total, partial.position
    partial.reset()
    if had == total and promised is not None:
        partial.discard()
        raise OrinError(f"{remote.site} promised {promised} bytes of {remote.name} and has {total}", _DAMAGED)
    raise Trouble(f"{remote.name} changed at {remote.site} while it was fetched", "run the same command again", 0)


_DAMAGED = "the file at the source has changed or is damaged: check the reference"


def _reporter(host: Host, partial: Partial, progress: Progress) -> Callable[[], None]:
    began, at, said = host.monotonic(), partial.position, 0.0

    def report() -> None:
        nonlocal said
        now = host.monotonic()
        if now - said < SAY_EVERY_S and partial.position != partial.total:
            return
        said = now
        speed = f", {size_text(int((partial.position - at) / (now - began)))}/s" if now > began else ""
        of = "" if partial.total is None else f" of {size_text(partial.total)}"
        fraction = partial.position / partial.total if partial.total else None
        progress(fraction, f"{partial.path.name}: {size_text(partial.position)}{of}{speed}")

    return report
