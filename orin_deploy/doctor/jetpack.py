"""Which JetPack the evidence's machine runs."""

from __future__ import annotations

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.facts.device import Jetson
from orin_deploy.facts.jetson import RELEASES

JETPACK_4 = {cuda: jetpack for jetpack, cuda in RELEASES.values() if jetpack.startswith("4.")}


def jetson_of(evidence: Evidence) -> Jetson | None:
    """The Jetson of the evidence, with what its L4T release implies."""
    if evidence.board is None and evidence.l4t is None and evidence.jetpack_cuda is None:
        return None
    jetpack, cuda = RELEASES.get(evidence.l4t or "", (None, None))
    return Jetson(
        model=None,
        compatible=(),
        module=evidence.board.module if evidence.board else None,
        l4t=evidence.l4t,
        jetpack=evidence.jetpack or jetpack,
        jetpack_cuda=evidence.jetpack_cuda or cuda,
    )


def is_jetpack_4(evidence: Evidence) -> bool:
    """Whether the machine is one whose software ended with JetPack 4: by its module, its release or its CUDA."""
    jetson = jetson_of(evidence)
    jetpack = jetson.jetpack if jetson else None
    if jetpack is None and "asimd" in (evidence.cpu_features or {"asimd"}):  # a PC may have the same CUDA
        jetpack = JETPACK_4.get(".".join((evidence.cuda or "").split(".")[:2]))
    old_board = evidence.board is not None and not evidence.board.supported
    return old_board or (jetpack or "").startswith("4.") or (evidence.l4t or "").startswith("32.")
