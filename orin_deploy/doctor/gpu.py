"""Rules about what the GPU says when a build does not suit it."""

from __future__ import annotations

from orin_deploy.doctor.arch import NO_KERNEL_IMAGE, wanted_architecture
from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding


def no_kernel_image(evidence: Evidence) -> Finding | None:
    """Code for other GPUs only: the build holds nothing this GPU could run."""
    if evidence.find(NO_KERNEL_IMAGE) is None:
        return None
    arch = wanted_architecture(evidence)
    needs = f"this GPU needs {arch}" if arch else "this GPU needs another"
    holds = f" (it holds {', '.join(evidence.compiled_archs)})" if evidence.compiled_archs else ""
    way = f"CMAKE_CUDA_ARCHITECTURES={arch}" if arch else "the module's architecture (see `orin-deploy facts`)"
    return Finding(
        "gpu.no-kernel-image",
        "diagnose",
        f"this engine was built for the wrong GPU architecture: {needs}{holds}",
        f"rebuild on the board with `orin-deploy up`, or by hand with {way}",
        why_not="the driver and the model are not at fault",
        values={"compiled": list(evidence.compiled_archs)} | ({"cuda_arch": arch} if arch else {}),
    )


def launch_resources(evidence: Evidence) -> Finding | None:
    """A kernel that asks for more registers than this GPU generation has."""
    if evidence.find(r"too many resources requested for launch") is None:
        return None
    board = evidence.board
    if board is not None and board.supported:
        whose = f"this engine was built for an architecture other than {board.name}'s, or for an unsupported one"
        way = "rebuild on the board with `orin-deploy up`"
    else:
        whose = "it is of an unsupported generation (TX1, TX2 and Nano of JetPack 4)"
        way = "use the CPU: --set build.cuda=off, or a Xavier, Orin or Thor module"
    return Finding(
        "gpu.launch-resources",
        "diagnose",
        f"a GPU kernel asks for more registers than this GPU has: {whose}",
        way,
        why_not="memory is not the cause: a smaller model or context changes nothing",
    )
