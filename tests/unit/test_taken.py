"""Planned against taken: whose a buffer of the server's log is, and what damaged records give."""

from __future__ import annotations

from typing import Any

import pytest

from orin_deploy.deploy import taken
from orin_deploy.deploy.record import plain
from orin_deploy.deploy.taken import Compared
from orin_deploy.intent.budget import Budget
from orin_deploy.intent.engine_rows import Row
from orin_deploy.parts.serverlog import Buffer, memory_rows
from tests.specs import make_spec

# llama-server 0c1e570 with a draft of its own, on the CPU: the lines that tell memory.
LOG = """
0.00.120.673 I load_tensors:   CPU_Mapped model buffer size =    92.10 MiB
0.00.120.674 I load_tensors:   CPU_REPACK model buffer size =     1.00 MiB
0.00.122.007 I llama_context:        CPU  output buffer size =     0.19 MiB
0.00.122.122 I llama_kv_cache:        CPU KV buffer size =    45.00 MiB
0.00.122.123 I llama_kv_cache:        CPU KV buffer size =     5.00 MiB
0.00.143.777 I sched_reserve:        CPU compute buffer size =    15.51 MiB
0.00.250.333 I load_tensors:   CPU_Mapped model buffer size =    10.00 MiB
0.00.250.962 I llama_context:        CPU  output buffer size =     0.19 MiB
0.00.251.030 I llama_memory_recurrent:        CPU RS buffer size =     2.00 MiB
0.00.251.030 I llama_kv_cache:        CPU KV buffer size =     4.00 MiB
0.00.277.928 I sched_reserve:        CPU compute buffer size =     3.00 MiB
""".splitlines()


def sizes(rows: tuple[Compared, ...]) -> dict[str, float]:
    return {row.name: round(row.taken_bytes / 1048576, 2) for row in rows}


def record(buffers: tuple[Buffer, ...], **planned: int) -> dict[str, Any]:
    rows = [{"name": name.replace("_", " "), "bytes": size, "source": ""} for name, size in planned.items()]
    return {
        "spec": {"budget": {"rows": rows}},
        "proof": {"memory": plain(buffers), "resident_bytes": 300 * 1048576},
    }


def test_the_draft_comes_after_the_target() -> None:
    found = sizes(taken.of_record(record(memory_rows(LOG))))
    assert found == {
        "weights": 93.1, "KV cache": 50.0, "compute": 15.51, "output": 0.19, "draft weights": 10.0,
        "draft KV cache": 4.0, "draft recurrent state": 2.0, "draft compute": 3.0, "draft output": 0.19,
    }  # fmt: skip


def test_a_draft_inside_the_target_has_no_weights_of_its_own() -> None:
    lines = [line for line in LOG if "10.00 MiB" not in line]
    assert "draft weights" not in sizes(taken.of_record(record(memory_rows(lines))))
    assert sizes(taken.of_record(record(memory_rows(lines))))["draft KV cache"] == 4.0


@pytest.mark.parametrize(("again", "whose"), [("3.25", "draft compute"), ("16.50", "compute")])
def test_a_compute_buffer_that_is_reserved_again_replaces_the_first(again: str, whose: str) -> None:
    line = f"0.01.000.000 I sched_reserve:        CPU compute buffer size =    {again} MiB"
    before, after = (sizes(taken.of_record(record(memory_rows(lines)))) for lines in (LOG, [*LOG, line]))
    assert after == before | {whose: float(again)}


def test_two_devices_have_two_compute_buffers() -> None:
    buffers = (Buffer("CUDA0", "model", 8), Buffer("CUDA0", "compute", 5), Buffer("CUDA_Host", "compute", 2))
    assert [(row.name, row.taken_bytes) for row in taken.of_record(record(buffers))] == [("weights", 8), ("compute", 7)]


def test_compare_and_record_agree(tmp_path: Any) -> None:
    budget = Budget((Row("weights", 5, ""), Row("compute", 0, ""), Row("reserve", 9, "")), 100, "test")
    spec = make_spec(tmp_path, tmp_path, tmp_path / "m.gguf", 1, budget=budget)
    buffers = memory_rows(LOG)
    compared = taken.compare(spec, buffers)
    assert compared == taken.of_record(record(buffers, weights=5, compute=0, reserve=9))
    assert compared[0] == Compared("weights", 5, round(92.1 * 1048576) + 1048576)


def test_resident_is_compared_on_the_cpu_only() -> None:
    held = record(memory_rows(LOG), weights=100, process=20, reserve=7, prompt_cache=50)
    assert taken.resident(held) == Compared("resident", 120, 300 * 1048576)
    assert taken.resident(record(memory_rows(LOG), weights=100, CUDA_context=5)) is None


@pytest.mark.parametrize("text", [{}, {"proof": None}, {"proof": {"memory": [{}]}}, {"proof": 3, "spec": 3}])
def test_a_damaged_record_compares_nothing(text: dict[str, Any]) -> None:
    assert taken.of_record(text) == ()
    assert taken.resident(text) is None
