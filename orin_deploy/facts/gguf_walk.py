"""Walking through the bytes of a GGUF header: every count is checked against the file before it is believed."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from struct import Struct
from typing import Any

from orin_deploy.facts.gguf_types import ARRAY, REMOVED_TYPES, SCALARS, STRING, TENSOR_TYPES, LongArray, Tensor, Value
from orin_deploy.facts.not_a_model import NotAModel

MAX_HEADER = 64 << 20  # bytes; the largest header known, 262,144 tokens with merges, has 16 MiB
MAX_TEXT = 16 << 20  # bytes of one string that is kept; chat templates stay below 100 kB
MAX_NAME = 63  # bytes of a tensor's name: ggml.h's GGML_MAX_NAME with its final NUL
MAX_VALUES, MAX_TENSORS, MAX_STRINGS = 1 << 16, 1 << 17, 1 << 22
MAX_KEPT = 512  # elements of an array that is kept whole: llama.cpp's LLAMA_MAX_LAYERS
FIRST_READ, LARGEST_READ = 64 << 10, 1 << 20

_U32, _U64 = Struct("<I"), Struct("<Q")


def truncated(label: str, size: int, promised: int, at_least: str = "") -> NotAModel:
    """The refusal for a file that ends before its weights do, with the number of bytes missing."""
    return NotAModel(
        "gguf.truncated",
        f"{label} is truncated: {at_least}{promised - size} bytes are missing ({size} of {promised} are there)",
        "resume the download; what is there need not be fetched again",
    )


def corrupt(label: str, what: str) -> NotAModel:
    return NotAModel("gguf.corrupt", f"{label} is damaged: {what}", "fetch it again and compare its checksum")


class Window:
    """The file's beginning, grown as the reader needs it: 64 KiB first, then doubling up to 1 MiB at a time."""

    def __init__(self, read: Callable[[int, int], bytes], size: int | None, label: str) -> None:
        self._read = read
        self.size = size
        self.label = label
        self.data = bytearray()
        self.position = 0

    def want(self, length: int, *, required: bool = True) -> bool:
        """Make `length` bytes from the position available; when not required, False says that the file ends first."""
        end = self.position + length
        while len(self.data) < end:
            if required and end > MAX_HEADER:
                raise corrupt(self.label, f"its header claims more than {MAX_HEADER >> 20} MiB")
            here = len(self.data)
            step = max(end - here, min(max(here, FIRST_READ), LARGEST_READ))
            step = step if self.size is None else min(step, self.size - here)
            piece = self._read(here, step) if step > 0 else b""
            if not piece:
                if required:
                    raise truncated(self.label, here, end, "at least ")
                return False
            self.data += piece[:step]
        return True

    def take(self, form: Struct) -> Any:
        """The next value of a fixed size."""
        self.want(form.size)
        (value,) = form.unpack_from(self.data, self.position)
        self.position += form.size
        return value

    def text(self, what: str, limit: int = MAX_TEXT) -> str:
        """The next string; bytes that are no UTF-8 are replaced, as in a vocabulary they may be."""
        length = self.take(_U64)
        if length > limit:
            raise corrupt(self.label, f"{what} claims {length} bytes")
        self.want(length)
        start = self.position
        self.position += length
        return self.data[start : self.position].decode("utf-8", "replace")

    def skip_strings(self, count: int) -> None:
        """Step over the strings of an array; only their lengths are looked at."""
        unpack = _U64.unpack_from
        while count:
            self.want(8)
            position, last, data = self.position, len(self.data) - 8, self.data
            while count and position <= last:
                position += 8 + unpack(data, position)[0]
                count -= 1
            self.want(position - self.position)
            self.position = position


class Vocabulary:
    """Hashes the arrays that decide whether two models share a vocabulary: token texts and token types."""

    ARRAYS = ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type")

    def __init__(self) -> None:
        self.bodies: dict[str, str] = {}
        self.spans: dict[str, tuple[int, int]] = {}  # where in the file an array's elements begin and end

    def add(self, key: str, window: Window, start: int) -> None:
        """Take the array that has just been walked over."""
        self.bodies[key] = hashlib.sha256(window.data[start : window.position]).hexdigest()
        self.spans[key] = (start, window.position)

    def digest(self, metadata: dict[str, Value]) -> str | None:
        """The fingerprint, or None for a file without a vocabulary."""
        if self.ARRAYS[0] not in self.bodies:
            return None
        names = ("tokenizer.ggml.model", "tokenizer.ggml.pre")
        special = sorted(key for key in metadata if re.fullmatch(r"tokenizer\.ggml\.\w+_token_id", key))
        said = [f"{key}={metadata.get(key)!r}" for key in (*names, *special)]
        said += [f"{key}:{self.bodies.get(key)}" for key in self.ARRAYS]
        return hashlib.sha256("\n".join(said).encode()).hexdigest()


