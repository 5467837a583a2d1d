"""The refusal of a budget that does not fit: need, limit, what fits instead, and what to type for it."""

from __future__ import annotations

from orin_deploy.errors import Refused
from orin_deploy.facts.device import Device
from orin_deploy.facts.model import Model
from orin_deploy.intent.budget import GROUP, SET, Budget
from orin_deploy.intent.relief import Relief, enough, of_machine, relief
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import Serving, kind_text, mib, total_cells
from orin_deploy.intent.ways import Largest, Way, largest, least_bytes, ways_to_fit
from orin_deploy.intent.ways_of_room import ways_of_room

TOO_LITTLE = "not enough memory"

_FIXED = {SET: "memory.limit_mib", GROUP: "the group's limit"}


class DoesNotFit(Refused):
    """A deployment that needs more memory than can be had.

    Each of `ways` makes it fit, the least loss first; `reliefs` together free as much on this machine as is missing.
    `frees` is all that would free memory, enough or not, the cheapest first.
    """

    def __init__(
        self,
        message: str,
        hint: str,
        *,
        need_bytes: int,
        limit_bytes: int,
        limit_source: str,
        largest: tuple[Largest, ...],
        ways: tuple[Way, ...],
        reliefs: tuple[Relief, ...] = (),
        frees: tuple[Relief, ...] = (),
    ) -> None:
        super().__init__(message, hint)
        self.need_bytes = need_bytes
        self.limit_bytes = limit_bytes
        self.limit_source = limit_source
        self.largest = largest
        self.ways = ways
        self.reliefs = reliefs
        self.frees = frees

    @property
    def short(self) -> str:
        """The message in few words, for a list of reasons."""
        return f"{TOO_LITTLE}: {mib(self.need_bytes)} needed, {mib(self.limit_bytes)} can be had"


def refusal(
    model: Model, serving: Serving, room: Room, device: Device | None = None, *, fitted: bool = False
) -> DoesNotFit:
    """The error for a deployment that does not fit its room; with `fitted` its context was nobody's wish."""
    budget = room.budget(model, serving)
    found = largest(model, serving, room)
    ways = ways_to_fit(model, serving, room, fitted=fitted) or ways_of_room(model, serving, room, fitted=fitted)
    needs = f"a context of {total_cells(model, serving)} needs {mib(budget.total_bytes)}"
    has = f"{mib(budget.limit_bytes)} can be had ({budget.limit_source})"
    fitting = [f"{each.ctx_size} with {_text(each)} KV cache" for each in found if each.ctx_size]
    if fitting:
        rest = f"the largest that fits is {', '.join(fitting)}"
    else:
        rest = f"no context fits: the smallest still takes {mib(least_bytes(model, serving, room))}"
        rest += f", {mib(room.reserve_bytes)} of them the reserve" if room.reserve_bytes else ""
    return DoesNotFit(
        f"{needs}, but {has}; {rest}",
        " or ".join(" ".join(way.words) for way in ways) or _without_a_way(room, budget),
        need_bytes=budget.total_bytes,
        limit_bytes=budget.limit_bytes,
        limit_source=budget.limit_source,
        largest=found,
        ways=ways,
        reliefs=enough(of_machine(room, device), budget.total_bytes - budget.limit_bytes) if device else (),
        frees=relief(model, serving, room, device) if device else (),
    )


def _text(each: Largest) -> str:
    return kind_text((each.cache_type_k, each.cache_type_v))


def _without_a_way(room: Room, budget: Budget) -> str:
    """What there is to do where no setting of the server is enough; what bounds the room is said first."""
    smaller = "use a smaller model or quantisation"
    reserve = f"memory.reserve_mib, which is {mib(room.reserve_bytes)} of it"
    alone = room.reserve_bytes >= room.limit_bytes  # no model is small enough for that
    if room.fixed:
        bound = f"raise {_FIXED.get(room.limit_kind, 'that limit')}"
        return f"{bound}, or {f'lower {reserve}' if alone else smaller}"
    if room.reserve_bytes * 2 > budget.total_bytes and budget.total_bytes - room.reserve_bytes <= room.limit_bytes:
        return f"lower {reserve}" if alone else f"lower {reserve}, or {smaller}"
    return f"{smaller}, or free memory"
