"""Ways to make a deployment fit that no setting of the server makes fit: a smaller reserve, a higher limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from orin_deploy.facts.device import MIB
from orin_deploy.facts.model import Model
from orin_deploy.intent.budget import SET
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import STEP, Serving, mib
from orin_deploy.intent.ways import ENOUGH, Way

RESERVE, LIMIT = "memory.reserve_mib", "memory.limit_mib"


def ways_of_room(model: Model, serving: Serving, room: Room, *, fitted: bool = False) -> tuple[Way, ...]:
    """The largest reserve and the smallest limit with which the context asked for fits, or else the largest of its
    halves that does; with `fitted` nobody asked for one, and it is one that a conversation needs.

    The reserve is offered only where it is most of what is needed or the limit is not what is free, and no limit is
    offered beyond what is free.
    """
    most = model.n_ctx_train or ENOUGH
    asked = min(ENOUGH, most) * serving.slots if fitted else serving.ctx_size or most * serving.slots
    found = (_reserve(model, serving, room, asked), _limit(model, serving, room, asked))
    ways = (_way(model, serving, each, asked, fitted=fitted) for each in found if each is not None)
    return tuple(way for way in ways if way is not None)


def _contexts(serving: Serving, asked: int) -> Iterator[int]:
    step = STEP * serving.slots
    while asked > step:
        yield asked
        asked = max(asked // 2 // step * step, step)
    yield step


def _reserve(model: Model, serving: Serving, room: Room, asked: int) -> tuple[Room, int, tuple[str, str, str]] | None:
    bare = replace(room, reserve_bytes=0)
    for tokens in _contexts(serving, asked):
        needed = bare.budget(model, serving, tokens).total_bytes
        left = (room.limit_bytes - needed) // MIB
        if 0 <= left < room.reserve_bytes // MIB and (room.fixed or room.reserve_bytes > needed):
            told = (f"a reserve of {mib(left * MIB)} for the system", RESERVE, str(left))
            return replace(room, reserve_bytes=left * MIB), tokens, told
    return None


def _limit(model: Model, serving: Serving, room: Room, asked: int) -> tuple[Room, int, tuple[str, str, str]] | None:
    if room.limit_kind != SET:
        return None
    for tokens in _contexts(serving, asked):
        needed = -(-room.budget(model, serving, tokens).total_bytes // MIB)
        if needed * MIB <= room.beyond_bytes:
            return replace(room, limit_bytes=needed * MIB), tokens, (f"a limit of {needed} MiB", LIMIT, str(needed))
    return None


def _way(
    model: Model, serving: Serving, found: tuple[Room, int, tuple[str, str, str]], asked: int, *, fitted: bool
) -> Way | None:
    """The way into another room, estimated there at the context it will have."""
    room, tokens, (what, key, value) = found
    options = [(key, value)]
    if fitted:
        tokens = room.most(model, serving) or tokens
    elif tokens < asked:
        options.append(("ctx_size", str(tokens)))
    budget = room.budget(model, serving, tokens)
    each = "" if serving.slots == 1 else " in each slot"
    changes = (what, f"a context of {tokens // serving.slots}{each}") if fitted or tokens < asked else (what,)
    return Way(changes, tuple(options), budget.total_bytes) if budget.fits else None
