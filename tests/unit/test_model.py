"""Models from headers: every fact that serving needs, and the files that are no language model."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.facts.gguf import read_file, read_ranges
from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model, from_file, from_header, repacked_bytes
from orin_deploy.facts.not_a_model import NotAModel
from tests.ggufs import Shape, Typed, header, write

Q8_0_BYTES = 34 / 32


def model(shape: Shape, **changes: Any) -> Model:
    """The model of a shape with some metadata changed; None takes a key away."""
    metadata = {key: value for key, value in (shape.metadata() | changes).items() if value is not None}
    raw = header(metadata, shape.tensors())
    return from_header(read_ranges(lambda at, length: raw[at : at + length], None, "test"), "hf:a/b")


def test_every_fact(tmp_path: Path) -> None:
    shape = Shape(n_layer=2, n_vocab=1024)
    path = shape.write(tmp_path / "m.gguf")
    found = from_file(path)
    embedding = int(1024 * 256 * Q8_0_BYTES)
    assert found.reference == f"file:{path}"
    assert (found.architecture, found.name, found.file_type) == ("llama", "llama of a test", "Q8_0")
    assert found.n_params == sum(prod(dims) for _, dims in shape.tensors().values())
    assert found.file_bytes == path.stat().st_size
    assert found.tensor_bytes == sum(size for _, size in found.tensor_types)
    assert found.tensor_bytes == path.stat().st_size - read_file(path).data_offset
    assert (found.n_embd, found.n_ff, found.n_head, found.n_vocab, found.n_ctx_train) == (256, 512, 4, 1024, 8192)
    assert found.layers == (Layer(2, 64, 64),) * 2
    assert (found.tokenizer, found.pre_tokenizer, found.chat_template) == ("gpt2", "default", False)
    assert (found.token_embd_bytes, found.output_bytes, found.largest_tensor_bytes) == (embedding,) * 3
    assert not found.tied
    assert found.rope_base == 10000.0
    assert found.vocab_fingerprint


def test_heads_per_layer_and_defaults() -> None:
    shape = Shape(n_layer=3)
    varied = {"llama.attention.head_count_kv": [4, 0, 1], "llama.feed_forward_length": [512, 1024, 256]}
    found = model(shape, **varied)
    assert [layer.n_head_kv for layer in found.layers] == [4, 0, 1]
    assert found.n_ff == 1024
    bare = dict.fromkeys(
        ("llama.attention.head_count_kv", "llama.attention.key_length", "llama.attention.value_length")
    )
    assert model(replace(shape, n_embd=512), **bare).layers == (Layer(4, 128, 128),) * 3


@pytest.mark.parametrize(
    ("architecture", "changes", "dense"),
    [
        ("gemma2", {}, [1, 3, 5, 7]),
        ("gemma3", {}, [5]),
        ("gemma3", {"attention.sliding_window_pattern": 3}, [2, 5]),
        ("gemma3", {"attention.sliding_window": None}, list(range(8))),
        ("cohere2moe", {}, [0, 4]),
        ("gemma4", {"attention.sliding_window_pattern": [True, True, False, True] * 2}, [2, 6]),
        ("llama", {}, list(range(8))),
        ("phi3", {}, list(range(8))),
    ],
)
def test_sliding_layers(architecture: str, changes: dict[str, Any], dense: list[int]) -> None:
    keyed = {f"{architecture}.{key}": value for key, value in changes.items()}
    found = model(Shape(architecture, n_layer=8, window=512), **keyed)
    assert [index for index, layer in enumerate(found.layers) if not layer.sliding] == dense


def test_layers_that_share_a_cache_have_none() -> None:
    found = model(Shape("gemma4", n_layer=4), **{"gemma4.attention.shared_kv_layers": 2})
    assert [layer.n_head_kv for layer in found.layers] == [2, 2, 0, 0]


def test_compressed_attention_keeps_no_values() -> None:
    keys = {"attention.key_length_mla": 192, "attention.key_length": 576, "attention.head_count_kv": 1}
    found = model(Shape("deepseek2"), **{f"deepseek2.{key}": value for key, value in keys.items()})
    assert found.layers[0] == Layer(1, 576, 0)


def test_parts_are_added_up(tmp_path: Path) -> None:
    shape = Shape(n_layer=2)
    tensors = list(shape.tensors().items())
    for no, piece in enumerate((tensors[:5], tensors[5:])):
        keys = {"split.no": Typed("u16", no), "split.count": Typed("u16", 2)}
        write(tmp_path / f"m-0000{no + 1}-of-00002.gguf", (shape.metadata() if no == 0 else {}) | keys, dict(piece))
    whole = from_file(shape.write(tmp_path / "whole.gguf"))
    parts = from_file(tmp_path / "m-00001-of-00002.gguf")
    assert (parts.parts, parts.tensor_bytes, parts.n_params) == (2, whole.tensor_bytes, whole.n_params)
    assert parts.file_bytes == sum(path.stat().st_size for path in tmp_path.glob("m-*.gguf"))
    with pytest.raises(NotAModel, match="one of 2 parts; 1 were read"):
        from_header(read_file(tmp_path / "m-00001-of-00002.gguf"), "remote")


AVX2, ARM = frozenset({"AVX2", "FMA"}), frozenset({"NEON", "DOTPROD", "FP16_VA"})


@pytest.mark.parametrize(
    ("kind", "features", "share"),
    [
        ("Q4_0", AVX2, 1),
        ("Q4_0", ARM, 1),
        ("Q4_0", frozenset({"NEON"}), 0),
        ("Q4_0", frozenset[str](), 0),
        ("Q4_K", ARM, 1),
        ("Q6_K", ARM, 1),
        ("Q6_K", AVX2, 0),
        ("Q2_K", AVX2, 0),
        ("Q2_K", AVX2 | {"AVX512"}, 1),
        ("Q8_0", ARM, 1),
        ("Q8_0", AVX2, 0),
        ("IQ4_NL", frozenset({"NEON", "MATMUL_INT8"}), 0),
        ("F16", AVX2 | ARM, 0),
        ("Q5_0", AVX2 | ARM, 0),
    ],
)
def test_repacking_by_type_and_cpu(kind: str, features: frozenset[str], share: int) -> None:
    found = model(Shape(type=kind, n_vocab=1024))
    matrices = found.tensor_bytes - found.token_embd_bytes - dict(found.tensor_types)["F32"]
    assert repacked_bytes(found, features) == share * matrices


def test_repacking_needs_rows_in_eights() -> None:
    odd = model(Shape(type="Q4_0", n_vocab=1023, tied=True))
    assert repacked_bytes(odd, AVX2, ("looked up",)) == 0
    even = model(Shape(type="Q4_0", n_vocab=1024, tied=True))
    assert repacked_bytes(even, AVX2, ("looked up",)) == even.token_embd_bytes
    assert even.repackable_bytes == repacked_bytes(even, AVX2 | ARM)


@pytest.mark.parametrize(
    ("rule", "says", "changes"),
    [
        ("gguf.arch-empty", "empty architecture: not a language model file", {"general.architecture": ""}),
        ("gguf.arch-empty", "empty architecture", {"general.architecture": None}),
        ("gguf.arch-empty", "of the kind 'clip': not a language", {"general.architecture": "clip"}),
        ("gguf.arch-empty", "of the kind 'adapter'", {"general.type": "adapter"}),
        ("gguf.encoder", "cannot chat", {"general.architecture": "nomic-bert"}),
        ("gguf.corrupt", "llama.block_count", {"llama.block_count": None}),
        ("gguf.corrupt", "claims 513 layers", {"llama.block_count": 513}),
        ("gguf.corrupt", "llama.embedding_length", {"llama.embedding_length": 0}),
    ],
)
def test_what_is_no_language_model(rule: str, says: str, changes: dict[str, Any]) -> None:
    with pytest.raises(NotAModel, match=says) as caught:
        model(Shape(), **changes)
    assert caught.value.rule == rule


def test_a_vocabulary_alone() -> None:
    raw = header(Shape().metadata(), {})
    with pytest.raises(NotAModel, match="no weights"):
        from_header(read_ranges(lambda at, length: raw[at : at + length], len(raw), "vocab"), "vocab")


@pytest.mark.engine
def test_a_real_model(smollm2: Path) -> None:
    found = from_file(smollm2)
    assert (found.n_params, found.n_layer, found.n_head, found.n_vocab) == (134_515_008, 30, 9, 49152)
    assert (found.file_type, found.layers[0], found.tied) == ("Q4_1", Layer(3, 64, 64), True)
    assert found.chat_template
