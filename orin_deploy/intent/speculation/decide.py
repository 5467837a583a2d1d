"""From the wish to the draft: its kind, its place, the server's options, or why there is none. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orin_deploy.errors import OrinError, Refused
from orin_deploy.facts.draft import BY_MODEL, MTP, SIMPLE
from orin_deploy.facts.model import Model
from orin_deploy.intent.measured import Candidate, Decision, ToMeasure
from orin_deploy.intent.serving import Drafting
from orin_deploy.intent.spec import Build, Draft, LeftOut, Setting, Value, Weights
from orin_deploy.intent.speculation.candidates import candidates, shortlist
from orin_deploy.intent.speculation.kinds import DRAFTLESS, in_help, n_max, n_max_key, n_min, n_min_key
from orin_deploy.intent.speculation.pair import DraftModel, check_target, doubts, kind_of, obstacles
from orin_deploy.intent.speculation.process import check_process, wants_process
from orin_deploy.intent.speculation.wish import Wish, unset, useless


@dataclass(frozen=True)
class Asked:
    """The wish and the draft found for it, or the reason why none was found.

    `catalogued` are the names of the drafts that the catalogue has for the target, `left_out` is what did not work
    before, `decision` what was measured to be best.
    """

    wish: Wish
    draft: DraftModel | OrinError | None = None
    catalogued: tuple[str, ...] = ()
    left_out: LeftOut | None = None
    decision: Decision | None = None

    @property
    def model(self) -> DraftModel | None:
        return self.draft if isinstance(self.draft, DraftModel) else None


@dataclass(frozen=True)
class Decided:
    """How tokens are drafted, the server's options that say so, what else is to be said of it; `to_measure` is set
    where that is measured first, `no_draft` says why an optional draft is not there. `apart` asks for a process of the
    draft's own, which its placement makes."""

    draft: Draft | None
    options: dict[str, Setting]
    warnings: tuple[str, ...] = ()
    left_out: LeftOut | None = None
    to_measure: ToMeasure | None = None
    no_draft: str | None = None
    apart: bool = False


def decide(
    asked: Asked,
    target: Model,
    weights: Weights,
    values: Mapping[str, Setting],
    engine: Build,
    help_text: str | None,
) -> Decided:
    """The speculation for a deployment; raises Refused or UsageError for a required one that cannot be.

    One that is optional is left out with the reason as a warning.
    """
    check_target(target)
    wish, off = asked.wish, useless(values)
    if wish.none:
        return Decided(None, off, _told_in_vain(off) if asked.decision is None else ())
    if wish.auto and asked.decision is None:
        ways = candidates(target, weights, asked.model, help_text, values)
        return _open(asked, off, ways, _not_a_candidate(asked, target, weights, values), values)
    if not (wish.kinds or wish.model):
        none = "there is no draft for this model"
        return Decided(None, off, (f"draft=optional: {none}, so it is served without",), no_draft=none)
    try:
        draft, more = _draft(asked, target, weights, values, engine, help_text)
    except OrinError as error:
        if not wish.optional:
            raise
        return Decided(None, off, (f"speculation is left out: {error.message}",), no_draft=error.message)
    if asked.left_out is not None and wish.optional and _is(asked.left_out, draft, engine):
        said = f"speculation is left out, for {draft.kind} did not work: {asked.left_out.why}"
        return Decided(None, off, (said,), asked.left_out, no_draft=f"it did not work: {asked.left_out.why}")
    notes = (*doubts(target, asked.model, asked.catalogued), *_clamped(draft, values))
    return Decided(draft, {**unset(values), **more}, notes, apart=wants_process(values, draft.kind))


def _open(
    asked: Asked,
    off: dict[str, Setting],
    ways: tuple[Candidate, ...],
    missing: str | None,
    values: Mapping[str, Setting],
) -> Decided:
    """Nothing is measured yet: without speculation, and what is to be measured."""
    notes = () if missing is None else (f"the draft is not measured: {missing}",)
    if asked.wish.kinds:
        ways = tuple(way for way in ways if way.kind in ("none", *asked.wish.kinds))
    seconds = int(str(values["speculation.measure_s"].value))
    if len(ways) < 2:
        return Decided(None, off, notes)
    if seconds <= 0:
        never = "draft=auto: nothing is measured yet and speculation.measure_s=0 measures nothing: served without"
        return Decided(None, off, (*notes, never))
    return Decided(None, off, notes, to_measure=ToMeasure(shortlist(ways, seconds), seconds))


def _not_a_candidate(asked: Asked, target: Model, weights: Weights, values: Mapping[str, Setting]) -> str | None:
    """Why the draft that was asked for, or that the catalogue has, cannot be measured."""
    if asked.model is None:
        return asked.draft.message if isinstance(asked.draft, OrinError) else None
    why = next(obstacles(asked.model.drafter.kind, target, weights, asked.model, values), None)
    return None if why is None else why.message


