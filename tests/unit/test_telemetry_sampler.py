"""The sampler with real processes and sources that misbehave: it replaces them, tells why, and tries them again."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orin_deploy.errors import CommandFailed
from orin_deploy.host import Host
from orin_deploy.host.stream import Lines
from orin_deploy.observe.telemetry.sample import Sample
from orin_deploy.observe.telemetry.sampler import NO_SOURCE, Sampler
from orin_deploy.observe.telemetry.source import Source, SourceFailed
from orin_deploy.observe.telemetry.sysfs import Sysfs
from orin_deploy.observe.telemetry.tegrastats import Tegrastats

LINE = "RAM 1483/7620MB (lfb 105x4MB) CPU [7%@729,off] GR3D_FREQ 62%@612 tj@50C VDD_IN 4541mW/4541mW"
Tool = Callable[[str], Host]


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    """Makes a host on whose PATH tegrastats is a shell script that notes its own number in `pid`."""

    def make(body: str) -> Host:
        path = tmp_path / "bin/tegrastats"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{body}\n")
        path.chmod(0o755)
        return Host("/", {**os.environ, "PATH": f"{path.parent}:{os.environ['PATH']}"})

    return make


def pair(host: Host, interval_s: float = 0.2, retry_s: float = 30.0) -> Sampler:
    makers = (lambda: Tegrastats(host, interval_s), lambda: Sysfs(host))
    return Sampler(host, interval_s, makers, retry_s)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_for(what: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def test_tegrastats_is_followed_and_ended(tool: Tool, tmp_path: Path) -> None:
    host = tool(f'echo "$@" > {tmp_path}/words\nwhile :; do echo "{LINE}"; sleep 0.05; done')
    with pair(host) as sampler:
        found = [sampler.sample() for _ in range(3)]
        pid = int((tmp_path / "pid").read_text())
        assert [each.source for each in found] == ["tegrastats"] * 3
        assert found[0].cpu_percent == (7, None)
        assert found[0].power_total_mw == 4541
        assert abs(found[0].time - time.time()) < 5
        assert not gone(pid)
    assert wait_for(lambda: gone(pid))
    assert (tmp_path / "words").read_text().split() == ["--interval", "200"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("exec sleep 60", "quiet"),
        (f'echo "{LINE}"; exit 0', "ended"),
        (f'echo "{LINE}"; sleep 0.2; while :; do echo "a new layout"; sleep 0.05; done', "unknown kind"),
        ("exit 1", "ended"),
        ("trap '' TERM; while :; do sleep 1; done", "quiet"),
        ("exec cat /dev/zero", "quiet"),
        ("exec yes", "unknown kind"),
    ],
    ids=["hangs", "dies", "changes", "fails", "will not die", "endless line", "floods"],
)
def test_a_tool_that_fails_is_replaced_and_what_follows_goes_on(
    tool: Tool, tmp_path: Path, body: str, why: str
) -> None:
    host = tool(body)
    with pair(host) as sampler:
        began = time.monotonic()
        samples: list[Sample] = []
        while not samples or samples[-1].source != "sysfs":
            assert time.monotonic() - began < 8
            samples.append(sampler.sample())
        assert why in sampler.refused["tegrastats"]
        assert sampler.sample().source == "sysfs"
        assert samples[-1].cpu_percent is not None
        pid = int((tmp_path / "pid").read_text())
    assert wait_for(lambda: gone(pid))


def test_one_odd_line_is_forgiven(tool: Tool) -> None:
    host = tool(f'while :; do echo "{LINE}"; sleep 0.1; echo odd; sleep 0.1; done')
    with pair(host, 0.1) as sampler:
        assert {sampler.sample().source for _ in range(6)} == {"tegrastats"}


def test_a_tool_that_comes_back_is_used_again(tool: Tool, tmp_path: Path) -> None:
    host = tool(f'test -e {tmp_path}/well || exit 1\nwhile :; do echo "{LINE}"; sleep 0.05; done')
    with pair(host, 0.1, retry_s=0.3) as sampler:
        assert sampler.sample().source == "sysfs"
        (tmp_path / "well").touch()
        assert wait_for(lambda: sampler.sample().source == "tegrastats")
        assert sampler.refused == {}


def test_a_stopped_tool_is_not_waited_for(tool: Tool, tmp_path: Path) -> None:
    host = tool(f'while :; do echo "{LINE}"; sleep 0.05; done')
    with pair(host, 0.1) as sampler:
        assert sampler.sample().source == "tegrastats"
        os.killpg(int((tmp_path / "pid").read_text()), signal.SIGSTOP)
        began = time.monotonic()
        assert wait_for(lambda: sampler.sample().source == "sysfs")
        assert time.monotonic() - began < 5


class Odd:
    """A source that does what its test says."""

    def __init__(self, name: str, opening: Callable[[], object], reading: Callable[[], object]) -> None:
        self.name = name
        self.opening = opening
        self.reading = reading

    def open(self) -> None:
        self.opening()

    def read(self) -> Sample:
        self.reading()
        return Sample(1.0, self.name)

    def close(self) -> None:
        raise RuntimeError("closing fails too")


def nothing() -> None:
    pass


def raises(error: Exception) -> Callable[[], object]:
    def run() -> object:
        raise error

    return run


@pytest.mark.parametrize("error", [SourceFailed("no"), KeyError("gpu"), ValueError(""), OSError(5, "x")])
@pytest.mark.parametrize("when", ["open", "read"])
def test_whatever_a_source_raises_the_next_one_answers(error: Exception, when: str) -> None:
    bad = (raises(error), nothing) if when == "open" else (nothing, raises(error))
    makers: tuple[Callable[[], Source], ...] = (lambda: Odd("bad", *bad), lambda: Odd("good", nothing, nothing))
    with Sampler(Host(), 0.1, makers) as sampler:
        assert sampler.sample().source == "good"
        assert set(sampler.refused) == {"bad"}


def test_a_source_that_hangs_for_ever_costs_one_thread_and_one_wait(hung: Callable[[], object]) -> None:
    made: list[Odd] = []

    def make() -> Odd:
        made.append(Odd("hangs", hung, nothing))
        return made[-1]

    with Sampler(Host(), 0.0, (make, lambda: Odd("good", nothing, nothing)), retry_s=0.05) as sampler:
        assert sampler.sample().source == "good"
        count = len(made)
        began = time.monotonic()
        for _ in range(20):
            assert sampler.sample().source == "good"
            time.sleep(0.02)
        assert time.monotonic() - began < 2, "it is tried again without being waited for"
        assert len(made) == count, "and not while the first try still hangs"


@pytest.fixture
def hung() -> Iterator[Callable[[], object]]:
    """Something that never comes, until the test is over."""
    read, write = os.pipe()
    yield lambda: os.read(read, 1)
    os.write(write, b"x")
    os.close(write)


def test_without_any_source_the_sample_says_so() -> None:
    with Sampler(Host(), 0.1, (lambda: Odd("bad", raises(SourceFailed("broken")), nothing),)) as sampler:
        for _ in range(2):
            found = sampler.sample()
            assert found.source == NO_SOURCE
            assert "cpu_percent" in found.gaps
        assert sampler.refused == {"bad": "broken"}


def test_a_program_that_is_not_there_cannot_be_followed(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="cannot be started"):
        Host(tmp_path, {}).lines("no-such-program")


def test_what_was_printed_long_ago_is_not_taken_for_new() -> None:
    """More than a pipe holds: the command is not held up, and the line is its last."""
    lines = Lines(("/bin/sh", "-c", "seq 1 100000; sleep 60"), os.environ)
    try:
        time.sleep(1)
        assert lines.newest(5) == "100000"
    finally:
        lines.close()


def test_lines_give_the_newest_and_know_the_end() -> None:
    lines = Lines(("/bin/sh", "-c", "printf 'one\\ntwo\\nthr'; sleep 0.5; printf 'ee\\n'"), os.environ)
    try:
        assert lines.newest(5) == "two"
        assert lines.newest(0) is None
        assert not lines.ended
        assert lines.newest(5) == "three"
        assert lines.newest(5) is None
        assert lines.ended
    finally:
        lines.close()
        lines.close()
