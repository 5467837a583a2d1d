"""Lack of memory by the engine's words: those of llama.cpp 0c1e570 and CUDA, known alike to all who read a log."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.deploy.residual import Lack, out_of_memory
from orin_deploy.doctor.evidence import Evidence, Log
from orin_deploy.doctor.memory_lack import fragmented
from orin_deploy.errors import OrinError
from orin_deploy.facts.device import MIB, Memory
from orin_deploy.parts import out_of_memory as words
from orin_deploy.parts import serverlog

GPU = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 900.00 MiB on device 0: cudaMalloc failed: out of memory",
    "cudaMalloc failed: out of memory (requested 900.00 MiB)",
    "CUDA error: out of memory",
    "NvMapMemAllocInternalTagged: 1075072515 error 12",
)
BUFFERS = (
    "unable to allocate CUDA0 buffer",
    "ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 943718400",
    "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 943718400",
    "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
    "failed to allocate buffer for rs cache",
    "failed to allocate buffer for DSV4 compressor state",
    "failed to allocate compute pp buffers",
    "graph_reserve: failed to allocate compute buffers",
    "process_ubatch: failed to allocate graph",
    "output_reserve: failed to allocate output buffer of size 12.00 MiB",
    "llama_init_from_model: failed to initialize the context: failed to reserve initial output buffer",
)
PROGRAM = ("terminate called after throwing an instance of 'std::bad_alloc'",)
HARMLESS = (
    "ggml_backend_sched_alloc_splits: failed to allocate graph, reserving (backend_ids_changed = 1)",
    "load_all_data: failed to allocate host buffer for async uploads for device CUDA0",
    "ggml_cuda_host_malloc: failed to allocate 128.00 MiB of pinned memory: out of memory",
    "srv alloc: failed to allocate memory for prompt cache state: std",
    "load_tensors: CUDA0 model buffer size = 900.00 MiB",
)
IN_PIECES = replace(
    Evidence(), largest_block=MIB, memory=Memory(total=8000 * MIB, available=4000 * MIB, free=4000 * MIB)
)


@pytest.mark.parametrize("line", [*GPU, *BUFFERS, *PROGRAM])
def test_all_who_read_a_log_know_the_same_words(line: str) -> None:
    lack = out_of_memory((line,), OrinError("it ended"), killed=False)
    assert lack is not None
    told = serverlog.reason((line,))
    assert told is not None
    assert "memory" in told[0]
    found = fragmented(replace(IN_PIECES, logs=(Log("a.log", (line,)),)))
    assert (found is not None) == (line not in PROGRAM), "what the program allocates may lie in pieces"


@pytest.mark.parametrize("line", HARMLESS)
def test_what_only_looks_alike_is_no_end(line: str) -> None:
    assert out_of_memory((line,), OrinError("it ended"), killed=False) is None
    assert serverlog.reason((line,)) is None
    assert fragmented(replace(IN_PIECES, logs=(Log("a.log", (line,)),))) is None


def test_the_size_is_told_in_three_ways() -> None:
    sizes = {words.requested_bytes(line) for line in (*GPU[:2], *BUFFERS[1:3])}
    assert sizes == {900 * MIB}
    assert {words.requested_bytes(line) for line in (*GPU[2:], *BUFFERS[3:], *PROGRAM)} == {None}
    assert words.requested_bytes("\n".join((GPU[0].replace("900", "5"), BUFFERS[1]))) == 900 * MIB, "the last one"
    assert out_of_memory(BUFFERS[1:2], OrinError(""), killed=False) == Lack(900 * MIB)


@given(st.text(alphabet=st.sampled_from("allocating (requested 19.MiB)buffer of size\n"), max_size=200))
def test_any_text_is_survived(text: str) -> None:
    size = words.requested_bytes(text)
    assert size is None or size >= 0
    assert re.search(words.ANY, text) is None
