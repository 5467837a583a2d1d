"""Talking to the server we started: small requests over loopback, and a stream followed event by event."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Reply:
    """An HTTP answer: status and body."""

    status: int
    body: bytes

    def json(self) -> Any:
        """The body as JSON, or None when it is something else."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


def request(
    method: str, url: str, payload: Any = None, headers: Mapping[str, str] | None = None, timeout_s: float = 10
) -> Reply | None:
    """One request; None when nobody answers (refused, reset, timed out)."""
    connection, path = _open(url, timeout_s)
    try:
        connection.request(method, path, *_content(payload, headers))
        response = connection.getresponse()
        return Reply(response.status, response.read())
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def events(url: str, payload: Any, headers: Mapping[str, str] | None = None, timeout_s: float = 120) -> Iterator[Any]:
    """The JSON documents of a server-sent event stream, each as it arrives.

    Raises OSError or http.client.HTTPException when the connection breaks, ValueError when it is no stream.
    """
    connection, path = _open(url, timeout_s)
    try:
        connection.request("POST", path, *_content(payload, headers))
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"HTTP {response.status}: {response.read(2000).decode('utf-8', 'replace')}")
        for line in response:
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                yield json.loads(line[6:])
    finally:
        connection.close()


def _open(url: str, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
    parts = urlsplit(url)
    return http.client.HTTPConnection(parts.hostname or "127.0.0.1", parts.port, timeout=timeout_s), (
        parts.path or "/"
    ) + (f"?{parts.query}" if parts.query else "")


def _content(payload: Any, headers: Mapping[str, str] | None) -> tuple[bytes | None, dict[str, str]]:
    body = None if payload is None else json.dumps(payload).encode()
    return body, {"Content-Type": "application/json", **(headers or {})}
