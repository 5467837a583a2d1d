"""Ranged reads: the header of a remote model before anything is downloaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orin_deploy.errors import OrinError
from orin_deploy.host.fetch_http import QUESTION, Patience, Remote, content_range, get, persist, pool, read

if TYPE_CHECKING:
    import urllib3

    from orin_deploy.host import Host

CHUNK = 64 * 1024
FIRST_READ = 64 * 1024  # enough for the numbers at the start of most headers


class Ranges:
    """Ranged reads of one remote file: `size` in bytes where the server tells it, and `read`.

    Raises the OrinErrors of a download. All reads are of the same version of the file, or the read fails.
    """

    def __init__(self, host: Host, remote: Remote, patience: Patience = QUESTION) -> None:
        self.remote = remote
        self.size = remote.size
        self._host = host
        self._patience = patience
        self._etag: str | None = None
        self._start = self._request(0, FIRST_READ)

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on, fewer at the end of the file."""
        if offset + length <= len(self._start) or len(self._start) < FIRST_READ:
            return self._start[offset : offset + length]
        if length <= 0 or (self.size is not None and offset >= self.size):
            return b""
        return self._request(offset, length)

    def _request(self, offset: int, length: int) -> bytes:
        with pool(self._host, self.remote, self._patience) as connections:
            return persist(
                self._host, self._patience, lambda: self._once(connections, offset, length), lambda _, __: None
            )

    def _once(self, connections: urllib3.PoolManager, offset: int, length: int) -> bytes:
        with get(connections, self.remote, {"Range": f"bytes={offset}-{offset + length - 1}"}) as response:
            if response.status == 416:
                return b""
            etag = response.headers.get("ETag")
            if self._etag is not None and etag not in (None, self._etag):
                raise OrinError(f"{self.remote.name} changed while its header was read", "run the same command again")
            self._etag = etag
            skip = 0
            if response.status == 206:
                self.size = content_range(response)[1] or self.size
            else:
                stated = response.headers.get("Content-Length", "")
                self.size = int(stated) if stated.isdigit() else self.size
                skip = offset
            return self._take(response, skip, length)

    def _take(self, response: urllib3.BaseHTTPResponse, skip: int, length: int) -> bytes:
        """The wanted bytes of an answer that starts `skip` bytes too early (a server that ignores Range)."""
        kept = bytearray()
        while len(kept) < length and (data := read(response, self.remote, min(CHUNK, skip + length - len(kept)))):
            kept += data[skip:]
            skip = max(0, skip - len(data))
        return bytes(kept)
