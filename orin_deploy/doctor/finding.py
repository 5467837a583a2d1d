"""The finding: what a rule has to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

Verdict: TypeAlias = Literal["refuse", "diagnose", "warn", "plan", "accept"]

SEVERITY: tuple[Verdict, ...] = get_args(Verdict)
"""Verdicts, gravest first: must not be done; went wrong, and why; may go wrong; do it this way; is fine."""


@dataclass(frozen=True)
class Finding:
    """One thing that is the case, what it is not where people take it for something else, and what to type next.

    `values` holds the same in numbers and names, for programs; bytes where the name says so.
    """

    rule: str
    verdict: Verdict
    what: str
    next: str
    why_not: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
