"""What speculation is wished for, told together by the key `draft` and llama-server's own options. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orin_deploy.errors import UsageError
from orin_deploy.facts.draft import MTP
from orin_deploy.intent.measured import Decision
from orin_deploy.intent.options import WORKLOAD
from orin_deploy.intent.spec import Setting
from orin_deploy.intent.speculation.kinds import DRAFTLESS, KINDS, WORDS, meant, nearest

CHOOSING = ("spec_type", "spec_draft_model", "spec_default")
"""llama-server's own options that say what the key `draft` says."""

_TYPE, _MODEL, _DEFAULT = CHOOSING


@dataclass(frozen=True)
class Wish:
    """The speculation wanted; without `kinds` the draft's header tells the kind.

    `model` is a reference of the draft model. An `optional` wish may end without speculation; an `auto` one may as
    well decide what speculates. `source` is who wishes it.
    """

    kinds: tuple[str, ...] = ()
    model: str | None = None
    optional: bool = False
    auto: bool = False
    source: str = "default"

    @property
    def none(self) -> bool:
        return not (self.kinds or self.model or self.optional)


def wish(values: Mapping[str, Setting], catalogued: Sequence[str] = (), decision: Decision | None = None) -> Wish:
    """The one wish that all keys make together; `catalogued` are the drafts the catalogue has for this target.

    A key of the command line outdoes those of the profile. Raises UsageError for words that contradict one another.
    """
    draft, others = values["draft"], _others(values)
    loudest = max(map(_rank, others.values()), default=0)
    if _rank(draft) < loudest:
        return _by_options(values)
    if _rank(draft) > loudest:
        others = {_MODEL: values[_MODEL]} if draft.value in ("optional", "auto") and _MODEL in others else {}
    _check_one_voice(draft, others)
    word, kinds = str(draft.value), _kinds(values) if _TYPE in others else ()
    if word == "none":
        return Wish(source=draft.source)
    if word in KINDS:
        return Wish((word,), source=draft.source)
    if word in ("optional", "auto"):
        model = str(others[_MODEL].value) if _MODEL in others else next(iter(catalogued), None)
        if word == "auto" and decision is not None:
            return _decided(decision, model)
        return Wish(kinds, model, True, word == "auto", draft.source)
    check_word(word, catalogued)
    return Wish(kinds, word, source=draft.source)


def mix(values: Mapping[str, Setting]) -> dict[str, float]:
    """The weights of the workloads that are served, by name; empty for all alike."""
    told = {key.removeprefix(WORKLOAD): setting.value for key, setting in values.items() if key.startswith(WORKLOAD)}
    return {name: float(str(weight)) for name, weight in told.items() if weight}


def unset(values: Mapping[str, Setting]) -> dict[str, Setting]:
    """The options that a wish takes over, not passed: for what is passed is decided anew."""
    return {key: replace(values[key], value=None) for key in CHOOSING}


def useless(values: Mapping[str, Setting]) -> dict[str, Setting]:
    """The options that say something only where there is speculation, not passed; some would keep a server without it
    from starting."""
    about = {key: setting for key, setting in values.items() if key.startswith(("spec_", "lookup_cache_"))}
    return {key: replace(setting, value=None) for key, setting in about.items() if setting.value is not None}


def _others(values: Mapping[str, Setting]) -> dict[str, Setting]:
    return {key: values[key] for key in CHOOSING if values[key].value not in (None, False, "none")}


def _rank(setting: Setting) -> int:
    """The command line's word outdoes the profile's, which outdoes the default."""
    return 0 if setting.source == "default" else 2 if setting.source.startswith("--") else 1


def _by_options(values: Mapping[str, Setting]) -> Wish:
    """The wish that llama-server's own options make without the key `draft`."""
    model = values[_MODEL]
    if values[_DEFAULT].value is True:
        if values[_TYPE].value is not None:
            raise UsageError("spec_default and spec_type both choose a kind", "leave spec_default out: it is ngram-mod")
        return Wish(("ngram-mod",), source=values[_DEFAULT].source)
    kinds = _kinds(values)
    named = model if model.value is not None else values[_TYPE]
    if model.value is not None and kinds and all(kind in DRAFTLESS for kind in kinds):
        raise UsageError(
            f"spec_draft_model ({model.source}) has no use: spec_type={','.join(kinds)} ({values[_TYPE].source}) "
            "needs no draft model",
            "leave one of them out, or add draft-simple to spec_type",
        )
    return Wish(kinds, None if model.value is None else str(model.value), source=named.source)


def _kinds(values: Mapping[str, Setting]) -> tuple[str, ...]:
    said = values[_TYPE]
    kinds = tuple(str(said.value).split(",")) if said.value not in (None, "none") else ()
    if twice := {kind for kind in kinds if kinds.count(kind) > 1}:
        raise UsageError(f"spec_type ({said.source}) names {', '.join(sorted(twice))} twice", "name each kind once")
    if "none" in kinds:
        raise UsageError(f"spec_type={said.value} ({said.source}) contradicts itself", "leave none out")
    if len(drafts := [kind for kind in kinds if kind not in DRAFTLESS]) > 1:
        raise UsageError(
            f"spec_type ({said.source}) names {' and '.join(drafts)}, and llama-server has one draft",
            "choose one of them; n-gram kinds may stand beside it",
        )
    return kinds


def _check_one_voice(draft: Setting, others: Mapping[str, Setting]) -> None:
    """What is said besides `draft` on the same level must agree with it."""
    word = str(draft.value)
    model, kind = others.get(_MODEL), others.get(_TYPE)
    clash = None
    if _DEFAULT in others and word != "ngram-mod":
        clash = _DEFAULT
    elif model is not None and word not in ("optional", "auto") and word.removeprefix("file:") != model.value:
        clash = _MODEL if word != MTP else None
    elif kind is not None and (word in ("none", *KINDS) and word != kind.value):
        clash = _TYPE
    if clash is not None:
        other = others[clash]
        raise UsageError(
            f"draft={word} ({draft.source}) and {clash}={other.value} ({other.source}) contradict one another",
            f"say it once: leave {clash} out",
        )


def check_word(word: str, catalogued: Sequence[str] = ()) -> None:
    """Raise UsageError for a word of `draft` that names neither a kind nor a model, with what it means today.

    That is a number, a switch's word, or a misspelt kind; whether there is a model of that name is not looked up.
    """
    if re.fullmatch(r"\d+", word):
        raise UsageError(
            f"draft={word} names no model: the number of old command lines is spec_draft_n_max",
            f"--set spec_draft_n_max={word}, and --draft with a model or a kind",
        )
    if word in WORDS or word in catalogued or re.search(r"[/:.]", word):
        return
    if meant(word) or re.match(r"(ngram|draft)(-|$)", word):
        near = nearest(word)
        hint = f"did you mean {near}? " if near else ""
        raise UsageError(f"there is no kind of speculation {word}", f"{hint}there are {', '.join(WORDS)}")


def _decided(decision: Decision, model: str | None) -> Wish:
    if decision.kind == "none":
        return Wish(source=decision.source)
    needs = decision.kind not in DRAFTLESS
    return Wish((decision.kind,), decision.reference or model if needs else None, True, True, decision.source)
