"""How the engine is built: cmake's words, targets, jobs, tools and the cache key, from the device and the settings."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from hashlib import sha256

from orin_deploy.errors import OrinError, Refused, UsageError
from orin_deploy.facts.cpu import arm_arch, ggml_features
from orin_deploy.facts.device import CrossCompiler, CudaToolkit, Device, Memory, Tool
from orin_deploy.intent import cross as crossing
from orin_deploy.intent.build_words import Values, base_architecture, option_text, render_words
from orin_deploy.intent.source import DEFAULT, has_binding, parse_source
from orin_deploy.intent.spec import Build, Source

TARGETS = ("llama-server", "llama-bench", "llama-quantize", "llama-fit-params", "ggml-rpc-server", "llama-cli")

_NO_TESTS = "-DLLAMA_BUILD_TESTS=OFF"

GIB = 1024**3

# One nvcc job compiling flash attention took 0.7 GB at 87 alone (facts/llamacpp.md section 10); older toolkits and
# reports of 2.4 GiB (jetson-containers issue 661) ask for more room than that.
_JOB_BYTES = {"cuda": 2 * GIB, "cpp": 1 * GIB}

# Measured CPU seconds on x86 (same section): the CPU parts, and the CUDA backend for one architecture.
_CPU_SECONDS, _CUDA_SECONDS = 1315, 5000

_MIN_CMAKE, _MIN_CMAKE_BINDING = (3, 18), (3, 21)
_MIN_GCC_ARM = (9,)  # gcc 7 and 8 lack vld1q_*_x2 and _x4 (llama.cpp issues 3880, 10963)
_MIN_CUDA, _TESTED_CUDA = (11,), (11, 7)

# Extensions in a -march word and what the CPU backend then reports.
_ARM_FEATURES = {"dotprod": "DOTPROD", "fp16": "FP16_VA", "i8mm": "MATMUL_INT8", "sve": "SVE", "sme": "SME"}

# What `-march=native` can only say from this gcc on, whatever the CPU has.
_SINCE_GCC = {"AVX512_BF16": (10,), "AVX_VNNI": (11,), "AMX_INT8": (11,)}


def resolve(
    device: Device,
    values: Values,
    *,
    data: str,
    arch: str | None,
    toolkit: CudaToolkit | None,
    compiler: CrossCompiler | None = None,
    cpus: int | None = None,
) -> Build:
    """The build that the settings ask for on this device, or for it: then `compiler` is what another machine, with
    `cpus` CPUs, compiles it with (`cross.target`).

    `data` is the folder that holds `engines`; `arch` the board's CUDA architecture and `toolkit` the one to use, as
    chosen from the device. Raises UsageError for values of the wrong form, Refused for what cannot work here,
    OrinError for what must be installed first.
    """
    source = parse_source(option_text(values, "build.source", DEFAULT))
    switch = option_text(values, "build.cuda", "auto")
    # A Jetson without a toolkit is one that lacks something, not one that is to run on its CPU.
    cuda = switch == "on" or (switch == "auto" and (arch is not None or device.jetson is not None))
    architectures = _architectures(values, arch) if cuda else ()
    engine = option_text(values, "build.engine", "auto")
    if engine != "auto":
        return _external(engine, source, cuda, architectures, data)
    if compiler is not None:
        crossing.refuse(values, cuda)
    _require_compilers(device, source)
    toolkit = _require_toolkit(toolkit, architectures) if cuda else None
    blas = option_text(values, "build.blas", "off") == "on"
    arm = _arm_arch(device, values)
    words = render_words(source, values, architectures, toolkit, blas, arm)
    native = words["GGML_NATIVE"] == "ON"
    if compiler is not None:
        words |= crossing.words(compiler)
    jobs = _jobs(device, values, cuda, cpus or len(device.cpu.usable))
    needed = _MIN_CMAKE_BINDING if has_binding(source) else _MIN_CMAKE
    build = Build(
        key="",
        folder="",
        source=source,
        cmake=tuple(f"-D{name}={value}" for name, value in words.items()),
        targets=TARGETS,
        cuda=cuda,
        cuda_architectures=architectures,
        blas=blas,
        jobs=jobs,
        cmake_program=_newest(device.toolchain.cmakes, needed),
        ninja_program=device.toolchain.ninja.path if device.toolchain.ninja else None,
        nvcc=toolkit.nvcc if toolkit else None,
        cpu_features=_features(device, values, arm, native),
        estimate_s=(_CPU_SECONDS + _CUDA_SECONDS * len(architectures)) / jobs,
        needs=_needs(device, toolkit, blas),
        warnings=_warnings(source, toolkit),
        cross=compiler,
        libraries=crossing.libraries(device) if compiler else (),
    )
    key = _key(build, device, toolkit, native)
    return _with_extra_targets(replace(build, key=key, folder=f"{data}/engines/{key}"), values)


def _external(engine: str, source: Source, cuda: bool, architectures: tuple[str, ...], data: str) -> Build:
    if not engine.startswith("/"):
        raise UsageError(f'build.engine "{engine}" is not an absolute path', "name the folder that holds llama-server")
    key = f"external-{sha256(engine.encode()).hexdigest()[:12]}"
    return Build(
        key=key,
        folder=f"{data}/engines/{key}",
        source=source,
        cmake=(),
        targets=(),
        cuda=cuda,
        cuda_architectures=architectures,
        blas=False,
        jobs=1,
        cmake_program=None,
        ninja_program=None,
        nvcc=None,
        cpu_features=frozenset(),  # nothing was asked of a build that is not ours
        estimate_s=0,
        engine=engine.rstrip("/"),
    )


def _architectures(values: Values, arch: str | None) -> tuple[str, ...]:
    """The CUDA architectures that are asked for, else the board's; empty when neither is known."""
    text = option_text(values, "build.cuda_architectures", "auto")
    if text == "auto":
        return (arch,) if arch else ()
    names = tuple(dict.fromkeys(re.split(r"[;,\s]+", text)))
    for name in names:
        if not re.fullmatch(r"\d{2,3}[af]?(-real|-virtual)?", name):
            raise UsageError(
                f'build.cuda_architectures "{text}" is no GPU architecture (arch)',
                "name it in digits: 87 for Orin, 72 Xavier, 110 Thor; native would ask a driver that a build may lack",
            )
    return names


