"""Models of real size and many architectures as sparse GGUF files of zeros: enough for the real engine to load them.

The dimensions are those of well-known models; where a mixture of experts would be too large, it has fewer layers or
experts than its namesake.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.ggufs import Shape, Typed, header, write

Tensors = dict[str, tuple[str, tuple[int, ...]]]


class Recipe:
    """A model in the making. Matrices are of one type; Q4_1 is one that no CPU repacks, so that loading is quick."""

    def __init__(self, base: Shape, **keys: Any) -> None:
        self.base = base
        self.metadata = base.metadata() | {f"{base.architecture}.{key}": value for key, value in keys.items()}
        self.tensors: Tensors = {}
        self.block = ""
        self.matrix("token_embd", base.n_embd, base.n_vocab)

    def at(self, index: int) -> Recipe:
        self.block = f"blk.{index}."
        return self

    def matrix(self, name: str, *dims: int) -> Recipe:
        self.tensors[f"{self.block}{name}.weight"] = (self.base.type, dims)
        return self

    def small(self, *names: str, dims: tuple[int, ...] = (), kind: str = "F32") -> Recipe:
        """Norms, biases and kernels; named in full, of the embedding's width unless `dims` are given."""
        self.tensors |= {f"{self.block}{name}": (kind, dims or (self.base.n_embd,)) for name in names}
        return self

    def attention(self, *, wide: int = 1, bias: bool = False, norms: bool = False) -> Recipe:
        base = self.base
        query, kv = base.n_head * base.head, base.n_head_kv * base.head
        self.matrix("attn_q", base.n_embd, query * wide).matrix("attn_k", base.n_embd, kv)
        self.matrix("attn_v", base.n_embd, kv).matrix("attn_output", query, base.n_embd)
        if bias:
            self.small("attn_q.bias", dims=(query,)).small("attn_k.bias", "attn_v.bias", dims=(kv,))
            self.small("attn_output.bias")
        return self.small("attn_q_norm.weight", "attn_k_norm.weight", dims=(base.head,)) if norms else self

    def dense(self, width: int, kind: str = "") -> Recipe:
        for name in ("ffn_gate", "ffn_up"):
            self.matrix(name + kind, self.base.n_embd, width)
        return self.matrix("ffn_down" + kind, width, self.base.n_embd)

    def experts(self, count: int, width: int, bias: bool = False) -> Recipe:
        n_embd = self.base.n_embd
        self.small("ffn_gate_inp.weight", dims=(n_embd, count))
        for name, dims in (("gate", (n_embd, width)), ("up", (n_embd, width)), ("down", (width, n_embd))):
            self.matrix(f"ffn_{name}_exps", *dims, count)
            if bias:
                self.small(f"ffn_{name}_exps.bias", dims=(dims[1], count))
        return self.small("ffn_gate_inp.bias", dims=(count,)) if bias else self

    def mamba2(self, inner: int, state: int, groups: int, heads: int) -> Recipe:
        channels = inner + 2 * groups * state
        self.matrix("ssm_in", self.base.n_embd, inner + channels + heads)
        self.small("ssm_conv1d.weight", dims=(4, channels)).small("ssm_conv1d.bias", dims=(channels,))
        self.small("ssm_dt.bias", dims=(heads,)).small("ssm_a", "ssm_d", dims=(1, heads))
        self.small("ssm_norm.weight", dims=(inner // groups, groups))
        return self.matrix("ssm_out", inner, self.base.n_embd)

    def delta_net(self, head: int, key_heads: int, heads: int, *, joint: bool) -> Recipe:
        n_embd, inner = self.base.n_embd, head * heads
        channels = inner + 2 * head * key_heads
        self.matrix("attn_qkv", n_embd, channels).matrix("attn_gate", n_embd, inner)
        self.small("ssm_conv1d.weight", dims=(4, channels)).small("ssm_dt.bias", "ssm_a", dims=(heads,))
        if joint:
            self.matrix("ssm_ba", n_embd, 2 * heads)
        else:
            self.matrix("ssm_beta", n_embd, heads).matrix("ssm_alpha", n_embd, heads)
        return self.small("ssm_norm.weight", dims=(head,)).matrix("ssm_out", inner, n_embd)

    def finish(self) -> Recipe:
        """The last norm and the output matrix."""
        self.block = ""
        self.small("token_embd_norm.weight" if self.base.architecture.startswith("lfm2") else "output_norm.weight")
        if not self.base.tied and "output.weight" not in self.tensors:
            self.matrix("output", self.base.n_embd, self.base.n_vocab)
        return self

    def write(self, path: Path) -> Path:
        self.finish()
        return write(path, self.metadata, self.tensors)

    def header_bytes(self) -> bytes:
        """The header alone, without the weights."""
        self.finish()
        return header(self.metadata, self.tensors)


def qwen3moe() -> Recipe:
    base = _shape("qwen3moe", n_layer=6, n_embd=2048, n_ff=6144, n_head=32, n_head_kv=4, head=128, n_vocab=151936)
    model = Recipe(base, expert_count=128, expert_used_count=8, expert_feed_forward_length=768)
    for index in range(base.n_layer):
        model.at(index).small("attn_norm.weight", "ffn_norm.weight").attention(norms=True).experts(128, 768)
    return model


def gpt_oss() -> Recipe:
    base = _shape(
        "gpt-oss", n_layer=6, n_embd=2880, n_ff=2880, n_head=64, n_head_kv=8, head=64, n_vocab=201088, window=128
    )
    model = Recipe(base, expert_count=32, expert_used_count=4, expert_feed_forward_length=2880)
    for index in range(base.n_layer):
        model.at(index).small("attn_norm.weight", "post_attention_norm.weight").attention(bias=True)
        model.small("attn_sinks.weight", dims=(64,)).experts(32, 2880, bias=True)
    return model


def mixtral() -> Recipe:
    base = _shape("llama", n_layer=4, n_embd=2048, n_ff=7168, n_head=16, n_head_kv=4, head=128, n_vocab=32000)
    model = Recipe(base, expert_count=8, expert_used_count=2)
    for index in range(base.n_layer):
        model.at(index).small("attn_norm.weight", "ffn_norm.weight").attention().experts(8, 7168)
    return model


def deepseek2(query_rank: int = 1536, n_layer: int = 7) -> Recipe:
    base = _shape("deepseek2", n_layer=n_layer, n_embd=2048, n_ff=10944, n_head=16, n_head_kv=1, n_vocab=102400)
    ranks = {"attention.q_lora_rank": query_rank, "attention.kv_lora_rank": 512, "rope.dimension_count": 64}
    heads = {"attention.key_length": 576, "attention.value_length": 512}
    before = {"attention.key_length_mla": 192, "attention.value_length_mla": 128}
    mixture = {"expert_count": 64, "expert_used_count": 6, "expert_feed_forward_length": 1408}
    more = {"expert_shared_count": 2, "leading_dense_block_count": 1, "expert_weights_scale": 2.5}
    model = Recipe(base, **ranks, **heads, **before, **mixture, **more)
    for index in range(n_layer):
        model.at(index).small("attn_norm.weight", "ffn_norm.weight").small("attn_kv_a_norm.weight", dims=(512,))
        model.matrix("attn_q_a", 2048, query_rank).matrix("attn_q_b", query_rank, 16 * 192)
        model.small("attn_q_a_norm.weight", dims=(query_rank,)).matrix("attn_kv_a_mqa", 2048, 576)
        model.matrix("attn_k_b", 128, 512, 16).matrix("attn_v_b", 512, 128, 16).matrix("attn_output", 2048, 2048)
        if index == 0:
            model.dense(10944)
        else:
            model.experts(64, 1408).small("exp_probs_b.bias", dims=(64,)).dense(2816, "_shexp")
    return model


def qwen35(predicts: bool = False) -> Recipe:
    """With `predicts`, a block for multi-token prediction behind the others."""
    base = _shape("qwen35", n_layer=16, n_embd=2560, n_ff=9216, n_head=16, n_head_kv=4, head=256, n_vocab=151936)
    model = Recipe(base, **_delta_keys(128, 16, 32), **{"rope.dimension_sections": [11, 11, 10, 0]})
    model.metadata["qwen35.rope.dimension_count"] = 64
    for index in range(base.n_layer):
        model.at(index).small("attn_norm.weight", "post_attention_norm.weight").dense(base.n_ff)
        if index % 4 == 3:
            model.attention(wide=2, norms=True)
        else:
            model.delta_net(128, 16, 32, joint=False)
    if predicts:
        model.metadata |= {"qwen35.block_count": base.n_layer + 1, "qwen35.nextn_predict_layers": 1}
        model.at(base.n_layer).small("attn_norm.weight", "post_attention_norm.weight").dense(base.n_ff)
        model.attention(wide=2, norms=True).matrix("nextn.eh_proj", 2 * base.n_embd, base.n_embd)
        model.small("nextn.enorm.weight", "nextn.hnorm.weight", "nextn.shared_head_norm.weight")
    return model


def qwen3next() -> Recipe:
    base = _shape("qwen3next", n_layer=8, n_embd=2048, n_ff=5120, n_head=16, n_head_kv=2, head=256, n_vocab=151936)
    mixture = {"expert_count": 64, "expert_used_count": 10, "expert_feed_forward_length": 512}
    model = Recipe(base, **_delta_keys(128, 16, 32), **mixture, expert_shared_feed_forward_length=512)
    model.metadata["qwen3next.rope.dimension_count"] = 64
    for index in range(base.n_layer):
        model.at(index).small("attn_norm.weight", "post_attention_norm.weight")
        model.experts(64, 512).dense(512, "_shexp").small("ffn_gate_inp_shexp.weight")
        if index % 4 == 3:
            model.attention(wide=2, norms=True)
        else:
            model.delta_net(128, 16, 32, joint=True)
    return model


def granitehybrid() -> Recipe:
    kv = [4 if index in (5, 15, 25, 35) else 0 for index in range(40)]
    base = _shape("granitehybrid", n_layer=40, n_embd=1536, n_ff=4096, n_head=12, n_head_kv=4, head=128, n_vocab=100352)
    model = Recipe(base, **_mamba_keys(3072, 128, 1, 48), **{"attention.head_count_kv": kv})
    for index, heads in enumerate(kv):
        model.at(index).small("attn_norm.weight", "ffn_norm.weight").dense(4096)
        if heads:
            model.attention()
        else:
            model.mamba2(3072, 128, 1, 48)
    return model


def falcon_h1() -> Recipe:
    base = _shape("falcon-h1", n_layer=24, n_embd=2048, n_ff=4096, n_head=8, n_head_kv=2, head=128, n_vocab=65536)
    model = Recipe(base, **_mamba_keys(3072, 256, 1, 48))
    for index in range(base.n_layer):
        model.at(index).small("attn_norm.weight", "ffn_norm").attention().mamba2(3072, 256, 1, 48).dense(4096)
    return model


def nemotron_h() -> Recipe:
    kinds = "M-M-M-MM-M-M*-M-M*-M-M-M*-M-M-MM*-MMM-M-M-"
    base = _shape("nemotron_h", n_layer=42, n_embd=3136, n_ff=12544, n_head=40, n_head_kv=8, head=128, n_vocab=131072)
    keys = {
        "attention.head_count_kv": [8 if kind == "*" else 0 for kind in kinds],
        "feed_forward_length": [12544 if kind == "-" else 0 for kind in kinds],
        "attention.layer_norm_epsilon": 1e-5,
    }
    model = Recipe(base, **_mamba_keys(7680, 128, 8, 96), **keys)
    for index, kind in enumerate(kinds):
        model.at(index).small("attn_norm.weight")
        if kind == "M":
            model.mamba2(7680, 128, 8, 96)
        elif kind == "*":
            model.attention()
        else:
            model.matrix("ffn_up", 3136, 12544).matrix("ffn_down", 12544, 3136)
    return model


def lfm2() -> Recipe:
    attends = (2, 5, 8, 10, 12, 14)
    base = _shape("lfm2", n_layer=16, n_embd=2048, n_ff=8192, n_head=32, n_head_kv=8, n_vocab=65536, tied=True)
    kv = [8 if index in attends else 0 for index in range(16)]
    model = Recipe(base, **{"shortconv.l_cache": 3, "attention.head_count_kv": kv})
    for index in range(16):
        model.at(index).small("attn_norm.weight", "ffn_norm.weight").dense(8192)
        if index in attends:
            model.attention(norms=True)
        else:
            model.matrix("shortconv.in_proj", 2048, 6144).matrix("shortconv.out_proj", 2048, 2048)
            model.small("shortconv.conv.weight", dims=(3, 2048))
    return model


def phi3() -> Recipe:
    base = _shape("phi3", n_layer=32, n_embd=3072, n_ff=8192, n_head=32, n_head_kv=32, head=96, n_vocab=32064)
    model = Recipe(base, **{"attention.sliding_window": 2047})
    model.metadata["general.name"] = "fused"  # by the name of a Phi 3 the engine looks for that vocabulary's tokens
    for index in range(base.n_layer):
        model.at(index).small("attn_norm.weight", "ffn_norm.weight").matrix("attn_qkv", 3072, 9216)
        model.matrix("attn_output", 3072, 3072).matrix("ffn_up", 3072, 16384).matrix("ffn_down", 8192, 3072)
    return model


def eagle3(target: Shape, taps: tuple[int, int, int], vocabulary: int = 0) -> Recipe:
    """An EAGLE-3 draft for a target, which lends its embedding; with `vocabulary` it guesses among fewer tokens."""
    base = replace(target, architecture="eagle3", n_layer=1, n_head_kv=2)
    model = Recipe(base, target_layers=Typed("i32", taps), target_hidden_size=target.n_embd)
    if vocabulary:
        model.small("d2t", dims=(vocabulary,), kind="I64")
    model.matrix("fc", 3 * target.n_embd, base.n_embd).matrix("output", base.n_embd, vocabulary or base.n_vocab)
    query, kv = base.n_head * base.head, base.n_head_kv * base.head
    model.at(0).small("attn_norm.weight", "attn_norm_2.weight", "ffn_norm.weight").dense(base.n_ff)
    model.matrix("attn_q", 2 * base.n_embd, query).matrix("attn_k", 2 * base.n_embd, kv)
    return model.matrix("attn_v", 2 * base.n_embd, kv).matrix("attn_output", query, base.n_embd)


def dflash(target: Shape, taps: tuple[int, ...], markov: int = 0) -> Recipe:
    """A DFlash draft of three layers for a target, or with the rank of a Markov head a DSpark draft."""
    base = replace(target, architecture="dflash", n_layer=3, tied=True)
    model = Recipe(base, target_layers=Typed("i32", taps), block_size=8)
    model.matrix("fc", len(taps) * target.n_embd, base.n_embd).small("enc.output_norm.weight")
    if markov:
        model.matrix("markov_w1", markov, base.n_vocab).matrix("markov_w2", markov, base.n_vocab)
    for index in range(base.n_layer):
        model.at(index).small("attn_norm.weight", "ffn_norm.weight").attention(norms=True).dense(base.n_ff)
    return model


def _shape(architecture: str, **sizes: Any) -> Shape:
    usual: dict[str, Any] = {"type": "Q4_1", "n_ctx_train": 131072}
    return Shape(architecture, **usual | sizes)


def _mamba_keys(inner: int, state: int, groups: int, heads: int) -> dict[str, Any]:
    sizes = {"conv_kernel": 4, "inner_size": inner, "state_size": state, "group_count": groups}
    return {f"ssm.{key}": value for key, value in sizes.items()} | {"ssm.time_step_rank": heads}


def _delta_keys(head: int, key_heads: int, heads: int) -> dict[str, Any]:
    return _mamba_keys(head * heads, head, key_heads, heads) | {"full_attention_interval": 4}


def _plain(architecture: str, **sizes: Any) -> Callable[[], Shape]:
    return lambda: _shape(architecture, **sizes)


def split(shape: Shape, folder: Path) -> Path:
    """A model in two parts, as llama-gguf-split cuts it; the first part's path."""
    tensors = list(shape.tensors().items())
    half = len(tensors) // 2
    paths = [folder / f"{shape.architecture}-0000{no}-of-00002.gguf" for no in (1, 2)]
    for no, (path, part) in enumerate(zip(paths, (tensors[:half], tensors[half:]), strict=True)):
        place = {"split.no": Typed("u16", no), "split.count": Typed("u16", 2)}
        metadata = (shape.metadata() if no == 0 else {}) | place | {"split.tensors.count": Typed("i32", len(tensors))}
        write(path, metadata, dict(part))
    return paths[0]


# Name: how to make it. Where several types are worth a look, the matrices are of another than Q4_1.
SHAPES: dict[str, Callable[[], Recipe | Shape]] = {
    "llama gqa": _plain(
        "llama", n_layer=16, n_embd=2048, n_ff=8192, n_head=32, n_head_kv=8, n_vocab=128256, tied=True, type="Q4_K"
    ),
    "llama mqa": _plain(
        "llama", n_layer=22, n_embd=2048, n_ff=5632, n_head=16, n_head_kv=1, head=128, n_vocab=32000, type="Q8_0"
    ),
    "llama mha": _plain("llama", n_layer=26, n_embd=3072, n_ff=8192, n_head=24, n_head_kv=24, head=128, n_vocab=32000),
    "minicpm5-2b": _plain(
        "llama", n_layer=42, n_embd=2048, n_ff=6144, n_head=16, n_head_kv=2, head=128, n_vocab=130560
    ),
    "qwen2": _plain(
        "qwen2",
        n_layer=28,
        n_embd=1536,
        n_ff=8960,
        n_head=12,
        n_head_kv=2,
        head=128,
        n_vocab=151936,
        tied=True,
        bias=True,
        type="Q6_K",
    ),
    "qwen3": _plain(
        "qwen3",
        n_layer=28,
        n_embd=2048,
        n_ff=6144,
        n_head=16,
        n_head_kv=8,
        head=128,
        n_vocab=151936,
        tied=True,
        head_norms=True,
        type="Q5_K",
    ),
    "gemma3": _plain(
        "gemma3",
        n_layer=26,
        n_embd=1152,
        n_ff=6912,
        n_head=4,
        n_head_kv=1,
        head=256,
        n_vocab=262144,
        tied=True,
        head_norms=True,
        post_norms=True,
        window=512,
        type="Q4_0",
    ),
    "qwen3moe": qwen3moe,
    "gpt-oss": gpt_oss,
    "mixtral": mixtral,
    "deepseek2": deepseek2,
    "qwen35": qwen35,
    "qwen3next": qwen3next,
    "granitehybrid": granitehybrid,
    "falcon-h1": falcon_h1,
    "nemotron_h": nemotron_h,
    "lfm2": lfm2,
    "phi3": phi3,
}
