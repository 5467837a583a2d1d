"""Ways to make a deployment fit: what can be given up, the least loss first, each one estimated again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Any

from orin_deploy.facts.device import MIB
from orin_deploy.facts.gguf_types import BY_NAME
from orin_deploy.facts.model import Model
from orin_deploy.intent.process_rows import checkpoint_bytes
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import STEP, Serving

KINDS = (("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"))
"""The types of KV cache that people choose between, keys and values, largest first."""

ENOUGH = 8192
"""Tokens that a conversation with a few tool calls or documents takes: below it a smaller type of cache is worth it."""

DRAFT = "--draft"
_WAYS, _TOGETHER = 3, 4
_SLOTS = "slots"
_SMALL_BATCH, _FEW_CHECKPOINTS = 128, 4
_CACHE_STEP_MIB = 64


@dataclass(frozen=True)
class Largest:
    """The largest context over all slots that fits with a KV cache of these types; None when none does."""

    cache_type_k: str
    cache_type_v: str
    ctx_size: int | None


@dataclass(frozen=True)
class Way:
    """Something to give up, or several things together: in words, as options by name, and the bytes it takes then."""

    changes: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    total_bytes: int

    @property
    def what(self) -> str:
        return " and ".join(self.changes)

    @property
    def words(self) -> tuple[str, ...]:
        """What to add to the command."""
        pairs = ((key, value) if key == DRAFT else ("--set", f"{key}={value}") for key, value in self.options)
        return tuple(word for pair in pairs for word in pair)


@dataclass(frozen=True)
class _Change:
    """One thing that can be given up; two changes of the same `thing` do not go together."""

    what: str
    thing: str
    options: tuple[tuple[str, str], ...]
    fields: dict[str, Any]


def kinds(serving: Serving) -> tuple[tuple[str, str], ...]:
    """The types to choose between; the engine quantises values only with flash attention (llama-context.cpp)."""
    return KINDS if serving.flash_attn else KINDS[:1]


def largest(model: Model, serving: Serving, room: Room) -> tuple[Largest, ...]:
    """The largest context that fits by type of KV cache: the type asked for, and the usual ones."""
    own = (serving.cache_type_k, serving.cache_type_v)
    return tuple(
        Largest(k, v, room.most(model, replace(serving, cache_type_k=k, cache_type_v=v)))
        for k, v in dict.fromkeys((own, *kinds(serving)))
    )


def least_bytes(model: Model, serving: Serving, room: Room) -> int:
    """What the shortest context takes, of the types of KV cache that can be chosen the smallest; in one slot, unless
    that would fit and more were asked for."""

    def least(served: Serving) -> int:
        own = (served.cache_type_k, served.cache_type_v)
        tried = (replace(served, cache_type_k=k, cache_type_v=v) for k, v in dict.fromkeys((own, *kinds(served))))
        return min(room.budget(model, each, STEP * each.slots).total_bytes for each in tried)

    one = least(replace(serving, parallel=1))
    return one if one > room.limit_bytes else least(serving)


def savings(model: Model, serving: Serving, room: Room) -> tuple[tuple[Way, int], ...]:
    """Each change by itself and the bytes it gives, whether it is enough or not, the least loss first."""
    total = room.budget(model, serving).total_bytes
    budgets = (
        (change, room.budget(model, replace(serving, **change.fields))) for change in _changes(model, serving, room)
    )
    return tuple(
        (Way((change.what,), change.options, budget.total_bytes), total - budget.total_bytes)
        for change, budget in budgets
    )


def ways_to_fit(model: Model, serving: Serving, room: Room, *, fitted: bool = False) -> tuple[Way, ...]:
    """At most three, each with no more changes than it needs; where there is one that keeps the context and one that
    cuts it, both kinds are there. Nothing when no change helps.

    A `fitted` context is nobody's wish: each way says the largest that fits with it, at least a useful one if it can.
    """
    if fitted:
        serving = replace(serving, ctx_size=min(ENOUGH, model.n_ctx_train or ENOUGH) * serving.slots)
    changes = tuple(_changes(model, serving, room))
    keeping = list(islice(_sufficient(model, serving, room, changes, cut=False, fitted=fitted), _WAYS))
    cutting = list(islice(_sufficient(model, serving, room, changes, cut=True), _WAYS))
    if keeping and cutting:
        keeping = keeping[: _WAYS - 1]
    chosen = [*keeping, *cutting][:_WAYS]
    return tuple(sorted(chosen, key=lambda way: len(way.changes)))


def _sufficient(
    model: Model, serving: Serving, room: Room, changes: tuple[_Change, ...], *, cut: bool, fitted: bool = False
) -> Iterator[Way]:
    """Combinations of changes that fit, the smallest first, none with a part that is enough; with `cut` each at the
    largest context that fits with it, with `fitted` at the largest that is no smaller than the serving's."""
    least = serving
    for change in changes:  # of several of a kind the last is the most thorough
        least = replace(least, **change.fields)
    if not room.budget(model, least, STEP * least.slots if cut else None).fits:
        return
    enough: list[set[tuple[str, str]]] = []
    for count in range(0 if cut else 1, _TOGETHER + 1):
        for chosen in combinations(changes, count):
            things = {(change.thing, change.what) for change in chosen}
            if len({thing for thing, _ in things}) < count or any(part <= things for part in enough):
                continue
            way = _tried(model, serving, room, chosen, cut=cut, fitted=fitted)
            if way is not None:
                enough.append(things)
                yield way


