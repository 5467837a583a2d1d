"""What a built engine says about itself, asked in a process of its own: native code may abort.

Run as a program, with nothing but the standard library: prints a JSON document, or one sentence for each thing that
was asked of the build and is not in it, and then fails.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_DEVICE_TYPES = ("CPU", "GPU", "IGPU", "ACCEL", "META")  # ggml-backend.h, enum ggml_backend_dev_type


def mismatches(
    info: Mapping[str, Any], cpu: Iterable[str], cuda: Iterable[str] | None, blas: bool, binding: bool
) -> tuple[str, ...]:
    """What was asked of the build and is missing in what it says (`info`), a sentence for each.

    `cuda` are the architectures there must be code for; empty for any, None where no CUDA was asked for.
    """
    features = info.get("features", {})
    found = []
    if lacking := sorted(set(cpu) - set(features.get("CPU", {}))):
        has = ", ".join(features.get("CPU", {})) or "nothing"
        found.append(f"the CPU backend lacks {', '.join(lacking)}; it reports {has}")
    if cuda is not None and "CUDA" not in features:
        found.append("CUDA was asked for and the result has no CUDA backend (no libggml-cuda): it would run on the CPU")
    elif lacking := sorted(set(cuda or ()) - set(cuda_architectures(features.get("CUDA", {})))):
        has = ", ".join(cuda_architectures(features["CUDA"])) or "none"
        found.append(f"the CUDA backend has no code for architecture {', '.join(lacking)}; it has {has}")
    if blas and not any(device["name"] == "BLAS" for device in info.get("devices", ())):
        found.append("BLAS was asked for and the result has no BLAS device")
    if binding and not info.get("binding"):
        found.append("the Python binding does not load these libraries")
    return tuple(found)


def cuda_architectures(features: Mapping[str, str]) -> tuple[str, ...]:
    """The architectures that code was compiled for: __CUDA_ARCH_LIST__ says "870" for 87."""
    return tuple(number.removesuffix("0") for number in re.findall(r"\d+", features.get("ARCHS", "")))


def parser() -> argparse.ArgumentParser:
    words = argparse.ArgumentParser(description="Say what the llama.cpp in a folder was built with.")
    words.add_argument("folder", type=Path)
    words.add_argument("--cpu", nargs="*", default=[], help="CPU features it must have, in ggml's names")
    words.add_argument("--cuda", nargs="*", help="it must have CUDA, with code for these architectures")
    words.add_argument("--blas", action="store_true", help="it must have a BLAS device")
    words.add_argument("--binding", action="store_true", help="the Python binding must load it")
    return words


def measure(folder: Path, binding: bool) -> dict[str, Any]:
    """Load the libraries in `folder` and ask them. Raises OSError when they do not load."""
    with _captured() as said:
        llama = ctypes.CDLL(str(folder / "libllama.so"))
        text = _call(llama, "llama_print_system_info", ctypes.c_char_p).decode()
        info = {
            "folder": str(folder),
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "system_info": text,
            "features": features(text),
            "devices": list(_devices(folder)),
            **_identity(folder),
            "binding": _binding() if binding else None,
        }
    return {**info, "said": said}


def features(system_info: str) -> dict[str, dict[str, str]]:
    """llama_print_system_info by backend: "CPU : AVX2 = 1 | FMA = 1 | CUDA : ARCHS = 870 | "."""
    found: dict[str, dict[str, str]] = {}
    backend = ""
    for word in system_info.split(" | "):
        name, _, rest = word.strip().partition(" : ")
        if rest:
            backend, word = name, rest
        key, equals, value = word.strip().partition(" = ")
        if equals:
            found.setdefault(backend, {})[key] = value
    return found


def _devices(folder: Path) -> Iterator[dict[str, str]]:
    ggml, base = ctypes.CDLL(str(folder / "libggml.so")), ctypes.CDLL(str(folder / "libggml-base.so"))
    if _call(ggml, "ggml_backend_reg_count", ctypes.c_size_t) == 0:  # backends as plug-ins (GGML_BACKEND_DL)
        _call(ggml, "ggml_backend_load_all_from_path", None, ctypes.c_char_p(str(folder).encode()))
    for index in range(_call(ggml, "ggml_backend_dev_count", ctypes.c_size_t)):
        device = ctypes.c_void_p(_call(ggml, "ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t(index)))
        number = _call(base, "ggml_backend_dev_type", ctypes.c_int, device)
        yield {
            "name": _call(base, "ggml_backend_dev_name", ctypes.c_char_p, device).decode(),
            "description": _call(base, "ggml_backend_dev_description", ctypes.c_char_p, device).decode(),
            "type": _DEVICE_TYPES[number] if 0 <= number < len(_DEVICE_TYPES) else str(number),
        }


def _identity(folder: Path) -> dict[str, Any]:
    """Build number and commit, None in revisions that keep them elsewhere."""
    try:
        common = ctypes.CDLL(str(folder / "libllama-common.so"))
        commit = ctypes.c_char_p.in_dll(common, "LLAMA_COMMIT").value or b""
        return {"build_number": ctypes.c_int.in_dll(common, "LLAMA_BUILD_NUMBER").value, "commit": commit.decode()}
    except (OSError, ValueError):
        return {"build_number": None, "commit": None}


def _binding() -> str | None:
    try:
        version = importlib.import_module("llama_cpp").__version__
    except Exception as error:
        os.write(2, f"llama_cpp: {error}\n".encode())
        return None
    return str(version)


def _call(library: ctypes.CDLL, name: str, result: Any, *words: Any) -> Any:
    function = getattr(library, name)
    function.restype = result
    return function(*words)


@contextmanager
def _captured() -> Iterator[list[str]]:
    """What native code writes to standard output and error meanwhile: the document alone is to be printed."""
    lines: list[str] = []
    sys.stdout.flush()
    kept, sink = [os.dup(1), os.dup(2)], os.memfd_create("said")
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    try:
        yield lines
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        lines += os.pread(sink, os.fstat(sink).st_size, 0).decode("utf-8", "replace").splitlines()
        for descriptor in (*kept, sink):
            os.close(descriptor)


def main() -> int:
    asked = parser().parse_args()
    try:
        info = measure(asked.folder, asked.binding)
    except (OSError, AttributeError) as error:
        sys.exit(f"the libraries in {asked.folder} do not load: {error}")
    if found := mismatches(info, asked.cpu, asked.cuda, asked.blas, asked.binding):
        sys.exit("\n".join([*info["said"], *found]))
    sys.stdout.write(json.dumps(info, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
