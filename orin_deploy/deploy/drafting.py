"""That a server drafts, proved: it says so, its log names the kind, and a real request has drafted tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orin_deploy.errors import OrinError
from orin_deploy.host import Host
from orin_deploy.intent.spec import Draft, Spec
from orin_deploy.intent.speculation import BY_MODEL
from orin_deploy.parts import serverlog, service

# A model that counts along gives every kind something to find; n-gram kinds need a text that is long and repeats.
_LINE = " ".join(map(str, range(1, 25))) + "\n"
_COUNTING = 3 * _LINE + " ".join(map(str, range(1, 13)))
_TOKENS = 64
_LEAST_ROOM = 192  # below it an n-gram kind finds nothing in a text and has no room to draft
_TIMEOUT_S = 300.0
_LOOK_S = 2.0


class NotDrafting(OrinError):
    """A server that answers and does not speculate as it was planned to."""


@dataclass(frozen=True)
class Drafted:
    """What one request drafted: the kinds in use, tokens drafted and tokens the target accepted.

    `request` says which: "chat", "counting", or "forced" where the model's own words gave nothing to look up; then the
    acceptance tells nothing.
    """

    kinds: tuple[str, ...]
    drafted: int
    accepted: int
    request: str


def active(draft: Draft, slots: Sequence[Mapping[str, Any]] | None, lines: Sequence[str]) -> Iterator[str]:
    """In what a ready server does not speculate as planned, each a sentence; `slots` are its own, `lines` its log's."""
    reason = serverlog.not_speculating(lines)
    because = f": {reason}" if reason else ""
    if not (slots and all(slot.get("speculative") for slot in slots)):
        yield f"the server does not speculate, planned {','.join(draft.kinds)}{because}"
        return
    found = serverlog.speculation(lines)
    if lines and (missing := [kind for kind in draft.kinds if kind not in found]):
        yield f"the log names no {' and no '.join(missing)}, it names {', '.join(found) or 'no kind of speculation'}"


@dataclass(frozen=True)
class Look:
    """Speculation as it is now: whether it is active (None: the server does not say), the reason where it is not, and
    the tokens drafted and accepted since the server started, by its log."""

    active: bool | None
    reason: str | None
    drafted: int | None
    accepted: int | None


def look(host: Host, spec: Spec, draft: Draft) -> Look:
    """A quick look at a server that runs; one that is busy with a prompt answers late."""
    slots, lines = service.slots(host, spec, _LOOK_S), service.log_lines(host, spec.name)
    totals = serverlog.drafted(lines)
    drafted, accepted = totals if totals is not None else (None, None)
    if slots is None:  # it is busy, or gone
        return Look(None, None, drafted, accepted)
    idle = "; ".join(active(draft, slots, ()))
    reason = (serverlog.not_speculating(lines) or idle) if idle else None
    return Look(not idle, reason, drafted, accepted)


def prove(host: Host, spec: Spec, draft: Draft, drafted: int, accepted: int) -> Drafted:
    """What was drafted in the chat request that has just been answered or, where that was nothing, in further ones.

    Raises NotDrafting when nothing makes it draft, or it cannot be asked.
    """
    if drafted:
        return Drafted(draft.kinds, drafted, accepted, "chat")
    headers = service.auth_headers(spec)
    tokens = _post(host, spec, "/tokenize", {"content": _COUNTING}, headers).get("tokens")
    if not isinstance(tokens, list):
        raise _unproved(draft, "it does not answer /tokenize")
    room = service.inspect(host, spec).endpoint.ctx_per_slot
    if room is not None and room < _LEAST_ROOM:
        raise _unproved(draft, f"a context of {room} tokens is too small for a request that drafts")
    if room is not None:  # of a text that repeats, the end repeats too
        tokens = tokens[-(room - _TOKENS) :]
    for request, more in (("counting", {"prompt": tokens}), ("forced", _forced(tokens))):
        if request == "forced" and draft.kind in BY_MODEL:
            break
        payload = {"n_predict": _TOKENS, "temperature": 0, **more}
        timings = _post(host, spec, "/completion", payload, headers).get("timings") or {}
        if timings.get("draft_n"):
            return Drafted(draft.kinds, int(timings["draft_n"]), int(timings.get("draft_n_accepted", 0)), request)
    raise NotDrafting(
        f"the server says that it speculates ({','.join(draft.kinds)}), and drafted no token in {_TOKENS}",
        "a smaller spec_draft_p_min or spec_draft_n_min lets it draft more, or --draft none"
        if draft.kind in BY_MODEL
        else "--draft none, or another kind",
    )


def _unproved(draft: Draft, why: str) -> NotDrafting:
    return NotDrafting(f"that the server drafts ({','.join(draft.kinds)}) cannot be proved: {why}", "--draft none")


def _forced(tokens: list[Any]) -> dict[str, Any]:
    """A prompt that stops before its last token, which is then made the only one to come: the text so far repeats."""
    return {"prompt": tokens[:-1], "logit_bias": [[tokens[-1], 100]]}


def _post(host: Host, spec: Spec, path: str, payload: Any, headers: Mapping[str, str]) -> dict[str, Any]:
    reply = host.http("POST", f"{spec.service.endpoint}{path}", payload, headers=headers, timeout_s=_TIMEOUT_S)
    told = reply.json() if reply is not None and reply.status == 200 else None
    return told if isinstance(told, dict) else {}
