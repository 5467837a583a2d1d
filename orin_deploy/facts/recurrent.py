"""Recurrent layers: which they are and what they keep a sequence (src/llama-hparams.cpp, n_embd_r and n_embd_s)."""

from __future__ import annotations

from orin_deploy.facts.gguf import Header

PURE = frozenset(("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"))  # llm_arch_is_recurrent
_NO_HEADS = frozenset(  # a layer without heads for keys and values is recurrent
    ("bailingmoe3", "glm5-next", "granitehybrid", "jamba", "kimi-k3", "kimi-linear", "lfm2", "lfm2moe", "plamo2")
)
# Of so many layers the last has attention.
_INTERVALS = {"minimax-01": 8, "qwen35": 4, "qwen35moe": 4, "qwen3next": 4, "qwen4exp": 4}

# Their state can be rolled back a few tokens, so speculation keeps copies of it (llm_arch_supports_rs_rollback).
ROLLBACK = frozenset(
    (
        "bailingmoe3",
        "deepseek4",
        "glm5-next",
        "kimi-k3",
        "lfm2",
        "lfm2moe",
        "nemotron_h",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen4exp",
    )
)
_KDA = frozenset(("bailingmoe3", "glm5-next", "kimi-k3", "kimi-linear"))
_WITHOUT_GROUPS = frozenset({"mamba", "jamba"})  # they read no ssm.group_count


def which(header: Header, architecture: str, heads_kv: list[int], n_ff: list[int], n_layer: int) -> list[bool]:
    """For each block whether it is recurrent; the first `n_layer` of them are the model's layers."""
    blocks = range(len(heads_kv))
    if architecture in PURE or architecture == "falcon-h1":
        return [i < n_layer for i in blocks]
    if architecture in _NO_HEADS:
        return [i < n_layer and heads_kv[i] == 0 for i in blocks]
    if architecture in ("nemotron_h", "nemotron_h_moe"):
        return [i < n_layer and heads_kv[i] == 0 and n_ff[i] == 0 for i in blocks]
    if architecture in _INTERVALS:
        told = header.metadata.get(f"{architecture}.attention.recurrent_layers")
        if isinstance(told, tuple):
            return [i < min(n_layer, len(told)) and bool(told[i]) for i in blocks]
        if isinstance(told, int):
            return [i < n_layer and bool(told) for i in blocks]
        interval = max(1, header.number(f"{architecture}.full_attention_interval", _INTERVALS[architecture]))
        return [i < n_layer and (i + 1) % interval != 0 for i in blocks]
    return [False for _ in blocks]


def state(header: Header, architecture: str, n_head: int, head_k: int, index: int) -> tuple[int, ...]:
    """Elements of each tensor that recurrent layer `index` keeps a sequence; `n_head` and `head_k` are the first
    layer's."""

    def number(key: str, default: int = 0) -> int:
        return max(0, header.number(f"{architecture}.{key}", default))

    n_embd, convolution = number("embedding_length"), number("ssm.conv_kernel")
    if architecture in PURE - {"mamba", "mamba2"}:
        head = number("wkv.head_size")
        return number("token_shift_count", 2) * n_embd, n_embd * head
    if architecture in ("lfm2", "lfm2moe"):
        return n_embd * max(0, number("shortconv.l_cache") - 1), 0
    if architecture in _KDA:
        head = number("kda.head_dim")
        return 3 * (convolution - 1 if convolution else 3) * n_head * head, head * head * n_head
    if architecture == "minimax-01":
        return 0, head_k * head_k * n_head
    inner, size = number("ssm.inner_size"), number("ssm.state_size")
    groups = 0 if architecture in _WITHOUT_GROUPS else number("ssm.group_count")
    kept = max(0, convolution - 1) * (inner + 2 * groups * size), size * inner
    return (*kept, *_ngrams(header, n_embd, index)) if architecture == "qwen4exp" else kept


def _ngrams(header: Header, n_embd: int, index: int) -> tuple[int, ...]:
    """qwen4exp's per-layer embeddings look back over n-grams (ple_conv_state)."""
    layers = header.metadata.get("qwen4exp.ple.layers")
    if not isinstance(layers, tuple) or index not in layers:
        return ()
    kernel, ngram = header.number("qwen4exp.ple.conv_kernel", 0), header.number("qwen4exp.ple.ngram_size", 0)
    return (max(0, kernel - 1) * ngram * header.number("qwen4exp.hyper_connection.count", 0) * n_embd,)
