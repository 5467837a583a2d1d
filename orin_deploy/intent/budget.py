"""The memory budget: one pool for CPU and GPU, disjoint rows that sum to the total, and the context that fits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orin_deploy.errors import Refused
from orin_deploy.facts.model import Model
from orin_deploy.intent.draft_rows import draft_rows
from orin_deploy.intent.engine_rows import Row, engine_rows
from orin_deploy.intent.process_rows import process_rows
from orin_deploy.intent.serving import STEP, Serving

AVAILABLE, SET, GROUP = "available", "set", "group"
"""Kinds of limit: what is free, which moves by itself; what somebody has set; a control group's."""


@dataclass(frozen=True)
class Budget:
    """Rows, their sum and what can be had, all in bytes; what that is bound by in words and as a kind of limit."""

    rows: tuple[Row, ...]
    limit_bytes: int
    limit_source: str
    limit_kind: str = AVAILABLE

    @property
    def total_bytes(self) -> int:
        return sum(row.bytes for row in self.rows)

    @property
    def fits(self) -> bool:
        return self.total_bytes <= self.limit_bytes


def estimate(
    model: Model,
    serving: Serving,
    *,
    reserve_bytes: int = 0,
    limit_bytes: int = 0,
    limit_source: str = "no limit",
    limit_kind: str = AVAILABLE,
    extra: tuple[Row, ...] = (),
) -> Budget:
    """What serving takes, row by row; rows are disjoint and in bytes. `extra` rows join them, before the reserve.

    Raises Refused for a prompt cache without end.
    """
    if serving.cache_ram_mib < 0:
        raise Refused("a prompt cache without a limit fits no budget", "--set cache_ram=0, or a number of MiB")
    rows = (*engine_rows(model, serving), *draft_rows(model, serving), *process_rows(model, serving), *extra)
    rows = (*rows, Row("reserve", reserve_bytes, "left to the system"))
    return Budget(rows, limit_bytes, limit_source, limit_kind)


def fit_context(model: Model, serving: Serving, *, limit_bytes: int, reserve_bytes: int = 0) -> int | None:
    """The largest ctx_size (all slots together) that fits, at most the training context a slot; None when none does."""
    step = STEP * serving.slots

    def fits(steps: int) -> bool:
        tried = replace(serving, ctx_size=steps * step)
        return estimate(model, tried, reserve_bytes=reserve_bytes, limit_bytes=limit_bytes).fits

    low, high = 0, max(1, model.n_ctx_train // STEP)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low * step or None
