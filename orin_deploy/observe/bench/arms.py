"""Arms: what is compared with what, and the request that each of them is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orin_deploy.errors import UsageError
from orin_deploy.intent import options
from orin_deploy.intent.request import Request
from orin_deploy.intent.speculation import CHOOSING, KINDS
from orin_deploy.intent.speculation.kinds import meant
from orin_deploy.intent.speculation_choice import NONE as NONE

DRAFT, DEPLOYED = "draft", "deployed"
_CHOOSE = (*CHOOSING, "placement.draft", "placement.draft_cpus")
_EXAMPLE = "as in --compare none,ngram-map-k4v,draft or none,long:spec_draft_n_max=8"


@dataclass(frozen=True)
class Arm:
    """One way to serve the model. `draft` is NONE, a kind of speculation, DRAFT (the request's own draft model, or the
    one the catalogue names) or DEPLOYED (as the request has it); `sets` are further --set words."""

    name: str
    draft: str
    sets: tuple[tuple[str, str], ...] = ()


def parse(words: Sequence[str]) -> tuple[Arm, ...]:
    """The arms of `--compare`: names with commas between, settings behind a colon, also with commas between.

    Raises UsageError for a word that is no arm, an unknown key, a value not allowed, or a name that comes twice.
    """
    arms = tuple(map(_arm, _split(",".join(words))))
    names = [arm.name for arm in arms]
    if len(arms) < 2:
        raise UsageError("--compare wants at least two arms", _EXAMPLE)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"the arm {twice} is there twice", _EXAMPLE)
    return arms


def _split(text: str) -> Iterator[str]:
    """The words of the arms; a setting that follows a comma belongs to the arm before it."""
    word = ""
    for part in map(str.strip, text.split(",")):
        key = part.partition("=")[0]
        if word and "=" in part and ":" not in key:
            word += f",{part}"
            continue
        if word:
            yield word
        word = part
    if word:
        yield word


def _arm(word: str) -> Arm:
    label, colon, settings = word.partition(":")
    pairs = tuple(_setting(word, part) for part in settings.split(",")) if colon else ()
    known = (NONE, DRAFT, DEPLOYED, *KINDS)
    if label in (NONE, DRAFT, *KINDS) and (told := dict(pairs).get("draft")):
        raise UsageError(f'the arm "{word}" says twice how it drafts', f"as in NAME:draft={told}")
    if label in known:
        return Arm(word, label, pairs)
    if not pairs or "=" in label:
        from difflib import get_close_matches

        near = meant(label) or next(iter(get_close_matches(label, known, n=1)), None)
        hint = f"did you mean {near}? There are" if near in known else "there are"
        raise UsageError(f'"{word}" is no arm', f"{hint} {', '.join(known)}, and NAME:KEY=VALUE, {_EXAMPLE}")
    return Arm(label, DEPLOYED, pairs)


def _setting(word: str, part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not equals or not key.strip():
        raise UsageError(f'"{part}" in the arm "{word}" is not KEY=VALUE', _EXAMPLE)
    option = options.find(key)
    options.parse(option, value.strip())
    return option.key, value.strip()


def request(wish: Request, arm: Arm) -> Request:
    """The request that an arm is. A kind named outdoes what the wish says of speculation, and an arm's own model and
    draft those of the wish."""
    sets, draft = wish.sets, wish.draft
    if arm.draft in (NONE, *KINDS):
        sets, draft = tuple(pair for pair in sets if pair[0] not in _CHOOSE), arm.draft
    elif arm.draft == DRAFT:
        draft = wish.draft if wish.draft not in (None, "auto", NONE, *KINDS) else "optional"
    own = dict(arm.sets)
    return replace(wish, sets=(*sets, *arm.sets), draft=own.get("draft", draft), model=own.get("model", wish.model))


def as_deployed(arm: Arm) -> bool:
    """Whether what speculates in an arm is what the deployment decided: it names nothing else, and no other model."""
    other = ("model", "draft", *CHOOSING)
    return arm.draft == DEPLOYED and not any(key in other for key, _ in arm.sets)
