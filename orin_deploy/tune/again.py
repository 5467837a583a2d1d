"""What a decision hung on that may change, and is asked again by: the seconds there were, and memory. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from orin_deploy.errors import OrinError
from orin_deploy.facts.device import MIB
from orin_deploy.intent.refusal import DoesNotFit
from orin_deploy.intent.serving import mib

_LEAST_MORE = 256 * MIB
"""Less more than there was is no reason to measure again: what is free moves by itself."""


def enough_bytes(left_out: Iterable[OrinError], limit_bytes: int) -> int | None:
    """The limit from which on a way that lacked memory would be measured; None where none lacked it.

    `left_out` says why ways were left out, with `limit_bytes` to be had.
    """
    needs = [each.need_bytes for each in left_out if isinstance(each, DoesNotFit)]
    return max(min(needs), limit_bytes + _LEAST_MORE) if needs else None


def again(seconds: int, limit_bytes: int, enough: int | None) -> str:
    """When a decision that is not sure, or for which a way lacked memory, is measured again; in words."""
    memory = "" if enough is None else f", from {mib(enough)} to be had on ({mib(limit_bytes)} then)"
    others = "or for another engine, model, draft, power mode or workload"
    return f"measured again with speculation.measure_s above {seconds}{memory}, {others}"
