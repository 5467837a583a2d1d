"""The refusal of a budget that does not fit: need, limit, what fits instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from orin_deploy.errors import Refused
from orin_deploy.facts.model import Model
from orin_deploy.intent.budget import Budget, fit_context
from orin_deploy.intent.serving import Serving, kind_text, mib, total_cells


def refusal(model: Model, serving: Serving, budget: Budget, *, reserve_bytes: int = 0) -> Refused:
    """The error for a budget that does not fit: the sum, the limit, and the largest context by type of KV cache."""
    kinds = dict.fromkeys(((serving.cache_type_k, serving.cache_type_v), *_smaller_caches(serving)))
    largest = {
        kind: fit_context(
            model,
            replace(serving, cache_type_k=kind[0], cache_type_v=kind[1]),
            limit_bytes=budget.limit_bytes,
            reserve_bytes=reserve_bytes,
        )
        for kind in kinds
    }
    needs = f"a context of {total_cells(model, serving)} needs {mib(budget.total_bytes)}"
    has = f"{mib(budget.limit_bytes)} can be had ({budget.limit_source})"
    fitting = [f"{size} with {kind_text(kind)} KV cache" for kind, size in largest.items() if size]
    if not fitting:
        fixed = mib(budget.total_bytes - sum(row.bytes for row in budget.rows if row.name == "KV cache"))
        return Refused(
            f"{needs}, but {has}; no context fits: without the KV cache it still takes {fixed}",
            "use a smaller model or quantisation, or free memory",
        )
    return Refused(
        f"{needs}, but {has}; the largest that fits is {', '.join(fitting)}", _fitting_words(serving, largest)
    )


def _smaller_caches(serving: Serving) -> Iterator[tuple[str, str]]:
    if serving.flash_attn:  # the engine quantises values only with flash attention
        yield from (("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"))


def _fitting_words(serving: Serving, largest: dict[tuple[str, str], int | None]) -> str:
    own = (serving.cache_type_k, serving.cache_type_v)
    kind, size = next((kind, size) for kind, size in largest.items() if size)
    types = "" if kind == own else f" --set cache_type_k={kind[0]} --set cache_type_v={kind[1]}"
    return f"--set ctx_size={size}{types}"