def _told_in_vain(off: Mapping[str, Setting]) -> tuple[str, ...]:
    keys = [key for key, setting in off.items() if setting.source == "--set"]
    return (f"{', '.join(keys)} (--set) says nothing without speculation: --draft chooses it",) if keys else ()


def _draft(
    asked: Asked,
    target: Model,
    weights: Weights,
    values: Mapping[str, Setting],
    engine: Build,
    help_text: str | None,
) -> tuple[Draft, dict[str, Setting]]:
    if isinstance(asked.draft, OrinError):
        raise asked.draft
    wish, found = asked.wish, asked.draft
    kind = kind_of(wish.kinds, found)
    for error in obstacles(kind, target, weights, found, values):
        raise error
    kinds = (*(other for other in wish.kinds if other != kind), kind)
    if missing := [each for each in kinds if each not in in_help(help_text)]:
        there = ", ".join(in_help(help_text)) or "no kind of speculation"
        raise Refused(f"this llama-server does not know {', '.join(missing)}", f"it knows {there}")
    apart = wants_process(values, kind)
    if apart:
        check_process(values, kind)
    draft = Draft(
        kind=kind,
        weights=found.weights if found else None,
        model=found.model if found else None,
        why=_why(kind, found, values, apart),
        optional=wish.optional,
        source=wish.source,
        n_max=max(n_max(each, values) for each in kinds),
        n_min=n_min(kind, values),
        others=kinds[:-1],
    )
    options = {"spec_type": Setting(",".join(kinds), wish.source)}
    if found is not None:
        options["spec_draft_model"] = Setting(found.weights.files[0].path, wish.source)
    if kind not in BY_MODEL:
        return draft, options
    # A draft on the CPU's side of a shared DRAM saves no memory.
    if engine.cuda and not apart and values["spec_draft_ngl"].value in (None, "auto"):
        options["spec_draft_ngl"] = Setting("all", "build.cuda")
    options["spec_draft_n_max"] = _most(kind, found, values)
    most = max(int(str(options["spec_draft_n_max"].value)), *(n_max(each, values) for each in draft.others), 0)
    return replace(draft, n_max=most), options


def _most(kind: str, found: DraftModel | None, values: Mapping[str, Setting]) -> Setting:
    """Tokens drafted at most, passed always: the default has changed over the releases (16, then 3)."""
    asked, limit = values["spec_draft_n_max"], found.drafter.most if found is not None else None
    if asked.value is None:
        return Setting(limit, "the draft's block") if limit else Setting(n_max(kind, values), "llama.cpp's default")
    if limit is not None and int(str(asked.value)) > limit:
        return Setting(limit, f"{asked.source}, held to the draft's block")
    return asked


def _clamped(draft: Draft, values: Mapping[str, Setting]) -> tuple[str, ...]:
    asked = values["spec_draft_n_max"].value
    if draft.kind in DRAFTLESS or asked is None or int(str(asked)) <= draft.n_max:
        return ()
    return (f"spec_draft_n_max={asked} is more than the draft's block: it drafts {draft.n_max} tokens at most",)


def _why(kind: str, found: DraftModel | None, values: Mapping[str, Setting], apart: bool) -> str:
    if found is None:
        return "the target's own layers predict" if kind == MTP else "looked up in the text so far"
    asked = values["placement.draft"]
    if apart:
        key = "placement.draft" if asked.value == "process" else "placement.draft_cpus"
        return f"{key} ({values[key].source})"
    if kind != SIMPLE:
        return f"a {kind} draft shares tensors with its target"
    if asked.value == "inline":
        return f"placement.draft ({asked.source})"
    return "each token of a draft in a process of its own costs a round trip"


def _is(left_out: LeftOut, draft: Draft, engine: Build) -> bool:
    return left_out == LeftOut(draft.kind, draft.weights.reference if draft.weights else None, engine.key, left_out.why)


def by_decision(decision: Decision, values: Mapping[str, Setting]) -> dict[str, Setting]:
    """The values that a measured decision sets where nobody else did."""
    by_model = decision.kind in BY_MODEL
    told: dict[str | None, Value] = {
        n_max_key(decision.kind): decision.n_max,
        n_min_key(decision.kind): decision.n_min,
        "spec_draft_p_min": decision.p_min if by_model else None,
        "placement.draft": decision.where if decision.where in ("inline", "process") else None,
    }
    return {
        key: Setting(value, decision.source)
        for key, value in told.items()
        if key is not None and value is not None and values[key].value in (None, "auto")
    }


def drafting(draft: Draft | None, values: Mapping[str, Setting], engine: Build) -> Drafting | None:
    """Speculation as the memory it takes depends on it."""
    if draft is None:
        return None
    on_gpu = draft.device.startswith("CUDA") if draft.where == "process" else engine.cuda
    return Drafting(
        draft.kind,
        draft.n_max,
        draft.model,
        str(values["spec_draft_type_k"].value or "f16"),
        str(values["spec_draft_type_v"].value or "f16"),
        on_gpu,
        draft.where == "process",
    )
