"""Whether a target and a kind of speculation can go together, and why not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orin_deploy.errors import OrinError, Refused, UsageError
from orin_deploy.facts.draft import BY_MODEL, DRAFTS_ONLY, DSPARK, EAGLE3, MTP, SIMPLE, Drafter, coarse_types
from orin_deploy.facts.model import Model
from orin_deploy.intent.spec import Setting, Weights
from orin_deploy.intent.speculation.kinds import (
    DRAFTLESS,
    HANDS_OUT_LAST,
    HANDS_OUT_LAYERS,
    PREDICTS_AHEAD,
    READS_LAYERS,
    n_max,
    n_max_key,
    n_min,
    n_min_key,
)


@dataclass(frozen=True)
class DraftModel:
    """A draft model that was found. `difference` says in what its vocabulary is not the target's, None where it is.

    `catalogued` means that the catalogue gives it to this target.
    """

    model: Model
    weights: Weights
    drafter: Drafter
    difference: str | None = None
    catalogued: bool = False


def kind_of(kinds: tuple[str, ...], draft: DraftModel | None) -> str:
    """The kind that drafts by a model, or the first of the others; told by the draft's header when nobody says it."""
    named = next((kind for kind in kinds if kind in BY_MODEL), None)
    return named or (draft.drafter.kind if draft is not None else kinds[0])


def check_target(target: Model) -> None:
    """Raise Refused for a model that can do nothing but draft."""
    if target.architecture in DRAFTS_ONLY:
        raise Refused(
            f"the model is a draft ({target.architecture}) and can serve nothing by itself",
            "give the model it was made for as --model, and this one as --draft",
        )


def obstacles(
    kind: str, target: Model, weights: Weights, draft: DraftModel | None, values: Mapping[str, Setting]
) -> Iterator[OrinError]:
    """Every reason why this target cannot be served with this kind and draft, the gravest first."""
    for key in ("embedding", "rerank"):
        if values[key].value is True:
            yield UsageError(
                f"{key} ({values[key].source}) generates no text: there is nothing to draft", "--draft none"
            )
    yield from _numbers(kind, values, draft)
    if kind in DRAFTLESS:
        return
    if draft is None:
        yield from _alone(kind, target)
        return
    yield from _files(weights, draft)
    yield from _kind(kind, draft)
    if draft.difference is not None:
        yield Refused(
            f"the draft's vocabulary is not the target's: {draft.difference}",
            "choose a draft that was made for this model, or --draft ngram-mod, which needs none",
        )
    if kind in READS_LAYERS:
        yield from _layers(kind, target, draft)
    if kind == DSPARK:
        yield from _dspark(draft, values)
    if kind == MTP:
        yield from _ahead(target, draft)


def _numbers(kind: str, values: Mapping[str, Setting], draft: DraftModel | None) -> Iterator[OrinError]:
    key, fewest = n_max_key(kind), n_min_key(kind)
    if key is None:
        return
    block = draft.drafter.most if draft is not None else None
    most = block if block is not None and values[key].value is None else n_max(kind, values)
    if most == 0:
        yield UsageError(f"{key}=0 ({values[key].source}) drafts nothing", "--draft none")
    least = n_min(kind, values)
    if fewest is not None and least > most:
        yield UsageError(
            f"{fewest}={least} ({values[fewest].source}) is more than {key}={most}, the most drafted at once",
            f"--set {fewest}={most}, or a larger {key}",
        )


def _alone(kind: str, target: Model) -> Iterator[OrinError]:
    """A kind that drafts by a model, without a draft model: the target may bring its own."""
    if kind != MTP:
        yield UsageError(f"{kind} needs a draft model", "--draft REFERENCE names one")
    elif not target.nextn:
        yield Refused(
            f"the model has no layers that predict further tokens, which {MTP} drafts with",
            "--draft ngram-mod, or the publisher's file with its MTP layers",
        )
    elif target.architecture not in PREDICTS_AHEAD:
        yield _not_with(kind, target, "its graph does not use the layers that predict further tokens")


def _files(weights: Weights, draft: DraftModel) -> Iterator[OrinError]:
    if draft.weights.files[0].path == weights.files[0].path:
        yield UsageError(
            "the draft is the target's own file: it would draft as slowly as the target generates",
            "--draft with a smaller model of the same vocabulary, or --draft ngram-mod",
        )