def _with_extra_targets(build: Build, values: Values) -> Build:
    """Further programs of the same build: they change nothing of it, so its key stays."""
    names = re.split(r"[;,\s]+", option_text(values, "build.extra_targets", ""))
    extra = tuple(dict.fromkeys(name for name in names if name and name not in TARGETS))
    tests = any(name.startswith("test-") for name in extra)
    cmake = tuple("-DLLAMA_BUILD_TESTS=ON" if tests and word == _NO_TESTS else word for word in build.cmake)
    return replace(build, targets=(*build.targets, *extra), cmake=cmake)


def _require_toolkit(toolkit: CudaToolkit | None, architectures: tuple[str, ...]) -> CudaToolkit:
    if toolkit is None:
        raise OrinError(
            "CUDA is to be built, and no toolkit (nvcc) was found",
            "sudo apt install nvidia-jetpack (it goes to /usr/local/cuda), or --set build.cuda=off for the CPU alone",
        )
    if toolkit.version and toolkit.version < _MIN_CUDA:
        raise Refused(
            f"CUDA {toolkit.version_text} (JetPack 4) is not supported by llama.cpp any more",
            "a CPU-only build is possible: --set build.cuda=off",
        )
    if not architectures:
        raise UsageError(
            "no CUDA architecture (arch) is known for this machine",
            "set build.cuda_architectures: 87 for Orin, 72 Xavier, 110 Thor",
        )
    listed = None if toolkit.architectures is None else {base_architecture(name) for name in toolkit.architectures}
    missing = [name for name in architectures if listed is not None and base_architecture(name) not in listed]
    if missing:
        raise Refused(
            f"CUDA {toolkit.version_text} ({toolkit.nvcc}) does not know architecture {', '.join(missing)}",
            f"use a toolkit whose `nvcc --list-gpu-arch` names compute_{base_architecture(missing[0])}",
        )
    return toolkit


def _require_compilers(device: Device, source: Source) -> None:
    tools = device.toolchain
    if source.kind == "git" and tools.git is None and not device.assumed:
        raise OrinError("build.source is a git repository and there is no git", "sudo apt install git")
    if tools.cxx is None or tools.cc is None:
        if device.assumed:
            return
        missing = "C++" if tools.cxx is None else "C"
        raise OrinError(f"there is no {missing} compiler on this machine", "sudo apt install g++")
    for tool in (tools.cxx, tools.cc):
        if device.machine == "aarch64" and tool.version and tool.version < _MIN_GCC_ARM:
            raise Refused(
                f"llama.cpp on Arm needs gcc 9 or newer, and {tool.path} is gcc {tool.version_text} "
                "(JetPack 4 ships 7.5)",
                "sudo apt install g++-9, then CC=gcc-9 CXX=g++-9",
            )


