"""HTTP as fetching needs it: one GET at a time, patience, and every failure as one clear line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from orin_deploy.errors import OrinError, UsageError
from orin_deploy.host.fetch_partial import RESUMES

if TYPE_CHECKING:
    import urllib3

    from orin_deploy.host import Host, Progress

T = TypeVar("T")
REDIRECTS = 10


@dataclass(frozen=True)
class Patience:
    """When to give up: after `tries` in a row without a new byte, or when asked to wait longer than `longest_wait_s`.

    Waits double from `first_wait_s`; a Retry-After takes their place.
    """

    tries: int = 6
    first_wait_s: float = 1
    longest_wait_s: float = 120
    connect_s: float = 10
    read_s: float = 60


DOWNLOAD = Patience()
QUESTION = Patience(tries=3, longest_wait_s=20, read_s=20)


@dataclass(frozen=True)
class Remote:
    """A file behind a URL. `name` is what messages call it, `login` what to do when it wants a login."""

    url: str
    name: str
    login: str = (
        "for Hugging Face write hf:OWNER/REPO/FILE and set HF_TOKEN; elsewhere fetch it by hand, then file:PATH"
    )
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    size: int | None = None
    sha256: str | None = None

    @property
    def site(self) -> str:
        return urlsplit(self.url).netloc


class Trouble(OrinError):
    """Something that may be over at the next try, `wait_s` from now where the server said so."""

    def __init__(self, message: str, hint: str, wait_s: float | None = None) -> None:
        super().__init__(message, hint)
        self.wait_s = wait_s


def persist(
    host: Host, patience: Patience, once: Callable[[], T], progress: Progress, position: Callable[[], int] = lambda: 0
) -> T:
    """Do `once` until it succeeds, raises something other than Trouble, or brings nothing new for too long."""
    failures, furthest = 0, position()
    while True:
        try:
            return once()
        except Trouble as trouble:
            if position() > furthest:
                failures, furthest = 0, position()
            failures += 1
            wait = patience.first_wait_s * 2 ** (failures - 1) if trouble.wait_s is None else trouble.wait_s
            if failures >= patience.tries or wait > patience.longest_wait_s:
                raise
            progress(None, f"{trouble.message}; trying again in {wait:.0f} s ({failures} of {patience.tries - 1})")
            host.sleep(wait)


@contextmanager
def pool(host: Host, remote: Remote, patience: Patience) -> Iterator[urllib3.PoolManager]:
    """Connections with this patience, through the proxy that the environment names."""
    import urllib3

    parts = urlsplit(remote.url)
    timeout = urllib3.Timeout(connect=patience.connect_s, read=patience.read_s)
    # Only redirects are urllib3's to follow: it drops the login when the host changes.
    retries = urllib3.Retry(
        total=None, connect=0, read=0, status=0, other=0, redirect=REDIRECTS, respect_retry_after_header=False
    )
    proxy = _proxy(host.environ, parts.scheme, parts.hostname or "")
    direct = urllib3.PoolManager(timeout=timeout, retries=retries)
    with urllib3.ProxyManager(proxy, timeout=timeout, retries=retries) if proxy else direct as connections:
        yield connections


def _proxy(environ: Mapping[str, str], scheme: str, name: str) -> str | None:
    without = (environ.get("no_proxy") or environ.get("NO_PROXY") or "").replace(" ", "").split(",")
    if any(one == "*" or f".{name}".endswith(f".{one.lstrip('.')}") for one in without if one):
        return None
    proxy = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


@contextmanager
def get(
    connections: urllib3.PoolManager, remote: Remote, headers: Mapping[str, str]
) -> Iterator[urllib3.BaseHTTPResponse]:
    """One GET, answered with 200, 206 or 416; every other answer and every broken connection is an OrinError."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "orin-deploy", **remote.headers, **headers}
    with _translated(remote):
        response = connections.request("GET", remote.url, headers=headers, preload_content=False, decode_content=False)
    try:
        if response.status not in (200, 206, 416):
            raise _refusal(response, remote)
        yield response
    finally:
        response.close()


def read(response: urllib3.BaseHTTPResponse, remote: Remote, count: int) -> bytes:
    """The next `count` bytes of an answer, fewer at its end."""
    with _translated(remote):
        return response.read(count, decode_content=False)


@contextmanager
def _translated(remote: Remote) -> Iterator[None]:
    from urllib3 import exceptions

    again = f"check the network, then {RESUMES}"
    try:
        yield
    except exceptions.HTTPError as error:
        reason = error.reason if isinstance(error, exceptions.MaxRetryError) and error.reason else error
        match reason:
            case exceptions.LocationValueError():
                raise UsageError(f"{remote.url} is not an address: {reason}", "check the reference") from error
            case exceptions.SSLError() if "CERTIFICATE_VERIFY_FAILED" in str(reason):
                hint = "check the clock (date) and the certificates (apt install ca-certificates, SSL_CERT_FILE)"
                raise OrinError(f"the certificate of {remote.site} cannot be trusted: {reason}", hint) from error
            case exceptions.ResponseError():
                raise OrinError(f"{remote.site} redirects {remote.name} in a loop", "check the reference") from error
            case exceptions.NameResolutionError():
                raise Trouble(f"no network: the name {remote.site} cannot be looked up", again) from error
            case exceptions.ProxyError():
                raise Trouble(f"the proxy on the way to {remote.site} does not answer", again) from error
            case exceptions.NewConnectionError() | exceptions.ConnectTimeoutError():
                raise Trouble(f"no network: {remote.site} cannot be reached", again) from error
        raise Trouble(broke(remote), again) from error


def broke(remote: Remote) -> str:
    """What to say of a connection that ended too early."""
    return f"the connection to {remote.site} broke"


def _refusal(response: urllib3.BaseHTTPResponse, remote: Remote) -> OrinError:
    status = response.status
    if status in (401, 403):
        said = response.headers.get("X-Error-Message")
        return OrinError(
            f"{remote.site} refuses {remote.name} (HTTP {status})" + (f": {said}" if said else ""), remote.login
        )
    if status in (404, 410):
        return UsageError(f"{remote.site} has no {remote.name} (HTTP {status})", "check the spelling of the reference")
    if status == 429 or status >= 500:
        after = response.headers.get("Retry-After", "")
        wait = float(after) if after.isdigit() else None
        asks = f" and asks to wait {after} s" if wait is not None else ""
        return Trouble(f"{remote.site} answers HTTP {status}{asks}", f"later, {RESUMES}", wait)
    return OrinError(f"{remote.site} answers HTTP {status} for {remote.name}", "check the reference")


def content_range(response: urllib3.BaseHTTPResponse) -> tuple[int | None, int | None]:
    """First byte and total size from the Content-Range of a 206 or 416 answer."""
    found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", response.headers.get("Content-Range", ""))
    if not found:
        return None, None
    return (int(found[1]) if found[1] else None), (int(found[2]) if found[2] != "*" else None)
