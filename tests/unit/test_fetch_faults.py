"""What the machine does to a fetch: killed, disk full, no permission, somebody else at it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orin_deploy.actions import Fetch
from orin_deploy.errors import OrinError, Refused
from orin_deploy.host.fetch_partial import BLOCK, SPACE_MARGIN, UNSEEN, Partial
from tests.faulty_server import FaultyServer, QuickHost

DATA = b"GGUF" + random.Random(5).randbytes(1_500_000)
CHUNK = 64 * 1024
CHILD = """
import os, resource, sys
import urllib3
from pathlib import Path
from orin_deploy.actions import Fetch
from orin_deploy.errors import OrinError
from tests.faulty_server import QuickHost
url, target, limit, user = sys.argv[1:]
if int(limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
if int(user):
    os.setuid(int(user))
try:
    QuickHost(Path(target).parent).do(Fetch(url, target))
except OrinError as error:
    print(type(error).__name__, error.message, error.hint, sep="|")
"""


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as running:
        yield running


def child(url: str, target: Path, limit: int = 0, user: int = 0) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, url, str(target), str(limit), str(user)],
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_a_killed_fetch_goes_on_and_fetches_nothing_twice(server: FaultyServer, tmp_path: Path) -> None:
    url = server.serve("/m.gguf", DATA, pause_s=0.01)
    target, part = tmp_path / "m.gguf", tmp_path / ".m.gguf.part"
    process = child(url, target)
    deadline = time.monotonic() + 20
    while (not part.exists() or part.stat().st_size < 4 * CHUNK) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    had = part.stat().st_size
    assert 4 * CHUNK <= had < len(DATA)
    assert not target.exists()
    server.files["/m.gguf"].pause_s = 0
    QuickHost(tmp_path).do(Fetch(url, str(target)))
    assert target.read_bytes() == DATA
    again = [seen for seen in server.got("/m.gguf") if seen.headers.get("range") == f"bytes={had}-"]
    assert [seen.sent for seen in again] == [len(DATA) - had]
    assert not part.exists()


def test_a_disk_that_fills_up_says_so_and_keeps_what_came(server: FaultyServer, tmp_path: Path) -> None:
    """A limit on the size of a file, which the kernel enforces at the same place as a full disk."""
    url = server.serve("/m.gguf", DATA)
    target = tmp_path / "m.gguf"
    said, _ = child(url, target, limit=500_000).communicate()
    assert "no space left" in said
    assert str(tmp_path) in said
    assert "ORIN_DEPLOY_HOME" in said
    assert not target.exists()
    assert (tmp_path / ".m.gguf.part").stat().st_size == 500_000
    QuickHost(tmp_path).do(Fetch(url, str(target)))
    assert target.read_bytes() == DATA
    assert server.seen[-1].sent == len(DATA) - 500_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"no mount here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.root
def test_a_full_disk_is_refused_before_the_first_byte(server: FaultyServer, small_disk: Path) -> None:
    with pytest.raises(Refused, match=r"needs 1.* MB and .* free in .*disk"):
        QuickHost(small_disk).do(Fetch(server.serve("/m.gguf", DATA), str(small_disk / "m.gguf"), len(DATA)))
    assert server.seen == []
    assert list(small_disk.iterdir()) == []


@pytest.mark.root
def test_no_byte_is_written_to_a_full_disk_when_no_one_knows_the_size(server: FaultyServer, small_disk: Path) -> None:
    with pytest.raises(Refused, match=r"are free in .*disk"):
        QuickHost(small_disk).do(Fetch(server.serve("/m.gguf", DATA, chunked=True), str(small_disk / "m.gguf")))
    assert list(small_disk.iterdir()) == []


def test_a_folder_that_may_not_be_written_is_one_clear_line(server: FaultyServer, tmp_path: Path) -> None:
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    for parent in folder.parents[:3]:
        parent.chmod(0o755)
    nobody = 65534 if os.geteuid() == 0 else 0  # root may write anywhere
    said, _ = child(server.serve("/m.gguf", DATA), folder / "m.gguf", user=nobody).communicate()
    assert said.startswith(f"OrinError|cannot write to {folder}: permission denied|")
    assert server.seen == []


def test_two_fetches_of_one_file_keep_apart(server: FaultyServer, tmp_path: Path) -> None:
    url = server.serve("/m.gguf", DATA)
    host, target = QuickHost(tmp_path), tmp_path / "m.gguf"
    with Partial(host, target, url) as first:
        first.expect(len(DATA), '"v1"')
        first.write(DATA[:CHUNK])
        with pytest.raises(OrinError, match=r"another process is fetching m\.gguf"):
            host.do(Fetch(url, str(target)))
    host.do(Fetch(url, str(target)))
    assert target.read_bytes() == DATA
    assert [seen.sent for seen in server.seen] == [len(DATA) - CHUNK]


class ShrinkingHost(QuickHost):
    """A machine on which something else takes the space while a file comes."""

    def free_bytes(self, path: str | Path) -> int | None:
        partial = Path(path).with_name(f".{Path(path).name}.part")
        return 10 * SPACE_MARGIN if partial.stat().st_size < 2 * UNSEEN - BLOCK else SPACE_MARGIN


def test_a_file_of_unknown_size_leaves_the_margin_free(server: FaultyServer, tmp_path: Path) -> None:
    url = server.serve("/m.gguf", DATA + bytes(4 * UNSEEN), chunked=True)
    with pytest.raises(Refused, match="are free"):
        ShrinkingHost(tmp_path).do(Fetch(url, str(tmp_path / "m.gguf")))
    assert (tmp_path / ".m.gguf.part").stat().st_size <= 2 * UNSEEN


@pytest.mark.parametrize("note", ["", "{}", "[]", "null", '{"source": 1}', "\0\0\0"])
def test_a_damaged_note_means_starting_over(server: FaultyServer, tmp_path: Path, note: str) -> None:
    (tmp_path / ".m.gguf.part").write_bytes(b"not the same file at all")
    (tmp_path / ".m.gguf.part.json").write_text(note)
    QuickHost(tmp_path).do(Fetch(server.serve("/m.gguf", DATA), str(tmp_path / "m.gguf")))
    assert (tmp_path / "m.gguf").read_bytes() == DATA
