"""What people call a Jetson module, and which module that is."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Board:
    """A Jetson module: a name to print, its part number, and whether anything newer than JetPack 4 exists for it."""

    name: str
    module: str
    supported: bool = True


# Part numbers as in the modules table (OE4T/meta-tegra machine files, NVIDIA/jetson-gpio). In each family the row for
# a name without a size comes last; it stands for the family, whose modules build alike. Sizes are GB.
_BOARDS: tuple[tuple[str, str | None, Board], ...] = (
    ("thor", "t4000", Board("Jetson T4000", "p3834-0000")),
    ("thor", None, Board("AGX Thor", "p3834-0008")),
    ("agx orin", "64", Board("AGX Orin 64GB", "p3701-0005")),
    ("agx orin", "32", Board("AGX Orin 32GB", "p3701-0004")),
    ("agx orin", "kit", Board("AGX Orin 32GB developer kit", "p3701-0000")),  # by its number alone, as the next one
    ("agx orin", "industrial", Board("AGX Orin Industrial", "p3701-0008")),
    ("agx orin", None, Board("AGX Orin", "p3701-0005")),
    ("orin nx", "16", Board("Orin NX 16GB", "p3767-0000")),
    ("orin nx", "8", Board("Orin NX 8GB", "p3767-0001")),
    ("orin nx", None, Board("Orin NX", "p3767-0000")),
    ("orin nano", "8", Board("Orin Nano 8GB", "p3767-0003")),
    ("orin nano", "4", Board("Orin Nano 4GB", "p3767-0004")),
    ("orin nano", None, Board("Orin Nano", "p3767-0003")),
    ("xavier nx", None, Board("Xavier NX", "p3668-0001")),
    ("agx xavier", None, Board("AGX Xavier", "p2888-0004")),
    ("tx2", None, Board("Jetson TX2", "p3310-1000", supported=False)),
    ("tx1", None, Board("Jetson TX1", "p2180-1000", supported=False)),
    ("nano", None, Board("Jetson Nano", "p3448-0000", supported=False)),
)

# Family by what stands in a name, most telling first: every word must occur.
_FAMILIES: tuple[tuple[str, frozenset[str]], ...] = (
    ("thor", frozenset({"thor"})),
    ("thor", frozenset({"t5000"})),
    ("thor", frozenset({"t4000"})),
    ("orin nx", frozenset({"orin", "nx"})),
    ("orin nano", frozenset({"orin", "nano"})),
    ("agx orin", frozenset({"orin", "agx"})),
    ("xavier nx", frozenset({"xavier", "nx"})),
    ("agx xavier", frozenset({"xavier"})),
    ("tx2", frozenset({"tx2"})),
    ("tx1", frozenset({"tx1"})),
    ("nano", frozenset({"jetson", "nano"})),
)

# Family by the part number's first half; carriers (p3737, p3768, p3509 …) are not in it.
_PARTS = {
    "3834": "thor",
    "3701": "agx orin",
    "3767": "orin nx",
    "3668": "xavier nx",
    "2888": "agx xavier",
    "2972": "agx xavier",  # the kit, whose device tree names no module
    "3310": "tx2",
    "3489": "tx2",
    "2180": "tx1",
    "3448": "nano",
}

# Other names of a row: sister part numbers with the same configuration, and our own profiles.
_ALIASES = {
    "p3767-0002": "p3767-0000",
    "p3767-0005": "p3767-0003",
    "agx64": "p3701-0005",
    "agx32": "p3701-0004",
    "agx-orin-devkit-32gb": "p3701-0000",
    "agx-industrial": "p3701-0008",
    "nx16": "p3767-0000",
    "nx8": "p3767-0001",
    "nano8": "p3767-0003",
    "nano4": "p3767-0004",
}


def board_of(words: str) -> Board | None:
    """The module a text names: a compatible string, a model string, a part number, a profile or a nickname."""
    text = words.lower()
    if "/" in text or ".gguf" in text:  # a language model's reference, not a board's
        return None
    if text in _ALIASES:
        return _by_module(text)
    for family, number in re.findall(r"p(\d{4})(-\d{4})?", text):
        if family in _PARTS:
            return _by_module(f"p{family}{number}") or _by_family(_PARTS[family], text)
    names = frozenset(re.findall(r"[a-z]+\d*", text))
    for family, needed in _FAMILIES:
        if needed <= names:
            return _by_family(family, text)
    return None


def _by_module(module: str) -> Board | None:
    module = _ALIASES.get(module, module)
    return next((board for _, _, board in _BOARDS if board.module == module), None)


def _by_family(family: str, text: str) -> Board | None:
    sizes = set(re.findall(r"(?<![\d.])(\d+)\s*g(?:i?b)?\b", text)) | set(re.findall(r"\bt\d{4}\b", text))
    return next(board for name, size, board in _BOARDS if name == family and (size is None or size in sizes))
