"""Fixtures of the virtual board's own tests."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.virtual import VirtualJetson, build

Ask = Callable[..., "subprocess.CompletedProcess[str]"]
Make = Callable[..., VirtualJetson]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes boards, and ends what runs on them."""
    boards: list[VirtualJetson] = []

    def one(board: str = "nano8", l4t: str = "36.4.3", live: bool = False) -> VirtualJetson:
        boards.append(build(tmp_path / f"{board}-{l4t}-{len(boards)}", board, l4t, live))
        return boards[-1]

    yield one
    for board in boards:
        board.shut_down()


def ask(board: VirtualJetson, *words: str, stdin: str = "", user: str = "root") -> subprocess.CompletedProcess[str]:
    """Run a program of the board; without `stdin` its standard input is at its end."""
    return subprocess.run(
        [str(board.bin / words[0]), *words[1:]], env=board.environ(user=user), input=stdin, text=True,
        capture_output=True, timeout=60,
    )  # fmt: skip


def line(board: VirtualJetson, user: str = "root") -> str:
    """The first line that tegrastats prints."""
    process = subprocess.Popen(
        [str(board.bin / "tegrastats"), "--interval", "50"], env=board.environ(user=user), text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout:
        first = process.stdout.readline().rstrip("\n")
    process.kill()
    process.wait()
    return first
