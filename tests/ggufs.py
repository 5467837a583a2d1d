"""Writes small GGUF files for tests: any metadata, any tensors, and whole models of a given shape with zero weights."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

from orin_deploy.facts.gguf_types import ARRAY, BY_NAME, SCALARS, STRING, TENSOR_TYPES

NUMBERS = {kind.name: number for number, kind in TENSOR_TYPES.items()}
CODES = {name: code for code, (name, _) in SCALARS.items()} | {"str": STRING}


@dataclass(frozen=True)
class Typed:
    """A metadata value of an explicit type: "u16", "f64", "str" …; a sequence makes an array."""

    type: str
    value: Any


def header(metadata: Mapping[str, Any], tensors: Mapping[str, tuple[str, Sequence[int]]], version: int = 3) -> bytes:
    """A header's bytes, padded up to where the data begins."""
    alignment = metadata.get("general.alignment", 32)
    out = bytearray(struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata)))
    for key, value in metadata.items():
        out += _text(key) + _value(value)
    offset = 0
    for name, (kind, dims) in tensors.items():
        out += _text(name) + struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        out += struct.pack("<IQ", NUMBERS[kind], offset)
        offset += -(-_size(kind, dims) // alignment) * alignment
    return bytes(out) + bytes(-len(out) % alignment if tensors else 0)


def write(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, tuple[str, Sequence[int]]], version: int = 3
) -> Path:
    """A whole file; the weights are zeros and take no room on disk."""
    alignment = metadata.get("general.alignment", 32)
    with path.open("wb") as file:
        file.write(header(metadata, tensors, version))
        _zeros(file, sum(-(-_size(kind, dims) // alignment) * alignment for kind, dims in tensors.values()))
    return path


def _zeros(file: BinaryIO, size: int) -> None:
    file.truncate(file.tell() + size)


def _size(kind: str, dims: Sequence[int]) -> int:
    return BY_NAME[kind].row_bytes(prod(dims))


def _text(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    if isinstance(value, Typed):
        return _typed(value)
    if isinstance(value, bool):
        return _typed(Typed("bool", value))
    if isinstance(value, int):
        return _typed(Typed("u32", value))
    if isinstance(value, float):
        return _typed(Typed("f32", value))
    if isinstance(value, str):
        return _typed(Typed("str", value))
    element = value[0] if value else 0
    kinds = {bool: "bool", int: "i32", float: "f32", str: "str"}
    return _typed(Typed(kinds[type(element)], value))


def _typed(typed: Typed) -> bytes:
    code = CODES[typed.type]
    if isinstance(typed.value, (list, tuple, range)):
        body = b"".join(_element(code, item) for item in typed.value)
        return struct.pack("<IIQ", ARRAY, code, len(typed.value)) + body
    return struct.pack("<I", code) + _element(code, typed.value)


def _element(code: int, value: Any) -> bytes:
    return _text(value) if code == STRING else SCALARS[code][1].pack(value)


@dataclass(frozen=True)
class Shape:
    """A dense decoder with grouped-query attention: enough of one for the real engine to load."""

    architecture: str = "llama"
    n_layer: int = 3
    n_embd: int = 256
    n_ff: int = 512
    n_head: int = 4
    n_head_kv: int = 2
    head: int = 64
    n_vocab: int = 2048
    n_ctx_train: int = 8192
    type: str = "Q8_0"
    tied: bool = False
    bias: bool = False
    head_norms: bool = False
    post_norms: bool = False
    window: int = 0

    def metadata(self) -> dict[str, Any]:
        """What the header says, a byte-level BPE vocabulary without merges included."""
        arch = self.architecture
        tokens = [*_BYTES, *(f"t{index}" for index in range(self.n_vocab - len(_BYTES)))][: self.n_vocab]
        values: dict[str, Any] = {
            "general.architecture": arch,
            "general.name": f"{arch} of a test",
            "general.file_type": 7,
            f"{arch}.block_count": self.n_layer,
            f"{arch}.context_length": self.n_ctx_train,
            f"{arch}.embedding_length": self.n_embd,
            f"{arch}.feed_forward_length": self.n_ff,
            f"{arch}.attention.head_count": self.n_head,
            f"{arch}.attention.head_count_kv": self.n_head_kv,
            f"{arch}.attention.key_length": self.head,
            f"{arch}.attention.value_length": self.head,
            f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
            f"{arch}.rope.dimension_count": self.head,
            f"{arch}.rope.freq_base": 10000.0,
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "default",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [1] * len(tokens),
            "tokenizer.ggml.merges": ["a b"],
            "tokenizer.ggml.bos_token_id": 0,
            "tokenizer.ggml.eos_token_id": 1,
        }
        if self.window:
            values[f"{arch}.attention.sliding_window"] = self.window
        return values

    def tensors(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """All weights, in the order in which converters write them."""
        q, kv = self.n_head * self.head, self.n_head_kv * self.head
        tensors: dict[str, tuple[str, tuple[int, ...]]] = {
            "token_embd.weight": (self.type, (self.n_embd, self.n_vocab))
        }
        for index in range(self.n_layer):
            block = f"blk.{index}."
            shapes = {
                "attn_q": (self.n_embd, q),
                "attn_k": (self.n_embd, kv),
                "attn_v": (self.n_embd, kv),
                "attn_output": (q, self.n_embd),
                "ffn_gate": (self.n_embd, self.n_ff),
                "ffn_up": (self.n_embd, self.n_ff),
                "ffn_down": (self.n_ff, self.n_embd),
            }
            tensors |= {f"{block}{name}.weight": (self.type, dims) for name, dims in shapes.items()}
            norms = ["attn_norm", "ffn_norm"] + ["post_attention_norm", "post_ffw_norm"] * self.post_norms
            tensors |= {f"{block}{name}.weight": ("F32", (self.n_embd,)) for name in norms}
            if self.bias:
                sizes = {"attn_q": q, "attn_k": kv, "attn_v": kv}
                tensors |= {f"{block}{name}.bias": ("F32", (size,)) for name, size in sizes.items()}
            if self.head_norms:
                tensors |= {f"{block}attn_{name}_norm.weight": ("F32", (self.head,)) for name in "qk"}
        tensors["output_norm.weight"] = ("F32", (self.n_embd,))
        if not self.tied:
            tensors["output.weight"] = (self.type, (self.n_embd, self.n_vocab))
        return tensors

    def write(self, path: Path) -> Path:
        return write(path, self.metadata(), self.tensors())

    def header_bytes(self) -> bytes:
        """The header alone, without the weights."""
        return header(self.metadata(), self.tensors())


def _byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


_BYTES = _byte_alphabet()
