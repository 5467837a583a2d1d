"""What is measured before it is decided: the ways to speculate, and what was found best."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Candidate:
    """One way to speculate that is worth measuring: "none", a kind without a draft model, or one with this draft."""

    kind: str
    where: str = "draftless"

    @property
    def name(self) -> str:
        return f"{self.kind} in a process of its own" if self.where == "process" else self.kind


@dataclass(frozen=True)
class ToMeasure:
    """What `draft=auto` has still to measure at `up`: the candidates, the first of them none, and within how long."""

    candidates: tuple[Candidate, ...]
    seconds: int

    @property
    def text(self) -> str:
        return f"{', '.join(each.name for each in self.candidates)}; at most {self.seconds} s"


@dataclass(frozen=True)
class Decision:
    """What was measured to be best for a deployment: a kind or "none", and how it drafts.

    `source` says where that is from, as in "measured 2026-11-30, bench record 17: 1.62 times none". None leaves a
    number to its default. `gain` is the speed over that without speculation, `record` the bench's record with all
    samples; `sure` is False where the measurement could not tell, which means none. `again` says when it is measured
    again where that may be soon: it is not sure, or a way was left out for lack of memory.
    """

    kind: str
    source: str
    reference: str | None = None
    where: str = "auto"
    n_max: int | None = None
    n_min: int | None = None
    p_min: float | None = None
    gain: float | None = None
    record: int | None = None
    date: str | None = None
    sure: bool = True
    again: str | None = None
