"""Vocabularies: read from headers as llama.cpp does, compared by its rules, their texts read only when they must be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.facts import gguf, vocabulary
from orin_deploy.facts.not_a_model import NotAModel
from orin_deploy.facts.vocabulary import FIRST_COMPARED, MAX_SIZE_DIFFERENCE, Vocabulary, describe, difference
from tests.ggufs import Shape, write

TEXTS = [f"t{number}".encode() for number in range(300)]


def of(texts: Sequence[bytes] = TEXTS, **changes: Any) -> Vocabulary:
    return replace(Vocabulary("gpt2", "BPE", len(texts), 1, 2, False, False, None, lambda: texts), **changes)


def test_the_same_vocabulary_has_no_difference() -> None:
    assert difference(of(), of()) is None


@pytest.mark.parametrize(
    ("target", "draft", "words"),
    [
        (of(model="gpt2"), of(model="llama", type="SPM"), ("tokenizer.ggml.model is llama (SPM)", "gpt2 (BPE)")),
        (of(add_bos=True), of(), ("the draft does not add the bos token", "the target adds it")),
        (of(), of(add_eos=True), ("the draft adds the eos token", "the target does not add it")),
        (of(add_bos=True), of(add_bos=True, bos=7), ("the bos token is 7 in the draft and 1 in the target",)),
        (of(add_eos=True, eos=9), of(add_eos=True), ("the eos token is 2 in the draft and 9 in the target",)),
        (of(), of(n_tokens=300 + MAX_SIZE_DIFFERENCE + 1), ("429 tokens", "300", "more than 128 apart")),
        (of(), of([*TEXTS[:17], b"other", *TEXTS[18:]]), ('token 17 is "other" in the draft and "t17" in the target',)),
    ],
)  # fmt: skip
def test_the_first_difference_is_shown(target: Vocabulary, draft: Vocabulary, words: tuple[str, ...]) -> None:
    said = difference(target, draft)
    assert said is not None
    assert all(word in said for word in words), said


def test_what_llama_cpp_lets_pass_passes() -> None:
    assert difference(of(), of([b"x"] * FIRST_COMPARED + TEXTS[FIRST_COMPARED:])) is None, "the first five"
    assert difference(of(), of([*TEXTS, *[b"x"] * MAX_SIZE_DIFFERENCE])) is None, "128 more"
    assert difference(of(bos=1), of(bos=3)) is None, "a bos token that is not added"


@given(st.lists(st.binary(min_size=1, max_size=4), min_size=6, max_size=40), st.data())
def test_a_changed_text_is_found_where_it_is(texts: list[bytes], data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(texts) - 1))
    changed = [*texts[:number], texts[number] + b"!", *texts[number + 1 :]]
    said = difference(of(texts), of(changed))
    assert (said is None) == (number < FIRST_COMPARED)
    assert said is None or said.startswith(f"token {number} is ")


def test_texts_are_not_read_where_the_fingerprints_are_equal() -> None:
    def never() -> list[bytes]:
        raise AssertionError("read")

    same = replace(of(fingerprint="a"), texts=never)
    assert difference(same, same) is None
    assert difference(replace(same, add_bos=True), same) is not None


# The defaults of src/llama-vocab.cpp: type, bos, eos, add_bos, add_eos.
@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"model": "llama"}, ("SPM", 1, 2, True, False)),
        ({"model": "gpt2"}, ("BPE", 11, 11, False, False)),
        ({"model": "gpt2", "pre": "llama-bpe", "bos_token_id": 100}, ("BPE", 100, 11, True, False)),
        ({"model": "gpt2", "pre": "glm4"}, ("BPE", -1, 11, False, False)),
        ({"model": "gemma4", "add_bos_token": False}, ("BPE", -1, -1, True, False)),
        ({"model": "t5"}, ("UGM", -1, 1, False, True)),
        ({"model": "llama", "add_bos_token": False, "add_eos_token": True}, ("SPM", 1, 2, False, True)),
        ({"model": "llama", "bos_token_id": 5000}, ("SPM", 1, 2, True, False)),
    ],
)
def test_defaults_are_llama_cpps(metadata: dict[str, Any], told: tuple[Any, ...]) -> None:
    made = describe({f"tokenizer.ggml.{key}": value for key, value in metadata.items()}, 3000)
    assert made is not None
    assert (made.type, made.bos, made.eos, made.add_bos, made.add_eos) == told


@pytest.mark.parametrize("metadata", [{}, {"tokenizer.ggml.model": "none"}, {"tokenizer.ggml.model": 7}])
def test_a_file_without_a_vocabulary_has_none(metadata: dict[str, Any]) -> None:
    assert describe(metadata, 0 if metadata else 100) is None


def test_texts_come_from_the_file_and_by_ranges(tmp_path: Path) -> None:
    shape = Shape(n_vocab=4000)
    path = shape.write(tmp_path / "m.gguf")
    data, asked = path.read_bytes(), []

    def read(offset: int, length: int) -> bytes:
        asked.append(length)
        return data[offset : offset + length]

    remote, local = gguf.read_ranges(read, len(data), "m"), gguf.read_file(path)
    assert remote.tokens is not None
    assert local.tokens is not None
    before = len(asked)
    wanted = [text.encode() for text in shape.metadata()["tokenizer.ggml.tokens"]]
    assert remote.tokens.texts() == local.tokens.texts() == wanted
    assert len(asked) == before + 1, "one ranged read more, and only now"
    assert asked[-1] == sum(8 + len(text) for text in wanted)


def test_a_file_that_changed_meanwhile_is_told(tmp_path: Path) -> None:
    path = Shape(n_vocab=4000).write(tmp_path / "m.gguf")
    header = gguf.read_file(path)
    assert header.tokens is not None
    write(path, {"general.architecture": "llama", "x": "y" * 90_000}, {})
    with pytest.raises(NotAModel, match="changed"):
        header.tokens.texts()


@pytest.mark.engine
def test_a_real_vocabulary_is_compared_with_itself_text_by_text(smollm2: Path) -> None:
    header = gguf.read_file(smollm2)
    real = vocabulary.read(header)
    assert real is not None
    assert (real.n_tokens, real.bos, real.eos, real.add_bos) == (49152, 1, 2, False)
    assert difference(real, replace(real, fingerprint="another")) is None