def _kind(kind: str, draft: DraftModel) -> Iterator[OrinError]:
    """What the header says a draft is must be what it is used as; a model with MTP layers is a language model too."""
    told = draft.drafter.kind
    if told != kind and not (told == MTP and kind == SIMPLE):
        yield Refused(
            f"the draft is a {told} by its header (architecture {draft.model.architecture}), not a {kind}",
            f"leave spec_type out, or --set spec_type={told}",
        )


def _layers(kind: str, target: Model, draft: DraftModel) -> Iterator[OrinError]:
    """The draft reads the inputs of some of the target's layers; the server aborts where it cannot have them."""
    drafter, architecture = draft.drafter, target.architecture
    if architecture not in HANDS_OUT_LAYERS:
        yield _not_with(kind, target, "llama.cpp hands out no layer inputs of that architecture")
    if kind == EAGLE3 and drafter.target_layers and len(drafter.target_layers) != 3:
        yield Refused(
            f"the draft reads {len(drafter.target_layers)} layers of its target, and {EAGLE3} must read 3",
            "convert it again with today's convert_hf_to_gguf.py",
        )
    trunk = target.n_layer
    last = trunk if kind == EAGLE3 or architecture in HANDS_OUT_LAST else trunk - 1
    if beyond := [layer for layer in drafter.target_layers if layer > last]:
        yield Refused(
            f"the draft reads layer {beyond[0]} of its target, and this target has {trunk} layers",
            "it was made for another model: choose this model's own draft",
        )
    if drafter.target_embd not in (0, target.n_embd):
        yield Refused(
            f"the draft was made for a hidden size of {drafter.target_embd}, this target's is {target.n_embd}",
            "it was made for another model: choose this model's own draft",
        )


def _dspark(draft: DraftModel, values: Mapping[str, Setting]) -> Iterator[OrinError]:
    least = values["spec_draft_p_min"]
    if least.value not in (None, 0, 0.0) and not draft.drafter.confidence_head:
        yield Refused(
            f"spec_draft_p_min={least.value} ({least.source}) needs a confidence head, which this draft does not have",
            "--set spec_draft_p_min=0",
        )
    # Measured upstream on an integrated GPU (issue 27383): Q8_0 slower than no draft, F16 17.7% faster.
    types = coarse_types([name for name, _ in draft.model.tensor_types] or [draft.model.file_type or "BF16"])
    if types:
        yield Refused(
            f"the draft is quantised ({', '.join(types)}): a {DSPARK} draft below 16 bits is slower than none",
            "take it in bf16 or f16: convert_hf_to_gguf.py DRAFT --outtype bf16 --target-model-dir TARGET",
        )


def _ahead(target: Model, draft: DraftModel) -> Iterator[OrinError]:
    if target.architecture not in PREDICTS_AHEAD:
        yield _not_with(MTP, target, "llama.cpp has no graph for it")
    elif draft.model.n_embd != target.n_embd:
        yield Refused(
            f"the draft was made for a hidden size of {draft.model.n_embd}, this target's is {target.n_embd}",
            "it was made for another model: choose this model's own draft",
        )


def _not_with(kind: str, target: Model, why: str) -> Refused:
    return Refused(
        f"{kind} does not go with a {target.architecture} target: {why}",
        f"--draft with a smaller model ({SIMPLE}), or --draft ngram-mod",
    )


def doubts(target: Model, draft: DraftModel | None, catalogued: tuple[str, ...]) -> Iterator[str]:
    """What works and is likely a mistake."""
    if draft is None:
        return
    if draft.drafter.kind == SIMPLE and draft.model.tensor_bytes >= target.tensor_bytes > 0:
        yield "the draft is not smaller than its target: it will hardly speed anything up"
    if draft.model.n_ctx_train and draft.model.n_ctx_train < target.n_ctx_train:
        yield (
            f"the draft was trained for {draft.model.n_ctx_train} tokens and the target for {target.n_ctx_train}: "
            "beyond that it will hardly be right"
        )
    if catalogued and not draft.catalogued:
        yield f"the catalogue's draft for this model is {' or '.join(catalogued)}"
