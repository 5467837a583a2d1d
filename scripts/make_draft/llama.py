"""The model, as the engine computes it (src/models/llama.cpp)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from make_draft import ANSWER_TOKENS, PROMPT_TOKENS
from make_draft.target import Shape
from orin_deploy.facts import gguf

if TYPE_CHECKING:
    from torch import Tensor


def load(path: Path, dtype: Any) -> dict[str, Tensor]:
    """The tensors of an F16 or F32 GGUF, by name without `.weight`."""
    import torch

    header = gguf.read_file(path, fingerprint=False)
    kinds = {"F16": torch.float16, "F32": torch.float32}
    with path.open("rb") as file:
        weights = {}
        for tensor in header.tensors:
            file.seek(header.data_offset + tensor.offset)
            raw = torch.frombuffer(bytearray(file.read(tensor.bytes)), dtype=kinds[tensor.type])
            keep = torch.float32 if len(tensor.dims) == 1 else dtype
            weights[tensor.name.removesuffix(".weight")] = raw.reshape(*reversed(tensor.dims)).to(keep)
    return weights


class Llama:
    """A llama model over a table of weights. Matrices are cast to `dtype` where they are used."""

    def __init__(self, shape: Shape, weights: dict[str, Tensor], dtype: Any) -> None:
        import torch

        self.shape, self.weights, self.dtype = shape, weights, dtype
        self.head = weights.get("output", weights["token_embd"])
        frequencies = shape.rope_base ** (-torch.arange(0, shape.head, 2).float() / shape.head)
        if "rope_freqs" in weights:
            frequencies = frequencies / weights["rope_freqs"]
        angles = torch.outer(torch.arange(PROMPT_TOKENS + ANSWER_TOKENS).float(), frequencies)
        self.cos, self.sin = angles.cos(), angles.sin()

    def norm(self, x: Tensor, name: str) -> Tensor:
        scaled = x.float() * (x.float().square().mean(-1, keepdim=True) + self.shape.epsilon).rsqrt()
        return (scaled * self.weights[name]).to(self.dtype)

    def times(self, x: Tensor, name: str) -> Tensor:
        import torch

        return torch.nn.functional.linear(x, self.weights[name].to(self.dtype))

    def rotate(self, x: Tensor, start: int) -> Tensor:
        """Rotary positions on neighbouring pairs, as GGUF stores llama's queries and keys."""
        import torch

        cos, sin = self.cos[start : start + x.shape[2]], self.sin[start : start + x.shape[2]]
        even, odd = x[..., 0::2].float(), x[..., 1::2].float()
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(self.dtype)

    def layer(self, x: Tensor, index: int, mask: Tensor, cache: Tensor | None = None, start: int = 0) -> Tensor:
        """One layer over the states `x` [rows, length, width] of the tokens from `start` on."""
        import torch

        shape, (rows, length, _), at = self.shape, x.shape, f"blk.{index}."
        h = self.norm(x, at + "attn_norm")
        q, k, v = (
            self.times(h, at + name).view(rows, length, -1, shape.head).transpose(1, 2)
            for name in ("attn_q", "attn_k", "attn_v")
        )
        q, k = self.rotate(q, start), self.rotate(k, start)
        if cache is not None:
            cache[0, :, :, start : start + length], cache[1, :, :, start : start + length] = k, v
            k, v = cache[:, :, :, : start + length]
        if length == 1:  # the query heads of one key head stand in a row: no copy of the keys
            q = q.reshape(rows, shape.n_head_kv, -1, shape.head)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=length > 1)
        mixed = mixed.reshape(rows, shape.n_head, length, shape.head).transpose(1, 2).reshape(rows, length, -1)
        x = x + self.times(mixed, at + "attn_output")
        h = self.norm(x, at + "ffn_norm")
        gate = torch.nn.functional.silu(self.times(h, at + "ffn_gate")) * self.times(h, at + "ffn_up")
        return x + self.times(gate, at + "ffn_down")

    def __call__(self, tokens: Tensor, mask: Tensor, cache: list[Tensor] | None = None, start: int = 0) -> Tensor:
        """The normed states of `tokens` [rows, length], which stand at `start`; `mask` [rows, 1, length, seen].

        `cache` holds keys and values of each layer [2, rows, heads, length, head] and is filled.
        """
        x = self.weights["token_embd"][tokens].float()
        for index in range(self.shape.n_layer):
            x = self.layer(x, index, mask, None if cache is None else cache[index], start)
        return self.norm(x, "output_norm")


def causal(first: Tensor, length: int) -> Tensor:
    """Who sees whom when each row begins at its `first` column; what stands before sees only itself."""
    import torch

    column = torch.arange(length)
    seen = (column[None, None, :] <= column[None, :, None]) & (column[None, None, :] >= first[:, None, None])
    return (seen | torch.eye(length, dtype=torch.bool)[None])[:, None]


def fast_dtype() -> Any:
    """bfloat16 where this CPU multiplies it faster than float32, which few old ones do."""
    import torch

    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        a, b = torch.ones(512, 1024, dtype=dtype), torch.ones(1024, 1024, dtype=dtype)
        for turn in range(4):
            began = time.perf_counter() if turn else 0.0
            torch.nn.functional.linear(a, b)
        seconds[dtype] = time.perf_counter() - began
    return min(seconds, key=lambda dtype: seconds[dtype])
