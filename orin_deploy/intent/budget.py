"""The memory budget: one pool for CPU and GPU, disjoint rows that sum to the total, a limit, and a context that fits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One share of the pool: what it is for, bytes, and where the number comes from."""

    name: str
    bytes: int
    source: str


@dataclass(frozen=True)
class Budget:
    """Rows, their sum and what can be had, all in bytes."""

    rows: tuple[Row, ...]
    limit_bytes: int
    limit_source: str

    @property
    def total_bytes(self) -> int:
        return sum(row.bytes for row in self.rows)

    @property
    def fits(self) -> bool:
        return self.total_bytes <= self.limit_bytes
