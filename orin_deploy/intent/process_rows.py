"""What the server takes beside the buffers of its models: prompt cache, the process itself, CUDA's own."""

from __future__ import annotations

from collections.abc import Iterator

from orin_deploy.facts.device import MIB
from orin_deploy.facts.model import Model
from orin_deploy.intent.compute import Batch
from orin_deploy.intent.engine_rows import Row, batch_of, cache_bytes
from orin_deploy.intent.serving import Serving

# Resident memory beyond the buffers, llama-server 0c1e570 on x86 with load_mode none after a long prompt: 24 MiB with
# no vocabulary to speak of, 38 MiB with SmolLM2's 49,152 tokens, 78 MiB with Gemma 3's 262,144.
_PROCESS_BYTES, _TOKEN_BYTES, _CELL_BYTES = 24 * MIB, 256, 48
# No Jetson has been measured yet: CUDA's context, kernels and cuBLAS workspace, on the large side.
_CUDA_CONTEXT_BYTES = 400 * MIB
_UPLOAD_BUFFERS = 4  # of 1 MiB, of 64 MiB with direct I/O: llama-model-loader.cpp, load_all_data


def process_rows(model: Model, serving: Serving) -> Iterator[Row]:
    batch = batch_of(model, serving)
    checkpoints = serving.ctx_checkpoints * cache_bytes(model, serving, batch)[1] if not serving.swa_full else 0
    said = f"upstream: --cache-ram {serving.cache_ram_mib}"
    if checkpoints:
        said += f", and {serving.ctx_checkpoints} checkpoints of the sliding layers a slot (--ctx-checkpoints)"
    yield Row("prompt cache", serving.cache_ram_mib * MIB + checkpoints, said)
    work = 0 if serving.gpu else _work_bytes(model, batch)
    cells = batch.cells * serving.slots
    process = _PROCESS_BYTES + _TOKEN_BYTES * model.n_vocab + _CELL_BYTES * cells + work
    yield Row("process", process, "measured: program, vocabulary, cells; formula: the CPU's work buffer")
    if serving.gpu:
        buffer = 64 if serving.load_mode == "dio" else 1
        yield Row("CUDA context", _CUDA_CONTEXT_BYTES, "assumed: no Jetson has been measured yet")
        yield Row("staging", _UPLOAD_BUFFERS * buffer * MIB, "upstream: pinned buffers while the weights are uploaded")


def _work_bytes(model: Model, batch: Batch) -> int:
    """ggml-cpu.c's ggml_graph_plan: the widest product's activations once more in 16 bits."""
    widest = max(model.n_ff, model.n_embd, 0 if batch.flash_attn else model.n_head * batch.cells)
    return 2 * widest * batch.tokens
