"""How memory looks: the budget's table, a bar of the whole pool, who else holds it, planned against taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orin_deploy.cli.console import Console, mib
from orin_deploy.deploy import taken
from orin_deploy.deploy.taken import Compared
from orin_deploy.facts.device import Device
from orin_deploy.intent.budget import AVAILABLE, Budget
from orin_deploy.intent.serving import mib as whole_mib

WIDTH = 80
_BAR = 56

_SAID = {"total": "the engine's buffers, as its log tells them", "resident": "the whole process after its first answer"}

_LETTERS = (
    ("w", "weights", ("weights",)),
    ("k", "KV cache", ("KV cache", "recurrent state")),
    ("c", "compute", ("compute", "output")),
    ("d", "draft", ()),
    ("p", "prompt cache", ("prompt cache",)),
    ("s", "server", ()),
    ("l", "learned", ("learned",)),
    ("r", "reserve", ("reserve",)),
)
"""Letters of the bar, what they stand for, and the budget's rows behind them; any other row is the server's."""


def show_budget(budget: Budget, console: Console, pool_bytes: int = 0) -> None:
    """The memory table and a bar of the pool; no bar, and no limit, of a machine that does not tell its memory."""
    console.say("Memory")
    rows = [(row.name, mib(row.bytes), row.source) for row in budget.rows]
    rows.append(("total", mib(budget.total_bytes), ""))
    known = pool_bytes or budget.limit_bytes
    rows.append(("limit", mib(budget.limit_bytes) if known else "unknown", budget.limit_source))
    console.table(rows, right=(1,))
    console.say()
    for line in bar_lines(budget, pool_bytes) if known else ():
        console.say(line)


def bar_lines(budget: Budget, pool_bytes: int) -> Iterator[str]:
    """One line for the pool, a letter for each kind of use, and the legend, in plain text of 80 columns."""
    sizes = dict.fromkeys((name for _, name, _ in _LETTERS), 0)
    for row in budget.rows:
        sizes[_kind(row.name)] += row.bytes
    parts = [(letter, name, sizes[name]) for letter, name, _ in _LETTERS]
    others = "others" if budget.limit_kind == AVAILABLE else "out of reach"
    parts.append(("#", others, max(0, pool_bytes - budget.limit_bytes)))
    parts.append((".", "free", max(0, budget.limit_bytes - budget.total_bytes)))
    parts = [part for part in parts if part[2]]
    counts = _shares([size for _, _, size in parts], _BAR)
    drawn = "".join(letter * count for (letter, _, _), count in zip(parts, counts, strict=True))
    share = budget.total_bytes / max(budget.limit_bytes, 1)
    yield f"  [{drawn}]  {f'{share:.0%}' if share < 10 else '>999%'} of the limit"
    items = [f"{letter} {name} {whole_mib(size).removesuffix(' MiB')}" for letter, name, size in parts]
    if not budget.fits:
        items.append(f"{whole_mib(budget.total_bytes - budget.limit_bytes)} too much")
    elif pool_bytes:
        items.append(f"of {whole_mib(pool_bytes)}")
    yield from _wrapped(items)


def _kind(row: str) -> str:
    if row.startswith("draft "):
        return "draft"
    return next((name for _, name, rows in _LETTERS if row in rows), "server")


def _shares(sizes: Sequence[int], width: int) -> list[int]:
    """`width` places shared out by size, at least one to each; what rounding leaves goes to the largest remainders."""
    whole = max(sum(sizes), 1)
    counts = [max(1, size * width // whole) for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda i: sizes[i] * width % whole, reverse=True)
    for i in by_remainder[: max(0, width - sum(counts))]:
        counts[i] += 1
    while sum(counts) > width:
        counts[counts.index(max(counts))] -= 1
    return counts


def _wrapped(items: Sequence[str]) -> Iterator[str]:
    line = " "
    for item in items:
        if len(line) + len(item) + 1 > WIDTH and line.strip():
            yield line.rstrip()
            line = " "
        line += f" {item} "
    yield line.rstrip()


def holders(device: Device) -> str:
    """Who else holds memory, with sizes; nothing for a board that is not at hand."""
    told = [f"{tenant.name} {whole_mib(tenant.bytes)}" for tenant in device.tenants]
    if device.tenants_unread:
        told.append(device.tenants_unread)
    return ", ".join(told)


def show_taken(record: Mapping[str, Any], console: Console) -> None:
    """Planned against taken, row by row and as a whole, from a record; nothing where none was proved."""
    rows = taken.of_record(record)
    if not rows:
        return
    total = Compared("total", sum(row.planned_bytes for row in rows), sum(row.taken_bytes for row in rows))
    whole = taken.resident(record)
    table = [("", "planned", "taken", "")]
    for row in (*rows, total, *((whole,) if whole else ())):
        table.append((row.name, mib(row.planned_bytes), mib(row.taken_bytes), _SAID.get(row.name, "")))
    console.say()
    console.say("Memory planned and taken")
    console.table(table, right=(1, 2))
