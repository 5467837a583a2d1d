"""Finding the draft: its header and its vocabulary against the target's, before anything is downloaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orin_deploy.deploy.lookup import Found, find_model, read_headers
from orin_deploy.errors import OrinError
from orin_deploy.facts import draft as drafts
from orin_deploy.facts import vocabulary
from orin_deploy.facts.draft import SIMPLE, Drafter
from orin_deploy.facts.gguf import Header
from orin_deploy.host import Host, Progress
from orin_deploy.intent.spec import LeftOut, Setting, Weights
from orin_deploy.intent.speculation import Asked, Decision, DraftModel, wish


def ask(
    host: Host,
    values: Mapping[str, Setting],
    target: Found,
    search: Sequence[Path],
    resolved: Weights | None,
    progress: Progress,
    *,
    left_out: LeftOut | None = None,
    decision: Decision | None = None,
) -> Asked:
    """The speculation that is wished for, with the draft model that it names.

    A draft that an optional wish cannot find is told with the reason; for a required one that is an error.
    """
    wished = wish(values, target.drafts, decision)
    try:
        found = _find(host, wished.model, target, search, resolved, progress) if wished.model else None
    except OrinError as error:
        if not wished.optional:
            raise
        return Asked(wished, error, target.drafts, left_out, decision)
    return Asked(wished, found, target.drafts, left_out, decision)


def _find(
    host: Host, reference: str, target: Found, search: Sequence[Path], resolved: Weights | None, progress: Progress
) -> DraftModel:
    found = find_model(host, reference, search, resolved, progress)
    paired = reference in target.drafts
    if paired and not found.headers:  # the catalogue vouches for the pair until the files are here
        drafter = found.entry.drafter if found.entry is not None else None
        return DraftModel(found.model, found.weights, drafter or Drafter(SIMPLE), catalogued=True)
    header = (found.headers or read_headers(host, found.weights, progress))[0]
    drafter = drafts.read(header)
    if found.weights.files[0].path == target.weights.files[0].path:
        return DraftModel(found.model, found.weights, drafter, None, paired)
    base = (target.headers or read_headers(host, target.weights, progress))[0]
    return DraftModel(found.model, found.weights, drafter, _difference(base, header, drafter), paired)


def _difference(target: Header, draft: Header, drafter: Drafter) -> str | None:
    """In what the draft's vocabulary is another; the kinds that share the target's tensors need none of their own."""
    ours, theirs = vocabulary.read(target), vocabulary.read(draft)
    if ours is None or theirs is None:
        lacking = "draft" if theirs is None else "target"
        return f"the {lacking} carries none" if drafter.kind == SIMPLE else None
    return vocabulary.difference(ours, theirs)
