"""What a model is, as far as serving it needs to know: from its GGUF header or from a catalogue entry."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """Attention of one layer: key and value heads and their sizes (elements); no heads means no KV cache here."""

    n_head_kv: int
    head_k: int
    head_v: int


@dataclass(frozen=True)
class Model:
    """Sizes are elements unless the name says bytes. `layers` has one entry a block, in order.

    `known_from` is "header" or "catalogue"; from the catalogue only, `tensor_bytes` is the file's size and
    `vocab_fingerprint` is None.
    """

    reference: str
    known_from: str
    architecture: str
    name: str | None
    n_params: int | None
    file_type: str | None  # "Q4_K_M", "F16" … by the header's file type, None when it does not say
    file_bytes: int  # all parts together
    tensor_bytes: int
    n_embd: int
    n_ff: int
    n_head: int
    layers: tuple[Layer, ...]
    n_vocab: int
    n_ctx_train: int
    tokenizer: str | None  # tokenizer.ggml.model
    pre_tokenizer: str | None  # tokenizer.ggml.pre
    chat_template: bool
    vocab_fingerprint: str | None
    rope_base: float | None = None
    n_expert: int = 0
    n_expert_used: int = 0
    sliding_window: int = 0
    token_embd_bytes: int = 0  # 0 when unknown
    output_bytes: int = 0  # 0 when tied to the token embedding or unknown
    largest_tensor_bytes: int = 0
    repackable_bytes: int = 0  # tensors that the CPU backend may copy into its own layout
    tensor_types: tuple[tuple[str, int], ...] = ()  # (type name, bytes), largest first
    parts: int = 1

    @property
    def n_layer(self) -> int:
        return len(self.layers)
