"""The ways to speculate that are worth measuring for a target, and those that there is time for. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from orin_deploy.facts.draft import BY_MODEL, MTP, SIMPLE
from orin_deploy.facts.model import Model
from orin_deploy.intent.measured import Candidate
from orin_deploy.intent.spec import Setting, Weights
from orin_deploy.intent.speculation.kinds import DRAFTLESS, in_help
from orin_deploy.intent.speculation.pair import DraftModel, obstacles
from orin_deploy.intent.speculation.process import wants_process

_SECONDS_A_WAY = 45
"""Seconds of measuring that one way needs to be told from another: four short answers to each of six workloads by a
model that writes 30 tokens/s, and its server's start."""

# The most promising first: n-gram kinds by what they gained on the workload "copy" (measured on x86, SmolLM2-135M Q4_1,
# 14 turns each: simple 1.54 times none, mod 1.22, map-k4v 1.00), a process of the draft's own late, for each of its
# tokens costs a round trip.
_ORDER = (
    *((kind, False) for kind in ("none", *BY_MODEL, "ngram-simple", "ngram-mod")),
    (SIMPLE, True),
    *((kind, False) for kind in ("ngram-map-k4v", "ngram-map-k")),
)


def candidates(
    target: Model, weights: Weights, found: DraftModel | None, help_text: str | None, values: Mapping[str, Setting]
) -> tuple[Candidate, ...]:
    """The ways to speculate that this target, draft and binary allow; the first is always none at all."""
    known = in_help(help_text)
    kinds = [kind for kind in DRAFTLESS if kind != "ngram-cache"]  # its gain needs cache files of its own
    if found is not None:
        kinds.append(found.drafter.kind)
    elif target.nextn:
        kinds.append(MTP)
    ways = [Candidate("none")]
    for kind in kinds:
        draft = found if kind in BY_MODEL else None
        if kind not in known or next(obstacles(kind, target, weights, draft, values), None) is not None:
            continue
        asked = values["placement.draft"].value
        if draft is None:
            ways.append(Candidate(kind))
        elif not wants_process(values, kind):
            ways.append(Candidate(kind, "inline"))
        if draft is not None and kind == SIMPLE and asked != "inline":
            ways.append(Candidate(kind, "process"))
    return tuple(ways)


def shortlist(ways: tuple[Candidate, ...], seconds: int) -> tuple[Candidate, ...]:
    """As many ways as can be told apart within the seconds, the most promising first, none before all."""
    ranked = sorted(ways, key=lambda way: _ORDER.index((way.kind, way.where == "process")))
    return tuple(ranked[: max(seconds // _SECONDS_A_WAY, 2)])
