"""JSON and YAML evidence: facts, boards, plans, profiles and manifests, in the words of whoever wrote them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from orin_deploy.doctor import bench, memory_claims, speculation_claims, states
from orin_deploy.doctor.boards import board_of
from orin_deploy.doctor.evidence import Claims
from orin_deploy.facts import cpu
from orin_deploy.facts.device import CudaToolkit, Memory, Tool
from orin_deploy.intent.yaml_text import MAX_BRACKETS, bracket_depth

MAX_YAML_CHARS = 64 * 1024


def parse(text: str, suffix: str) -> Any:
    """The document a text is, or None when it is none: JSON by suffix or first character, YAML by suffix."""
    if suffix == ".json" or text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return None
    if suffix in (".yaml", ".yml") and len(text) <= MAX_YAML_CHARS and bracket_depth(text) <= MAX_BRACKETS:
        import yaml

        try:
            return yaml.load(text, Loader=yaml.BaseLoader)  # words stay words, nothing is constructed
        except (yaml.YAMLError, RecursionError):
            return None
    return None


def claims(document: Any) -> Claims:
    """What a document says, by its shape: our own records and facts, a GGUF header, a manifest, or plain facts."""
    if isinstance(document, list):
        tools = tuple(tool for item in document if (tool := _tool(item)) is not None)
        found = {"cmakes": tools, **states.of_list(document), **memory_claims.of_list(document)}
        return found | speculation_claims.of_list(document) | bench.of_list(document)
    if not isinstance(document, Mapping):
        return {}
    if any(isinstance(key, str) and key.startswith(("general.", "tokenizer.ggml.")) for key in document):
        return {"header": dict(document), **speculation_claims.of_header(document)}
    if isinstance(document.get("spec"), Mapping):
        return of_record(document)
    if isinstance(document.get("toolchain"), Mapping) and isinstance(document.get("cpu"), Mapping):
        return of_device(document)
    if _is_manifest(document):
        return _manifest(document)
    measured = bench.of_table(document)  # the machine of a measurement need not be the one asked about
    facts = {} if measured else _facts(document)
    found = {**states.of_table(document), **memory_claims.of_table(document), **facts}
    return found | speculation_claims.of_table(document) | measured


# Facts in people's own words.


def _word(value: Any) -> str | None:
    return str(value).strip() if isinstance(value, (str, int, float)) and not isinstance(value, bool) else None


def _words(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, (list, tuple, frozenset)) else (value,)
    return tuple(word for item in items if (word := _word(item)) is not None)


def _items(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else ()


def _number(value: Any) -> int | None:
    word = _word(value)
    return int(word) if word is not None and re.fullmatch(r"\d{1,9}", word) else None


def version(text: str) -> tuple[int, ...]:
    """The first dotted number in a text, as numbers; empty when there is none."""
    found = re.search(r"\d{1,9}(?:\.\d{1,9})*", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def toolkit(path: str) -> CudaToolkit:
    """A toolkit by its folder's name, the version as the name has it."""
    return CudaToolkit(path, version(PurePosixPath(path).name), on_path=False)


def _tool(item: Any) -> Tool | None:
    if not isinstance(item, Mapping):
        return None
    path, found = _word(item.get("path")), _word(item.get("version"))
    if path is None or found is None or not PurePosixPath(path).name.startswith("cmake"):
        return None
    return Tool(path, version(found))


def _board(value: Any) -> Claims:
    return next(({"board": board} for word in _words(value) if (board := board_of(word)) is not None), {})


def _architectures(value: Any) -> tuple[str, ...]:
    return tuple(re.sub(r"^(sm|compute)_", "", word) for word in _words(value))


def _text(field: str) -> Callable[[Any], Claims]:
    return lambda value: {field: word} if (word := _word(value)) else {}


def _count(field: str) -> Callable[[Any], Claims]:
    return lambda value: {field: number} if (number := _number(value)) is not None else {}


_WORDS: dict[str, Callable[[Any], Claims]] = {
    "module": _board,
    "modules": _board,
    "board": _board,
    "compatible": _board,
    "model": _board,
    "profile": _board,
    "l4t": _text("l4t"),
    "jetpack": _text("jetpack"),
    "jetpack_cuda": _text("jetpack_cuda"),
    "cuda": lambda value: _text("cuda")(value) if version(_word(value) or "") else {},  # in our profiles on or off
    "cuda_version": _text("cuda"),
    "nvcc_on_path": _text("nvcc_on_path"),
    "toolkits": lambda value: {"toolkits": tuple(toolkit(path) for path in _words(value))},
    "list_gpu_arch": lambda value: {"nvcc_architectures": _architectures(value)},
    "compute_capability": _text("compute_capability"),
    "gcc": _text("gcc"),
    "cmake": lambda value: {"cmakes": (Tool("cmake", version(word)),)} if (word := _word(value)) else {},
    "cores": _count("cores"),
    "want": lambda value: {"wants_cuda": _word(value) == "cuda"},
    "backend": lambda value: {"wants_cuda": _word(value) == "cuda"},
    "cuda_arch": lambda value: {"cuda_arch": ";".join(_architectures("" if value is None else value))},
    "cuda_architectures": lambda value: {"cuda_arch": ";".join(_architectures("" if value is None else value))},
    "build_outputs": lambda value: {"build_outputs": _words(value)},
    "llama_rev": _text("revision"),
    "revision": _text("revision"),
    "pin": _text("revision"),
    "built_build": _count("built_build"),
    "binary_built": _text("binary_built"),
    "binary_running": _text("binary_running"),
    "power": _text("power_wanted"),
    "mode": _text("power_wanted"),
    "power_mode": _text("power_wanted"),
    "gpu_max_mhz": lambda value: {"gpu_max_mhz": float(word)} if _is_decimal(word := _word(value) or "") else {},
    "jetson_clocks": lambda value: {"clocks_flag": _is_on(value)},
    "vdd_in_mv": _count("input_mv"),
    "vdd_in_ma": _count("input_ma"),
    "threads": _count("threads"),
    "main": lambda value: {"pinned": cpus} if (cpus := cpu.parse_list(_word(value) or "")) else {},
}


