"""What our own planner would decide for the machine that the evidence describes."""

from __future__ import annotations

import dataclasses
from pathlib import PurePosixPath

from orin_deploy.doctor.arch import cuda_version, wanted_architecture
from orin_deploy.doctor.documents import version
from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.jetpack import jetson_of
from orin_deploy.errors import OrinError, UsageError
from orin_deploy.facts.device import Cpu, CudaToolkit, Device, Memory, Tool, Toolchain
from orin_deploy.facts.jetson import toolkit_for
from orin_deploy.intent import build, profile
from orin_deploy.intent.profile import Board
from orin_deploy.intent.spec import Build, Setting

# Stand-ins where the evidence is silent and the answer that is asked for does not depend on it.
_ANY_ARCHITECTURE = "87"
_PLENTY = Memory(total=1 << 40, available=1 << 40, free=1 << 40)


def planned_build(evidence: Evidence, *, cuda: bool) -> Build | OrinError:
    """The build our planner makes of the evidence, or the error with which it refuses."""
    device = as_device(evidence)
    toolkit = toolkit_for(device.jetson, device.toolchain.cuda)[0] if cuda else None
    if cuda and toolkit is None:
        number = cuda_version(evidence)
        toolkit = CudaToolkit(f"/usr/local/cuda-{'.'.join(map(str, number[:2]))}", number, on_path=False)
    arch = (wanted_architecture(evidence) or _ANY_ARCHITECTURE) if cuda else None
    switch = {"build.cuda": Setting("on" if cuda else "off", "evidence")}
    try:
        return build.resolve(device, switch, data="", arch=arch, toolkit=toolkit)
    except OrinError as error:
        return error


def as_device(evidence: Evidence) -> Device:
    """The machine of the evidence as the planner knows machines."""
    cpus = tuple(range(min(evidence.cores or 1, 1024)))
    features = board_features(evidence) or frozenset()
    gcc = Tool("gcc", version(evidence.gcc)) if evidence.gcc else None
    is_arm = evidence.board is not None or "asimd" in features
    return Device(
        machine="aarch64" if is_arm else "x86_64",
        os=None,
        kernel=None,
        cpu=Cpu(None, features, (), cpus, cpus, cpus, clusters_from="none"),
        memory=evidence.memory or _PLENTY,
        toolchain=Toolchain(cxx=gcc, cc=gcc, cmakes=evidence.cmakes, cuda=toolkits(evidence)),
        jetson=jetson_of(evidence),
        systemd=True,
        container=None,
        assumed="evidence",
    )


def board_features(evidence: Evidence) -> frozenset[str] | None:
    """The CPU's features: as the evidence has them, else as the board's own profile does; None when neither does."""
    if evidence.cpu_features is not None or evidence.board is None:
        return evidence.cpu_features
    board = profiled_board(evidence)
    return frozenset(board.features) if board is not None and board.features else None


def profiled_board(evidence: Evidence) -> Board | None:
    """The facts that our own profile has of the evidence's board."""
    if evidence.board is None:
        return None
    shipped = profile.search_path(None, {})[-1:]
    try:
        return profile.load(profile.board_profile(evidence.board.module, shipped), shipped).board
    except UsageError:
        return None


def toolkits(evidence: Evidence) -> tuple[CudaToolkit, ...]:
    """The toolkits found; the one whose nvcc a shell would run is marked, and stands among them in any case."""
    kits = list(evidence.toolkits)
    if evidence.nvcc_on_path is not None and evidence.nvcc_on_path.endswith("/bin/nvcc"):
        root = str(PurePosixPath(evidence.nvcc_on_path).parent.parent)
        kits = [dataclasses.replace(kit, on_path=kit.root == root) for kit in kits]
        if not any(kit.on_path for kit in kits):
            kits.append(CudaToolkit(root, version(PurePosixPath(root).name), on_path=True))
    return tuple(kits)
