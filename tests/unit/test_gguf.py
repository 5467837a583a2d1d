"""Reading GGUF headers: what a sound file says, and what every other file is called."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import Exit
from orin_deploy.facts.gguf import part_names, read_file, read_ranges, read_set
from orin_deploy.facts.gguf_types import FILE_TYPES, TENSOR_TYPES, LongArray
from orin_deploy.facts.gguf_walk import LARGEST_READ
from orin_deploy.facts.not_a_model import NotAModel
from tests.ggufs import Shape, Typed, header, write

TENSORS = {"token_embd.weight": ("Q8_0", (64, 8)), "output_norm.weight": ("F32", (64,))}


def test_a_whole_model(tmp_path: Path) -> None:
    shape = Shape()
    read = read_file(shape.write(tmp_path / "m.gguf"))
    assert read.version == 3
    assert read.text("general.architecture") == "llama"
    assert read.metadata["tokenizer.ggml.tokens"] == LongArray("str", shape.n_vocab)
    assert read.n_vocab == shape.n_vocab
    assert {each.name: (each.type, each.dims) for each in read.tensors} == shape.tensors()
    assert read.data_offset % 32 == 0
    assert read.promised_bytes == (tmp_path / "m.gguf").stat().st_size


def test_every_type_of_value() -> None:
    values: dict[str, Any] = {
        **{f"whole.{name}": Typed(name, 7) for name in ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")},
        **{f"real.{name}": Typed(name, 0.5) for name in ("f32", "f64")},
        "bool": True,
        "text": "grüße",
        "words": ["a", "b"],
        "bools": [True, False],
        "none": [],
        "long": Typed("u16", range(1000)),
    }
    read = read_bytes(header(values, {}))
    assert read.metadata["text"] == "grüße"
    assert read.metadata["words"] == ("a", "b")
    assert read.metadata["bools"] == (True, False)
    assert read.metadata["none"] == ()
    assert read.metadata["long"] == LongArray("u16", 1000)
    assert {value for key, value in read.metadata.items() if key.startswith("whole")} == {7}
    assert {value for key, value in read.metadata.items() if key.startswith("real")} == {0.5}


@pytest.mark.parametrize("kind", TENSOR_TYPES.values(), ids=lambda kind: kind.name)
def test_every_tensor_type(kind: Any) -> None:
    raw = header({}, {"t": (kind.name, (kind.block * 3, 5))})
    read = read_bytes(raw + bytes(15 * kind.block_bytes))
    assert read.tensors[0].bytes == 15 * kind.block_bytes
    with pytest.raises(NotAModel, match=r" 1 bytes are missing"):
        read_bytes(raw + bytes(15 * kind.block_bytes - 1))


def test_names_of_types_are_unique() -> None:
    assert len({kind.name for kind in TENSOR_TYPES.values()}) == len(TENSOR_TYPES)
    assert len(set(FILE_TYPES.values())) == len(FILE_TYPES)


def test_ranges_are_few_and_stay_near_the_header() -> None:
    raw = Shape(n_vocab=300_000).header_bytes()
    asked: list[tuple[int, int]] = []

    def read(offset: int, length: int) -> bytes:
        asked.append((offset, length))
        return raw[offset : offset + length]

    found = read_ranges(read, len(raw) + (1 << 40), "remote")  # as if terabytes of weights came after it
    assert found.n_vocab == 300_000
    assert len(asked) <= 12
    assert sum(length for _, length in asked) <= found.data_offset + LARGEST_READ
    assert [offset for offset, _ in asked] == sorted({offset for offset, _ in asked}), "no byte is fetched twice"


def test_a_source_of_unknown_size_and_short_answers() -> None:
    raw = Shape().header_bytes()
    found = read_ranges(lambda offset, length: raw[offset : offset + min(length, 1000)], None, "remote")
    assert found.file_bytes is None
    assert found.promised_bytes > found.data_offset


FINGERPRINTED = Shape(n_vocab=600)


@pytest.mark.parametrize(
    "change",
    [
        {"tokenizer.ggml.tokens": [f"x{index}" for index in range(600)]},
        {"tokenizer.ggml.token_type": [3] * 600},
        {"tokenizer.ggml.eos_token_id": 5},
        {"tokenizer.ggml.pre": "qwen2"},
        {"tokenizer.ggml.model": "llama"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_fingerprint_tells_vocabularies_apart(change: dict[str, Any]) -> None:
    plain = read_bytes(header(FINGERPRINTED.metadata(), {}))
    assert plain.vocab_fingerprint != read_bytes(header(FINGERPRINTED.metadata() | change, {})).vocab_fingerprint


def test_the_fingerprint_is_of_the_vocabulary_alone() -> None:
    plain = read_bytes(header(FINGERPRINTED.metadata(), {}))
    wider = read_bytes(header(replace(FINGERPRINTED, n_embd=512).metadata() | {"general.name": "other"}, {}))
    assert plain.vocab_fingerprint == wider.vocab_fingerprint
    assert read_bytes(header({}, {})).vocab_fingerprint is None


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1234567890\n"
OTHERS = {
    "gguf.lfs-pointer": [(LFS, "LFS pointer"), (LFS, "1234567890")],
    "gguf.html": [(b"\n <!DOCTYPE html><html>", "web page"), (b"<html><head>", "web page")],
    "gguf.json": [(b'{"error": "not found"}', "JSON")],
    "gguf.zip": [(b"PK\x03\x04" + bytes(26), "zip")],
    "gguf.safetensors": [(struct.pack("<Q", 64) + b'{"__metadata__":{}}', "safetensors")],
    "gguf.old-ggml": [(magic + bytes(28), "before GGUF") for magic in (b"lmgg", b"fmgg", b"tjgg", b"ggjt", b"algg")],
    "gguf.empty": [(b"", "0 bytes")],
    "gguf.endian": [(b"GGUF" + struct.pack(">I", 3) + bytes(16), "big-endian"), (b"FUGG" + bytes(20), "big-endian")],
    "gguf.version": [(b"GGUF" + struct.pack("<I", number) + bytes(16), str(number)) for number in (0, 1, 4, 77)],
    "gguf.magic": [(b"\x7fELF" + bytes(20), "ELF"), (b"hello", "hell"), (b"GGU", "GGU")],
    "gguf.truncated": [(b"GGUF\x03\0\0\0", "at least"), (header({"a": 1}, {})[:-3], "at least 3 ")],
}
CASES = [(rule, raw, says) for rule, cases in OTHERS.items() for raw, says in cases]


@pytest.mark.parametrize(("rule", "raw", "says"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_no_model_is_named(tmp_path: Path, rule: str, raw: bytes, says: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(raw)
    with pytest.raises(NotAModel, match=says) as caught:
        read_file(path)
    assert caught.value.rule == rule
    assert caught.value.code is Exit.REFUSED
    assert caught.value.hint


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, rule in ((tmp_path, "directory"), (tmp_path / "no.gguf", "missing"), (tmp_path / "pipe", "unreadable")):
        with pytest.raises(NotAModel) as caught:
            read_file(path)
        assert caught.value.rule == f"gguf.{rule}"
    with pytest.raises(NotAModel) as caught:
        read_file(Path("a\0b"))
    assert caught.value.rule == "gguf.unreadable"


def test_a_removed_and_an_unknown_tensor_type() -> None:
    raw = header({}, {"t": ("F32", (32,))})
    for number, hint in ((4, "Q4_2"), (31, "Q4_0_4_4"), (99, "update")):
        altered = raw.replace(struct.pack("<QI", 32, 0), struct.pack("<QI", 32, number))
        with pytest.raises(NotAModel, match=f"type {number} ") as caught:
            read_bytes(altered)
        assert caught.value.rule == "gguf.type"
        assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (header({"general.alignment": 0}, {}), "power of two"),
        (header({"general.alignment": 48}, {}), "power of two"),
        (header({"general.alignment": "32"}, {}), "power of two"),
        (header({"": 1}, {}), "empty"),
        (header({"a": 1, "b": 1}, {}).replace(b"b", b"a"), "twice"),
        (header({}, {"a": ("F32", (32,)), "b": ("F32", (32,))}).replace(b"b", b"a"), "twice"),
        (
            header({}, {"a": ("Q4_K", (512,))}).replace(struct.pack("<Q", 512), struct.pack("<Q", 510)),
            "multiple of Q4_K",
        ),
        (header({}, {"a": ("F32", (2**40, 2**40))}), "elements"),
        (header({}, {"a" * 64: ("F32", (32,))}), "claims 64 bytes"),
        (
            header({}, {"a": ("F32", (32,) * 4)}).replace(struct.pack("<IQ", 4, 32), struct.pack("<IQ", 5, 32)),
            "5 dimen",
        ),
        (header({"a": 1}, {}).replace(b"a\x04", b"a\x63"), "type 99"),
        (header({"a": [1, 2]}, {}).replace(b"a\x09\0\0\0\x05", b"a\x09\0\0\0\x09"), "array of the unknown"),
        (header({"a": [1, 2]}, {}).replace(struct.pack("<Q", 2), struct.pack("<Q", 2**62)), "64 MiB"),
        (header({"a": ["x"]}, {})[:-17] + struct.pack("<Q", 2**60), "strings"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**63), "metadata values"),
        (struct.pack("<4sIQQ", b"GGUF", 3, 2**63, 0), "tensors"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nonsense_is_called_damaged(raw: bytes, says: str) -> None:
    with pytest.raises(NotAModel, match=says) as caught:
        read_bytes(raw + bytes(1 << 16))
    assert caught.value.rule == "gguf.corrupt"


def test_tensors_must_follow_each_other() -> None:
    raw = bytearray(header({}, {"a": ("F32", (32,)), "b": ("F32", (32,))}))
    at = raw.index(struct.pack("<Q", 128))
    raw[at : at + 8] = struct.pack("<Q", 64)
    with pytest.raises(NotAModel, match="lies at 64, not at 128"):
        read_bytes(bytes(raw) + bytes(256))


@given(st.integers(1, 400))
def test_bytes_missing_are_counted(missing: int) -> None:
    raw = header({}, TENSORS)
    whole = len(raw) + 8 * 68 + 256  # 544 bytes of Q8_0 fill whole blocks of 32, so nothing lies between
    with pytest.raises(NotAModel, match=f": {missing} bytes are missing"):
        read_bytes((raw + bytes(800))[: whole - missing])


def split(
    folder: Path, count: int, name: str = "m-{no:05d}-of-{count:05d}.gguf", said: int | None = None
) -> list[Path]:
    paths = []
    for no in range(count):
        keys = {"split.no": Typed("u16", no), "split.count": Typed("u16", said or count)}
        metadata = (Shape().metadata() if no == 0 else {}) | keys
        tensors = {f"blk.{no}.ffn_up.weight": ("F32", (32, 8))}
        paths.append(write(folder / name.format(no=no + 1, count=count), metadata, tensors))
    return paths


def test_a_split_set(tmp_path: Path) -> None:
    paths = split(tmp_path, 3)
    parts = read_set(paths[0])
    assert [part.label for part in parts] == [path.name for path in paths]
    assert [part.split_no for part in parts] == [0, 1, 2]
    assert part_names(paths[1].name) == tuple(path.name for path in paths)
    paths[1].unlink()
    with pytest.raises(NotAModel, match=r"3 parts and 1 are missing: m-00002-of-00003\.gguf"):
        read_set(paths[0])
    with pytest.raises(NotAModel, match="part 3 of 3") as caught:
        read_set(paths[2])
    assert caught.value.hint == "give m-00001-of-00003.gguf"


def test_split_parts_under_other_names(tmp_path: Path) -> None:
    glued = tmp_path / "whole.gguf"
    glued.write_bytes(b"".join(path.read_bytes() for path in split(tmp_path, 3)))
    with pytest.raises(NotAModel, match=r"part 1 of 3, renamed or glued") as caught:
        read_file(glued)
    assert caught.value.rule == "gguf.split-name"
    with pytest.raises(NotAModel, match=r"part 1 of 2 by its name but part 1 of 4"):
        read_file(split(tmp_path, 2, said=4)[0])


def read_bytes(raw: bytes) -> Any:
    return read_ranges(lambda offset, length: raw[offset : offset + length], len(raw), "file")
