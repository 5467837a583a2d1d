"""`fit`: what is the most I can run on this board?"""

from __future__ import annotations

from typing import Any

from orin_deploy.cli import up, ways
from orin_deploy.cli.console import Console
from orin_deploy.cli.show_memory import holders
from orin_deploy.deploy.draft import Situation, situation
from orin_deploy.deploy.fitting import Fitting, fitting
from orin_deploy.deploy.record import plain
from orin_deploy.errors import Exit
from orin_deploy.facts.device import MIB
from orin_deploy.host import Host
from orin_deploy.intent.fit_table import Cell, Column, Table
from orin_deploy.intent.refusal import refusal
from orin_deploy.intent.request import Request
from orin_deploy.intent.serving import mib
from orin_deploy.intent.speculation import BY_MODEL


def request(
    profile: str, model: str | None, draft: str | None, sets: list[str] | None, profiles: str | None
) -> Request:
    """The request that the command line makes; raises UsageError for a --set without a value."""
    return up.request(profile, model, None, sets, profiles, force=False, draft=draft)


def fit(wish: Request, console: Console) -> None:
    """Show the table; where nothing fits the verb ends as `up` would, refused."""
    host = Host()
    now = situation(host, wish, elsewhere=True)
    found = fitting(host, wish, now, console.events().progress)
    _show(found, now, wish, console)
    console.document(_document(found, now, wish))
    if not any(found.table.largest):
        raise SystemExit(Exit.REFUSED)


def _show(found: Fitting, now: Situation, wish: Request, console: Console) -> None:
    model, table, room, device = found.model, found.table, found.table.room, now.device
    at_hand = f"not at hand: {device.assumed} stands in" if device.assumed else "this machine"
    known_from = "header" if model.known_from == "header" else "catalogue entry"
    size = mib(device.memory.total) if device.memory.total else "memory unknown"
    head = [
        ("model", f"{found.reference}, {mib(model.file_bytes)}, {model.n_ctx_train} tokens in training"),
        ("", f"(from its {known_from})"),
        ("board", f"{now.profile.name}, {size} ({at_hand})"),
        ("limit", f"{mib(room.limit_bytes)}: {room.limit_source}"),
    ]
    if room.reserve_bytes:
        head.append(("reserve", f"{mib(room.reserve_bytes)} of it left to the system (counted below)"))
    head += [(label, text) for label, text in (("draft", _draft_text(found)), ("held by", holders(device))) if text]
    console.table(head)
    for warning in found.warnings:
        console.say(f"  warning: {warning}")
    console.say()
    if not any(table.largest):
        over = mib(table.least_bytes - room.limit_bytes)
        console.say(
            f"It does not fit at any context: even the smallest takes {mib(table.least_bytes)}, {over} too much."
        )
        console.say(_without_a_way(found, now) if not found.ways else "It fits with:")
        for way in found.ways:
            console.say(f"  {way.what} ({mib(way.total_bytes)}):")
            console.say(f"    {command(found, wish, dict(way.options))}")
        return
    for line in table_lines(table):
        console.say(line)
    best = table.recommended
    if best is not None:
        console.say()
        console.say(f"Recommended: {_way_text(best)}, {mib(best.total_bytes)}")
        console.say(f"  {command(found, wish, _chosen(found, best))}")


def _without_a_way(found: Fitting, now: Situation) -> str:
    if now.device.assumed and not found.table.room.fixed:
        return "Use a smaller model or quantisation, or a larger board."
    hint = refusal(found.model, found.serving, found.table.room, fitted=True).hint or ""
    return hint[:1].upper() + hint[1:] + "."


def _draft_text(found: Fitting) -> str | None:
    drafting, wanted = found.serving.drafting, found.to_measure
    if wanted is not None:
        ways = ", ".join(each.name for each in wanted.candidates)
        more = "; --draft optional counts the draft" if any(each.kind in BY_MODEL for each in wanted.candidates) else ""
        return f"none is counted: draft=auto is not decided, `up` measures {ways}{more}"
    if drafting is None:
        return None
    if drafting.model is None:
        return f"{drafting.kind}, no model"
    return f"{drafting.model.reference}, {mib(drafting.model.file_bytes)} ({drafting.kind}, counted below)"


def _way_text(cell: Cell) -> str:
    slots = "1 slot" if cell.column.slots == 1 else f"{cell.column.slots} slots"
    return f"{cell.context} tokens{'' if cell.column.slots == 1 else ' each'}, {cell.column.kind} KV cache, {slots}"


