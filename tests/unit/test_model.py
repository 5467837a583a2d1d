"""Models from headers: every fact that serving needs, and the files that are no language model."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.errors import Exit
from orin_deploy.facts.gguf import read_file, read_ranges
from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model, from_file, from_header, projector_bytes
from orin_deploy.facts.not_a_model import NotAModel
from orin_deploy.facts.tensors import cpu_bytes, gpu_bytes
from tests.ggufs import Shape, Typed, header, write
from tests.shapes import split

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
        ("gemma2", {"attention.sliding_window": None}, [1, 3, 5, 7]),
        ("gemma3", {}, [5]),
        ("gemma3", {"attention.sliding_window_pattern": 3}, [2, 5]),
        ("gemma3", {"attention.sliding_window": None}, list(range(8))),
        ("cohere2moe", {}, [0, 4]),
        ("cohere2moe", {"nextn_predict_layers": 2}, [0, 4]),
        ("gemma4", {"attention.sliding_window_pattern": [True, True, False, True] * 2}, [2, 6]),
        ("exaone4", {}, list(range(8))),
        ("llama4", {"attention.sliding_window": 0}, list(range(8))),
        ("llama4", {"attention.sliding_window": None}, [3, 7]),
        ("olmo2", {"attention.sliding_window_pattern": 0}, []),
        ("llama", {"attention.sliding_window_pattern": [True] * 8}, list(range(8))),
        ("phi3", {}, list(range(8))),
    ],
)
def test_sliding_layers(architecture: str, changes: dict[str, Any], dense: list[int]) -> None:
    keyed = {f"{architecture}.{key}": value for key, value in changes.items()}
    found = model(Shape(architecture, n_layer=8, window=512), **keyed)
    assert [index for index, layer in enumerate(found.layers) if not layer.sliding] == dense
    assert bool(found.sliding_window) == found.sliding_layers or architecture == "phi3"


@pytest.mark.parametrize(("architecture", "window"), [("llama4", 8192), ("smallthinker", 4096), ("gemma3", 512)])
def test_windows_that_are_fixed(architecture: str, window: int) -> None:
    assert model(Shape(architecture, n_layer=8, window=512)).sliding_window == window


def test_layers_that_share_a_cache_have_none() -> None:
    found = model(Shape("gemma4", n_layer=4), **{"gemma4.attention.shared_kv_layers": 2})
    assert [layer.n_head_kv for layer in found.layers] == [2, 2, 0, 0]


@pytest.mark.parametrize("architecture", ["dream", "llada", "mamba", "rwkv7", "gemma4-assistant"])
def test_architectures_that_keep_no_keys(architecture: str) -> None:
    assert {layer.n_head_kv for layer in model(Shape(architecture)).layers} == {0}


def test_compressed_attention_keeps_no_values() -> None:
    keys = {"attention.key_length_mla": 192, "attention.key_length": 576, "attention.head_count_kv": 1}
    found = model(Shape("deepseek2"), **{f"deepseek2.{key}": value for key, value in keys.items()})
    assert found.layers[0] == Layer(1, 576, 0)
    plain = keys | {"attention.key_length_mla": 0}
    assert model(Shape("deepseek2"), **{f"deepseek2.{key}": value for key, value in plain.items()}).layers[0].head_v


SSM = {"ssm.conv_kernel": 4, "ssm.inner_size": 512, "ssm.state_size": 16, "ssm.group_count": 2}


@pytest.mark.parametrize(
    ("architecture", "changes", "state"),
    [
        ("mamba", SSM, (3 * 512, 512 * 16)),  # reads no groups
        ("mamba2", SSM, (3 * (512 + 2 * 2 * 16), 512 * 16)),
        ("lfm2", {"shortconv.l_cache": 3, "attention.head_count_kv": [0] * 3}, (2 * 256, 0)),
        ("rwkv7", {"wkv.head_size": 64}, (2 * 256, 256 * 64)),
        ("rwkv6qwen2", {"wkv.head_size": 64, "token_shift_count": 1}, (256, 256 * 64)),
        ("kimi-linear", {"kda.head_dim": 32, "attention.head_count_kv": [0] * 3} | SSM, (3 * 3 * 4 * 32, 32 * 32 * 4)),
        ("minimax-01", {}, (0, 64 * 64 * 4)),
        ("qwen3next", SSM, (3 * (512 + 2 * 2 * 16), 512 * 16)),
        ("llama", SSM, ()),
    ],
)
def test_recurrent_state(architecture: str, changes: dict[str, Any], state: tuple[int, ...]) -> None:
    found = model(Shape(architecture), **{f"{architecture}.{key}": value for key, value in changes.items()})
    assert found.layers[0].state == state


@pytest.mark.parametrize(
    ("architecture", "changes", "attention"),
    [
        ("qwen3next", {}, [3, 7]),
        ("qwen3next", {"full_attention_interval": 2}, [1, 3, 5, 7]),
        ("qwen35", {"nextn_predict_layers": 1}, [3]),
        ("minimax-01", {}, [7]),
        ("qwen4exp", {"attention.recurrent_layers": [1, 0] * 4}, [1, 3, 5, 7]),
        ("jamba", {"attention.head_count_kv": [0, 2, 0, 0, 2, 0, 0, 0]}, [1, 4]),
        ("falcon-h1", {}, list(range(8))),
    ],
)
def test_hybrid_layers(architecture: str, changes: dict[str, Any], attention: list[int]) -> None:
    keyed = {f"{architecture}.{key}": value for key, value in (SSM | changes).items()}
    found = model(Shape(architecture, n_layer=8), **keyed)
    assert [index for index, layer in enumerate(found.layers) if layer.n_head_kv] == attention
    recurrent = [index for index, layer in enumerate(found.layers) if layer.state]
    assert recurrent == [i for i in range(found.n_layer) if i not in attention or architecture == "falcon-h1"]


def test_blocks_that_predict_further_tokens_stand_apart() -> None:
    found = model(Shape("glm4moe", n_layer=4), **{"glm4moe.nextn_predict_layers": 1})
    assert (len(found.layers), found.nextn) == (3, (Layer(2, 64, 64),))
    assert found.tensors is not None
    block = (found.tensor_bytes - 2 * found.token_embd_bytes - 256 * 4) // 4
    without, _ = cpu_bytes(found.tensors, frozenset(), mapped=False)
    assert found.tensor_bytes - without == block
    assert cpu_bytes(found.tensors, frozenset(), mapped=False, nextn=True) == (found.tensor_bytes, 0)
    assert len(model(Shape("glm4moe", n_layer=4), **{"glm4moe.nextn_predict_layers": 4}).layers) == 4


INDEXER = {"attention.indexer.key_length": 128, "attention.key_length_mla": 192, "attention.indexer.top_k": 64}


@pytest.mark.parametrize(
    ("architecture", "changes", "kept"),
    [
        ("deepseek32", {}, [(128, 0)] * 4),
        ("deepseek32", {"attention.key_length_mla": 0}, [(128, 64)] * 4),
        ("glm-dsa", {}, [(128, 0)] * 4),
        ("glm-dsa", {"context_length": 1 << 20}, [(128, 0)] * 3 + [(0, 0)]),
        ("glm-dsa", {"attention.indexer.types": [1, 0, 0, 1]}, [(128, 0), (0, 0), (0, 0), (128, 0)]),
        ("minimax-m3", {"leading_dense_block_count": 1}, [(0, 0)] + [(128, 64)] * 3),
        ("hy_v4", {"attention.indexer.top_k": 0, "attention.indexer.types": [1] * 4}, [(0, 0)] * 4),
        ("llama", {}, [(0, 0)] * 4),
    ],
)
def test_indexers(architecture: str, changes: dict[str, Any], kept: list[tuple[int, int]]) -> None:
    keyed = {f"{architecture}.{key}": value for key, value in (INDEXER | changes).items()}
    found = model(Shape(architecture, n_layer=4), **keyed)
    assert [(layer.index_k, layer.index_v) for layer in found.layers] == kept


def test_a_looped_model_keeps_every_pass() -> None:
    found = model(Shape("nanbeige", n_layer=3), **{"nanbeige.num_loops": 2})
    assert found.layers == (Layer(2, 64, 64),) * 6
    with pytest.raises(NotAModel, match="claims 1539 layers"):
        model(Shape("nanbeige", n_layer=3), **{"nanbeige.num_loops": 1 << 31})


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


def test_a_projector_is_the_sum_of_its_tensors(tmp_path: Path) -> None:
    path = write(
        tmp_path / "mmproj.gguf", {"general.architecture": "clip"}, {"v.a": ("F16", (64, 8)), "v.b": ("F32", (8,))}
    )
    assert projector_bytes(str(path)) == 64 * 8 * 2 + 8 * 4
    assert projector_bytes(None) == 0


def test_what_is_no_projector_is_refused_before_the_server_finds_out(tmp_path: Path) -> None:
    with pytest.raises(NotAModel, match="there is no file") as caught:
        projector_bytes(str(tmp_path / "absent"))
    assert caught.value.code == Exit.USAGE
    shape = Shape()
    with pytest.raises(NotAModel, match="no multimodal projector but a GGUF of llama"):
        projector_bytes(str(write(tmp_path / "m.gguf", shape.metadata(), shape.tensors())))


def test_a_part_of_another_model_under_the_right_name(tmp_path: Path) -> None:
    """A download of two models into one folder, or a part that was replaced."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    mine.mkdir()
    other.mkdir()
    first = split(Shape(), mine)
    last = mine / first.name.replace("00001-of", "00002-of")
    part = last.read_bytes()
    Shape().write(last)
    with pytest.raises(NotAModel, match="is no part 2 of 2, whatever its name says"):
        from_file(first)
    split(Shape(n_layer=7), other)
    last.write_bytes((other / last.name).read_bytes())
    with pytest.raises(NotAModel, match="they are not all of one model"):
        from_file(first)
    last.write_bytes(part)
    assert from_file(first).parts == 2


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
    assert found.tensors is not None
    plain, repacked = cpu_bytes(found.tensors, features, mapped=False)
    assert (plain, repacked) == (found.tensor_bytes - repacked, share * matrices)


