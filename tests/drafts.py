"""Untrained draft models for a real target: of its vocabulary and sizes, with weights of zero, so that they draft and
are nearly never right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orin_deploy.facts import gguf
from tests.ggufs import write

HEAD, HEADS, HEADS_KV, FF = 64, 4, 2, 256


def vocabulary(target: Path, **changes: Any) -> dict[str, Any]:
    """The tokenizer's metadata of a GGUF with a BPE vocabulary; its merges, which nobody compares, are left out."""
    header = gguf.read_file(target)
    assert header.tokens is not None
    keys = ("model", "pre", "bos_token_id", "eos_token_id", "add_bos_token", "add_eos_token")
    told = {f"tokenizer.ggml.{key}": header.metadata.get(f"tokenizer.ggml.{key}") for key in keys}
    kept = {key: value for key, value in told.items() if value is not None}
    tokens = [text.decode() for text in header.tokens.texts()]
    return kept | {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": ["a b"]} | changes


def _embedding(target: Path) -> int:
    header = gguf.read_file(target)
    return header.number(f"{header.text('general.architecture')}.embedding_length", 0)


def _common(architecture: str, n_embd: int, layers: tuple[int, ...]) -> dict[str, Any]:
    return {
        "general.architecture": architecture,
        "general.name": f"untrained {architecture}",
        f"{architecture}.block_count": 1,
        f"{architecture}.context_length": 8192,
        f"{architecture}.embedding_length": n_embd,
        f"{architecture}.feed_forward_length": FF,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": HEADS_KV,
        f"{architecture}.attention.key_length": HEAD,
        f"{architecture}.attention.value_length": HEAD,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.dimension_count": HEAD,
        f"{architecture}.rope.freq_base": 10000.0,
        f"{architecture}.target_layers": list(layers),
    }


def _block(n_embd: int, attention_in: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    q, kv = HEADS * HEAD, HEADS_KV * HEAD
    matrices = {
        "attn_q": (attention_in, q), "attn_k": (attention_in, kv), "attn_v": (attention_in, kv),
        "attn_output": (q, n_embd), "ffn_gate": (n_embd, FF), "ffn_up": (n_embd, FF), "ffn_down": (FF, n_embd),
    }  # fmt: skip
    tensors: dict[str, tuple[str, tuple[int, ...]]] = {
        f"blk.0.{name}.weight": ("F16", dims) for name, dims in matrices.items()
    }
    return tensors | {f"blk.0.{name}.weight": ("F32", (n_embd,)) for name in ("attn_norm", "ffn_norm")}


def eagle3(path: Path, target: Path, layers: tuple[int, ...] = (2, 15, 27), **changes: Any) -> Path:
    """An EAGLE3 draft, which shares the target's embedding and output matrix."""
    n_embd = _embedding(target)
    metadata = _common("eagle3", n_embd, layers) | {"eagle3.target_hidden_size": n_embd}
    vocab = vocabulary(target)
    tensors = _block(n_embd, 2 * n_embd) | {
        "blk.0.attn_norm_2.weight": ("F32", (n_embd,)),
        "fc.weight": ("F16", (len(layers) * n_embd, n_embd)),
        "output_norm.weight": ("F32", (n_embd,)),
        "output.weight": ("F16", (n_embd, len(vocab["tokenizer.ggml.tokens"]))),
    }
    return write(path, metadata | vocab | changes, tensors)


def dflash(
    path: Path, target: Path, *, markov: bool, layers: tuple[int, ...] = (2, 15, 27), type: str = "F16", **changes: Any
) -> Path:
    """A DFlash draft or, with a Markov head, a DSpark one; it has the target's embedding and output matrix."""
    n_embd = _embedding(target)
    vocab = vocabulary(target, **{"tokenizer.ggml.mask_token_id": 0})
    metadata = _common("dflash", n_embd, layers) | {"dflash.block_size": 7, "dflash.has_confidence_head": False}
    tensors = _block(n_embd, n_embd) | {
        **{f"blk.0.attn_{name}_norm.weight": ("F32", (HEAD,)) for name in "qk"},
        "fc.weight": (type, (len(layers) * n_embd, n_embd)),
        "enc.output_norm.weight": ("F32", (n_embd,)),
        "output_norm.weight": ("F32", (n_embd,)),
    }
    if markov:
        size = len(vocab["tokenizer.ggml.tokens"])
        tensors |= {"markov_w1.weight": ("F16", (32, size)), "markov_w2.weight": ("F16", (32, size))}
    return write(path, metadata | vocab | changes, tensors)
