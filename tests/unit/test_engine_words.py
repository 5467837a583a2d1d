"""How the engine is built: the words for each board, what is refused, the jobs, and what the cache key covers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import OrinError, Refused, UsageError
from orin_deploy.facts.device import Cluster, Cpu, CudaToolkit, Device, Jetson, Memory, Tool, Toolchain
from orin_deploy.intent.build import GIB, resolve
from orin_deploy.intent.spec import Build, Setting, Value

ORIN = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp uscat ilrcpc"
XAVIER = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm dcpop"
THOR = f"{ORIN} i8mm bf16 sve sve2"
X86 = "pni ssse3 avx avx2 f16c fma bmi2"


def make_device(machine: str, features: str, **more: Any) -> Device:
    cpus = tuple(range(8))
    device = Device(
        machine=machine,
        os="Ubuntu 22.04",
        kernel="5.15",
        cpu=Cpu("a CPU", frozenset(features.split()), (Cluster(cpus),), cpus, cpus, cpus, "none"),
        memory=Memory(total=32 * GIB, available=28 * GIB, free=20 * GIB),
        toolchain=Toolchain(
            cxx=Tool("/usr/bin/g++", (11, 4, 0)),
            cc=Tool("/usr/bin/gcc", (11, 4, 0)),
            cmakes=(Tool("/usr/bin/cmake", (3, 22, 1)),),
            ninja=Tool("/usr/bin/ninja", (1, 10)),
        ),
        jetson=None,
        systemd=True,
        container=None,
    )
    return replace(device, **more)


HOST = make_device("x86_64", X86)
AGX = make_device("aarch64", ORIN)
CUDA_12 = CudaToolkit("/usr/local/cuda-12.6", (12, 6, 68), False, ("75", "80", "86", "87", "89", "90"))
CUDA_13 = CudaToolkit("/usr/local/cuda-13.0", (13, 0, 48), False, ("75", "80", "87", "90", "100", "110", "120"))
CUDA_11 = CudaToolkit("/usr/local/cuda-11.4", (11, 4, 315), False)


def build(
    device: Device = HOST, arch: str | None = None, toolkit: CudaToolkit | None = None, /, **values: Value
) -> Build:
    """`values` by option key, "__" for the dot."""
    settings = {key.replace("__", "."): Setting(value, "--set") for key, value in values.items()}
    return resolve(device, settings, data="/data", arch=arch, toolkit=toolkit)


TAIL = (
    " -DGGML_BLAS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_USE_PREBUILT_UI=OFF"
    " -DLLAMA_OPENSSL=OFF -DCMAKE_INSTALL_RPATH=$ORIGIN -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON"
    " -DLLAMA_BUILD_COMMIT=0c1e570 -DLLAMA_BUILD_NUMBER=11312"
)
FA = "-DGGML_CUDA_FA_QUANTS=q4_0-q4_0;q8_0-q8_0;f16-f16;bf16-bf16 -DGGML_CUDA_NCCL=OFF"


def test_words_for_an_x86_host() -> None:
    assert " ".join(build().cmake) == (
        "-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DGGML_RPC=ON -DGGML_CUDA=OFF" + TAIL
    )


def test_words_for_agx_orin() -> None:
    assert " ".join(build(AGX, "87", CUDA_12).cmake) == (
        "-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=OFF -DGGML_CPU_ARM_ARCH=armv8.2-a+dotprod+fp16 -DGGML_RPC=ON"
        " -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=87 -DCMAKE_CUDA_COMPILER=/usr/local/cuda-12.6/bin/nvcc"
        f" -DCUDAToolkit_ROOT=/usr/local/cuda-12.6 {FA} -DGGML_CUDA_NO_VMM=ON" + TAIL
    )


def test_words_for_thor() -> None:
    assert " ".join(build(make_device("aarch64", THOR), "110", CUDA_13).cmake) == (
        "-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=OFF -DGGML_CPU_ARM_ARCH=armv8.2-a+dotprod+fp16+i8mm+sve -DGGML_RPC=ON"
        " -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=110 -DCMAKE_CUDA_COMPILER=/usr/local/cuda-13.0/bin/nvcc"
        f" -DCUDAToolkit_ROOT=/usr/local/cuda-13.0 {FA}" + TAIL
    )


def test_words_for_xavier() -> None:
    xavier = build(make_device("aarch64", XAVIER), "72", CUDA_11)
    assert " ".join(xavier.cmake) == (
        "-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=OFF -DGGML_CPU_ARM_ARCH=armv8.2-a+fp16 -DGGML_RPC=ON"
        " -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=72 -DCMAKE_CUDA_COMPILER=/usr/local/cuda-11.4/bin/nvcc"
        f" -DCUDAToolkit_ROOT=/usr/local/cuda-11.4 {FA}" + TAIL
    )
    assert "11.7" in " ".join(xavier.warnings)


def test_what_is_asked_of_the_cpu_backend() -> None:
    assert build(AGX).cpu_features == {"NEON", "ARM_FMA", "DOTPROD", "FP16_VA"}
    assert build(AGX, build__arm_arch="armv8.2-a+dotprod").cpu_features == {"NEON", "DOTPROD"}
    assert {"AVX2", "FMA"} <= build().cpu_features
    assert build(build__cmake__GGML_NATIVE="OFF").cpu_features == frozenset()


def test_an_old_gcc_is_not_asked_for_what_it_cannot_say() -> None:
    tools = Toolchain(cxx=Tool("/usr/bin/g++", (9, 4)), cc=Tool("/usr/bin/gcc", (9, 4)))
    features = build(make_device("x86_64", f"{X86} avx_vnni avx512_bf16", toolchain=tools)).cpu_features
    assert "AVX2" in features
    assert not {"AVX_VNNI", "AVX512_BF16"} & features


@pytest.mark.parametrize(
    ("given_words", "word"),
    [
        ({"build__blas": True}, "-DGGML_BLAS_VENDOR=OpenBLAS"),
        ({"build__cmake__GGML_LTO": "ON"}, "-DGGML_LTO=ON"),
        ({"build__source": "package:llama-cpp-python==0.3.35"}, "-DLLAMA_BUILD_COMMIT=0.3.35"),
        ({"build__source": "file:/x/y.tar.gz"}, "-DLLAMA_BUILD_COMMIT=unknown"),
    ],
)
def test_a_setting_becomes_a_word(given_words: dict[str, Value], word: str) -> None:
    assert word in build(**given_words).cmake


def test_the_kv_pair_in_use_is_compiled() -> None:
    words = build(AGX, "87", CUDA_12, cache_type_k="q8_0", cache_type_v="q4_0").cmake
    assert "-DGGML_CUDA_FA_QUANTS=q4_0-q4_0;q8_0-q8_0;f16-f16;bf16-bf16;q8_0-q4_0" in words
    words = build(AGX, "87", CUDA_12, build__fa_quants="f16-f16", cache_type_k="q8_0", cache_type_v="q8_0").cmake
    assert "-DGGML_CUDA_FA_QUANTS=f16-f16;q8_0-q8_0" in words
    assert "-DGGML_CUDA_FA_QUANTS=all" in build(AGX, "87", CUDA_12, build__fa_quants="all").cmake


def test_a_repository_tells_its_own_commit() -> None:
    device = _tools(git=Tool("/usr/bin/git", (2, 34)))
    for source in ("git:https://example.org/llama.cpp@b11434", "file:/src/llama.cpp"):
        assert not any(word.startswith("-DLLAMA_BUILD_COMMIT") for word in build(device, build__source=source).cmake)


JETSON = Jetson(None, (), "p3701-0004", "36.4.3", "6.2", "12.6")


@pytest.mark.parametrize(
    ("kind", "says", "attempt"),
    [
        (UsageError, ("arch", "87"), lambda: build(AGX, "87", CUDA_12, build__cuda_architectures="")),
        (UsageError, ("native",), lambda: build(AGX, "87", CUDA_12, build__cuda_architectures="native")),
        (UsageError, ("arch",), lambda: build(HOST, None, CUDA_12, build__cuda="on")),
        (UsageError, ("q9_0",), lambda: build(AGX, "87", CUDA_12, build__fa_quants="q9_0-q8_0")),
        (UsageError, ("absolute",), lambda: build(build__engine="bin")),
        (Refused, ("110", "12.6"), lambda: build(AGX, "110", CUDA_12)),
        (Refused, ("CUDA 10.2", "JetPack 4"), lambda: build(AGX, "53", CudaToolkit("/c", (10, 2), False))),
        (OrinError, ("nvcc",), lambda: build(AGX, "87", None)),
        (OrinError, ("nvcc",), lambda: build(replace(AGX, jetson=JETSON))),
        (OrinError, ("sudo apt install g++",), lambda: build(replace(HOST, toolchain=Toolchain()))),
        (OrinError, ("sudo apt install git",), lambda: build(build__source="git:https://example.org/x@b1")),
        (
            Refused,
            ("gcc 9", "7.5.0"),
            lambda: build(
                make_device("aarch64", ORIN, toolchain=Toolchain(Tool("g++", (7, 5, 0)), Tool("gcc", (7, 5, 0))))
            ),
        ),
    ],
)
def test_what_cannot_be_built_is_refused(
    kind: type[OrinError], says: tuple[str, ...], attempt: Callable[[], Build]
) -> None:
    with pytest.raises(kind) as caught:
        attempt()
    assert type(caught.value) is kind
    text = f"{caught.value.message} {caught.value.hint}"
    assert [word for word in says if word not in text] == []


def test_a_toolkit_that_is_too_old_is_not_answered_with_another_architecture() -> None:
    with pytest.raises(Refused) as caught:
        build(AGX, "110", CUDA_12)
    assert "87" not in f"{caught.value.message} {caught.value.hint}"


def test_a_board_that_is_not_at_hand_needs_no_tools_here() -> None:
    board = make_device("aarch64", ORIN, toolchain=Toolchain(), assumed="profile agx32")
    planned = build(board, "87", CUDA_12)
    assert planned.cmake_program is None
    assert "libcublas-dev-12-6" in " ".join(planned.needs)
    assert "python3-venv" in " ".join(planned.needs)


def test_the_newest_cmake_that_is_enough_is_taken() -> None:
    cmakes = (Tool("/usr/bin/cmake", (3, 10, 2)), Tool("/usr/local/bin/cmake", (3, 27, 1)))
    device = replace(HOST, toolchain=replace(HOST.toolchain, cmakes=cmakes))
    assert build(device).cmake_program == "/usr/local/bin/cmake"
    assert build(replace(HOST, toolchain=replace(HOST.toolchain, cmakes=cmakes[:1]))).cmake_program is None


@given(available=st.integers(0, 256 * GIB), limit=st.none() | st.integers(0, 256 * GIB), used=st.integers(0, 64 * GIB))
def test_jobs_fit_free_memory_and_cpus(available: int, limit: int | None, used: int) -> None:
    memory = Memory(256 * GIB, available, available, cgroup_limit=limit, cgroup_used=used)
    free = available if limit is None else min(available, max(0, limit - used))
    for toolkit, job in ((None, GIB), (CUDA_12, 2 * GIB)):
        jobs = build(replace(AGX, memory=memory), "87" if toolkit else None, toolkit).jobs
        assert 1 <= jobs <= 8
        assert jobs == 1 or jobs * job <= free
        assert jobs == 8 or (jobs + 1) * job > free


def test_the_report_of_a_killed_compiler_would_get_two_jobs() -> None:
    memory = Memory(total=15656000 * 1024, available=5200000 * 1024, free=900000 * 1024)
    assert build(replace(AGX, memory=memory), "87", CUDA_12).jobs == 2


def _tools(**more: Any) -> Device:
    return replace(AGX, toolchain=replace(AGX.toolchain, **more))


SHAPES: list[Callable[[], Build]] = [
    lambda: build(AGX, "87", CUDA_12),
    lambda: build(AGX),
    lambda: build(AGX, "86", CUDA_12),
    lambda: build(AGX, "87", CUDA_13),
    lambda: build(AGX, "87", replace(CUDA_12, version=(12, 5))),
    lambda: build(AGX, "87", CUDA_12, build__fa_quants="all"),
    lambda: build(AGX, "87", CUDA_12, build__blas=True),
    lambda: build(AGX, "87", CUDA_12, build__arm_arch="armv8.2-a"),
    lambda: build(AGX, "87", CUDA_12, build__cmake__GGML_LTO="ON"),
    lambda: build(AGX, "87", CUDA_12, build__source="package:llama-cpp-python==0.3.35"),
    lambda: build(AGX, "87", CUDA_12, build__source="file:/src"),
    lambda: build(AGX, "87", CUDA_12, build__source="file:/src2"),
    lambda: build(_tools(cxx=Tool("/usr/bin/g++", (12, 1))), "87", CUDA_12),
    lambda: build(_tools(cc=Tool("/usr/bin/gcc", (12, 1))), "87", CUDA_12),
    lambda: build(AGX, "87", CUDA_12, build__engine="/opt/llama"),
    lambda: build(AGX, "87", CUDA_12, build__engine="/opt/llama2"),
    lambda: build(HOST),
    lambda: build(make_device("x86_64", f"{X86} avx512f")),
    lambda: build(replace(HOST, cpu=replace(HOST.cpu, model="another CPU"))),
]


def test_the_key_covers_everything_that_shapes_the_result() -> None:
    keys = [shape().key for shape in SHAPES]
    assert len(set(keys)) == len(SHAPES)
    assert keys == [shape().key for shape in SHAPES]


def test_the_key_leaves_out_what_does_not() -> None:
    key = build(AGX, "87", CUDA_12).key
    busy = replace(AGX, memory=Memory(8 * GIB, 3 * GIB, GIB), kernel="6.8")
    assert build(busy, "87", CUDA_12, build__jobs=3).key == key
    assert build(_tools(cmakes=(), ninja=None), "87", CUDA_12).key == key
    assert build(replace(AGX, cpu=replace(AGX.cpu, model="A78AE")), "87", CUDA_12).key == key


def test_a_ready_engine_is_not_built() -> None:
    ready = build(replace(HOST, toolchain=Toolchain()), build__engine="/opt/llama/")
    assert (ready.bin, ready.cmake, ready.estimate_s) == ("/opt/llama", (), 0)
    assert ready.folder == f"/data/engines/{ready.key}"
    assert ready.key.startswith("external-")


def test_the_estimate_falls_with_jobs_and_grows_with_architectures() -> None:
    one, two = (build(AGX, "87", CUDA_12, build__jobs=jobs).estimate_s for jobs in (1, 2))
    assert one == 2 * two
    assert build(AGX, "87", CUDA_12, build__cuda_architectures="86;87", build__jobs=1).estimate_s > one > 5000
