"""A failed build's words: the first real error, the likely cause. Inputs follow the field reports named beside them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import CommandFailed
from orin_deploy.intent.cmake import KNOWN, nearest
from orin_deploy.parts.engine.causes import cause, causes, first_error
from orin_deploy.parts.engine.configured import unused_variables
from orin_deploy.parts.engine.explain import explain

UNUSED = """\
-- Configuring done
CMake Warning:
  Manually-specified variables were not used by the project:

    GGML_CUDAA
    GGML_RPCC

-- Build files have been written to: /srv/build
"""

CASES = {
    # llama.cpp issues 2004 and 10555
    "build.nvcc-neon-fp16": (
        '/srv/src/ggml/src/ggml-impl.h(314): error: identifier "__fp16" is undefined\n'
        '1 error detected in the compilation of "ggml-cuda.cu".',
        ("known", "revision"),
        ("out of memory", "edit"),
    ),
    # ollama issue 7591
    "build.i8mm-missing": (
        "ggml-quants.c:4023:52: warning: implicit declaration of function 'vmmlaq_s32'; did you mean 'vmlaq_s32'?\n"
        "ggml-quants.c:4023:52: error: incompatible type for argument 1 of 'vcvtq_f32_s32'",
        ("i8mm", "vmmlaq_s32", "dotprod"),
        (),
    ),
    # llama.cpp issue 3880
    "build.gcc-too-old-neon": (
        "ggml-quants.c:6584:21: error: incompatible types when assigning to type 'int8x16x4_t' from type 'int'\n"
        "             q8bytes = vld1q_s8_x4(q8); q8 += 64;",
        ("gcc", "7.5", "vld1q_s8_x4"),
        (),
    ),
    # llama.cpp issue 18430
    "build.arch-native-no-gpu": (
        "nvcc fatal   : Unsupported gpu architecture 'compute_No CUDA devices found.'",
        ("87", "CMAKE_CUDA_ARCHITECTURES"),
        (),
    ),
    "build.arch-not-in-toolkit": ("nvcc fatal   : Unsupported gpu architecture 'compute_110'", ("110",), ("87",)),
    # llama-cpp-python issue 1779
    "build.nvcc-missing": (
        "-- Could not find nvcc, please set CUDAToolkit_ROOT.\nCMake Warning: CUDA Toolkit not found",
        ("nvcc", "path"),
        ("install CUDA",),
    ),
    # llama.cpp issue 7508
    "build.libcuda-missing": (
        "/usr/bin/ld: cannot find -lcuda: No such file or directory\ncollect2: error: ld returned 1 exit status",
        ("stub",),
        (),
    ),
    # jetson-containers issue 661
    "build.jobs-from-memory": (
        "Out of memory: Killed process 4711 (cicc) total-vm:3145728kB, anon-rss:2411724kB",
        ("killed", "build.jobs"),
        (),
    ),
    # llama.cpp issue 9533
    "build.unused-cmake-variable": (UNUSED, ("GGML_CUDAA", "GGML_CUDA", "GGML_RPC"), ()),
    "build.no-space": ("fatal error: error writing to /tmp/cc.s: No space left on device", ("space",), ()),
    "build.no-permission": ("ninja: error: opening build log: Permission denied", ("permission",), ()),
    "build.cublas-missing": (
        'CMake Error at ggml-cuda/CMakeLists.txt:178 (target_link_libraries):\n  Target "ggml-cuda" links to:\n'
        "\n    CUDA::cublas\n\n  but the target was not found.  Possible reasons include:\n",
        ("cuBLAS", "libcublas-dev"),
        (),
    ),
    "build.openblas-missing": (
        "CMake Error at ggml/src/ggml-blas/CMakeLists.txt:92 (message):\n  BLAS not found, please refer to\n",
        ("OpenBLAS", "libopenblas-dev"),
        (),
    ),
    "build.cmake-version": (
        "CMake Error at CMakeLists.txt:1 (cmake_minimum_required):\n"
        "  CMake 3.18 or higher is required.  You are running version 3.16.3\n",
        ("3.18", "3.16.3"),
        (),
    ),
    "build.clock-skew": ("make: warning:  Clock skew detected.  Your build may be incomplete.", ("clock",), ()),
    "build.no-compiler": ("  No CMAKE_CXX_COMPILER could be found.", ("g++",), ()),
    "build.index-unreachable": (
        "ERROR: Could not find a version that satisfies the requirement scikit-build-core (from versions: none)",
        ("index",),
        (),
    ),
}


@pytest.mark.parametrize("rule", CASES)
def test_a_log_is_told_by_its_rule(rule: str) -> None:
    log, must_say, must_not_say = CASES[rule]
    found = causes(f"[1/9] Building CXX object a.o\n{log}\nninja: build stopped: subcommand failed.\n")
    assert found[0].rule == rule
    text = f"{found[0].message} {found[0].hint}"
    assert [word for word in must_say if word not in text] == []
    assert [word for word in must_not_say if word in text] == []


@pytest.mark.parametrize("name", ["vld1q_s16_x2", "vld1q_u8_x2", "ggml_vld1q_u8_x4", "vld1q_s8_x4"])
def test_the_whole_family_of_neon_loads_is_known(name: str) -> None:
    found = causes(f"q.c:1:9: error: implicit declaration of function '{name}' [-Werror=implicit-function-declaration]")
    assert [one.rule for one in found] == ["build.gcc-too-old-neon"]


@pytest.mark.parametrize(
    "words",
    [
        "c++: fatal error: Killed signal terminated program cc1plus",
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
        "Killed process 99 (cc1plus)",
    ],
)
def test_every_way_to_be_killed_is_known(words: str) -> None:
    assert causes(words)[0].rule == "build.jobs-from-memory"


def test_a_healthy_log_has_no_cause() -> None:
    log = "-- CUDA Toolkit found\n-- Using CMAKE_CUDA_ARCHITECTURES=87\n[1/2] Building CXX object error.cpp.o\n"
    assert cause(log) is None
    assert first_error(log.splitlines()) is None


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    causes(text)
    assert first_error(text.splitlines()) is None or text


@pytest.mark.parametrize(
    ("log", "first"),
    [
        (
            "[1/3] Building CXX object a.o\nFAILED: a.o\n/src/a.cpp:3:5: error: 'x' was not declared in this scope\n"
            "/src/b.cpp:1:1: error: later\nninja: build stopped: subcommand failed.",
            "/src/a.cpp:3:5: error: 'x' was not declared in this scope",
        ),
        (
            '/a.h(218): error: identifier "__fp16" is undefined\n1 error detected',
            '/a.h(218): error: identifier "__fp16" is',
        ),
        ("c++: fatal error: Killed signal terminated program cc1plus\nx", "c++: fatal error: Killed"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_1'", "nvcc fatal"),
        ("/usr/bin/ld: cannot find -lcuda: No such\ncollect2: error: ld returned 1", "/usr/bin/ld: cannot find -lcuda"),
        ("a.cpp:(.text+0x5): undefined reference to `f()'\n", "a.cpp:(.text+0x5): undefined reference"),
        (
            "fatal: not a git repository: x\nCMake Error at C.txt:9 (message):\n  BLAS not found,\n  see there\n\n-- k",
            "CMake Error at C.txt:9 (message): BLAS not found, see there",
        ),
        ("ninja: error: unknown target 'llama-sever'", "ninja: error: unknown target"),
        ("fatal: couldn't find remote ref b99\n", "fatal: couldn't find remote ref b99"),
    ],
)
def test_the_first_error_is_the_real_one(log: str, first: str) -> None:
    assert (first_error(log.splitlines()) or "").startswith(first)


def test_unused_variables_are_listed() -> None:
    assert unused_variables(UNUSED) == ("GGML_CUDAA", "GGML_RPCC")
    assert unused_variables("-- Configuring done\n") == ()


def test_the_nearest_name() -> None:
    assert nearest("GGML_CUDAA") == "GGML_CUDA"
    assert nearest("ggml_openmp") == "GGML_OPENMP"
    assert nearest("GGML_CUDA_FA_ALL_QUANTS") == "build.fa_quants=all"
    assert nearest("SOMETHING_ELSE") is None
    assert all(nearest(name) == name for name in KNOWN if name.isupper())


def test_a_failure_is_explained_from_the_last_command_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    log.write_text(
        "$ cmake\nCMake Error at old:1 (message):\n  from before\n"
        "$ ninja\n/src/a.cpp:3:5: error: boom\nninja: build stopped: subcommand failed.\n"
    )
    told = explain(CommandFailed(("/usr/bin/ninja", "-C", "x"), 1, ("ninja: build stopped",), log))
    assert isinstance(told, CommandFailed)
    assert told.message == "ninja failed with exit code 1: /src/a.cpp:3:5: error: boom"
    assert str(log) in (told.hint or "")
    assert told.tail == ("ninja: build stopped",)


def test_a_killed_command_ran_out_of_memory() -> None:
    told = explain(CommandFailed(("ninja",), -9))
    assert "memory" in told.message
    assert "build.jobs" in (told.hint or "")


def test_a_failed_check_says_what_is_missing() -> None:
    told = explain(CommandFailed(("/p/python", "/x/probe.py", "/bin"), 1, ("CUDA was asked for and …",)))
    assert "CUDA was asked for" in told.message
