"""llama.cpp's build options: the names that exist, and what became of those that people still type."""

from __future__ import annotations

# The options of the pinned revision that a person may want, from CMakeLists.txt and ggml/CMakeLists.txt at 0c1e570;
# other backends' options are left out.
KNOWN = frozenset(
    (
        "BUILD_SHARED_LIBS",
        "CMAKE_BUILD_TYPE",
        "CMAKE_CUDA_ARCHITECTURES",
        "CMAKE_CUDA_COMPILER",
        "CMAKE_CUDA_FLAGS",
        "CMAKE_CUDA_HOST_COMPILER",
        "CMAKE_CXX_COMPILER",
        "CMAKE_CXX_FLAGS",
        "CMAKE_C_COMPILER",
        "CMAKE_C_FLAGS",
        "CMAKE_EXE_LINKER_FLAGS",
        "CMAKE_SHARED_LINKER_FLAGS",
        "CUDAToolkit_ROOT",
        "GGML_ALL_WARNINGS",
        "GGML_AMX_BF16",
        "GGML_AMX_INT8",
        "GGML_AMX_TILE",
        "GGML_AVX",
        "GGML_AVX2",
        "GGML_AVX512",
        "GGML_AVX512_BF16",
        "GGML_AVX512_VBMI",
        "GGML_AVX512_VNNI",
        "GGML_AVX_VNNI",
        "GGML_BACKEND_DIR",
        "GGML_BACKEND_DL",
        "GGML_BLAS",
        "GGML_BLAS_VENDOR",
        "GGML_BMI2",
        "GGML_CCACHE",
        "GGML_CPU",
        "GGML_CPU_ALL_VARIANTS",
        "GGML_CPU_ARM_ARCH",
        "GGML_CPU_HBM",
        "GGML_CPU_KLEIDIAI",
        "GGML_CPU_REPACK",
        "GGML_CUDA",
        "GGML_CUDA_COMPRESSION_MODE",
        "GGML_CUDA_FA",
        "GGML_CUDA_FA_QUANTS",
        "GGML_CUDA_FORCE_CUBLAS",
        "GGML_CUDA_FORCE_MMQ",
        "GGML_CUDA_GRAPHS",
        "GGML_CUDA_NCCL",
        "GGML_CUDA_NO_PEER_COPY",
        "GGML_CUDA_NO_VMM",
        "GGML_F16C",
        "GGML_FMA",
        "GGML_GPROF",
        "GGML_LLAMAFILE",
        "GGML_LTO",
        "GGML_NATIVE",
        "GGML_OPENMP",
        "GGML_RPC",
        "GGML_SCHED_MAX_COPIES",
        "GGML_SCHED_NO_REALLOC",
        "GGML_SSE42",
        "GGML_STATIC",
        "GGML_VULKAN",
        "LLAMA_ALL_WARNINGS",
        "LLAMA_BUILD_APP",
        "LLAMA_BUILD_COMMIT",
        "LLAMA_BUILD_COMMON",
        "LLAMA_BUILD_EXAMPLES",
        "LLAMA_BUILD_IS_DEV",
        "LLAMA_BUILD_NUMBER",
        "LLAMA_BUILD_SERVER",
        "LLAMA_BUILD_TESTS",
        "LLAMA_BUILD_TOOLS",
        "LLAMA_BUILD_UI",
        "LLAMA_LLGUIDANCE",
        "LLAMA_OPENSSL",
        "LLAMA_SANITIZE_ADDRESS",
        "LLAMA_SANITIZE_THREAD",
        "LLAMA_SANITIZE_UNDEFINED",
        "LLAMA_SUBPROCESS",
        "LLAMA_USE_PREBUILT_UI",
        "LLAMA_USE_SYSTEM_GGML",
    )
)

# Old names and what takes their place today; each is fatal, ignored or silently mapped upstream.
RENAMED = {
    "LLAMA_CUBLAS": "build.cuda=on",
    "LLAMA_CUDA": "build.cuda=on",
    "GGML_CUBLAS": "build.cuda=on",
    "LLAMA_CUDA_F16": "nothing: it is always on",
    "GGML_CUDA_F16": "nothing: it is always on",
    "GGML_CUDA_FA_ALL_QUANTS": "build.fa_quants=all",
    "LLAMA_CUDA_FA_ALL_QUANTS": "build.fa_quants=all",
    "LLAMA_BLAS": "build.blas=on",
    "LLAMA_OPENBLAS": "build.blas=on",
    "LLAMA_NATIVE": "build.cmake.GGML_NATIVE",
    "LLAMA_RPC": "nothing: RPC is always built",
    "LLAMA_CURL": "nothing: downloads are ours",
    "LLAMA_AVX2": "build.cmake.GGML_AVX2",
    "LLAMA_ARM_NEON": "build.arm_arch",
    "LLAMA_BUILD_WEBUI": "build.cmake.LLAMA_BUILD_UI",
}

# Options that a key of ours decides: setting them behind its back would make the plan untrue.
OWNED = {
    "GGML_CUDA": "build.cuda",
    "CMAKE_CUDA_ARCHITECTURES": "build.cuda_architectures",
    "GGML_CUDA_FA_QUANTS": "build.fa_quants",
    "GGML_BLAS": "build.blas",
    "GGML_CPU_ARM_ARCH": "build.arm_arch",
}


def nearest(name: str) -> str | None:
    """The known option that a misspelt or old name most likely means."""
    from difflib import get_close_matches

    if name in RENAMED:
        return RENAMED[name]
    found = get_close_matches(name.upper(), KNOWN, n=1, cutoff=0.8)
    return found[0] if found else None
