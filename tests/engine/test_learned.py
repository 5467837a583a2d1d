"""What starts teach later plans, through the public command and with the real engine."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.engine.command import Command, Result, command, free_port

pytestmark = pytest.mark.engine

MIB = 1024 * 1024


@pytest.fixture
def orin(tmp_path: Path, engine_bin: Path, smollm2: Path) -> Iterator[Command]:
    with command(tmp_path / "home", engine_bin, smollm2) as each:
        yield each


@contextmanager
def little_memory(size: int) -> Iterator[None]:
    """Processes that start meanwhile cannot have more; the plan sees nothing of it, as it sees nothing of NvMap."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def learned(result: Result) -> list[dict[str, Any]]:
    return [row for row in result.json["budget"]["rows"] if row["name"] == "learned"]


def test_starts_as_planned_leave_no_row_and_a_failure_leaves_one_that_shrinks(orin: Command) -> None:
    small = ("--set", "ctx_size=1024")
    done = orin.up(*small)
    assert done.code == 0, done.err
    assert (orin.home / "learned.json").is_file()
    assert learned(orin.plan("--json", *small)) == [], "the real engine takes what is planned"

    # 2,880 MiB of KV cache.
    values = (f"port={free_port()}", "ctx_size=65536", "parallel=8", "cache_type_k=f32", "cache_type_v=f32")
    large = ("--name", "large", *(word for value in values for word in ("--set", value)))
    with little_memory(2048 * MIB):
        failed = orin.up(*large)
    assert failed.code == 1
    assert "from now on plans leave 256 MiB more (row learned)" in failed.err
    (row,) = learned(orin.plan("--json", *large))
    assert row["bytes"] == 256 * MIB
    assert "record 1 of large" in row["source"]
    assert orin.up(*small).out.startswith("Nothing to do"), "a server that runs was restarted for it"

    assert orin.up("--set", "ctx_size=2048").code == 0
    (row,) = learned(orin.plan("--json", *large))
    assert row["bytes"] == 128 * MIB
