"""`fit`, the refusal and planned against taken, through the public command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.command import Command, command
from tests.faulty_server import FaultyServer
from tests.ggufs import Shape, Typed, header, write

pytestmark = pytest.mark.engine


@pytest.fixture
def orin(tmp_path: Path, engine_bin: Path, smollm2: Path) -> Iterator[Command]:
    with command(tmp_path / "home", engine_bin, smollm2) as each:
        yield each


def typed(line: str, *changes: tuple[str, str]) -> tuple[str, ...]:
    """The words of a command that we offer, another verb in place of its own."""
    words = shlex.split(line)
    assert words[0] == "orin-deploy"
    return tuple(dict(changes).get(word, word) for word in words[1:])


def total(plan: Any) -> int:
    size: int = plan["budget"]["total_bytes"]
    return size


def test_what_is_recommended_is_what_plan_plans(orin: Command) -> None:
    done = orin("fit", str(orin.model), "--profile", "agx32", "--json")
    assert done.code == 0, done.err
    table = done.json
    assert table["device"]["assumed"] == "profile agx32"
    assert table["fits"]
    best = table["recommended"]
    planned = orin(*typed(best["command"], ("up", "plan")), "--json")
    assert planned.code == 0, planned.err
    assert total(planned.json) == best["total_bytes"]
    for row in table["rows"][:: len(table["rows"]) // 4]:
        words = (f"ctx_size={row['ctx_size']}", f"parallel={row['slots']}", f"cache_type_k={row['cache_type_k']}",
                 f"cache_type_v={row['cache_type_v']}")  # fmt: skip
        sets = [word for each in words for word in ("--set", each)]
        again = orin("plan", "--model", str(orin.model), "--profile", "agx32", *sets, "--json")
        assert total(again.json) == row["total_bytes"]


def test_the_table_as_people_see_it(orin: Command) -> None:
    done = orin("fit", str(orin.model), "--profile", "agx32")
    assert done.code == 0
    lines = done.out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("MiB by context"))
    assert all(len(line) <= 80 for line in lines[first : first + 8])
    assert [line.split()[0] for line in lines[first + 2 : first + 7]] == ["context", "2048", "4096", "8192", "largest"]
    assert "orin-deploy up --profile agx32 --model" in lines[-1]


def test_a_model_that_is_not_here_and_one_beyond_the_board(orin: Command) -> None:
    done = orin("fit", "--profile", "agx64", "minicpm5-2b", "--json")
    assert done.code == 0, done.err
    assert done.json["known_from"] == "catalogue"
    assert list(orin.home.rglob("*.gguf")) == []
    done = orin("fit", "--profile", "nano4", "minicpm5-2b", "--set", "cache_ram=0", "--set", "memory.limit_mib=1000")
    assert done.code == 4
    assert "It does not fit at any context" in done.out


def test_a_remote_header_is_read_by_ranges(orin: Command) -> None:
    shape = Shape(n_layer=12)
    data = shape.header_bytes() + bytes(30_000_000)
    with FaultyServer() as server:
        url = server.serve("/m.gguf", data)
        done = orin("fit", url, "--profile", "agx32", "--json")
        assert done.code == 0, done.err
        assert sum(seen.sent for seen in server.got("/m.gguf")) < 1_000_000
    assert done.json["known_from"] == "header"


def test_a_split_file_counts_all_its_parts(orin: Command, tmp_path: Path) -> None:
    shape = Shape(n_layer=4)
    whole = shape.write(tmp_path / "whole.gguf")
    tensors = list(shape.tensors().items())
    halves = (dict(tensors[:10]), dict(tensors[10:]))
    for number, part in enumerate(halves):
        split = {
            "split.no": Typed("u16", number),
            "split.count": Typed("u16", 2),
            "split.tensors.count": Typed("i32", len(tensors)),
        }
        own = shape.metadata() if number == 0 else {}
        write(tmp_path / f"m-{number + 1:05}-of-00002.gguf", {**own, **split}, part)
    found = [
        orin("fit", str(path), "--profile", "agx32", "--json").json["rows"]
        for path in (whole, tmp_path / "m-00001-of-00002.gguf")
    ]
    assert found[0] == found[1]


def test_the_refusal_offers_commands_that_work(orin: Command) -> None:
    asked = orin.plan("--set", "ctx_size=8192", "--set", "memory.limit_mib=450", "--set", "memory.reserve_mib=10",
                      "--set", "cache_ram=300", "--json")  # fmt: skip
    assert asked.code == 4
    error = asked.json["error"]
    assert error["code"] == 4
    assert error["need_bytes"] > error["limit_bytes"] == 450 << 20
    assert [each["cache_type_k"] for each in error["largest"]] == ["f16", "q8_0", "q4_0"]
    assert 1 <= len(error["ways"]) <= 3
    for way in error["ways"]:
        again = orin(*typed(way["command"]), "--json")
        assert again.code == 0, again.err
        assert total(again.json) == way["total_bytes"] <= error["limit_bytes"]
    told = orin(*typed(error["ways"][0]["command"])[:1], *orin.words, "--set", "ctx_size=8192", "--set",
                "memory.limit_mib=400", "--set", "memory.reserve_mib=10", "--set", "cache_ram=300")  # fmt: skip
    assert told.code == 4
    assert "orin-deploy plan" in told.err


BAD = {
    "zero": ("ctx_size=0", 2, "at least 2"),
    "negative": ("ctx_size=-4096", 2, "at least 2"),
    "beyond 32 bits": (f"ctx_size={2**63}", 2, "write at most ctx_size=2147483647"),
    "with a unit": ("ctx_size=4k", 2, "write ctx_size=4096"),
    "with a large unit": ("ctx_size=32K", 2, "write ctx_size=32768"),
    "with a binary unit": ("ctx_size=8Ki", 2, "write ctx_size=8192"),
    "beyond training": ("ctx_size=8193", 4, "--set ctx_size=8192"),
}


@pytest.mark.parametrize(("word", "code", "says"), BAD.values(), ids=BAD.keys())
def test_contexts_that_cannot_be(orin: Command, word: str, code: int, says: str) -> None:
    done = orin.plan("--set", word)
    assert done.code == code
    assert says in done.err


def test_planned_against_taken_row_by_row(orin: Command) -> None:
    up = orin.up("--set", "ctx_size=1024", "--json")
    assert up.code == 0, up.err
    memory = up.json["memory"]
    assert {row["name"] for row in memory["compared"]} == {"weights", "KV cache", "compute", "output"}
    for row in memory["compared"]:
        assert row["planned_bytes"] == pytest.approx(row["taken_bytes"], rel=0.02, abs=4 << 20), row
    assert memory["taken_bytes"] == sum(row["taken_bytes"] for row in memory["compared"])
    assert memory["resident"]["taken_bytes"] > memory["taken_bytes"] / 2
    status = orin("status", "--json").json
    assert status["memory"] == memory
    assert status["resident_bytes"] > 50 << 20
    told = orin("status").out
    assert "Memory planned and taken" in told
    assert all(row["name"] in told for row in memory["compared"])


def test_a_header_that_claims_the_impossible(orin: Command, tmp_path: Path) -> None:
    shape = Shape()
    path = tmp_path / "bad.gguf"
    for key, value in (("block_count", 2**31), ("embedding_length", 2**31), ("attention.head_count_kv", 2**40)):
        metadata = {**shape.metadata(), f"llama.{key}": Typed("u64", value)}
        path.write_bytes(header(metadata, shape.tensors()))
        done = orin("fit", str(path), "--profile", "agx32")
        assert done.code == 4, done.out
        assert "at fault" not in done.err
