"""What the server takes beside the buffers of its models: prompt cache, the process itself, CUDA's own."""

from __future__ import annotations

from collections.abc import Iterator

from orin_deploy.facts.device import MIB
from orin_deploy.facts.model import Model
from orin_deploy.intent.caches import cache_bytes, state_bytes
from orin_deploy.intent.compute import Batch
from orin_deploy.intent.engine_rows import Row, batch_of
from orin_deploy.intent.serving import Serving

# Resident memory beyond the buffers, llama-server 0c1e570 on x86 after a long prompt, in MiB: 15 of program and
# libraries whatever the model; of its own 6 with no vocabulary to speak of, 21 with SmolLM2's 49,152 tokens, 78 all
# together with Gemma 3's 262,144. A draft in the same process added 22 with SmolLM2's vocabulary once more.
_PROGRAM_BYTES, _OWN_BYTES, _TOKEN_BYTES, _CELL_BYTES = 15 * MIB, 9 * MIB, 256, 48
# No Jetson has been measured yet: CUDA's context, kernels and cuBLAS workspace, on the large side.
_CUDA_CONTEXT_BYTES = 400 * MIB
_UPLOAD_BUFFERS = 4  # of 1 MiB, of 64 MiB with direct I/O: llama-model-loader.cpp, load_all_data


def process_rows(model: Model, serving: Serving) -> Iterator[Row]:
    yield _prompt_cache(model, serving)
    batch = batch_of(model, serving)
    work = 0 if serving.gpu else _work_bytes(model, batch)
    process = _PROGRAM_BYTES + _own(model, batch.cells * serving.slots) + work
    drafting = serving.drafting
    if drafting and drafting.model:
        process += _own(drafting.model, batch.cells * serving.slots)
    yield Row("process", process, "measured here (x86): program, vocabulary, cells; upstream: ggml-cpu's work buffer")
    if serving.projector_bytes:
        said = "the projector's tensors; what it computes with is not counted"
        yield Row("projector", serving.projector_bytes, said)
    if serving.gpu:
        buffer = 64 if serving.load_mode == "dio" else 1
        yield Row("CUDA context", _CUDA_CONTEXT_BYTES, "assumed: no Jetson has been measured yet")
        yield Row(
            "staging",
            _UPLOAD_BUFFERS * buffer * MIB,
            "upstream (llama-model-loader.cpp): pinned buffers while the weights are uploaded",
        )


def checkpoint_bytes(model: Model, serving: Serving) -> int:
    """What one checkpoint of all slots takes: what cannot be rolled back, of sliding layers and recurrent state."""
    sliding = 0 if serving.swa_full else cache_bytes(model, serving)[1]
    return sliding + state_bytes(model, serving.parallel)


def _prompt_cache(model: Model, serving: Serving) -> Row:
    """The prompts kept in memory, and for each slot the checkpoints (server-context.cpp, create_checkpoint)."""
    said = f"upstream: --cache-ram {serving.cache_ram_mib}"
    once, state = checkpoint_bytes(model, serving), state_bytes(model, serving.parallel)
    if once and serving.ctx_checkpoints:
        kept = " and ".join(["sliding layers"] * (once > state) + ["recurrent state"] * bool(state))
        said += f", and at most {serving.ctx_checkpoints} checkpoints of the {kept} a slot (--ctx-checkpoints)"
    return Row("prompt cache", serving.cache_ram_mib * MIB + serving.ctx_checkpoints * once, said)


def _own(model: Model, cells: int) -> int:
    """What the process keeps for a model and its context beside their buffers."""
    return _OWN_BYTES + _TOKEN_BYTES * model.n_vocab + _CELL_BYTES * cells


def _work_bytes(model: Model, batch: Batch) -> int:
    """ggml-cpu.c's ggml_graph_plan: the widest product's activations once more in 16 bits."""
    widest = max(model.n_ff, model.n_embd, 0 if batch.flash_attn else model.n_head * batch.cells)
    return 2 * widest * batch.tokens
