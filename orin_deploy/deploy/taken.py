"""Planned against taken: the budget's rows beside what the server's own log says it allocated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orin_deploy.intent.engine_rows import ENGINE_ROWS
from orin_deploy.intent.limit import FILE_COPY, LEARNED
from orin_deploy.intent.spec import Spec
from orin_deploy.parts.serverlog import Buffer

_ROWS = {"model": "weights", "KV": "KV cache", "RS": "recurrent state", "compute": "compute", "output": "output"}
"""The log's kinds of buffers and the budget's rows."""

_DRAFT = "draft "

NOT_RESIDENT = ("reserve", "prompt cache", "draft process", "staging", FILE_COPY, LEARNED)
"""Rows that the server's process does not hold when it has answered its first request; nor does it hold what lies in a
draft's own process."""


@dataclass(frozen=True)
class Compared:
    """One row of the budget: what was planned and what was taken, in bytes."""

    name: str
    planned_bytes: int
    taken_bytes: int


def compare(spec: Spec, buffers: Sequence[Buffer]) -> tuple[Compared, ...]:
    """Each row that the server's log can speak of, in the budget's order; a row that was not planned counts as 0."""
    return _compare({row.name: row.bytes for row in spec.budget.rows}, buffers)


def of_record(record: Mapping[str, Any]) -> tuple[Compared, ...]:
    """The same from a record's JSON; nothing where it holds no proof, or one of another version of this program."""
    try:
        buffers = [Buffer(each["device"], each["kind"], each["bytes"]) for each in record["proof"]["memory"]]
        return _compare({row["name"]: row["bytes"] for row in record["spec"]["budget"]["rows"]}, buffers)
    except (KeyError, TypeError):
        return ()


def resident(record: Mapping[str, Any]) -> Compared | None:
    """The server's process as a whole, where the CPU computes; None on a GPU, whose memory counts for no process.

    Mapped weights count as far as they were read.
    """
    try:
        rows = record["spec"]["budget"]["rows"]
        planned = {row["name"]: row["bytes"] - row.get("apart_bytes", 0) for row in rows}
        taken = record["proof"]["resident_bytes"]
    except (KeyError, TypeError, AttributeError):
        return None
    if "CUDA context" in planned or not isinstance(taken, int):
        return None
    return Compared("resident", sum(size for name, size in planned.items() if name not in NOT_RESIDENT), taken)


def _compare(planned: Mapping[str, int], buffers: Sequence[Buffer]) -> tuple[Compared, ...]:
    taken: dict[str, int] = {}
    for name, size in _named(buffers):
        taken[name] = taken.get(name, 0) + size
    if not taken:
        return ()
    names = [prefix + row for prefix in ("", _DRAFT) for row in ENGINE_ROWS]
    return tuple(
        Compared(name, planned.get(name, 0), taken.get(name, 0))
        for name in names
        if planned.get(name, 0) or taken.get(name, 0)
    )


def _named(buffers: Sequence[Buffer]) -> Iterator[tuple[str, int]]:
    """Each buffer's row and bytes.

    The log does not say whose a buffer is, but its order does: a context's compute buffers are its last, so what comes
    after them belongs to the draft (server-context.cpp, load_model). A context may reserve its compute buffers again
    (llama-context.cpp, sched_reserve): the new ones replace those on the same device that are nearest in size.
    """
    whose = ""
    compute: dict[tuple[str, str], int] = {}
    for buffer in buffers:
        if buffer.kind == "compute":
            place = (whose, buffer.device)
            if place in compute:
                again = [each for each in compute if each[1] == buffer.device]
                place = min(again, key=lambda each: abs(compute[each] - buffer.bytes))
            compute[place] = buffer.bytes
            continue
        if compute:
            whose = _DRAFT
        yield whose + _ROWS[buffer.kind], buffer.bytes
    for (owner, _), size in compute.items():
        yield f"{owner}compute", size