def table_lines(table: Table) -> list[str]:
    """The table in plain text: a column for each type and number of slots, MiB, x for what does not fit."""
    groups = sorted({column.slots for column in table.columns})
    heads = [["context", *(column.kind for column in table.columns)]]
    rows = []
    for context in table.contexts:
        row = table.row(context)
        rows.append([str(context), *(_number(cell) for cell in row)])
        if not any(cell.fits for cell in row):
            break
    rows.append(["largest", *(str(cell.context) if cell else "none" for cell in table.largest)])
    widths = [max(len(line[i]) for line in (*heads, *rows)) for i in range(len(heads[0]))]
    kinds = len(table.columns) // len(groups)

    def joined(cells: list[str]) -> str:
        text = "  " + cells[0].rjust(widths[0])
        for i, cell in enumerate(cells[1:], 1):
            text += ("  " if (i - 1) % kinds == 0 else " ") + cell.rjust(widths[i])
        return text

    over = "  " + " " * widths[0]
    for number, slots in enumerate(groups):
        block = sum(widths[1 + number * kinds : 1 + (number + 1) * kinds]) + kinds - 1
        over += "  " + ("1 slot" if slots == 1 else f"{slots} slots").center(block, "-")
    said = "MiB by context of each slot and type of KV cache; x: does not fit"
    return [said, over, *(joined(line) for line in (*heads, *rows))]


def _number(cell: Cell) -> str:
    return f"{-(-cell.total_bytes // MIB)}{' ' if cell.fits else 'x'}"


def _chosen(found: Fitting, cell: Cell) -> dict[str, str]:
    """The options that make a cell, where they are others than those asked for."""
    served, column = found.serving, cell.column
    chosen = {"ctx_size": str(cell.ctx_size)}
    if (column.cache_type_k, column.cache_type_v) != (served.cache_type_k, served.cache_type_v):
        chosen |= {"cache_type_k": column.cache_type_k, "cache_type_v": column.cache_type_v}
    if column.slots != served.parallel:
        chosen["parallel"] = str(column.slots)
    return chosen


def command(found: Fitting, wish: Request, options: dict[str, str]) -> str:
    """The line to type to serve it as it was asked for, with these options."""
    words = ["up", *(["--profile", wish.profile] if wish.profile != "auto" else []), "--model", found.reference]
    words += ["--profiles", wish.profiles_folder] if wish.profiles_folder else []
    words += ["--draft", wish.draft] if wish.draft else []
    words += [word for key, value in wish.sets for word in ("--set", f"{key}={value}")]
    return ways.command(options, words)


def _document(found: Fitting, now: Situation, wish: Request) -> dict[str, Any]:
    model, table, drafting = found.model, found.table, found.serving.drafting
    best = table.recommended
    return {
        "model": found.reference,
        "profile": now.profile.name,
        "device": {
            "assumed": now.device.assumed,
            "machine": now.device.machine,
            "module": now.device.jetson.module if now.device.jetson else None,
        },
        "n_ctx_train": model.n_ctx_train,
        "known_from": model.known_from,
        "draft": None if drafting is None else drafting.model.reference if drafting.model else drafting.kind,
        "to_measure": plain(found.to_measure),
        "limit_bytes": table.room.limit_bytes,
        "limit_source": table.room.limit_source,
        "reserve_bytes": table.room.reserve_bytes,
        "total_memory_bytes": now.device.memory.total,
        "tenants": plain(now.device.tenants),
        "rows": [_cell(cell) | {"fits": cell.fits} for cell in table.cells],
        "largest": [
            _cell(cell) if cell else _column(column) | {"context": None, "ctx_size": None, "total_bytes": None}
            for column, cell in zip(table.columns, table.largest, strict=True)
        ],
        "fits": any(table.largest),
        "least_bytes": table.least_bytes,
        "ways": [ways.way_document(way, command(found, wish, dict(way.options))) for way in found.ways],
        "warnings": list(found.warnings),
        "recommended": None if best is None else _cell(best) | {"command": command(found, wish, _chosen(found, best))},
    }


def _cell(cell: Cell) -> dict[str, Any]:
    sizes = {"context": cell.context, "ctx_size": cell.ctx_size, "total_bytes": cell.total_bytes}
    return _column(cell.column) | sizes


def _column(column: Column) -> dict[str, Any]:
    return {"cache_type_k": column.cache_type_k, "cache_type_v": column.cache_type_v, "slots": column.slots}
