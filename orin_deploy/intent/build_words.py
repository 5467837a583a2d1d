"""cmake's -D words for llama.cpp, from the source, the settings and what was decided about CPU, CUDA and BLAS."""

from __future__ import annotations

import re
from collections.abc import Mapping

from orin_deploy.errors import UsageError
from orin_deploy.facts.device import CudaToolkit
from orin_deploy.intent.spec import Setting, Source

_FA_TYPES = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "bf16", "f16")
_FA_PAIRS = ("q4_0-q4_0", "q8_0-q8_0", "f16-f16", "bf16-bf16")  # upstream's default

Values = Mapping[str, Setting]


def render_words(
    source: Source,
    values: Values,
    architectures: tuple[str, ...],
    toolkit: CudaToolkit | None,
    blas: bool,
    arm: str | None,
) -> dict[str, str]:
    """The -D words by name, in the order they are passed."""
    words = {"CMAKE_BUILD_TYPE": "Release"}
    if arm is None:
        words["GGML_NATIVE"] = "ON"
    else:
        words |= {"GGML_NATIVE": "OFF", "GGML_CPU_ARM_ARCH": arm}
    words |= {"GGML_RPC": "ON", "GGML_CUDA": "ON" if toolkit else "OFF"}
    if toolkit:
        words |= {
            "CMAKE_CUDA_ARCHITECTURES": ";".join(architectures),
            "CMAKE_CUDA_COMPILER": toolkit.nvcc,
            # cmake 3.25 looks for the libraries beside the nvcc on PATH, whatever the compiler is.
            "CUDAToolkit_ROOT": toolkit.root,
            "GGML_CUDA_FA_QUANTS": ";".join(_fa_quants(values)),
            "GGML_CUDA_NCCL": "OFF",
        }
        if any(base_architecture(name) == "87" for name in architectures):
            # The pool reserves 32 GiB of addresses, which fails on Orin (llama.cpp issue 29142).
            words["GGML_CUDA_NO_VMM"] = "ON"
    words["GGML_BLAS"] = "ON" if blas else "OFF"
    if blas:
        words["GGML_BLAS_VENDOR"] = "OpenBLAS"
    words |= {
        "LLAMA_BUILD_TESTS": "OFF",
        "LLAMA_BUILD_EXAMPLES": "OFF",
        "LLAMA_USE_PREBUILT_UI": "OFF",  # it would be downloaded during the build
        # Models are fetched by us and the endpoint is plain HTTP behind loopback or a proxy; with it on, the result
        # would depend on whether libssl-dev happens to be installed.
        "LLAMA_OPENSSL": "OFF",
        # Libraries are found beside the programs, so that the folder can be moved.
        "CMAKE_INSTALL_RPATH": "$ORIGIN",
        "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    }
    return words | _identity(source) | _overrides(values)


def _identity(source: Source) -> dict[str, str]:
    """Commit and build number of a source that is no repository.

    cmake asks git otherwise, which would answer for any repository around the unpacked source.
    """
    if source.kind in ("tree", "git"):
        return {}
    number = source.build_number or int("".join(re.findall(r"\d+", source.version or "")) or 0)
    return {"LLAMA_BUILD_COMMIT": source.commit or source.version or "unknown", "LLAMA_BUILD_NUMBER": str(number)}


def _overrides(values: Values) -> dict[str, str]:
    """The `build.cmake.NAME` settings; their names were checked when they were read."""
    prefix = "build.cmake."
    return {key.removeprefix(prefix): option_text(values, key, "") for key in values if key.startswith(prefix)}


def _fa_quants(values: Values) -> tuple[str, ...]:
    """The KV type pairs that flash attention is compiled for: the profile's, and the pair in use.

    Any other pair goes through a slow conversion to f16.
    """
    text = option_text(values, "build.fa_quants", "auto").lower()
    if text == "all":
        return ("all",)
    pairs = list(_FA_PAIRS if text == "auto" else filter(None, re.split(r"[;,\s]+", text)))
    for pair in pairs:
        key, _, value = pair.partition("-")
        if key not in _FA_TYPES or value not in _FA_TYPES:
            raise UsageError(
                f'build.fa_quants "{pair}" is no pair of KV types', f"K-V of {', '.join(_FA_TYPES)}; or all"
            )
    used = [option_text(values, key, "f16") for key in ("cache_type_k", "cache_type_v")]
    if all(name in _FA_TYPES for name in used):
        pairs.append("-".join(used))
    return tuple(dict.fromkeys(pairs))


def base_architecture(architecture: str) -> str:
    """The digits of an architecture however it is written: 87, 87-real, compute_87, sm_110a."""
    return re.sub(r"^\D*(\d+).*$", r"\1", architecture)


def option_text(values: Values, key: str, default: str) -> str:
    """An option as it is written: numbers as digits, booleans as on and off."""
    setting = values.get(key)
    if setting is None or setting.value is None:
        return default
    if isinstance(setting.value, bool):
        return "on" if setting.value else "off"
    return str(setting.value).strip()
