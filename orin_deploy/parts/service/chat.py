"""One streamed chat request to a llama-server: what it answered, when each token came, and its own timings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orin_deploy.errors import OrinError
from orin_deploy.host import Host

GREEDY: Mapping[str, Any] = {"temperature": 0, "cache_prompt": False}
"""The same answer at every call, and the whole prompt computed each time."""


@dataclass(frozen=True)
class Timings:
    """What the server measured of one request; speeds in tokens per second.

    `prompt_tokens` are those it computed, `cached_tokens` those it had; `drafted` and `accepted` count speculated
    tokens and are 0 without speculation.
    """

    prompt_tokens: int
    cached_tokens: int
    prompt_per_s: float
    generated_tokens: int
    generated_per_s: float
    drafted: int
    accepted: int


@dataclass(frozen=True)
class Answer:
    """A whole answer. `pieces` are its text as it came, thoughts included: a token each, unless a token was part of a
    character; `arrivals_s` says when each came, `total_s` when the answer ended, in seconds since the request was sent.
    """

    pieces: tuple[str, ...]
    arrivals_s: tuple[float, ...]
    total_s: float
    finish: str  # "stop" or "length"
    timings: Timings

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def first_token_s(self) -> float:
        """Seconds to the first text; to the end where there was none, as when a model ends at once."""
        return self.arrivals_s[0] if self.arrivals_s else self.total_s


def chat(
    host: Host,
    endpoint: str,
    prompt: str,
    max_tokens: int,
    headers: Mapping[str, str],
    options: Mapping[str, Any] = GREEDY,
    hint: str = "orin-deploy logs",
) -> Answer:
    """Ask one question and follow the answer to its end; `options` are further fields of the request.

    Raises OrinError, with `hint`, when the request fails or breaks off. An answer may be empty.
    """
    from http.client import HTTPException

    asked = {"messages": [{"role": "user", "content": prompt}], "max_tokens": max_tokens}
    payload = {**asked, "stream": True, **options}
    pieces: list[str] = []
    arrivals: list[float] = []
    finish, timings = None, None
    began = host.monotonic()
    try:
        for event in host.events(f"{endpoint}/v1/chat/completions", payload, headers=headers):
            if not isinstance(event, Mapping) or "error" in event:
                raise ValueError(f"the server says {event}")
            choice = (event.get("choices") or [{}])[0]
            delta = choice.get("delta") or {}
            # A thinking model may spend all of a short answer on its thoughts.
            if words := (delta.get("reasoning_content") or "") + (delta.get("content") or ""):
                pieces.append(words)
                arrivals.append(host.monotonic() - began)
            finish = choice.get("finish_reason") or finish
            timings = event.get("timings") or timings
    except (OSError, ValueError, HTTPException) as error:
        raise OrinError(f"the completion failed: {error}", hint) from error
    if finish not in ("stop", "length") or timings is None:
        count = sum(map(len, pieces))
        raise OrinError(f"the completion is not whole: {count} characters, finish reason {finish}", hint)
    return Answer(tuple(pieces), tuple(arrivals), host.monotonic() - began, finish, _timings(timings, hint))


def _timings(told: Any, hint: str) -> Timings:
    try:
        return Timings(
            prompt_tokens=int(told["prompt_n"]),
            cached_tokens=int(told.get("cache_n", 0)),
            prompt_per_s=float(told["prompt_per_second"]),
            generated_tokens=int(told["predicted_n"]),
            generated_per_s=float(told["predicted_per_second"]),
            # The server leaves these two out where nothing was drafted.
            drafted=int(told.get("draft_n", 0)),
            accepted=int(told.get("draft_n_accepted", 0)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OrinError(f"the server's timings cannot be read: {told}", hint) from error
