"""Rules about builds: what a log says went wrong, and a build that ended without what was asked of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from orin_deploy.doctor import known_bad
from orin_deploy.doctor.arch import wanted_architecture
from orin_deploy.doctor.documents import version
from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding, Verdict
from orin_deploy.doctor.jetpack import jetson_of
from orin_deploy.doctor.planned import planned_build, toolkits
from orin_deploy.errors import OrinError
from orin_deploy.facts.cpu import arm_arch
from orin_deploy.facts.jetson import toolkit_for
from orin_deploy.parts.engine.causes import causes

_VERDICTS: dict[str, Verdict] = {"build.unused-cmake-variable": "refuse", "build.jobs-from-memory": "plan"}

# Causes whose words are said in many places: they count in the log of a build only.
_GENERAL = frozenset({"build.no-space", "build.no-permission", "build.clock-skew", "build.index-unreachable"})

# The newest gcc that a CUDA version takes as its host compiler (host_config.h of each toolkit).
_NEWEST_GCC: dict[tuple[int, ...], int] = {(10, 2): 8, (11, 4): 11, (12, 2): 12, (12, 6): 13, (13, 0): 15}


def log_causes(evidence: Evidence) -> tuple[Finding, ...]:
    """One finding for every cause that the logs name, with what the rest of the evidence adds to it."""
    found: dict[str, Finding] = {}
    for log in evidence.logs:
        for cause in causes("\n".join(log.lines)):
            if cause.rule in found or (cause.rule in _GENERAL and not log.is_of_a_build):
                continue
            verdict = _VERDICTS.get(cause.rule, "diagnose")
            finding = Finding(cause.rule, verdict, cause.message, cause.hint)
            found[cause.rule] = _ADDED.get(cause.rule, _nothing)(evidence, finding)
    return tuple(found.values())


def _nothing(evidence: Evidence, finding: Finding) -> Finding:
    return finding


def _revision(evidence: Evidence, finding: Finding) -> Finding:
    bad, arch = known_bad.revision(evidence), wanted_architecture(evidence)
    what = finding.what
    if bad is not None:
        what = f"{what}; revision {evidence.revision} is known for it ({bad.report}, fixed by {bad.fixed_by})"
    values: dict[str, Any] = {"cuda_arch": arch} if arch else {}
    return dataclasses.replace(finding, what=what, values=values)


def _i8mm(evidence: Evidence, finding: Finding) -> Finding:
    features = evidence.cpu_features
    if features is None:
        return finding
    march = arm_arch(features)
    values = {"march": march, **{f"march_has_{name}": name in march.split("+") for name in ("i8mm", "dotprod", "fp16")}}
    if values["march_has_i8mm"]:
        why, way = "the CPU has i8mm, so it is the compiler that is too old for it", "install a newer gcc"
    else:
        why, way = "the model and the CUDA toolkit are not at fault", f"--set build.arm_arch={march}"
    return dataclasses.replace(finding, why_not=why, next=way, values=values)


def _gcc(evidence: Evidence, finding: Finding) -> Finding:
    if evidence.gcc is None:
        return finding
    return dataclasses.replace(finding, what=f"{finding.what}; it is gcc {evidence.gcc}", values={"gcc": evidence.gcc})


def _native(evidence: Evidence, finding: Finding) -> Finding:
    arch = wanted_architecture(evidence)
    if arch is None or evidence.board is None:
        return finding
    way = f"--set build.cuda_architectures={arch} for {evidence.board.name}, which sets CMAKE_CUDA_ARCHITECTURES={arch}"
    return dataclasses.replace(finding, next=way, values={"cuda_arch": arch})


def _nvcc(evidence: Evidence, finding: Finding) -> Finding:
    kit, _ = toolkit_for(jetson_of(evidence), toolkits(evidence))
    if kit is None:
        return finding
    return dataclasses.replace(
        finding,
        what=f"{finding.what}; nvcc is there{'' if kit.on_path else ', only not on PATH'}: {kit.nvcc}",
        next=f"`orin-deploy up` passes it by itself; by hand: -DCMAKE_CUDA_COMPILER={kit.nvcc}",
        why_not="CUDA is not missing",
        values={"nvcc": kit.nvcc},
    )


def _jobs(evidence: Evidence, finding: Finding) -> Finding:
    if evidence.memory is None:
        return finding
    plan = planned_build(dataclasses.replace(evidence, cores=evidence.cores or 1024, gcc=None), cuda=True)
    if isinstance(plan, OrinError):
        return finding
    mib = evidence.memory.available >> 20
    return dataclasses.replace(
        finding,
        what=f"{finding.what}: {mib} MiB are available, room for {plan.jobs} at a time",
        next=f"build with --set build.jobs={plan.jobs} or fewer; stop other services first, or add swap on NVMe",
        why_not="the number of cores does not decide it",
        values={"jobs_max": plan.jobs, "available_bytes": evidence.memory.available},
    )


_ADDED: dict[str, Callable[[Evidence, Finding], Finding]] = {
    "build.nvcc-neon-fp16": _revision,
    "build.i8mm-missing": _i8mm,
    "build.gcc-too-old-neon": _gcc,
    "build.arch-native-no-gpu": _native,
    "build.nvcc-missing": _nvcc,
    "build.jobs-from-memory": _jobs,
}


def no_cuda_backend(evidence: Evidence) -> Finding | None:
    """A build that passed, was to have CUDA, and has no CUDA backend."""
    outputs = evidence.build_outputs
    configured = evidence.find(r"^-- Including CPU backend") and evidence.find(r"^-- (?:Configuring|Generating) done")
    without = (outputs is not None and not any("ggml-cuda" in path for path in outputs)) or (
        outputs is None and configured is not None and not evidence.find(r"^-- Including CUDA backend")
    )
    if not evidence.wants_cuda or not without:
        return None
    return Finding(
        "build.no-cuda-backend-produced",
        "refuse",
        f"CUDA was asked for and the build has no libggml-cuda: it would serve from the CPU alone{_host_gcc(evidence)}",
        "read the configure log for the CUDA compiler, then build again with `orin-deploy up`, which fails on this",
        why_not="a build that ends without an error is no proof of a CUDA build",
        values={"missing": "libggml-cuda"},
    )


def _host_gcc(evidence: Evidence) -> str:
    newest = _NEWEST_GCC.get(version(evidence.cuda or "")[:2])
    if newest is None or version(evidence.gcc or "") < (newest + 1,):
        return ""
    return f"; CUDA {evidence.cuda} takes gcc {newest} at most, and this is gcc {evidence.gcc}"
