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
_TIMEOUT_S = 300.0


class NotDrafting(OrinError):
    """A server that answers and does not speculate as it was planned to."""


@dataclass(frozen=True)
class Drafted:
    """What one request drafted: the kinds in use, tokens drafted and tokens the target accepted.

    `request` says which: "chat", "counting", or "forced" where the model's own words gave nothing to look up; then the
    acceptance tells nothing. It is "none" where the context is too small for any.
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
    """A quick look at a server that runs."""
    slots, lines = service.slots(host, spec), service.log_lines(host, spec.name)
    totals = serverlog.drafted(lines)
    drafted, accepted = totals if totals is not None else (None, None)
    if slots is None:  # it is busy, or gone
        return Look(None, None, drafted, accepted)
    idle = "; ".join(active(draft, slots, ()))
    reason = (serverlog.not_speculating(lines) or idle) if idle else None
    return Look(not idle, reason, drafted, accepted)


def prove(host: Host, spec: Spec, draft: Draft, drafted: int, accepted: int) -> Drafted:
    """What was drafted in the chat request that has just been answered or, where that was nothing, in further ones.

    Raises NotDrafting when nothing makes it draft.
    """
    if drafted:
        return Drafted(draft.kinds, drafted, accepted, "chat")
    headers = service.auth_headers(spec)
    tokens = _post(host, spec, "/tokenize", {"content": _COUNTING}, headers).get("tokens")
    room = service.inspect(host, spec).endpoint.ctx_per_slot
    if not isinstance(tokens, list) or (room is not None and len(tokens) + _TOKENS > room):
        return Drafted(draft.kinds, 0, 0, "none")
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


def _forced(tokens: list[Any]) -> dict[str, Any]:
    """A prompt that stops before its last token, which is then made the only one to come: the text so far repeats."""
    return {"prompt": tokens[:-1], "logit_bias": [[tokens[-1], 100]]}


def _post(host: Host, spec: Spec, path: str, payload: Any, headers: Mapping[str, str]) -> dict[str, Any]:
    reply = host.http("POST", f"{spec.service.endpoint}{path}", payload, headers=headers, timeout_s=_TIMEOUT_S)
    told = reply.json() if reply is not None and reply.status == 200 else None
    return told if isinstance(told, dict) else {}