def _is_decimal(word: str) -> bool:
    return re.fullmatch(r"\d{1,6}(\.\d{1,6})?", word) is not None


def _is_on(value: Any) -> bool:
    return str(value).lower() in ("true", "on", "1", "yes")


def _facts(document: Mapping[Any, Any], depth: int = 0) -> Claims:
    # A board told as a table is a profile of ours.
    found: Claims = {"settled": True} if isinstance(document.get("board"), Mapping) else {}
    flags: dict[str, str] = {}
    for key, value in document.items():
        if isinstance(value, Mapping) and depth == 0:
            nested = _facts(value, depth + 1)
            flags.update(nested.pop("cmake_flags", {}))
            found = {**nested, **found}
        elif isinstance(key, str) and re.fullmatch(r"(GGML|LLAMA|CMAKE)_[A-Z0-9_]+", key):
            flags[key] = _word(value) or ""
        elif key in _WORDS:
            found.update(_WORDS[key](value))
    if flags:
        found["cmake_flags"] = flags
        if "CMAKE_CUDA_ARCHITECTURES" in flags:
            found.setdefault("cuda_arch", flags["CMAKE_CUDA_ARCHITECTURES"])
    return found


# What says how an engine was built: it names architectures or a revision, and no machine.


def _is_manifest(document: Mapping[Any, Any]) -> bool:
    names_machine = any("board" in _board(document.get(key)) for key in ("module", "board", "compatible", "model"))
    return not names_machine and isinstance(document.get("cuda_arch", document.get("cuda_architectures")), list)


def _manifest(document: Mapping[Any, Any]) -> Claims:
    archs = _architectures(document.get("cuda_arch", document.get("cuda_architectures")))
    return {"compiled_archs": tuple(f"sm_{arch}" for arch in archs), **_text("revision")(document.get("llama_rev"))}


# Our own: a record of `up`, the JSON of `plan`, the JSON of `facts`.


def of_record(record: Mapping[Any, Any]) -> Claims:
    """What a record or a printed plan says about the engine, and about the machine it was for."""
    spec = _table(record.get("spec"))
    build, service, device = _table(spec.get("build")), _table(spec.get("service")), _table(spec.get("device"))
    words = (word.removeprefix("-D").split("=", 1) for word in _words(build.get("cmake")) if word.startswith("-D"))
    flags = {word[0].split(":")[0]: word[1] for word in words if len(word) == 2}
    found: Claims = {"cmake_flags": flags, "wants_cuda": flags.get("GGML_CUDA") == "ON"}
    if "CMAKE_CUDA_ARCHITECTURES" in flags:
        found["cuda_arch"] = flags["CMAKE_CUDA_ARCHITECTURES"]
    source = _table(build.get("source"))
    found |= _text("revision")(source.get("commit")) | _count("built_build")(source.get("build_number"))
    found |= _text("power_wanted")(_table(spec.get("power")).get("mode"))
    if argv := _words(service.get("argv")):
        found["binary_built"] = argv[0]
    return {**of_device(device), **found} if device else found


def of_device(device: Mapping[str, Any]) -> Claims:
    """What our own inspection of a machine says: a `Device` as a mapping, fresh or read back from JSON."""
    jetson, cpu, memory = (_table(device.get(key)) for key in ("jetson", "cpu", "memory"))
    found: Claims = {"settled": True, **_toolchain(_table(device.get("toolchain")))}
    for key in ("module", "compatible", "model"):
        found = {**_board(jetson.get(key)), **found}
    for key in ("l4t", "jetpack", "jetpack_cuda"):
        found |= _text(key)(jetson.get(key))
    found["cpu_features"] = frozenset(_words(cpu.get("features", ())))
    found |= {"cores": len(online)} if (online := _items(cpu.get("online"))) else {}
    present = tuple(number for number in _items(cpu.get("present")) if isinstance(number, int))
    found |= {"cpus": present} if present else {}
    found |= states.of_power(_table(device.get("power")))
    names = (field.name for field in dataclasses.fields(Memory))
    sizes: dict[str, Any] = {name: size for name in names if isinstance(size := memory.get(name), int)}
    if {"total", "available", "free"} <= sizes.keys():
        found["memory"] = Memory(**sizes, doubts=_words(memory.get("doubts", ())))
    found |= memory_claims.of_device(device)
    return found


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _toolchain(chain: Mapping[str, Any]) -> Claims:
    found: Claims = {}
    cxx = _table(chain.get("cxx"))
    if "clang" not in str(cxx.get("path")):
        found |= _text("gcc")(".".join(_words(cxx.get("version", ()))))
    kits = []
    for kit in map(_table, _items(chain.get("cuda"))):
        if root := _word(kit.get("root")):
            number = tuple(part for part in _items(kit.get("version")) if isinstance(part, int))
            kits.append(CudaToolkit(root, number, kit.get("on_path") is True))
    on_path = next((kit.nvcc for kit in kits if kit.on_path), None)
    return {**found, "toolkits": tuple(kits), **({"nvcc_on_path": on_path} if on_path else {})}
