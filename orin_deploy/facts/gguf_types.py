"""What a GGUF header is made of: its values, and the number tables of ggml 0.25 (ggml.h, gguf.h, include/llama.h)."""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple, TypeAlias


@dataclass(frozen=True)
class LongArray:
    """An array too long to keep: the type of its elements and how many there are."""

    type: str
    count: int


Value: TypeAlias = int | float | bool | str | tuple[Any, ...] | LongArray


@dataclass(frozen=True)
class Tensor:
    """A tensor: `dims` with the row length first, `offset` in bytes from the start of the data."""

    name: str
    type: str
    dims: tuple[int, ...]
    offset: int
    bytes: int


class TensorType(NamedTuple):
    """A tensor type: `block` elements take `block_bytes` bytes."""

    name: str
    block: int
    block_bytes: int

    def row_bytes(self, elements: int) -> int:
        """Bytes of one row; a row holds whole blocks."""
        return elements // self.block * self.block_bytes


# Sizes are the static_asserts of ggml/src/ggml-common.h. Numbers 4, 5, 31-33 and 36-38 are formats that ggml removed.
TENSOR_TYPES: dict[int, TensorType] = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    9: TensorType("Q8_1", 32, 36),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    15: TensorType("Q8_K", 256, 292),
    16: TensorType("IQ2_XXS", 256, 66),
    17: TensorType("IQ2_XS", 256, 74),
    18: TensorType("IQ3_XXS", 256, 98),
    19: TensorType("IQ1_S", 256, 50),
    20: TensorType("IQ4_NL", 32, 18),
    21: TensorType("IQ3_S", 256, 110),
    22: TensorType("IQ2_S", 256, 82),
    23: TensorType("IQ4_XS", 256, 136),
    24: TensorType("I8", 1, 1),
    25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),
    27: TensorType("I64", 1, 8),
    28: TensorType("F64", 1, 8),
    29: TensorType("IQ1_M", 256, 56),
    30: TensorType("BF16", 1, 2),
    34: TensorType("TQ1_0", 256, 54),
    35: TensorType("TQ2_0", 256, 66),
    39: TensorType("MXFP4", 32, 17),
    40: TensorType("NVFP4", 64, 36),
    41: TensorType("Q1_0", 128, 18),
    42: TensorType("Q2_0", 64, 18),
}
BY_NAME: dict[str, TensorType] = {kind.name: kind for kind in TENSOR_TYPES.values()}

REMOVED_TYPES: dict[int, str] = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}

# enum llama_ftype; general.file_type says which recipe the quantiser followed.
FILE_TYPES: dict[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4_MOE",
    39: "NVFP4",
    40: "Q1_0",
    41: "Q2_0",
}

# Metadata values: enum gguf_type. Strings (8) and arrays (9) have no fixed size.
STRING = 8
ARRAY = 9
SCALARS: dict[int, tuple[str, Struct]] = {
    0: ("u8", Struct("<B")),
    1: ("i8", Struct("<b")),
    2: ("u16", Struct("<H")),
    3: ("i16", Struct("<h")),
    4: ("u32", Struct("<I")),
    5: ("i32", Struct("<i")),
    6: ("f32", Struct("<f")),
    7: ("bool", Struct("<?")),
    10: ("u64", Struct("<Q")),
    11: ("i64", Struct("<q")),
    12: ("f64", Struct("<d")),
}
