"""Residual: what a start took beyond its plan is kept, counted, grown by a failure and given back by good starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.deploy import residual, taken
from orin_deploy.deploy.record import plain
from orin_deploy.deploy.residual import Lack, Learned, Watch, after_failure, after_start, out_of_memory, said
from orin_deploy.deploy.taken import Compared
from orin_deploy.deploy.verify import Proof
from orin_deploy.errors import OrinError
from orin_deploy.facts.device import MIB
from orin_deploy.host import Host
from orin_deploy.host.processes import START_MARK
from orin_deploy.intent.budget import Budget
from orin_deploy.intent.engine_rows import Row
from orin_deploy.intent.spec import Spec
from orin_deploy.parts.serverlog import Buffer
from tests.specs import make_spec

GIB = 1024 * MIB
NOTHING = Learned("x86_64", "test", "llama")
PLANNED = {
    "weights": 92,
    "KV cache": 45,
    "compute": 15,
    "output": 1,
    "process": 38,
    "prompt cache": 512,
    "reserve": 512,
}


def host_of(folder: Path, root: Path | str = "/") -> Host:
    return Host(root, {"ORIN_DEPLOY_HOME": str(folder / "home"), "PATH": "/usr/bin:/bin"})


def spec_of(folder: Path, *, cuda: bool = False, **rows: int) -> Spec:
    planned = PLANNED | ({"CUDA context": 400, "staging": 4} if cuda else {})
    planned |= {name.replace("_", " "): size for name, size in rows.items()}
    budget = Budget(tuple(Row(name, size * MIB, "a test") for name, size in planned.items()), 8 * GIB, "a test")
    return make_spec(folder / "home", folder, folder / "no.gguf", 8080, budget=budget, cuda=cuda)


def proof_of(resident_mib: int = 191, device: str = "CPU", **taken_mib: int) -> Proof:
    taken = {"model": 92, "KV": 45, "compute": 15, "output": 1} | taken_mib
    buffers = tuple(Buffer(device, kind, size * MIB) for kind, size in taken.items())
    return Proof(42, "ready", 9, 90.0, 9, 9.0, 0.1, 1.0, buffers, resident_mib * MIB)


def learned_rows(host: Host, spec: Spec) -> tuple[Row, ...]:
    return residual.rows(host, spec.device, spec.build.key, spec.model.architecture)


def test_a_start_as_planned_leaves_no_row(tmp_path: Path) -> None:
    host, spec = host_of(tmp_path), spec_of(tmp_path)
    residual.remember_start(host, spec, proof_of(), 3)
    assert learned_rows(host, spec) == ()
    residual.remember_start(host, spec, proof_of(resident_mib=194), 4)  # within what a plan means to be exact to
    assert learned_rows(host, spec) == ()


@pytest.mark.parametrize("proof", [proof_of(resident_mib=291), proof_of(compute=115)])
def test_what_was_taken_beyond_the_plan_is_a_row_with_its_source(proof: Proof, tmp_path: Path) -> None:
    host, spec = host_of(tmp_path), spec_of(tmp_path)
    residual.remember_start(host, spec, proof, 3)
    (row,) = learned_rows(host, spec)
    assert (row.name, row.bytes) == ("learned", 100 * MIB)
    assert row.source == "record 3 of test, 1 start: took 100 MiB more than planned"
    counted = spec_of(tmp_path, learned=100)
    residual.remember_start(host, counted, proof, 4)
    assert [again.bytes for again in learned_rows(host, spec)] == [100 * MIB], "the row itself was learned from"
    residual.remember_start(host, counted, proof_of(), 5)
    assert learned_rows(host, spec) == ()


def test_another_board_engine_or_architecture_learns_by_itself(tmp_path: Path) -> None:
    host, spec = host_of(tmp_path), spec_of(tmp_path)
    residual.remember_start(host, spec, proof_of(resident_mib=291), 3)
    others = (
        replace(spec, device=replace(spec.device, machine="aarch64")),
        replace(spec, build=replace(spec.build, key="other")),
        replace(spec, model=replace(spec.model, architecture="qwen3")),
    )
    assert all(learned_rows(host, other) == () for other in others)
    for number, other in enumerate(others):
        residual.remember_start(host, other, proof_of(resident_mib=391), number)
    assert [learned_rows(host, each)[0].bytes // MIB for each in (spec, *others)] == [100, 200, 200, 200]


def test_on_a_gpu_nvmap_tells_what_the_process_takes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    clients = root / "sys/kernel/debug/nvmap/iovmm/clients"
    clients.parent.mkdir(parents=True)
    spec = spec_of(tmp_path, cuda=True)
    host = host_of(tmp_path, root)
    residual.remember_start(host, spec, proof_of(device="CUDA0"), 1)
    assert learned_rows(host, spec) == (), "what cannot be read teaches nothing"
    on_gpu = 92 + 45 + 15 + 1 + 400
    clients.write_text(f"user  llama-server  42  {(on_gpu + 300) * 1024}K\n")
    residual.remember_start(host, spec, proof_of(device="CUDA0"), 2)
    assert [row.bytes // MIB for row in learned_rows(host, spec)] == [300]


MARK = f"{START_MARK}, start 1"


@pytest.mark.parametrize(
    ("lines", "message", "killed", "told"),
    [
        (["cudaMalloc failed: out of memory (requested 100.00 MiB)"], "x", False, Lack(100 * MIB)),
        (["allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory"], "x", False, Lack(4096 * MIB)),
        (["NvMapMemAllocInternalTagged: 1075072515 error 12"], "x", False, Lack()),
        (["llama_kv_cache: failed to allocate buffer for kv cache"], "x", False, Lack()),
        ([], "llama-server was killed (signal 9 (SIGKILL))", True, Lack()),
        ([], "llama-server was killed (signal 9 (SIGKILL))", False, None),
        (["error: invalid argument: --frobnicate"], "no such option", True, None),
        ([], "signal 11 (SIGSEGV)", True, None),
    ],
)
def test_which_ends_are_for_lack_of_memory(lines: list[str], message: str, killed: bool, told: Lack | None) -> None:
    assert out_of_memory(lines, OrinError(message), killed=killed) == told


def failed(host: Host, spec: Spec, line: str, before: Watch | None = None) -> OrinError:
    """The error of a start whose log ends in this line."""
    watch = before or residual.watch(host, spec.name)
    log = host.data / "deployments" / spec.name / "server.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(f"{MARK}\n{line}\n")
    error = OrinError("it failed", "do this")
    residual.remember_failure(host, spec, error, 7, watch)
    return error


def test_a_failure_grows_the_row_says_so_and_good_starts_give_it_back(tmp_path: Path) -> None:
    host, spec = host_of(tmp_path), spec_of(tmp_path)
    residual.remember_start(host, spec, proof_of(resident_mib=291), 3)
    error = failed(host, spec, "std::bad_alloc")
    assert "plans leave 356 MiB more (row learned)" in str(error)
    assert (error.message, error.hint) == (str(error), "do this")
    (row,) = learned_rows(host, spec)
    assert (row.bytes, row.source) == (
        356 * MIB,
        "record 7 of test, 1 start: took 100 MiB more than planned; 256 MiB after an end for lack of memory",
    )
    sizes = []
    for number in range(8):
        residual.remember_start(host, spec, proof_of(resident_mib=291), 8 + number)
        sizes.append(learned_rows(host, spec)[0].bytes // MIB)
    assert sizes == [228, 164, 132, 116, 108, 100, 100, 100]


def test_no_failure_grows_it_without_end(tmp_path: Path) -> None:
    host, spec = host_of(tmp_path), spec_of(tmp_path)
    words = [str(failed(host, spec, "std::bad_alloc")) for _ in range(6)]
    assert [row.bytes for row in learned_rows(host, spec)] == [GIB]
    assert ["that was not it" in each for each in words] == [False] * 4 + [True] * 2


def test_an_old_failure_in_the_log_teaches_nothing_twice(tmp_path: Path) -> None:
    host, spec = host_of(tmp_path), spec_of(tmp_path)
    failed(host, spec, "std::bad_alloc")
    error = OrinError("the unit could not be written")
    residual.remember_failure(host, spec, error, 8, residual.watch(host, spec.name))
    assert error.message == "the unit could not be written"
    assert [row.bytes for row in learned_rows(host, spec)] == [256 * MIB]


def test_a_full_disk_does_not_hide_why_a_start_failed(tmp_path: Path) -> None:
    host, spec = host_of(tmp_path), spec_of(tmp_path)
    (host.data / "learned.json").mkdir(parents=True)  # nothing can be written there
    assert "it failed" in str(failed(host, spec, "std::bad_alloc"))
    residual.remember_start(host, spec, proof_of(resident_mib=291), 3)  # nor make a start fail that was proved


def served(spec: Spec, reference: str) -> Spec:
    return replace(spec, weights=replace(spec.weights, reference=reference))


def test_two_models_do_not_flip_the_row(tmp_path: Path) -> None:
    host, spec = host_of(tmp_path), spec_of(tmp_path)
    one, other = served(spec, "hf:one"), served(spec, "hf:other")
    residual.remember_start(host, one, proof_of(resident_mib=291), 3)
    for number in range(4, 7):
        residual.remember_start(host, other, proof_of(), number)
        (row,) = learned_rows(host, spec)
        assert row.bytes == 100 * MIB
        assert row.source.endswith("took 100 MiB more than planned with hf:one")
    residual.remember_start(host, one, proof_of(), 7)
    assert learned_rows(host, spec) == ()


def test_a_model_that_has_long_not_been_served_is_forgotten(tmp_path: Path) -> None:
    host, spec = host_of(tmp_path), spec_of(tmp_path)
    sizes = []
    for number in range(5):
        proof = proof_of(resident_mib=191 if number else 291)
        residual.remember_start(host, served(spec, f"hf:{number}"), proof, number)
        sizes.append(sum(row.bytes for row in learned_rows(host, spec)) // MIB)
    assert sizes == [100, 100, 100, 100, 0]
    (kept,) = json.loads((host.data / "learned.json").read_text())["learned"]
    assert list(kept["models"]) == ["hf:1", "hf:2", "hf:3", "hf:4"]


def test_what_lies_in_the_drafts_own_process_is_not_the_servers(tmp_path: Path) -> None:
    host, spec = host_of(tmp_path), spec_of(tmp_path, draft_process=10)
    apart = (Row("draft weights", 92 * MIB, "a test", 62 * MIB), Row("draft KV cache", 45 * MIB, "a test", 45 * MIB))
    spec = replace(spec, budget=replace(spec.budget, rows=(*spec.budget.rows, *apart)))
    proof = proof_of(resident_mib=191 + 30)
    drafts = (Buffer("CPU", "model", 92 * MIB), Buffer("RPC0", "KV", 45 * MIB))  # of the draft
    proof = replace(proof, memory=(*proof.memory, *drafts))
    assert residual.measured(spec, proof, None) == (0, 221 * MIB)
    held = {"spec": {"budget": {"rows": plain(spec.budget.rows)}}, "proof": {"resident_bytes": 225 * MIB}}
    assert taken.resident(held) == Compared("resident", 221 * MIB, 225 * MIB)
    more = replace(proof, resident_bytes=321 * MIB)
    residual.remember_start(host, spec, more, 3)
    assert [row.bytes for row in learned_rows(host, spec)] == [100 * MIB]


@given(
    st.lists(st.one_of(st.integers(-(2**33), 2**33), st.tuples(st.none() | st.integers(0, 2**33))), max_size=30),
    st.integers(0, 2**36),
)
def test_whatever_happens_the_row_is_bounded_and_a_plan_never_shrinks(steps: list[Any], planned: int) -> None:
    known, largest = NOTHING, 0
    for step in steps:
        before = known
        if isinstance(step, int):
            known = after_start(known, "a model", step, planned)
            largest = step
            assert known.bytes <= max(step, 0) + before.margin_bytes // 2
        else:
            known = after_failure(known, step[0])
            assert known.bytes >= before.bytes
            assert known.bytes - before.bytes <= 256 * MIB
        assert known.bytes >= 0
        assert known.margin_bytes <= GIB
        assert known.bytes <= max(largest, 0) + known.margin_bytes
        assert said(known)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"words"',
        '{"format": 2, "learned": []}',
        '{"format": 1}',
        '{"format": 1, "learned": 5}',
        '{"format": 1, "learned": [5, null, {}]}',
        '{"format": 1, "learned": [{"board": "x86_64", "engine": "test", "architecture": "llama", "bytes": "many"}]}',
        '{"format": 1, "learned": [{"board": "x86_64", "engine": "test", "architecture": "llama", "bytes": -5}]}',
        '{"format": 1, "learned": [{"board": "x86_64", "engine": "test", "architecture": "llama", "bytes": true}]}',
        '{"format": 1, "learned": [{"board": "x86_64", "engine": "test", "architecture": "llama", "bytes": 1e99}]}',
        '{"format": 1, "learned": [{"board": "x86_64", "engine": "test", "architecture": "llama", "more": 1}]}',
        '{"format": 1, "learned": [{"board": ["x"], "engine": "test", "architecture": "llama"}]}',
        '{"format": 1, "learned": [{"board": "x86_64", "engine": "test", "architecture": "llama", "models": [1]}]}',
        '{"format": 1, "learned": [{"board": "x86_64", "engine": "test", "architecture": "a", "models": {"a": "b"}}]}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_as_good_as_none_and_is_written_anew(text: str, tmp_path: Path) -> None:
    host, spec = host_of(tmp_path), spec_of(tmp_path)
    host.data.mkdir(parents=True)
    (host.data / "learned.json").write_text(text)
    assert learned_rows(host, spec) == ()
    residual.remember_start(host, spec, proof_of(resident_mib=291), 3)
    assert [row.bytes for row in learned_rows(host, spec)] == [100 * MIB]
    assert json.loads((host.data / "learned.json").read_text())["format"] == residual.FORMAT


def test_the_file_does_not_grow_without_end(tmp_path: Path) -> None:
    host, spec = host_of(tmp_path), spec_of(tmp_path)
    for number in range(260):
        build = replace(spec.build, key=f"build {number}")
        residual.remember_start(host, replace(spec, build=build), proof_of(resident_mib=291), number)
    kept = json.loads((host.data / "learned.json").read_text())["learned"]
    assert [each["engine"] for each in kept] == [f"build {number}" for number in range(4, 260)]
