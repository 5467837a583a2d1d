"""How a model is served, as far as memory depends on it, and the sizes the engine makes of it."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.facts.device import MIB
from orin_deploy.facts.model import Model

STEP = 256  # the engine rounds a slot's context up to this


@dataclass(frozen=True)
class Serving:
    """How the model is to be served, with llama-server's defaults.

    `ctx_size` counts all slots together, as -c does; 0 is the training context. `flash_attn` is what auto becomes: on
    where the backend can. `load_mode` auto maps the file unless a GPU that shares the memory forbids it. Weights are
    repacked only where `cpu_features` (ggml's names) call for it.
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
    ctx_checkpoints: int = 32
    swa_full: bool = False
    projector_bytes: int = 0  # weights of --mmproj, 0 for none
    drafting: Drafting | None = None

    @property
    def n_draft(self) -> int:
        """The most tokens speculated at once for one slot."""
        return self.drafting.n_max if self.drafting else 0

    @property
    def slots(self) -> int:
        """Slots that have cells of their own; one pool for all when unified."""
        return 1 if self.kv_unified else self.parallel

    @property
    def mapped(self) -> bool:
        """The weights stay in the file's pages."""
        return "mmap" in self.load_mode or (self.load_mode == "auto" and not self.gpu)


@dataclass(frozen=True)
class Drafting:
    """Speculation, as far as memory depends on it.

    `kind` is the name of llama-server's --spec-type, `n_max` the most tokens drafted at once. Without a `model` the
    tokens come from n-grams. The draft has the target's context, slots, batch sizes and flash attention, and a cache
    of types of its own. `apart` means in a process of its own (ggml-rpc-server); `gpu` that it computes on a GPU.
    """

    kind: str
    n_max: int
    model: Model | None = None
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    gpu: bool = False
    apart: bool = False


def cells_per_slot(n_ctx_train: int, *, ctx_size: int, parallel: int, kv_unified: bool) -> int:
    """Cells of a slot, or of the pool that unified slots share: rounded up to 256 (llama-context.cpp, n_ctx_seq)."""
    asked = padded(ctx_size or n_ctx_train)
    return asked if kv_unified else padded(asked // parallel)


def context_per_slot(n_ctx_train: int, *, ctx_size: int, parallel: int, kv_unified: bool) -> int:
    """Tokens a slot may use: its cells, but no more than the training context (server-context.cpp, n_ctx_slot)."""
    cells = cells_per_slot(n_ctx_train, ctx_size=ctx_size, parallel=parallel, kv_unified=kv_unified)
    return min(cells, n_ctx_train) if n_ctx_train else cells


def total_cells(model: Model, serving: Serving) -> int:
    """Cells in all."""
    each = cells_per_slot(
        model.n_ctx_train, ctx_size=serving.ctx_size, parallel=serving.parallel, kv_unified=serving.kv_unified
    )
    return each * serving.slots


def batch_tokens(model: Model, serving: Serving) -> int:
    """Tokens of the largest batch: no more than the context holds (llama-context.cpp, n_batch)."""
    return min(serving.ctx_size or model.n_ctx_train, serving.batch_size)


def padded(cells: int) -> int:
    """A number of cells as the engine rounds it."""
    return -(-cells // STEP) * STEP


def mib(size: int) -> str:
    """Bytes as whole MiB, rounded up."""
    return f"{-(-size // MIB):,} MiB"


def kind_text(kind: tuple[str, str]) -> str:
    """The types of a KV cache as they are shown: once where they are equal."""
    return kind[0] if kind[0] == kind[1] else f"{kind[0]}/{kind[1]}"
