"""What fits a board: memory over contexts, types of KV cache and slots, and the most that each of them allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count, takewhile

from orin_deploy.facts.model import Model
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import STEP, Serving, kind_text
from orin_deploy.intent.ways import ENOUGH, kinds, least_bytes

_SHORTEST = 2048
_USUAL_SLOTS = (1, 2, 4)


@dataclass(frozen=True)
class Column:
    """Types of the KV cache and slots."""

    cache_type_k: str
    cache_type_v: str
    slots: int

    @property
    def kind(self) -> str:
        return kind_text((self.cache_type_k, self.cache_type_v))


@dataclass(frozen=True)
class Cell:
    """Memory at a context of each slot. `ctx_size` is that of all slots, as llama-server takes it."""

    column: Column
    context: int
    ctx_size: int
    total_bytes: int
    fits: bool


@dataclass(frozen=True)
class Table:
    """`cells` for each column context by context; `largest` for each column the largest context that fits, or None.

    `least_bytes` is what the smallest takes; where nothing fits, that of the shortest context there can be.
    """

    room: Room
    contexts: tuple[int, ...]
    columns: tuple[Column, ...]
    cells: tuple[Cell, ...]
    largest: tuple[Cell | None, ...]
    recommended: Cell | None
    least_bytes: int

    def row(self, context: int) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.context == context)


def fit_table(model: Model, serving: Serving, room: Room) -> Table:
    """The table for a model, served as `serving` says in all but context, slots and types of the KV cache."""
    contexts, columns = contexts_of(model), columns_of(serving)
    cells = tuple(_cell(model, serving, room, column, context) for column in columns for context in contexts)
    largest = tuple(_largest(model, serving, room, [cell for cell in cells if cell.column == each]) for each in columns)
    return Table(
        room=room,
        contexts=contexts,
        columns=columns,
        cells=cells,
        largest=largest,
        recommended=_recommended(serving, largest),
        least_bytes=min(cell.total_bytes for cell in cells) if any(largest) else least_bytes(model, serving, room),
    )


def contexts_of(model: Model) -> tuple[int, ...]:
    """Powers of two from 2048, and the training context as the last."""
    trained = max(1, model.n_ctx_train)
    doubled = (_SHORTEST << power for power in count())
    return (*takewhile(lambda each: each < trained, doubled), trained)


def columns_of(serving: Serving) -> tuple[Column, ...]:
    """Slots by types, with the slots and the types that were asked for where they are others than the usual."""
    own = (serving.cache_type_k, serving.cache_type_v)
    types = dict.fromkeys((*((own,) if own not in kinds(serving) else ()), *kinds(serving)))
    slots = sorted({*_USUAL_SLOTS, serving.parallel})
    return tuple(Column(k, v, number) for number in slots for k, v in types)


def _served(serving: Serving, column: Column, context: int) -> Serving:
    """Served this way, each slot with this context; slots that share one pool of cells have it together."""
    served = replace(serving, parallel=column.slots, cache_type_k=column.cache_type_k, cache_type_v=column.cache_type_v)
    return replace(served, ctx_size=context * served.slots)


def _cell(model: Model, serving: Serving, room: Room, column: Column, context: int) -> Cell:
    served = _served(serving, column, context)
    budget = room.budget(model, served)
    return Cell(column, context, served.ctx_size, budget.total_bytes, budget.fits)


def _largest(model: Model, serving: Serving, room: Room, cells: Sequence[Cell]) -> Cell | None:
    """The largest context of one column that fits: a multiple of 256, or all of the training's.

    It is looked for between two cells. Memory is nearly a straight line there: the next guess lies where that meets
    the limit, and every third in the middle, for the line has kinks.
    """

    def at(context: int) -> Cell:
        return _cell(model, serving, room, cells[0].column, context)

    high = next((cell for cell in cells if not cell.fits), None)
    if high is None:
        return cells[-1]
    low = max((cell for cell in cells if cell.context < high.context), key=lambda cell: cell.context, default=None)
    low = low or at(min(STEP, high.context))
    if not low.fits:
        return None
    for attempt in count(1):
        if high.context - low.context <= STEP:
            break
        guess = at(_between(low, high, None if attempt % 3 == 0 else room.limit_bytes))
        low, high = (guess, high) if guess.fits else (low, guess)
        if high.context - low.context > STEP:  # most often the guess is right, and its neighbour says so
            neighbour = at(low.context // STEP * STEP + STEP if guess.fits else (high.context - 1) // STEP * STEP)
            low, high = (neighbour, high) if neighbour.fits else (low, neighbour)
    return low


def _between(low: Cell, high: Cell, limit: int | None) -> int:
    """A multiple of 256 between two contexts: where their totals' line meets the limit, without one the middle."""
    share = 0.5 if limit is None else (limit - low.total_bytes) / max(1, high.total_bytes - low.total_bytes)
    guess = low.context + int((high.context - low.context) * share)
    least = low.context // STEP * STEP + STEP
    return max(least, min(guess // STEP * STEP, (high.context - 1) // STEP * STEP))


def _recommended(serving: Serving, largest: Sequence[Cell | None]) -> Cell | None:
    """Of the slots asked for, the largest type of cache with which a conversation fits, or all the training context;
    else the one with the largest context. Where that many do not fit, of as many as do."""
    fitting = [cell for cell in largest if cell is not None and cell.column.slots <= serving.parallel]
    slots = max((cell.column.slots for cell in fitting), default=0)
    own = [cell for cell in fitting if cell.column.slots == slots]
    enough = min(ENOUGH, max((cell.context for cell in own), default=0))
    return next((cell for cell in own if cell.context >= enough), None)