def _tried(
    model: Model, serving: Serving, room: Room, chosen: tuple[_Change, ...], *, cut: bool, fitted: bool
) -> Way | None:
    """The way that these changes make together; None where it does not fit."""
    what = [change.what for change in chosen]
    options = {key: value for change in chosen for key, value in change.options}
    for change in chosen:
        serving = replace(serving, **change.fields)
    if cut or fitted:
        asked = serving.ctx_size or model.n_ctx_train * serving.slots
        if not room.budget(model, serving, STEP * serving.slots if cut else asked).fits:
            return None
        most = room.most(model, serving)
        if most is None or (cut and most >= asked):
            return None
        serving = replace(serving, ctx_size=most)
        each = "" if serving.slots == 1 else " in each slot"
        what = ["one slot" if change.thing == _SLOTS else change.what for change in chosen]
        what.append(f"a context of {most // serving.slots}{each}")
        options["ctx_size"] = str(most)
    budget = room.budget(model, serving)
    return Way(tuple(what), tuple(options.items()), budget.total_bytes) if budget.fits else None


def _changes(model: Model, serving: Serving, room: Room) -> Iterator[_Change]:
    """What can be given up, the least loss first."""
    if serving.cache_ram_mib:
        left = _prompt_cache_left(model, serving, room)
        what = f"a prompt cache of {left} MiB" if left else "no prompt cache"
        yield _option(what, "prompt cache", "cache_ram", left, "cache_ram_mib")
    if serving.ctx_checkpoints > _FEW_CHECKPOINTS and checkpoint_bytes(model, serving):
        yield _option(f"{_FEW_CHECKPOINTS} checkpoints a slot", "checkpoints", "ctx_checkpoints", _FEW_CHECKPOINTS)
    smaller = [kind for kind in kinds(serving) if _cell_bytes(kind) < _cell_bytes(_kind(serving))]
    yield from map(_kv_cache, smaller[:1])
    if serving.ubatch_size > _SMALL_BATCH:
        yield _option(f"prompts in batches of {_SMALL_BATCH}", "batch", "ubatch_size", _SMALL_BATCH)
    if serving.drafting is not None:
        yield _Change("no draft", "draft", ((DRAFT, "none"),), {"drafting": None})
    if serving.slots > 1:
        one = (serving.ctx_size or model.n_ctx_train * serving.slots) // serving.slots
        options = (("parallel", "1"), ("ctx_size", str(one)))
        yield _Change(f"one slot of {one}", _SLOTS, options, {"parallel": 1, "ctx_size": one})
    yield from map(_kv_cache, smaller[1:])


def _option(what: str, thing: str, key: str, value: int, field: str | None = None) -> _Change:
    return _Change(what, thing, ((key, str(value)),), {field or key: value})


def _kv_cache(kind: tuple[str, str]) -> _Change:
    k, v = kind
    fields = {"cache_type_k": k, "cache_type_v": v}
    return _Change(f"a {k} KV cache", "KV cache", tuple(fields.items()), fields)


def _kind(serving: Serving) -> tuple[str, str]:
    return serving.cache_type_k, serving.cache_type_v


def _cell_bytes(kind: tuple[str, str]) -> int:
    """The size of a cell, for comparison with other types."""
    return sum(BY_NAME[each.upper()].row_bytes(256) for each in kind)


def _prompt_cache_left(model: Model, serving: Serving, room: Room) -> int:
    """MiB of prompt cache that still fit, as a round number; 0 when none do."""
    budget = room.budget(model, serving)
    too_much = -(-(budget.total_bytes - budget.limit_bytes) // MIB)
    return max(0, serving.cache_ram_mib - too_much) // _CACHE_STEP_MIB * _CACHE_STEP_MIB
