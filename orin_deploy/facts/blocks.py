"""What one block of the network is made of, as far as its compute graph depends on it, from keys and tensor shapes.

Shapes are trusted before keys, as llama.cpp checks the one against the other when it loads the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from orin_deploy.facts.gguf import Header
from orin_deploy.facts.gguf_types import Tensor

Dims = tuple[int, ...]
_MAX_EXPERTS = 1024  # LLAMA_MAX_EXPERTS, rounded up


@dataclass(frozen=True)
class Experts:
    """A mixture: `count` experts of which `used` compute each token; `width` and `shared` are feed-forward widths.

    `hidden` is the width that the experts read and write; `merged` has gate and up in one matrix.
    """

    count: int
    used: int
    width: int
    hidden: int
    shared: int = 0
    groups: int = 0
    merged: bool = False


@dataclass(frozen=True)
class Latent:
    """Attention over compressed keys (MLA): ranks and head sizes; `absorbed` where the cache keeps them compressed."""

    query_rank: int
    rank: int
    rope: int
    head_k: int
    head_v: int
    absorbed: bool


@dataclass(frozen=True)
class StateSpace:
    """A Mamba block: kernel of the convolution, inner width, state size, groups and heads; `projected` leaves ssm_in.

    `version` 1 has a state for each inner element, 2 one for each head.
    """

    version: int
    kernel: int
    inner: int
    state: int
    groups: int
    heads: int
    projected: int


@dataclass(frozen=True)
class DeltaNet:
    """A gated delta net: kernel of the convolution, key heads, value heads and the size of both."""

    kernel: int
    key_heads: int
    value_heads: int
    head: int
    inner: int


@dataclass(frozen=True)
class ShortConv:
    """A short convolution (LFM2); `kernel` counts the cached token columns and the present one."""

    kernel: int


Mixer = StateSpace | DeltaNet | ShortConv


@dataclass(frozen=True)
class Block:
    """One block. `parts` are the names of its tensors without "blk.N.", kinds included ("attn_q.bias").

    `query` is what attn_q makes of a token (twice the heads where a gate comes with it), `attended` what attn_output
    reads; `up` what ffn_up makes and `ff` what ffn_down reads. `wide_norms`: queries are normed across all heads.
    """

    parts: frozenset[str] = frozenset()
    n_head: int = 0
    query: int = 0
    attended: int = 0
    up: int = 0
    ff: int = 0
    wide_norms: bool = False
    experts: Experts | None = None
    latent: Latent | None = None
    mixer: Mixer | None = None

    @property
    def drafts(self) -> bool:
        """It is a multi-token-prediction head, which the main graph leaves out."""
        return "nextn.eh_proj.weight" in self.parts

    @property
    def attends(self) -> bool:
        """It has an attention of its own; a delta net's projection is called attn_qkv too."""
        return "attn_output.weight" in self.parts or "attn_k.weight" in self.parts


def read_blocks(header: Header, architecture: str, tensors: Iterable[Tensor], n_layer: int) -> tuple[Block, ...]:
    """One entry a block, in order; equal blocks are one object."""
    shapes: list[dict[str, Dims]] = [{} for _ in range(n_layer)]
    for tensor in tensors:
        if tensor.name.startswith("blk."):
            number, _, rest = tensor.name[4:].partition(".")
            if number.isdigit() and int(number) < n_layer:
                shapes[int(number)][rest] = tuple(tensor.dims)
    known: dict[Block, Block] = {}
    blocks = (_block(_Keys(header, architecture, index), shape) for index, shape in enumerate(shapes))
    return tuple(known.setdefault(block, block) for block in blocks)


@dataclass(frozen=True)
class _Keys:
    """The header's numbers for one block: given once for all blocks or as an array."""

    header: Header
    architecture: str
    index: int

    def __call__(self, key: str, default: int = 0) -> int:
        value = self.header.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, tuple):
            value = value[self.index] if self.index < len(value) else None
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def _block(keys: _Keys, shapes: Mapping[str, Dims]) -> Block:
    def width(name: str, axis: int) -> int:
        dims = shapes.get(f"{name}.weight", ())
        return dims[axis] if axis < len(dims) else 0

    n_head = keys("attention.head_count")
    norm = width("attn_q_norm", 0)
    return Block(
        parts=frozenset(shapes),
        n_head=n_head,
        query=width("attn_q", 1),
        attended=width("attn_output", 0),
        up=width("ffn_up", 1),
        ff=width("ffn_down", 0),
        wide_norms=n_head > 1 and norm > 0 and norm == width("attn_q", 1),
        experts=_experts(keys, shapes, width("ffn_up_shexp", 1)),
        latent=_latent(keys, shapes),
        mixer=_mixer(keys, shapes, width),
    )


def _experts(keys: _Keys, shapes: Mapping[str, Dims], shared: int) -> Experts | None:
    merged = shapes.get("ffn_gate_up_exps.weight")
    down = shapes.get("ffn_down_exps.weight", merged)
    if down is None or len(down) < 3:
        return None
    return Experts(
        count=down[2],
        used=min(max(1, keys("expert_used_count", 1)), down[2], _MAX_EXPERTS),
        width=down[0],
        hidden=down[1],
        shared=shared,
        groups=keys("expert_group_count"),
        merged=merged is not None,
    )


def _latent(keys: _Keys, shapes: Mapping[str, Dims]) -> Latent | None:
    compressed = shapes.get("attn_kv_a_mqa.weight")
    rank = keys("attention.kv_lora_rank")
    if compressed is None or len(compressed) < 2 or not 0 < rank <= compressed[1]:
        return None
    k_b, v_b = shapes.get("attn_k_b.weight"), shapes.get("attn_v_b.weight")
    absorbed = k_b is not None and v_b is not None and len(v_b) > 1
    head_k = keys("attention.key_length_mla") or keys("attention.key_length")
    if head_k < compressed[1] - rank:
        return None
    return Latent(
        query_rank=shapes["attn_q_a.weight"][1] if len(shapes.get("attn_q_a.weight", ())) > 1 else 0,
        rank=rank,
        rope=compressed[1] - rank,
        head_k=head_k,
        head_v=keys("attention.value_length_mla") or keys("attention.value_length"),
        absorbed=absorbed,
    )


def _mixer(
    keys: _Keys, shapes: Mapping[str, Dims], width: Callable[[str, int], int]
) -> StateSpace | DeltaNet | ShortConv | None:
    if "shortconv.in_proj.weight" in shapes:
        return ShortConv(max(1, width("shortconv.conv", 0)))
    kernel, inner, state = max(1, keys("ssm.conv_kernel")), keys("ssm.inner_size"), keys("ssm.state_size")
    groups, heads = keys("ssm.group_count"), keys("ssm.time_step_rank")
    if "ssm_conv1d.weight" not in shapes or not inner or not state:
        return None
    if "ssm_beta.weight" in shapes or "ssm_ba.weight" in shapes:
        return DeltaNet(kernel, max(1, groups), max(1, heads), state, inner)
    if "ssm_in.weight" not in shapes:
        return None
    version = 1 if "ssm_x.weight" in shapes else 2
    return StateSpace(version, kernel, inner, state, max(1, groups), max(1, heads), width("ssm_in", 1))
