"""Arbitrary bytes in place of a model: only a header or a refusal may come out, quickly and in bounded memory."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orin_deploy.facts.gguf import Header, read_ranges
from orin_deploy.facts.gguf_walk import LARGEST_READ, MAX_HEADER
from orin_deploy.facts.model import from_header
from orin_deploy.facts.not_a_model import NotAModel
from orin_deploy.intent.budget import estimate
from orin_deploy.intent.serving import Serving
from tests.ggufs import Shape

SOUND = Shape(n_layer=1, n_vocab=300).header_bytes()
PLACES = st.integers(0, len(SOUND) - 1)


def outcome(raw: bytes, size: int | None = None) -> Header | None:
    """The header, or None for a refusal; anything else fails the test."""
    try:
        header = read_ranges(lambda offset, length: raw[offset : offset + length], size, "fuzz")
        estimate(from_header(header, "fuzz"), Serving(ctx_size=4096, cache_type_k="q8_0", cache_type_v="q8_0"))
    except NotAModel as caught:
        refusal = caught
    else:
        return header
    assert refusal.rule.startswith("gguf.")
    assert refusal.hint
    return None


def test_the_sound_file_is_read() -> None:
    assert outcome(SOUND) is not None


@given(st.binary(max_size=300))
def test_random_bytes(raw: bytes) -> None:
    outcome(raw, len(raw))


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.binary(max_size=300))
def test_a_random_body(n_tensors: int, n_values: int, body: bytes) -> None:
    outcome(struct.pack("<4sIQQ", b"GGUF", 3, n_tensors, n_values) + body)
    outcome(struct.pack("<4sIQQ", b"GGUF", 3, n_tensors % 3, n_values % 3) + body)


@given(st.lists(st.tuples(PLACES, st.integers(0, 255)), min_size=1, max_size=4))
def test_changed_bytes(changes: list[tuple[int, int]]) -> None:
    raw = bytearray(SOUND)
    for place, value in changes:
        raw[place] = value
    outcome(bytes(raw))


@given(PLACES, st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]))
@example(8, 2**64 - 1)
@example(16, 2**64 - 1)
def test_absurd_numbers(place: int, number: int) -> None:
    outcome(SOUND[:place] + struct.pack("<Q", number) + SOUND[place + 8 :])


@given(PLACES, PLACES)
def test_pieces_cut_out(start: int, end: int) -> None:
    outcome(SOUND[: min(start, end)] + SOUND[max(start, end) :])


@given(PLACES)
def test_cut_off_anywhere(end: int) -> None:
    assert outcome(SOUND[:end], end) is None


@pytest.mark.parametrize("count", [2**22, 2**22 + 1, 2**26, 2**62])
@pytest.mark.parametrize("kind", [0, 8, 12])
def test_a_lying_file_is_not_believed(kind: int, count: int) -> None:
    """Huge counts in a file said to be a terabyte, whose every byte reads as zero: little of it is asked for."""
    raw = struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 2**16, 2**16, 1, b"a", 9, kind, count)
    asked = []

    def read(at: int, length: int) -> bytes:
        asked.append(length)
        return (raw[at:] + bytes(length))[:length]

    with pytest.raises(NotAModel):
        read_ranges(read, 2**40, "lying")
    assert sum(asked) <= MAX_HEADER + LARGEST_READ
