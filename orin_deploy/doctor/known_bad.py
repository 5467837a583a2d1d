"""Revisions of llama.cpp that are known not to build on a kind of board, as data."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.doctor.arch import cuda_version, wanted_architecture
from orin_deploy.doctor.evidence import Evidence


@dataclass(frozen=True)
class KnownBad:
    """Revisions, by commit or tag as people write them, that fail for these architectures and CUDA majors."""

    revisions: frozenset[str]
    architectures: frozenset[str]
    cuda_majors: frozenset[int]
    what: str
    report: str
    fixed_by: str


_NEON = "nvcc is shown Arm's NEON types, which it does not know"

KNOWN_BAD = (
    KnownBad(
        revisions=frozenset({"76b27d2", "9f91251"}),
        architectures=frozenset({"72", "87"}),
        cuda_majors=frozenset({11}),
        what=_NEON,
        report="llama.cpp issue 10555",
        fixed_by="pull request 10616",
    ),
    KnownBad(
        revisions=frozenset({"1466621", "ff067db", "b5074"}),
        architectures=frozenset({"72", "87"}),
        cuda_majors=frozenset({12}),
        what=_NEON,
        report="llama.cpp issue 12826",
        fixed_by="ggml pull request 1187",
    ),
)


def revision(evidence: Evidence) -> KnownBad | None:
    """The entry that the evidence's pinned revision, board and CUDA fall under."""
    pinned, arch = evidence.revision or "", wanted_architecture(evidence)
    for bad in KNOWN_BAD:
        is_named = any(pinned == name or (len(pinned) > 7 and pinned.startswith(name)) for name in bad.revisions)
        if is_named and arch in bad.architectures and cuda_version(evidence)[0] in bad.cuda_majors:
            return bad
    return None
