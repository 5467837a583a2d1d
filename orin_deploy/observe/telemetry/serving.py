"""What the server does at a moment: tokens per second and acceptance rate, from its /metrics and /slots."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orin_deploy.host import Host

_PREFIX = "llamacpp:"
_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Serving:
    """The server since the last look. `missing` says why what is None is unknown.

    `tokens_per_s` is what was generated over the time that passed, all slots together: 0 when idle. `acceptance_rate`
    is the share of drafted tokens that the target accepted since the server started, as of the last finished request.
    """

    tokens_per_s: float | None = None
    acceptance_rate: float | None = None
    requests: int | None = None
    waiting: int | None = None
    missing: str | None = None


@dataclass(frozen=True)
class Counts:
    """Running totals at one moment: finished requests by /metrics, running ones by slot and task from /slots."""

    time: float
    finished: float | None
    running: Mapping[tuple[int, int], int] | None


def parse_metrics(text: str) -> dict[str, float]:
    """llama-server's metrics without labels, by name less their prefix; lines of another kind are left out."""
    pairs = re.findall(rf"^{_PREFIX}([a-z_]{{1,80}}) ([-+0-9.eE]{{1,32}})$", text, re.MULTILINE)
    found = {}
    for name, value in pairs:
        try:
            found[name] = float(value)
        except ValueError:
            continue
    return found


def parse_slots(document: Any) -> dict[tuple[int, int], int] | None:
    """Tokens generated so far by (slot, task), of the slots at work; None for what is not the answer of /slots.

    llama-server counts a request's tokens here while it runs, and in /metrics only once it has ended.
    """
    if not isinstance(document, list) or not all(isinstance(slot, Mapping) for slot in document):
        return None
    found = {}
    for slot in document:
        token = slot.get("next_token")
        first = token[0] if isinstance(token, list) and token else None
        decoded = first.get("n_decoded") if isinstance(first, Mapping) else None
        keys = slot.get("id"), slot.get("id_task", -1)
        if slot.get("is_processing") and isinstance(decoded, int) and all(isinstance(key, int) for key in keys):
            found[keys] = decoded
    return found


def acceptance(metrics: Mapping[str, float]) -> float | None:
    """Accepted over drafted tokens; None while nothing was drafted."""
    drafted = metrics.get("spec_decode_num_draft_tokens_total", 0)
    return metrics.get("spec_decode_num_accepted_tokens_total", 0) / drafted if drafted > 0 else None


def rate(before: Counts, now: Counts) -> float | None:
    """Tokens generated per second between two looks; None when it cannot be told.

    With both sources the sum of finished and running tokens; with slots alone, a request that ended in between counts
    up to the last look at it; with metrics alone, tokens come when their request ends.
    """
    seconds = now.time - before.time
    if seconds <= 0:
        return None
    if before.finished is not None and now.finished is not None:
        # A restarted server counts from zero; a request may end between the questions and count twice, once.
        running = sum((now.running or {}).values()) - sum((before.running or {}).values())
        return max(now.finished - before.finished + running, 0.0) / seconds
    if before.running is None or now.running is None:
        return None
    earlier = before.running
    return sum(max(count - earlier.get(key, 0), 0) for key, count in now.running.items()) / seconds


class Watch:
    """Asks one server, which answers between two decoding steps.

    Asking /metrics resets its averages (`…_tokens_seconds`) for whoever else scrapes them, but not its counters.
    """

    def __init__(self, host: Host, endpoint: str, headers: Mapping[str, str], metrics: bool) -> None:
        """`metrics` tells whether the server was started with --metrics; without it there is no use in asking."""
        self.host = host
        self.endpoint = endpoint
        self.headers = headers
        self.metrics = metrics
        self.before: Counts | None = None

    def look(self) -> Serving:
        metrics = self._metrics() if self.metrics else {}
        running = self._slots()
        if not metrics and running is None:
            self.before = None
            return Serving(missing=f"the server does not answer within {_TIMEOUT_S:.0f} s")
        now = Counts(self.host.monotonic(), metrics.get("tokens_predicted_total"), running)
        speed = None if self.before is None else rate(self.before, now)
        self.before = now
        requests = len(running) if running is not None else int(metrics.get("requests_processing", 0))
        return Serving(
            tokens_per_s=None if speed is None else round(speed, 2),
            acceptance_rate=acceptance(metrics),
            requests=requests,
            waiting=int(metrics["requests_deferred"]) if "requests_deferred" in metrics else None,
            missing=self._missing(metrics),
        )

    def _missing(self, metrics: Mapping[str, float]) -> str | None:
        if not self.metrics:
            return "acceptance rate: the server has no metrics (--set metrics=on)"
        if not metrics:
            return "acceptance rate: /metrics does not answer"
        return None if acceptance(metrics) is not None else "acceptance rate: nothing was drafted"

    def _metrics(self) -> dict[str, float]:
        reply = self._get("/metrics")
        return {} if reply is None else parse_metrics(reply.body.decode("utf-8", "replace"))

    def _slots(self) -> dict[tuple[int, int], int] | None:
        reply = self._get("/slots")
        return None if reply is None else parse_slots(reply.json())

    def _get(self, path: str) -> Any:
        reply = self.host.http("GET", f"{self.endpoint}{path}", headers=self.headers, timeout_s=_TIMEOUT_S)
        return reply if reply is not None and reply.status == 200 else None
