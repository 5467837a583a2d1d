"""Rules about what is to build with: JetPack, its CUDA toolkit, gcc, cmake and the flags."""

from __future__ import annotations

import shlex

from orin_deploy.doctor import known_bad
from orin_deploy.doctor.arch import wanted_architecture
from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.doctor.jetpack import JETPACK_4, is_jetpack_4, jetson_of
from orin_deploy.doctor.planned import board_features, planned_build, toolkits
from orin_deploy.doctor.power import is_of_the_supply
from orin_deploy.errors import OrinError, Refused
from orin_deploy.facts.jetson import toolkit_for
from orin_deploy.intent import cmake
from orin_deploy.intent.source import DEFAULT


def unsupported_jetpack4(evidence: Evidence) -> Finding | None:
    """JetPack 4 (Nano, TX2, or a module never updated): its CUDA is too old for llama.cpp."""
    if not is_jetpack_4(evidence) or is_of_the_supply(evidence):
        return None
    cuda = evidence.cuda or evidence.jetpack_cuda or next(iter(JETPACK_4))
    who = evidence.board.name if evidence.board else "this machine"
    newer = evidence.board is not None and evidence.board.supported
    return Finding(
        "build.unsupported-jetpack4",
        "refuse",
        f"{who} runs JetPack 4 with CUDA {cuda}, which llama.cpp's CUDA code does not support",
        "update the board to JetPack 5 or newer" if newer else "a CPU-only build is possible: --set build.cuda=off",
        why_not="no flag or patch makes it build: the toolchain of this board is frozen",
        values={"cuda": cuda},
    )


def toolkit_not_jetpack(evidence: Evidence) -> Finding | None:
    """A shell whose nvcc is not the JetPack's, or a JetPack whose toolkit is missing."""
    kit, warning = toolkit_for(jetson_of(evidence), toolkits(evidence))
    if kit is None or warning is None:
        return None
    arch = wanted_architecture(evidence)
    return Finding(
        "build.toolkit-not-jetpack",
        "warn",
        warning,
        f"orin-deploy passes {kit.nvcc} by itself; by hand: -DCMAKE_CUDA_COMPILER={kit.nvcc}",
        why_not="the newest toolkit is not the best: it may not know the module and wants a newer driver",
        values={"chosen_toolkit": kit.root} | ({"cuda_arch": arch} if arch else {}),
    )


def known_bad_revision(evidence: Evidence) -> Finding | None:
    """A pinned llama.cpp revision that is known not to build on this board with this CUDA."""
    bad = known_bad.revision(evidence)
    if bad is None or evidence.logs:
        return None
    return Finding(
        "build.known-bad-revision",
        "refuse",
        f"llama.cpp revision {evidence.revision} is known not to build here ({bad.report}): {bad.what}",
        f"--set build.source={DEFAULT}, the nearest known to be good, or any revision after {bad.fixed_by}",
        values={"revision": evidence.revision},
    )


def gcc_too_old(evidence: Evidence) -> Finding | None:
    """A gcc that our planner refuses on Arm, before a build has failed on it."""
    if evidence.gcc is None or evidence.logs_of_a_build or is_jetpack_4(evidence):
        return None
    refusal = planned_build(evidence, cuda=False)
    if not isinstance(refusal, Refused):
        return None
    return Finding(
        "build.gcc-too-old-neon",
        "refuse",
        refusal.message,
        refusal.hint or "install a newer gcc",
        values={"gcc": evidence.gcc},
    )


def cmake_version(evidence: Evidence) -> Finding | None:
    """A cmake that comes first and is too old, and the one to use in its place."""
    if not evidence.cmakes or evidence.settled or is_jetpack_4(evidence):
        return None
    first = evidence.cmakes[0]
    chosen = _cmake_for(evidence)
    if chosen is None:
        found = ", ".join(f"{tool.path} {tool.version_text}" for tool in evidence.cmakes)
        what, way = f"no cmake found is new enough ({found})", "orin-deploy takes one from the Python index by itself"
    elif _cmake_for(evidence, only_first=True) is None:
        what = f"{first.path} is cmake {first.version_text}, which is too old; {chosen} is new enough"
        way = f"orin-deploy uses it by itself; by hand call {chosen} by its path"
    else:
        return None
    return Finding("build.cmake-version", "plan", what, way, values={"chosen": chosen})


def _cmake_for(evidence: Evidence, *, only_first: bool = False) -> str | None:
    cmakes = evidence.cmakes[:1] if only_first else evidence.cmakes
    plan = planned_build(Evidence(cmakes=cmakes), cuda=False)
    return None if isinstance(plan, OrinError) else plan.cmake_program


def unknown_flag(evidence: Evidence) -> Finding | None:
    """A build option in a profile or a record that llama.cpp does not have (any more)."""
    unknown = (name for name in evidence.cmake_flags if name not in cmake.KNOWN)
    near = {name: found for name in unknown if (found := cmake.nearest(name)) is not None}  # else another backend's
    if not near:
        return None
    return Finding(
        "build.unused-cmake-variable",
        "refuse",
        f"llama.cpp has no build option {' or '.join(near)}; cmake would take it and ignore it",
        f"use {', '.join(f'{found} in place of {name}' for name, found in near.items())}",
        values={"unknown": list(near)},
    )


def known_good_flags(evidence: Evidence) -> Finding | None:
    """The flags for a board, where CUDA is wished for and the flags named are others or none."""
    board = evidence.board
    elsewhere = evidence.settled or evidence.logs or evidence.build_outputs is not None or is_jetpack_4(evidence)
    if board is None or not evidence.wants_cuda or elsewhere:
        return None
    plan = planned_build(evidence, cuda=True)
    if isinstance(plan, OrinError):
        return None
    unknown = {"LLAMA_BUILD_COMMIT", "LLAMA_BUILD_NUMBER"}  # of one revision; the others are decided on the board
    unknown |= {"GGML_NATIVE", "GGML_CPU_ARM_ARCH"} if board_features(evidence) is None else set()
    unknown |= set() if toolkits(evidence) else {"CMAKE_CUDA_COMPILER"}
    flags = dict(word.removeprefix("-D").split("=", 1) for word in plan.cmake)
    flags = {name: value for name, value in flags.items() if name not in unknown}
    asked = evidence.cmake_flags
    if asked and all(flags.get(name, value).upper() == value.upper() for name, value in asked.items()):
        return None
    words = shlex.join(f"-D{name}={value}" for name, value in flags.items())
    return Finding(
        "build.known-good-flags",
        "plan",
        f"one set of build flags is known to be good for {board.name}",
        f"`orin-deploy up` builds with it and proves it with a real completion; by hand: cmake {words}",
        values=flags,
    )
