"""The memory budget: one pool for CPU and GPU, disjoint rows that sum to the total, and the context that fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from orin_deploy.errors import Refused
from orin_deploy.facts.device import MIB
from orin_deploy.facts.gguf_types import BY_NAME
from orin_deploy.facts.model import Model, repacked_bytes
from orin_deploy.intent.compute import Batch, compute_bytes

STEP = 256  # the engine rounds a slot's context up to this
ENGINE_ROWS = ("weights", "KV cache", "compute", "output")  # rows that the server's own log lines show after start

# Resident memory beyond the buffers, llama-server 0c1e570 on x86 with load_mode none after a long prompt: 24 MiB with
# no vocabulary to speak of, 38 MiB with SmolLM2's 49,152 tokens, 78 MiB with Gemma 3's 262,144.
_PROCESS_BYTES, _TOKEN_BYTES, _CELL_BYTES = 24 * MIB, 256, 48
# No Jetson has been measured yet: CUDA's context, kernels and cuBLAS workspace, on the large side.
_CUDA_CONTEXT_BYTES = 400 * MIB
_UPLOAD_BUFFERS = 4  # of 1 MiB, of 64 MiB with direct I/O: llama-model-loader.cpp, load_all_data


@dataclass(frozen=True)
class Row:
    """One share of the pool: what it is for, bytes, and where the number comes from."""

    name: str
    bytes: int
    source: str


@dataclass(frozen=True)
class Budget:
    """Rows, their sum and what can be had, all in bytes."""

    rows: tuple[Row, ...]
    limit_bytes: int
    limit_source: str

    @property
    def total_bytes(self) -> int:
        return sum(row.bytes for row in self.rows)

    @property
    def fits(self) -> bool:
        return self.total_bytes <= self.limit_bytes


@dataclass(frozen=True)
class Serving:
    """How the model is to be served, with llama-server's defaults.

    `ctx_size` counts all slots together, as -c does; 0 is the training context. `flash_attn` is what auto becomes: on
    where the backend can. `load_mode` auto maps the file unless a GPU that shares the memory forbids it. Weights are
    repacked only where `cpu_features` (ggml's names) call for it. `n_draft` is the most tokens speculated at once.
    """

    ctx_size: int = 0
    parallel: int = 1
    batch_size: int = 2048
    ubatch_size: int = 512
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn: bool = True
    cache_ram_mib: int = 0
    kv_unified: bool = False
    load_mode: str = "auto"
    gpu: bool = False
    cpu_features: frozenset[str] = frozenset()
    n_draft: int = 0
    ctx_checkpoints: int = 32
    swa_full: bool = False

    @property
    def slots(self) -> int:
        """Slots that have cells of their own; one pool for all when unified."""
        return 1 if self.kv_unified else self.parallel

    @property
    def mapped(self) -> bool:
        """The weights stay in the file's pages."""
        return "mmap" in self.load_mode or (self.load_mode == "auto" and not self.gpu)


def estimate(
    model: Model, serving: Serving, *, reserve_bytes: int = 0, limit_bytes: int = 0, limit_source: str = "no limit"
) -> Budget:
    """What serving takes, row by row; rows are disjoint and in bytes. Raises Refused for a prompt cache without end."""
    if serving.cache_ram_mib < 0:
        raise Refused("a prompt cache without a limit fits no budget", "--set cache_ram=0, or a number of MiB")
    rows = (*_engine_rows(model, serving), *_other_rows(model, serving))
    return Budget((*rows, Row("reserve", reserve_bytes, "left to the system")), limit_bytes, limit_source)


def fit_context(model: Model, serving: Serving, *, limit_bytes: int, reserve_bytes: int = 0) -> int | None:
    """The largest ctx_size (all slots together) that fits, at most the training context a slot; None when none does."""
    step = STEP * serving.slots

    def fits(steps: int) -> bool:
        tried = replace(serving, ctx_size=steps * step)
        return estimate(model, tried, reserve_bytes=reserve_bytes, limit_bytes=limit_bytes).fits

    low, high = 0, max(1, model.n_ctx_train // STEP)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low * step or None


def refusal(model: Model, serving: Serving, budget: Budget, *, reserve_bytes: int = 0) -> Refused:
    """The error for a budget that does not fit: the sum, the limit, and the largest context by type of KV cache."""
    kinds = dict.fromkeys(((serving.cache_type_k, serving.cache_type_v), *_smaller_caches(serving)))
    largest = {
        kind: fit_context(
            model,
            replace(serving, cache_type_k=kind[0], cache_type_v=kind[1]),
            limit_bytes=budget.limit_bytes,
            reserve_bytes=reserve_bytes,
        )
        for kind in kinds
    }
    needs = f"a context of {_context(model, serving)} needs {_mib(budget.total_bytes)}"
    has = f"{_mib(budget.limit_bytes)} can be had ({budget.limit_source})"
    fitting = [f"{size} with {_kind_text(kind)} KV cache" for kind, size in largest.items() if size]
    if not fitting:
        fixed = _mib(budget.total_bytes - sum(row.bytes for row in budget.rows if row.name == "KV cache"))
        return Refused(
            f"{needs}, but {has}; no context fits: without the KV cache it still takes {fixed}",
            "use a smaller model or quantisation, or free memory",
        )
    return Refused(
        f"{needs}, but {has}; the largest that fits is {', '.join(fitting)}", _fitting_words(serving, largest)
    )


def _smaller_caches(serving: Serving) -> Iterator[tuple[str, str]]:
    if serving.flash_attn:  # the engine quantises values only with flash attention
        yield from (("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"))


def _kind_text(kind: tuple[str, str]) -> str:
    return kind[0] if kind[0] == kind[1] else f"{kind[0]}/{kind[1]}"


def _fitting_words(serving: Serving, largest: dict[tuple[str, str], int | None]) -> str:
    own = (serving.cache_type_k, serving.cache_type_v)
    kind, size = next((kind, size) for kind, size in largest.items() if size)
    types = "" if kind == own else f" --set cache_type_k={kind[0]} --set cache_type_v={kind[1]}"
    return f"--set ctx_size={size}{types}"


def _mib(size: int) -> str:
    return f"{-(-size // MIB):,} MiB"


def _context(model: Model, serving: Serving) -> int:
    """Cells in all, as the engine rounds them: a slot's share up to 256 (llama-context.cpp)."""
    asked = padded(serving.ctx_size or model.n_ctx_train)
    return padded(asked // serving.slots) * serving.slots


def padded(cells: int) -> int:
    """A number of cells as the engine rounds it."""
    return -(-cells // STEP) * STEP


def _batch(model: Model, serving: Serving) -> Batch:
    """The shape of the largest prompt graph: llama-context.cpp's constructor and sched_reserve."""
    n_batch = min(serving.ctx_size or model.n_ctx_train, serving.batch_size)
    n_ubatch = min(n_batch, serving.ubatch_size)
    cells = _context(model, serving) // serving.slots
    tokens = min(cells * serving.slots, n_ubatch)
    window = model.sliding_window * (serving.parallel if serving.kv_unified else 1) + n_ubatch
    return Batch(
        tokens=-(-tokens // serving.parallel) * serving.parallel,
        outputs=min(tokens, _outputs(serving)),
        cells=cells,
        cells_swa=cells if serving.swa_full else padded(min(cells, window)),
        flash_attn=serving.flash_attn,
        rotate_k=_rotation(
            serving.cache_type_k, {layer.head_k for layer in model.layers if layer.n_head_kv}, largest=True
        ),
        rotate_v=_rotation(serving.cache_type_v, {layer.head_v for layer in model.layers if layer.n_head_kv}),
    )


def _rotation(cache_type: str, heads: set[int], *, largest: bool = False) -> int:
    """Rows of the Hadamard matrix for a quantised cache (llama-kv-cache.cpp); 0 where heads differ or are no multiple.

    Keys take the largest power of two that divides the head, values always 64.
    """
    head = next(iter(heads), 0)
    if BY_NAME[cache_type.upper()].block == 1 or len(heads) != 1 or head == 0 or head % 64:
        return 0
    return head & -head if largest else 64


def _outputs(serving: Serving) -> int:
    """Rows of logits at once (server-context.cpp): each slot's token, and all that were speculated for it."""
    return min(serving.batch_size, serving.parallel * (1 + serving.n_draft))


def _engine_rows(model: Model, serving: Serving) -> tuple[Row, ...]:
    batch = _batch(model, serving)
    compute = compute_bytes(model, batch, gpu=serving.gpu)
    outputs = max(serving.parallel, _outputs(serving))
    weights, said = _weights(model, serving)
    full, sliding = _cache_bytes(model, serving, batch)
    kind = _kind_text((serving.cache_type_k, serving.cache_type_v))
    attention = "on" if serving.flash_attn else "off"
    return (
        Row("weights", weights, said),
        Row("KV cache", full + sliding, f"formula: {batch.cells * serving.slots} cells, {kind}, layer by layer"),
        Row("compute", compute.device + compute.host, f"formula: {batch.tokens} tokens, flash attention {attention}"),
        Row("output", outputs * model.n_vocab * 4, f"formula: {outputs} x {model.n_vocab} logits"),
    )


def _weights(model: Model, serving: Serving) -> tuple[int, str]:
    origin = "the header's tensors" if model.known_from == "header" else "the catalogue's file size"
    if serving.gpu:
        again = model.token_embd_bytes if model.tied else 0
        return model.tensor_bytes + again, f"{origin}{', the token embedding twice (CPU and GPU)' if again else ''}"
    if serving.mapped:
        again = repacked_bytes(model, serving.cpu_features, ("looked up", "mapped"))
        return model.tensor_bytes + again, f"{origin}, mapped{f', and {_mib(again)} repacked' if again else ''}"
    again = repacked_bytes(model, serving.cpu_features, ("looked up",))
    return model.tensor_bytes + again, f"{origin}{', the token embedding twice (repacked)' if again else ''}"


def _cache_bytes(model: Model, serving: Serving, batch: Batch) -> tuple[int, int]:
    """Bytes of the whole-context and of the sliding layers (llama-kv-cache.cpp).

    Without flash attention every layer's values are padded to the widest.
    """
    type_k, type_v = BY_NAME[serving.cache_type_k.upper()], BY_NAME[serving.cache_type_v.upper()]
    widest = max((layer.n_head_kv * layer.head_v for layer in model.layers), default=0)
    sizes = {False: 0, True: 0}
    for layer in model.layers:
        if layer.n_head_kv:
            values = layer.n_head_kv * layer.head_v if serving.flash_attn else widest
            row = type_k.row_bytes(layer.n_head_kv * layer.head_k) + type_v.row_bytes(values)
            sizes[layer.sliding] += row * (batch.cells_swa if layer.sliding else batch.cells) * serving.slots
    return sizes[False], sizes[True]


def _other_rows(model: Model, serving: Serving) -> Iterator[Row]:
    batch = _batch(model, serving)
    checkpoints = serving.ctx_checkpoints * _cache_bytes(model, serving, batch)[1] if not serving.swa_full else 0
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
