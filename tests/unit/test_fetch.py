"""Fetching over HTTP from a server that misbehaves: whatever it does, the file is whole and right or there is none."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orin_deploy.actions import Fetch
from orin_deploy.errors import Exit, OrinError, Refused, UsageError
from orin_deploy.host import fetch as fetching
from tests.faulty_server import Answer, Drop, FaultyServer, QuickHost

CHUNK = 64 * 1024
DATA = b"GGUF" + random.Random(1).randbytes(400_000)
OTHER = b"GGUF" + random.Random(2).randbytes(400_000)


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as running:
        yield running


@pytest.fixture
def host(tmp_path: Path) -> QuickHost:
    return QuickHost(tmp_path / "home")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "models" / "m.gguf"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def only(target: Path) -> list[str]:
    """What lies in the folder."""
    return sorted(path.name for path in target.parent.iterdir()) if target.parent.exists() else []


def test_a_file_arrives_whole_with_progress_and_its_hash_noted(
    server: FaultyServer, host: QuickHost, target: Path
) -> None:
    said: list[tuple[float | None, str]] = []
    host.do(Fetch(server.serve("/m.gguf", DATA), str(target), len(DATA), sha256(DATA)), lambda *one: said.append(one))
    assert target.read_bytes() == DATA
    assert only(target) == ["m.gguf", "m.gguf.verified.json"]
    assert json.loads((target.parent / "m.gguf.verified.json").read_text())["sha256"] == sha256(DATA)
    assert said[-1][0] == 1.0


def test_the_service_s_own_user_may_read_it_whatever_the_umask(
    server: FaultyServer, host: QuickHost, target: Path
) -> None:
    before = os.umask(0o077)
    try:
        host.do(Fetch(server.serve("/m.gguf", DATA), str(target)))
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o644


def test_a_file_that_is_there_and_fits_is_kept_without_a_request(
    server: FaultyServer, host: QuickHost, target: Path
) -> None:
    action = Fetch(server.serve("/m.gguf", DATA), str(target), len(DATA), sha256(DATA))
    host.do(action)
    host.do(action)
    assert len(server.seen) == 1


def test_a_file_with_the_wrong_hash_under_the_final_name_is_replaced(
    server: FaultyServer, host: QuickHost, target: Path
) -> None:
    target.parent.mkdir()
    target.write_bytes(OTHER)
    host.do(Fetch(server.serve("/m.gguf", DATA), str(target), len(DATA), sha256(DATA)))
    assert target.read_bytes() == DATA


def test_dropped_connections_go_on_where_they_broke(server: FaultyServer, host: QuickHost, target: Path) -> None:
    url = server.serve("/m.gguf", DATA, faults=deque([Drop(2 * CHUNK), Drop(CHUNK), Drop(0)]))
    host.do(Fetch(url, str(target)))
    assert target.read_bytes() == DATA
    assert [seen.headers.get("range") for seen in server.seen] == [
        None,
        f"bytes={2 * CHUNK}-",
        f"bytes={3 * CHUNK}-",
        f"bytes={3 * CHUNK}-",
    ]
    assert host.waits == [1, 1, 2], "waits double only while nothing new comes"


def test_a_later_run_goes_on_from_what_an_earlier_one_left(server: FaultyServer, host: QuickHost, target: Path) -> None:
    url = server.serve("/m.gguf", DATA, faults=deque([Drop(3 * CHUNK)]), always=Drop(0))
    with pytest.raises(OrinError, match="broke") as caught:
        host.do(Fetch(url, str(target)))
    assert "same command" in (caught.value.hint or "")
    assert not target.exists()
    server.files["/m.gguf"].always = None
    server.seen.clear()
    host.do(Fetch(url, str(target)))
    assert target.read_bytes() == DATA
    assert [seen.sent for seen in server.seen] == [len(DATA) - 3 * CHUNK]


def test_a_server_that_ignores_range_starts_over(server: FaultyServer, host: QuickHost, target: Path) -> None:
    url = server.serve("/m.gguf", DATA, ranges=False, faults=deque([Drop(2 * CHUNK)]))
    host.do(Fetch(url, str(target)))
    assert target.read_bytes() == DATA


@pytest.mark.parametrize("etags", [('"v1"', '"v2"'), ('W/"v1"', 'W/"v2"'), (None, None)])
@pytest.mark.parametrize("honour_if_range", [True, False])
def test_a_file_replaced_between_two_requests_is_never_a_mix(
    server: FaultyServer, host: QuickHost, target: Path, etags: tuple[str | None, str | None], honour_if_range: bool
) -> None:
    def replace() -> None:
        server.files["/m.gguf"].data, server.files["/m.gguf"].etag = OTHER, etags[1]

    url = server.serve(
        "/m.gguf", DATA, etag=etags[0], honour_if_range=honour_if_range, faults=deque([Drop(2 * CHUNK, replace)])
    )
    host.do(Fetch(url, str(target)))
    assert target.read_bytes() == OTHER


@pytest.mark.parametrize("status", [500, 502, 503])
def test_server_errors_are_tried_again(server: FaultyServer, host: QuickHost, target: Path, status: int) -> None:
    url = server.serve("/m.gguf", DATA, faults=deque([Answer(status), Answer(status)]))
    host.do(Fetch(url, str(target)))
    assert target.read_bytes() == DATA
    assert host.waits == [1, 2]


def test_retry_after_is_waited_for(server: FaultyServer, host: QuickHost, target: Path) -> None:
    url = server.serve("/m.gguf", DATA, faults=deque([Answer(429, (("Retry-After", "7"),))]))
    host.do(Fetch(url, str(target)))
    assert host.waits == [7]


def test_a_retry_after_of_an_hour_is_an_error_now(server: FaultyServer, host: QuickHost, target: Path) -> None:
    url = server.serve("/m.gguf", DATA, always=Answer(429, (("Retry-After", "3600"),)))
    with pytest.raises(OrinError, match="3600 s"):
        host.do(Fetch(url, str(target)))
    assert host.waits == []
    assert only(target) == []


def test_a_server_that_never_recovers_ends_the_fetch(server: FaultyServer, host: QuickHost, target: Path) -> None:
    url = server.serve("/m.gguf", DATA, always=Answer(500))
    with pytest.raises(OrinError, match="HTTP 500"):
        host.do(Fetch(url, str(target)))
    assert host.waits == [1, 2, 4, 8, 16]


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [(401, OrinError, "HF_TOKEN"), (403, OrinError, "HF_TOKEN"), (404, UsageError, "spelling")],
)
def test_refusals_are_not_tried_again(
    server: FaultyServer, host: QuickHost, target: Path, status: int, kind: type[OrinError], said: str
) -> None:
    url = server.serve("/m.gguf", DATA, always=Answer(status))
    with pytest.raises(kind, match=r"m\.gguf") as caught:
        host.do(Fetch(url, str(target)))
    assert said in (caught.value.hint or "")
    assert caught.value.code == (Exit.USAGE if status == 404 else Exit.FAILED)
    assert len(server.seen) == 1
    assert only(target) == []


def test_redirects_are_followed_and_resume_works_behind_them(
    server: FaultyServer, host: QuickHost, target: Path
) -> None:
    server.serve("/real", DATA, faults=deque([Drop(CHUNK)]))
    url = server.serve("/m.gguf", b"", always=Answer(302, (("Location", "/real"),)))
    host.do(Fetch(url, str(target)))
    assert target.read_bytes() == DATA
    assert server.got("/real")[1].headers["range"] == f"bytes={CHUNK}-"


def test_a_redirect_loop_is_named(server: FaultyServer, host: QuickHost, target: Path) -> None:
    url = server.serve("/m.gguf", b"", always=Answer(302, (("Location", "/m.gguf"),)))
    with pytest.raises(OrinError, match="in a loop"):
        host.do(Fetch(url, str(target)))
    assert len(server.seen) < 20


@pytest.mark.parametrize(("ranges", "said"), [(True, f"promised {len(DATA) + 500} bytes"), (False, "broke")])
def test_a_length_longer_than_the_file_is_found_out(
    server: FaultyServer, host: QuickHost, target: Path, ranges: bool, said: str
) -> None:
    url = server.serve("/m.gguf", DATA, length=len(DATA) + 500, ranges=ranges)
    with pytest.raises(OrinError, match=said):
        host.do(Fetch(url, str(target)))
    assert not target.exists()


def test_a_length_shorter_than_the_file_is_found_out(server: FaultyServer, host: QuickHost, target: Path) -> None:
    url = server.serve("/m.gguf", DATA, length=1000)
    with pytest.raises(OrinError, match=f"1000 bytes at .* instead of {len(DATA)}"):
        host.do(Fetch(url, str(target), len(DATA)))
    assert not target.exists()


def test_a_whole_file_whose_end_was_not_told_is_not_fetched_again(
    server: FaultyServer, host: QuickHost, target: Path
) -> None:
    data = DATA[: 6 * CHUNK]
    url = server.serve("/m.gguf", data, chunked=True, faults=deque([Drop(len(data))]))
    host.do(Fetch(url, str(target)))
    assert target.read_bytes() == data
    assert [(seen.status, seen.sent) for seen in server.seen] == [(200, len(data)), (416, 0)]


def test_a_server_that_does_not_stop_is_stopped(server: FaultyServer, host: QuickHost, target: Path) -> None:
    url = server.serve("/m.gguf", DATA + bytes(50_000_000), chunked=True)
    with pytest.raises(OrinError, match=f"more of m.gguf than its {len(DATA)} bytes"):
        host.do(Fetch(url, str(target), len(DATA)))
    assert only(target) == []


def test_without_a_length_the_hash_decides(server: FaultyServer, host: QuickHost, target: Path) -> None:
    url = server.serve("/m.gguf", DATA, chunked=True, faults=deque([Drop(CHUNK)]))
    host.do(Fetch(url, str(target), None, sha256(DATA)))
    assert target.read_bytes() == DATA


def test_a_wrong_hash_removes_the_file_and_says_both(server: FaultyServer, host: QuickHost, target: Path) -> None:
    with pytest.raises(OrinError) as caught:
        host.do(Fetch(server.serve("/m.gguf", DATA), str(target), None, sha256(OTHER)))
    assert sha256(DATA) in caught.value.message
    assert sha256(OTHER) in caught.value.message
    assert only(target) == []


@pytest.mark.parametrize(
    ("body", "content_type", "said"),
    [
        (b"<!DOCTYPE html><title>Sign in</title>", "text/html; charset=utf-8", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00", "text/plain", "Git LFS pointer"),
        (b"ggjt\3\0\0\0", "application/octet-stream", "ggjt"),
        (b"GG", "application/octet-stream", "not a GGUF"),
        (b"", "application/octet-stream", "empty"),
    ],
)
def test_what_is_no_model_is_named_and_not_kept(
    server: FaultyServer, host: QuickHost, target: Path, body: bytes, content_type: str, said: str
) -> None:
    with pytest.raises(Refused, match=said) as caught:
        host.do(Fetch(server.serve("/m.gguf", body, content_type=content_type), str(target)))
    assert content_type in caught.value.message or len(body) < 4
    assert only(target) == []


def test_a_page_for_another_kind_of_file_is_none_of_our_business(
    server: FaultyServer, host: QuickHost, tmp_path: Path
) -> None:
    host.do(Fetch(server.serve("/x", b"<html>"), str(tmp_path / "x.html")))
    assert (tmp_path / "x.html").read_bytes() == b"<html>"


def test_an_absent_server_is_no_network_and_the_same_command_goes_on(host: QuickHost, target: Path) -> None:
    with FaultyServer() as gone:
        url = f"{gone.url}/m.gguf"
    with pytest.raises(OrinError, match="no network") as caught:
        host.do(Fetch(url, str(target)))
    assert "same command" in (caught.value.hint or "")
    assert caught.value.code == Exit.FAILED


def test_a_name_that_no_one_knows_is_no_network(host: QuickHost, target: Path) -> None:
    with pytest.raises(OrinError, match="no network"):
        host.do(Fetch("https://no-such-host.invalid/m.gguf", str(target)))


def test_a_silent_server_is_given_up(server: FaultyServer, host: QuickHost, target: Path) -> None:
    url = server.serve("/m.gguf", DATA, pause_s=1)
    patience = fetching.Patience(tries=2, read_s=0.1)
    with pytest.raises(OrinError, match="broke"):
        fetching.fetch(host, Fetch(url, str(target)), lambda _, __: None, patience)
    assert host.waits == [1]


def test_the_space_is_checked_before_any_byte_is_asked_for(server: FaultyServer, host: QuickHost, target: Path) -> None:
    url = server.serve("/m.gguf", DATA)
    with pytest.raises(Refused, match=r"needs .* are free in") as caught:
        host.do(Fetch(url, str(target), 10**18))
    assert str(target.parent) in caught.value.message
    assert "ORIN_DEPLOY_HOME" in (caught.value.hint or "")
    assert server.seen == []


def test_the_space_is_checked_when_only_the_server_knows_the_size(
    server: FaultyServer, host: QuickHost, target: Path
) -> None:
    with pytest.raises(Refused, match="are free"):
        host.do(Fetch(server.serve("/m.gguf", DATA, length=10**18), str(target)))
    assert only(target) == []


def test_a_proxy_is_used_but_not_for_the_names_it_is_not_for(
    server: FaultyServer, tmp_path: Path, target: Path
) -> None:
    through = QuickHost(tmp_path / "home", http_proxy=server.url)
    server.serve("/m.gguf", DATA)
    through.do(Fetch("http://models.invalid/m.gguf", str(target)))
    assert target.read_bytes() == DATA
    target.unlink()
    around = QuickHost(tmp_path / "home", http_proxy="http://proxy.invalid:1", no_proxy="localhost, 127.0.0.1")
    around.do(Fetch(f"{server.url}/m.gguf", str(target)))
    assert target.read_bytes() == DATA


@pytest.mark.parametrize(
    "reference", ["m.gguf", "ftp://x/m.gguf", "hf:owner", "modelscope:a/b", "package:", "https://"]
)
def test_what_is_no_reference_is_a_usage_error(host: QuickHost, target: Path, reference: str) -> None:
    with pytest.raises(UsageError):
        host.do(Fetch(reference, str(target)))


def test_a_local_file_is_copied_whole(host: QuickHost, tmp_path: Path, target: Path) -> None:
    source = tmp_path / "source.gguf"
    source.write_bytes(DATA)
    host.do(Fetch(f"file:{source}", str(target), len(DATA), sha256(DATA)))
    assert target.read_bytes() == DATA
    with pytest.raises(UsageError, match="no file"):
        host.do(Fetch(f"file:{tmp_path}/absent.gguf", str(tmp_path / "other.gguf")))


def test_modelscope_is_its_resolve_address(server: FaultyServer, tmp_path: Path, target: Path) -> None:
    host = QuickHost(tmp_path / "home", MODELSCOPE_ENDPOINT=server.url)
    server.serve("/models/o/r/resolve/master/dir/m.gguf", DATA)
    host.do(Fetch("modelscope:o/r/dir/m.gguf", str(target)))
    assert target.read_bytes() == DATA
    (located,) = fetching.locate(host, "modelscope:o/r/dir/m.gguf")
    assert (located.filename, located.size) == ("m.gguf", len(DATA))


faults = st.lists(
    st.one_of(
        st.integers(0, 450_000).map(Drop),
        st.sampled_from([Answer(500), Answer(503), Answer(429, (("Retry-After", "1"),))]),
    ),
    max_size=5,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(faults=faults, ranges=st.booleans(), etag=st.sampled_from(['"v"', 'W/"v"', None]), chunked=st.booleans())
def test_whatever_breaks_for_a_while_the_file_ends_whole(
    server: FaultyServer,
    host: QuickHost,
    target: Path,
    faults: list[Drop | Answer],
    ranges: bool,
    etag: str | None,
    chunked: bool,
) -> None:
    target.unlink(missing_ok=True)
    url = server.serve("/m.gguf", DATA, faults=deque(faults), ranges=ranges, etag=etag, chunked=chunked)
    host.do(Fetch(url, str(target)))
    assert target.read_bytes() == DATA
