"""Rules about measurements side by side: whether they may be compared, and whether one is steady enough to mean it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, stdev
from typing import Any

from orin_deploy.doctor.evidence import Claims, Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.observe.bench.conditions import COMPARED, comparable

NOISY = 0.08
"""The coefficient of variation beyond which repeats of one measurement are noise (measured by many on one board)."""

_SPEEDS = ("tps", "tokens_per_s", "speed")
_FEWEST = 3


def of_table(document: Mapping[Any, Any]) -> Claims:
    """A measurement with the conditions it was made under: a record of `bench`, or a speed beside a module or mode."""
    told = document.get("conditions")
    if not (isinstance(told, Mapping) and "cases" in document) and not any(
        _is_number(document, key) for key in _SPEEDS
    ):
        return {}
    conditions = told if isinstance(told, Mapping) else document
    known = tuple((key, _plain(conditions[key])) for key, _ in COMPARED if conditions.get(key) is not None)
    return {"measured": (known,)} if known else {}


def of_list(items: list[Any]) -> Claims:
    """Repeats of one measurement: numbers and nothing else."""
    numbers = [item for item in items if isinstance(item, (int, float)) and not isinstance(item, bool) and item > 0]
    return {"repeats": (tuple(map(float, numbers)),)} if len(numbers) == len(items) >= _FEWEST else {}


def unlike_records(evidence: Evidence) -> Finding | None:
    """Measurements of unlike conditions, side by side."""
    if len(evidence.measured) < 2:
        return None
    first = dict(evidence.measured[0])
    found = next((found for other in evidence.measured[1:] if (found := comparable(first, dict(other)))), ())
    if not found:
        return None
    return Finding(
        "bench.unlike-records",
        "refuse",
        f"these measurements must not be compared: {'; '.join(found)}",
        "measure both under the same conditions: orin-deploy bench records module, power mode, clocks, engine, model "
        "and context with every figure",
        why_not="the speeds need not mean that either machine is slow: another module or mode is another figure",
        values={"differences": [text.partition(":")[0] for text in found]},
    )


def noisy(evidence: Evidence) -> Finding | None:
    """Repeats of one measurement that lie too far apart to tell anything by their mean."""
    spreads = [stdev(each) / fmean(each) for each in evidence.repeats]
    if not spreads or (cv := max(spreads)) <= NOISY:
        return None
    return Finding(
        "tune.noisy",
        "warn",
        f"the repeats differ by {cv:.0%} of their mean (coefficient of variation), more than {NOISY:.0%}",
        "stop what else computes, lock the clocks, repeat: orin-deploy bench goes on until its figures are steady",
        why_not="a setting that looks faster by less than that is not faster",
        values={"cv": round(cv, 3), "cv_gt": NOISY},
    )


def _is_number(document: Mapping[Any, Any], key: str) -> bool:
    value = document.get(key)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(value: Any) -> str:
    """As text: evidence is hashed when it is joined."""
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