def read_metadata(window: Window, count: int, vocabulary: Vocabulary | None) -> dict[str, Value]:
    metadata: dict[str, Value] = {}
    if count > MAX_VALUES:
        raise corrupt(window.label, f"it claims {count} metadata values")
    for index in range(count):
        key = window.text(f"metadata key {index}", 65535)
        if not key or key in metadata:
            raise corrupt(window.label, f"metadata key {index} is {'there twice: ' + key if key else 'empty'}")
        kind = window.take(_U32)
        if kind == ARRAY:
            kind, length = window.take(_U32), window.take(_U64)
            start = window.position
            metadata[key] = _array(window, key, kind, length)
            if vocabulary and key in vocabulary.ARRAYS:
                vocabulary.add(key, window, start)
        else:
            metadata[key] = _scalar(window, key, kind)
    return metadata


def _scalar(window: Window, key: str, kind: int) -> int | float | bool | str:
    if kind == STRING:
        return window.text(key)
    if kind not in SCALARS:
        raise corrupt(window.label, f"{key} has the unknown value type {kind}")
    value: int | float | bool = window.take(SCALARS[kind][1])
    return value


def _array(window: Window, key: str, kind: int, length: int) -> tuple[Any, ...] | LongArray:
    if kind == STRING:
        if length > MAX_STRINGS:
            raise corrupt(window.label, f"{key} claims {length} strings")
        if length > MAX_KEPT:
            window.skip_strings(length)
            return LongArray("str", length)
        return tuple(window.text(key) for _ in range(length))
    if kind not in SCALARS:  # arrays of arrays are not read by llama.cpp either
        raise corrupt(window.label, f"{key} is an array of the unknown value type {kind}")
    name, form = SCALARS[kind]
    window.want(length * form.size)
    start = window.position
    window.position += length * form.size
    if length > MAX_KEPT:
        return LongArray(name, length)
    return tuple(value for (value,) in form.iter_unpack(window.data[start : window.position]))


def read_alignment(metadata: dict[str, Value], label: str) -> int:
    value = metadata.get("general.alignment", 32)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0 or value & (value - 1):
        raise corrupt(label, f"general.alignment is {value}, not a power of two")
    return value


def read_tensors(window: Window, count: int, alignment: int) -> tuple[Tensor, ...]:
    tensors: list[Tensor] = []
    seen: set[str] = set()
    expected = 0
    if count > MAX_TENSORS:
        raise corrupt(window.label, f"it claims {count} tensors")
    for index in range(count):
        tensor = _tensor(window, index)
        if tensor.name in seen:
            raise corrupt(window.label, f"tensor {tensor.name} is there twice")
        if tensor.offset != expected:  # llama.cpp demands the same
            raise corrupt(window.label, f"tensor {tensor.name} lies at {tensor.offset}, not at {expected}")
        seen.add(tensor.name)
        tensors.append(tensor)
        expected += -(-tensor.bytes // alignment) * alignment
    return tuple(tensors)


def _tensor(window: Window, index: int) -> Tensor:
    name = window.text(f"tensor name {index}", MAX_NAME)
    n_dims = window.take(_U32)
    if n_dims > 4:
        raise corrupt(window.label, f"tensor {name} has {n_dims} dimensions")
    dims = tuple(window.take(_U64) for _ in range(n_dims))
    number = window.take(_U32)
    offset = window.take(_U64)
    elements = math.prod(dims)
    if elements >= 1 << 63:
        raise corrupt(window.label, f"tensor {name} claims {elements} elements")
    kind = TENSOR_TYPES.get(number)
    if kind is None:
        raise _unknown_type(window.label, name, number)
    row = dims[0] if dims else 1
    if row % kind.block:
        raise corrupt(window.label, f"tensor {name} has rows of {row}, no multiple of {kind.name}'s {kind.block}")
    return Tensor(name, kind.name, dims, offset, kind.row_bytes(elements))


def _unknown_type(label: str, name: str, number: int) -> NotAModel:
    if old := REMOVED_TYPES.get(number):
        hint = f"fetch the model as Q4_0 or IQ4_NL: ggml removed {old}"
    else:
        hint = "update orin-deploy and the engine, or fetch another quantisation"
    return NotAModel("gguf.type", f"{label} uses tensor type {number} (in {name}), which is not known", hint)