def test_repacking_needs_rows_in_eights() -> None:
    odd = model(Shape(type="Q4_0", n_vocab=1023, tied=True))
    even = model(Shape(type="Q4_0", n_vocab=1024, tied=True))
    assert odd.tensors is not None
    assert even.tensors is not None
    plain, repacked = cpu_bytes(odd.tensors, AVX2, mapped=False)
    assert plain + repacked == pytest.approx(odd.tensor_bytes, abs=64)
    both = sum(cpu_bytes(even.tensors, AVX2, mapped=False))
    assert both == even.tensor_bytes + even.token_embd_bytes
    assert even.repackable_bytes == cpu_bytes(even.tensors, AVX2 | ARM, mapped=False)[1]


def test_a_mapping_reaches_from_the_first_tensor_to_the_last() -> None:
    """What is repacked drops out of the mapping at its edges and stays, uncounted twice, between others."""
    found = model(Shape(type="Q4_0", n_layer=2, n_vocab=1024))
    assert found.tensors is not None
    (file,) = found.tensors.files
    kept = [tensor for tensor in file if tensor.type == "F32" or tensor.name == "token_embd.weight"]
    mapped, repacked = cpu_bytes(found.tensors, AVX2, mapped=True)
    assert mapped == kept[-1].offset + kept[-1].bytes - kept[0].offset
    assert repacked == cpu_bytes(found.tensors, AVX2, mapped=False)[1]
    assert cpu_bytes(found.tensors, frozenset(), mapped=True) == (found.tensor_bytes, 0)


@pytest.mark.parametrize("tied", [True, False])
def test_weights_on_a_gpu(tied: bool) -> None:
    found = model(Shape(tied=tied))
    assert found.tensors is not None
    device, host = gpu_bytes(found.tensors, mapped=False, cuda=False)
    assert host == found.token_embd_bytes
    assert device == found.tensor_bytes - (0 if tied else found.token_embd_bytes)
    # Rows of 256 Q8_0 values end on a multiple of 512: 8 more blocks of 34 bytes a matrix, and 128 bytes a tensor.
    on_cuda, _ = gpu_bytes(found.tensors, mapped=False)
    narrow = sum(1 for t in found.tensors.all() if t.type == "Q8_0" and t.dims[0] % 512)
    narrow -= 0 if tied else 1  # the token embedding stays on the CPU
    assert 0 <= on_cuda - device - narrow * 8 * 34 < 128 * (narrow + 1)


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
