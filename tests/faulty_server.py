"""A small real HTTP server that misbehaves on command, and plays the model hub's API for the real hub client.

Beside it the host that the tests of fetching use, whose waits cost nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from orin_deploy.host import Host

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PIECE = 16 * 1024


class QuickHost(Host):
    """A host whose waits are noted instead of waited."""

    def __init__(self, home: Path, **environ: str) -> None:
        super().__init__(environ={"HOME": str(home), "ORIN_DEPLOY_HOME": str(home), "HF_TOKEN": "", **environ})
        self.waits: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@dataclass(frozen=True)
class Drop:
    """Send this many bytes of the body, then cut the connection; `then` runs afterwards."""

    after: int
    then: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Answer:
    """Answer with this instead of the file."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass
class Served:
    """One file and how it is served. `faults` are used up one a request; `always` stands for every request after."""

    data: bytes
    etag: str | None = '"v1"'
    content_type: str = "application/octet-stream"
    ranges: bool = True
    honour_if_range: bool = True
    length: int | None = None  # the Content-Length to claim; None is the truth
    chunked: bool = False
    pause_s: float = 0  # before every 16 KiB
    faults: deque[Drop | Answer] = field(default_factory=deque)
    always: Drop | Answer | None = None
    token: str | None = None  # the bearer token that it wants


@dataclass(frozen=True)
class Seen:
    """A request as it came and how many bytes of body it got."""

    path: str
    headers: dict[str, str]
    status: int
    sent: int


class FaultyServer:
    """`files` by path. Use it as a context manager."""

    def __init__(self) -> None:
        self.files: dict[str, Served] = {}
        self.repos: dict[str, dict[str, bytes]] = {}
        self.api: deque[Answer] = deque()
        self._seen: list[Seen] = []
        self._active = 0
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def seen(self) -> list[Seen]:
        """The log, once every request under way has ended: a client may have its answer before that."""
        with self._changed:
            self._changed.wait_for(lambda: self._active == 0, timeout=10)
        return self._seen

    def __enter__(self) -> FaultyServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def serve(self, path: str, data: bytes, **how: Any) -> str:
        """Serve a file; returns its URL."""
        self.files[path] = Served(data, **how)
        return self.url + path

    def serve_repo(
        self, repo: str, files: dict[str, bytes], cdn: FaultyServer | None = None, token: str | None = None
    ) -> None:
        """Serve a model repository as the hub does; with `cdn` its large files are redirected there."""
        self.repos[repo] = files
        for name, data in files.items():
            path, sha256 = f"/{repo}/resolve/{COMMIT}/{name}", hashlib.sha256(data).hexdigest()
            served = Served(data, etag=f'"{sha256}"', token=token)
            if cdn is not None:
                location = cdn.serve(f"/blobs/{sha256}", data, etag=f'"{sha256}"')
                served.always = Answer(302, (("Location", location), ("X-Linked-Size", str(len(data)))))
            self.files[path] = served

    def got(self, path: str) -> list[Seen]:
        """The requests for one path."""
        return [seen for seen in self.seen if seen.path == path]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        faulty = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, sent = 0, 0
                path = unquote(urlsplit(self.path).path)
                self.close_connection = True
                with faulty._counted():
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        status, sent = faulty._answer(self, path)
                    faulty._seen.append(Seen(path, {k.lower(): v for k, v in self.headers.items()}, status, sent))

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._changed:
            self._active += 1
        try:
            yield
        finally:
            with self._changed:
                self._active -= 1
                self._changed.notify_all()

    def _answer(self, request: BaseHTTPRequestHandler, path: str) -> tuple[int, int]:
        if path.startswith("/api/models/"):
            return self._answer_api(request, path.removeprefix("/api/models/"))
        served = self.files.get(path)
        if served is None:
            return _send(request, Answer(404, (("X-Error-Code", "EntryNotFound"),), b"Not Found"))
        if served.token is not None and request.headers.get("Authorization") != f"Bearer {served.token}":
            return _send(
                request, Answer(401, (("X-Error-Code", "GatedRepo"), ("X-Error-Message", "Access is restricted.")))
            )
        fault = served.faults.popleft() if served.faults else served.always
        if isinstance(fault, Answer):
            return _send(request, fault)
        return _send_file(request, served, fault)

    def _answer_api(self, request: BaseHTTPRequestHandler, repo: str) -> tuple[int, int]:
        if self.api:
            return _send(request, self.api.popleft())
        if repo not in self.repos:
            headers = (("X-Error-Code", "RepoNotFound"), ("X-Error-Message", "Repository not found"))
            return _send(request, Answer(401, headers))
        siblings = [_sibling(name, data) for name, data in self.repos[repo].items()]
        if "blobs" not in parse_qs(urlsplit(request.path).query):
            siblings = [{"rfilename": one["rfilename"]} for one in siblings]
        body = json.dumps({"id": repo, "modelId": repo, "sha": COMMIT, "siblings": siblings}).encode()
        return _send(request, Answer(200, (("Content-Type", "application/json"),), body))


def _sibling(name: str, data: bytes) -> dict[str, Any]:
    lfs = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    large = name.endswith(".gguf")  # what .gitattributes gives to LFS
    return {"rfilename": name, "size": len(data), "blobId": "0" * 40, **({"lfs": lfs} if large else {})}


def _send(request: BaseHTTPRequestHandler, answer: Answer) -> tuple[int, int]:
    request.send_response(answer.status)
    for name, value in answer.headers:
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(answer.body)))
    request.send_header("Connection", "close")
    request.end_headers()
    request.wfile.write(answer.body)
    return answer.status, len(answer.body)


def _send_file(request: BaseHTTPRequestHandler, served: Served, fault: Drop | None) -> tuple[int, int]:
    asked = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
    if_range = request.headers.get("If-Range")
    ranged = asked and served.ranges and (if_range in (None, served.etag) or not served.honour_if_range)
    start = int(asked[1]) if asked and ranged else 0
    end = min(int(asked[2]) + 1, len(served.data)) if asked and ranged and asked[2] else len(served.data)
    if start >= len(served.data) and ranged:
        return _send(request, Answer(416, (("Content-Range", f"bytes */{len(served.data)}"),)))
    data = served.data[start:end]
    request.send_response(206 if ranged else 200)
    if ranged:
        request.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(served.data)}")
    if served.etag:
        request.send_header("ETag", served.etag)
    request.send_header("Content-Type", served.content_type)
    if served.chunked:
        request.send_header("Transfer-Encoding", "chunked")
    else:
        request.send_header("Content-Length", str(len(data) if served.length is None else served.length - start))
    request.send_header("Connection", "close")
    request.end_headers()
    sent = 0
    for at in range(0, len(data), PIECE):
        piece = data[at : at + PIECE]
        if fault is not None:
            piece = piece[: max(0, fault.after - at)]
        if served.pause_s:
            time.sleep(served.pause_s)
        request.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if served.chunked and piece else piece)
        sent += len(piece)
    if fault is not None:
        request.wfile.flush()
        fault.then()
    elif served.chunked:
        request.wfile.write(b"0\r\n\r\n")
    return (206 if ranged else 200), sent