def _arm_arch(device: Device, values: Values) -> str | None:
    """The -march word, or None where the compiler's own `native` is right (anything but 64-bit Arm)."""
    text = option_text(values, "build.arm_arch", "auto")
    if text != "auto":
        return text
    return arm_arch(device.cpu.features) if device.machine == "aarch64" else None


def _features(device: Device, values: Values, arm: str | None, native: bool) -> frozenset[str]:
    if arm is not None and option_text(values, "build.arm_arch", "auto") != "auto":
        extensions = arm.split("+")[1:]
        return frozenset({"NEON"} | {_ARM_FEATURES[name] for name in extensions if name in _ARM_FEATURES})
    if arm is None and not native:  # build.cmake.GGML_NATIVE=off: a portable build, on purpose
        return frozenset()
    features = ggml_features(device.cpu.features, device.machine)
    compiler = device.toolchain.cxx.version if device.toolchain.cxx else ()
    return frozenset(name for name in features if not compiler or compiler >= _SINCE_GCC.get(name, ()))


def _jobs(device: Device, values: Values, cuda: bool, cpus: int) -> int:
    text = option_text(values, "build.jobs", "auto")
    if text != "auto":
        return int(text)
    fit = _available_bytes(device.memory) // _JOB_BYTES["cuda" if cuda else "cpp"]
    return max(1, min(fit, cpus or 1))


def _available_bytes(memory: Memory) -> int:
    """Memory a build may take: what the machine has available, or less where a control group allows less."""
    if memory.cgroup_limit is None:
        return memory.available
    return min(memory.available, max(0, memory.cgroup_limit - (memory.cgroup_used or 0)))


def _newest(tools: tuple[Tool, ...], needed: tuple[int, ...]) -> str | None:
    """The newest cmake that is new enough; None means that the Python index gives one."""
    enough = [tool for tool in tools if tool.version >= needed]
    return max(enough, key=lambda tool: tool.version).path if enough else None


def _needs(device: Device, toolkit: CudaToolkit | None, blas: bool) -> tuple[str, ...]:
    needs = []
    if toolkit:
        version = "-".join(map(str, toolkit.version[:2]))
        needs.append(f"cuBLAS's headers: sudo apt install libcublas-dev-{version}")
        needs.append("the service's user in the groups video and render: sudo usermod -aG video,render USER")
    if blas:
        needs.append("OpenBLAS: sudo apt install libopenblas-dev pkg-config")
    if device.assumed:
        needs.append("a compiler and Python's venv: sudo apt install g++ python3-venv")
    return tuple(needs)


def _warnings(source: Source, toolkit: CudaToolkit | None) -> tuple[str, ...]:
    warnings = []
    if source.kind == "package" and source.sha256 is None:
        warnings.append(f"no hash is known for {source.location} {source.version}: it is used as the index gives it")
    if source.kind == "git" and source.commit is None and source.build_number is None:
        warnings.append(f"{source.version} may be a branch: it is fetched once; name a tag or commit to be sure")
    if toolkit and toolkit.version and toolkit.version < _TESTED_CUDA:
        warnings.append(f"CUDA {toolkit.version_text} is older than the oldest llama.cpp is tested with (11.7)")
    return tuple(warnings)


def _key(build: Build, device: Device, toolkit: CudaToolkit | None, native: bool) -> str:
    """A name that covers all that shapes the binaries, so that equal keys mean equal engines."""
    source, tools = build.source, device.toolchain
    shapes = {
        "source": [source.kind, source.location, source.version, source.sha256],
        "cmake": build.cmake,
        "targets": build.targets,
        "machine": device.machine,
        "compilers": [tool.version if tool else None for tool in (tools.cc, tools.cxx)],
        "cuda": toolkit.version if toolkit else None,
        "cpu": [device.cpu.model, sorted(device.cpu.features)] if native else None,
    }
    digest = sha256(json.dumps(shapes, sort_keys=True).encode()).hexdigest()[:12]
    label = source.commit or source.version or source.kind
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '-', label)}-{digest}"
