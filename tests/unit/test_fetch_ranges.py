"""Reading a model's header where it lies, before the download."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orin_deploy.errors import OrinError, UsageError
from orin_deploy.host import fetch as fetching
from tests.faulty_server import Answer, Drop, FaultyServer, QuickHost

DATA = b"GGUF" + random.Random(4).randbytes(200_000)


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as running:
        yield running


@pytest.fixture
def host(tmp_path: Path) -> QuickHost:
    return QuickHost(tmp_path)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    offset=st.integers(0, 250_000),
    length=st.integers(0, 250_000),
    ranges=st.booleans(),
    size=st.sampled_from([0, 1, 1000, 65_536, 65_537, 200_004]),
)
def test_a_read_is_the_slice_it_names(
    server: FaultyServer, host: QuickHost, offset: int, length: int, ranges: bool, size: int
) -> None:
    data = DATA[:size]
    remote = fetching.open_ranges(host, server.serve("/m.gguf", data, ranges=ranges))
    assert remote.read(offset, length) == data[offset : offset + length]
    assert remote.size in (size, None if size == 0 else size)


def test_no_more_than_what_is_read_is_sent(server: FaultyServer, host: QuickHost) -> None:
    url = server.serve("/once.gguf", DATA)
    remote = fetching.open_ranges(host, url)
    remote.read(0, 24)
    remote.read(24, 1000)
    remote.read(100_000, 5000)
    assert [seen.sent for seen in server.got("/once.gguf")] == [65_536, 5000]


def test_a_read_survives_a_bad_moment(server: FaultyServer, host: QuickHost) -> None:
    url = server.serve("/busy.gguf", DATA, faults=deque([Answer(503), Drop(10)]))
    assert fetching.open_ranges(host, url).read(0, 100) == DATA[:100]
    assert host.waits == [1, 2]


def test_a_file_that_changes_between_two_reads_is_an_error(server: FaultyServer, host: QuickHost) -> None:
    remote = fetching.open_ranges(host, server.serve("/changing.gguf", DATA))
    server.files["/changing.gguf"].etag = '"v2"'
    with pytest.raises(OrinError, match="changed while"):
        remote.read(100_000, 100)


def test_what_is_not_there_is_a_usage_error(server: FaultyServer, host: QuickHost) -> None:
    with pytest.raises(UsageError, match=r"absent\.gguf"):
        fetching.open_ranges(host, f"{server.url}/absent.gguf")
    with pytest.raises(UsageError, match="not on the network"):
        fetching.open_ranges(host, "file:/x.gguf")


def test_a_hub_file_s_size_is_known_and_its_bytes_are_readable(tmp_path: Path, server: FaultyServer) -> None:
    server.serve_repo("owner/r", {"m.gguf": DATA})
    remote = fetching.open_ranges(QuickHost(tmp_path, HF_ENDPOINT=server.url), "hf:owner/r/m.gguf")
    assert remote.size == len(DATA)
    assert remote.read(150_000, 10) == DATA[150_000:150_010]
