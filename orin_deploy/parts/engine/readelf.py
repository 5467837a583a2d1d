"""What the files of an engine for another machine say, without running them: for whom, and what they need there.

Run as a program, with nothing but the standard library: prints a JSON document, or one sentence for each thing that
would keep the engine from running on its machine, and then fails. The layout is that of elf(5), 64 bits and
little-endian, as every machine that llama.cpp serves on has it.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243}  # EM_* by what `uname -m` says
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRTAB, _RPATH, _RUNPATH, _VERNEED, _VERNEEDNUM = 1, 5, 15, 29, 0x6FFFFFFE, 0x6FFFFFFF


def parse(data: bytes) -> dict[str, Any] | None:
    """One file's facts: its machine, where it looks for libraries, which it needs; None for what is no such file.

    `versions` are the newest symbol versions wanted of each family, as in {"GLIBC": "2.34"}.
    """
    try:
        return _parse(data)
    except (struct.error, ValueError, IndexError):  # cut off, or not what its first bytes claim
        return None


def _parse(data: bytes) -> dict[str, Any] | None:
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    (machine,) = struct.unpack_from("<H", data, 18)
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    parts = [struct.unpack_from("<IIQQQQQQ", data, table + size * number) for number in range(count)]
    loads = [(address, offset, length) for kind, _, offset, address, _, length, *_ in parts if kind == _LOAD]
    dynamic: list[tuple[int, int]] = []
    for kind, _, offset, _, _, length, *_ in parts:
        if kind == _DYNAMIC:
            dynamic = [struct.unpack_from("<QQ", data, place) for place in range(offset, offset + length, 16)]
    values = dict(dynamic)
    strings = _place(values[_STRTAB], loads) if _STRTAB in values else 0
    runpath = values.get(_RUNPATH, values.get(_RPATH))
    needs = _place(values[_VERNEED], loads) if _VERNEED in values else 0
    versions: dict[str, str] = {}
    for name in _wanted(data, needs, values.get(_VERNEEDNUM, 0), strings):
        family, _, text = name.rpartition("_")
        if _numbers(text):
            versions[family] = max(versions.get(family, "0"), text, key=_numbers)
    return {
        "machine": next((name for name, number in _MACHINES.items() if number == machine), f"machine {machine}"),
        "runpath": _string(data, strings + runpath) if runpath is not None else None,
        "needed": [_string(data, strings + value) for tag, value in dynamic if tag == _NEEDED],
        "versions": versions,
    }


def _place(address: int, loads: list[tuple[int, int, int]]) -> int:
    """Where in the file lies what is loaded at an address."""
    return next(offset + address - start for start, offset, length in loads if start <= address < start + length)


def _wanted(data: bytes, place: int, count: int, strings: int) -> Iterator[str]:
    """The symbol versions that the file wants of other libraries (Elf64_Verneed and its Elf64_Vernaux)."""
    for _ in range(count):
        _, names, _, first, following = struct.unpack_from("<HHIII", data, place)
        each = place + first
        for _ in range(names):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, each)
            yield _string(data, strings + name)
            each += step
        place += following


def _string(data: bytes, place: int) -> str:
    return data[place : data.index(b"\0", place)].decode("utf-8", "replace")


def mismatches(files: Mapping[str, Mapping[str, Any]], machine: str, has: Mapping[str, str]) -> tuple[str, ...]:
    """What would keep these files from running on such a machine, whose libraries go as far as `has`."""
    found = [] if files else ["there is no program in it"]
    for name, file in files.items():
        if file["machine"] != machine:
            found.append(f"{name} is for {file['machine']}, not for {machine}")
        ours = [library for library in file["needed"] if library in files]
        if ours and file["runpath"] != "$ORIGIN":
            found.append(f"{name} does not look for {ours[0]} in its own folder, but in {file['runpath']}")
    for family, text in newest(files).items():
        if family in has and _numbers(text) > _numbers(has[family]):
            found.append(
                f"it needs {family}_{text}, and the board's libraries end at {has[family]}: "
                "build on a distribution that is no newer than the board's"
            )
    return tuple(found)


def newest(files: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The newest symbol versions that any of the files wants."""
    versions: dict[str, str] = {}
    for file in files.values():
        for family, text in file["versions"].items():
            versions[family] = max(versions.get(family, "0"), text, key=_numbers)
    return versions


def _numbers(text: str) -> tuple[int, ...]:
    words = text.split(".")
    return tuple(map(int, words)) if all(word.isdecimal() for word in words) else ()


def measure(folder: Path) -> dict[str, Any]:
    """Every program and library of the folder by the names it goes by; other files are left out."""
    found = {path.name: parse(path.read_bytes()) for path in sorted(folder.iterdir()) if path.is_file()}
    return {name: facts for name, facts in found.items() if facts is not None}


def main() -> int:
    parser = argparse.ArgumentParser(description="Say for which machine the llama.cpp in a folder was built.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", required=True, help="as `uname -m` says it there")
    parser.add_argument("--has", nargs="*", default=[], help="the newest symbols there are, as GLIBC=2.35")
    asked = parser.parse_args()
    try:
        files = measure(asked.folder)
    except OSError as error:
        sys.exit(f"the files in {asked.folder} cannot be read: {error}")
    if found := mismatches(files, asked.machine, dict(word.split("=", 1) for word in asked.has)):
        sys.exit("\n".join(found))
    document = {"folder": str(asked.folder), "features": {}, "devices": [], "files": files, "newest": newest(files)}
    sys.stdout.write(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
