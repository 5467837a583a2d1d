"""Rules about GPU architectures: what the board needs, what the toolkit knows, what a built library holds."""

from __future__ import annotations

import re

from orin_deploy.doctor.documents import version
from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.doctor.jetpack import is_jetpack_4
from orin_deploy.facts.jetson import cuda_architecture

NO_KERNEL_IMAGE = r"no kernel image is available for execution on (?:the )?device"

_THOR_BEFORE_CUDA_13 = ("110", "101")  # the same chip under its new and its old name


def cuda_version(evidence: Evidence) -> tuple[int, ...]:
    """The CUDA version in play; where nothing says, CUDA 13, under which every supported board but Xavier runs."""
    found = version(evidence.cuda or evidence.jetpack_cuda or "")
    return found or max((kit.version for kit in evidence.toolkits), default=(13, 0)) or (13, 0)


def wanted_architecture(evidence: Evidence) -> str | None:
    """The architecture to compile for ("87"), by module and CUDA version, else by the compute capability."""
    if evidence.board is not None and (arch := cuda_architecture(evidence.board.module, cuda_version(evidence))):
        return arch
    capability = re.fullmatch(r"(\d{1,2})\.(\d)", evidence.compute_capability or "")
    return capability[1] + capability[2] if capability else None


def empty(evidence: Evidence) -> Finding | None:
    """An architecture that was asked for and is no number: an empty text, "native", or an error message."""
    asked = evidence.cuda_arch
    if asked is None or all(re.fullmatch(r"\d{2,3}[af]?(-real|-virtual)?", part) for part in asked.split(";")):
        return None
    arch = wanted_architecture(evidence)
    return Finding(
        "build.arch-empty",
        "refuse",
        f"the CUDA architecture (cuda_arch) is {repr(asked) if asked else 'empty'}, which is no architecture's number",
        f"--set build.cuda_architectures={arch}" if arch else "leave it out: orin-deploy takes it from the module",
        why_not="nvidia-smi cannot tell it: on Jetson its fields are often N/A",
        values={"cuda_arch": arch} if arch else {},
    )


def from_board(evidence: Evidence) -> Finding | None:
    """The architecture a board needs, where nobody has named it, or has named another."""
    arch = wanted_architecture(evidence)
    if evidence.board is None or arch is None:
        return None
    name, asked = evidence.board.name, evidence.cuda_arch
    if asked and asked.replace(";", "").isdecimal() and arch not in asked.split(";"):
        what = f"CUDA architecture {asked} was asked for, and {name} needs {arch}"
        return Finding(
            "build.arch-from-board",
            "refuse",
            what,
            f"--set build.cuda_architectures={arch}",
            values={"cuda_arch": arch, "asked": asked},
        )
    if asked is not None or evidence.settled or _is_about_more(evidence):
        return None
    return Finding(
        "build.arch-from-board",
        "plan",
        f"{name} is CUDA architecture {arch}",
        f"orin-deploy passes it by itself; by hand: -DCMAKE_CUDA_ARCHITECTURES={arch}",
        why_not="the toolkit's default list does not hold every Jetson, and native asks a driver that may be absent",
        values={"cuda_arch": arch},
    )


def _is_about_more(evidence: Evidence) -> bool:
    """Whether the evidence is not just a board's name: then other rules speak about its build."""
    return bool(
        evidence.logs
        or evidence.toolkits
        or evidence.nvcc_architectures
        or evidence.compiled_archs
        or evidence.wants_cuda
        or is_jetpack_4(evidence)
    )


def not_in_toolkit(evidence: Evidence) -> Finding | None:
    """A board whose architecture the nvcc in use does not list."""
    known, arch = evidence.nvcc_architectures, wanted_architecture(evidence)
    if not known or arch is None or arch in {re.sub(r"[af]$", "", item) for item in known}:
        return None
    new, old = _THOR_BEFORE_CUDA_13
    cuda = ".".join(map(str, cuda_version(evidence)))
    age = f"; it still lists {old}, the chip's name before CUDA 13, so it" if arch == new and old in known else "; it"
    board = evidence.board.name if evidence.board else "the GPU"
    return Finding(
        "build.arch-not-in-toolkit",
        "refuse",
        f"the nvcc in use does not know architecture {arch}, which {board} needs with CUDA {cuda}{age} is too old",
        "use the JetPack toolkit's own nvcc by its path: ls -d /usr/local/cuda-*/bin/nvcc, then --list-gpu-arch",
        values={"cuda_arch": arch},
    )


def artifact_mismatch(evidence: Evidence) -> Finding | None:
    """A built engine that holds no code for the machine it is meant for, seen before it is started."""
    arch = wanted_architecture(evidence)
    held = evidence.compiled_archs
    if not held or arch is None or any(_runs(item, arch) for item in held) or evidence.find(NO_KERNEL_IMAGE):
        return None
    machine = evidence.board.name if evidence.board else "this machine"
    return Finding(
        "build.artifact-arch-mismatch",
        "refuse",
        f"this engine was compiled for {', '.join(held)}, and {machine} needs architecture {arch}",
        f"build it for the board: `orin-deploy up` there, or -DCMAKE_CUDA_ARCHITECTURES={arch}",
        why_not="a generic aarch64 build is for server GPUs",
        values={"cuda_arch": arch, "compiled": list(held)},
    )


def _runs(compiled: str, arch: str) -> bool:
    """Whether code runs on a GPU: machine code of its own architecture, or PTX of no newer one (compiled at start)."""
    kind, _, number = compiled.partition("_")
    plain = re.sub(r"\D", "", number)
    return plain == arch or (kind == "compute" and number.isdecimal() and int(number) <= int(re.sub(r"\D", "", arch)))
