"""`fit` against `plan`: what the one recommends the other plans, and not a step more, with every kind of draft."""

from __future__ import annotations

import io
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orin_deploy.cli import fit
from orin_deploy.cli.console import Console
from orin_deploy.deploy import decisions
from orin_deploy.deploy.decisions import Kept
from orin_deploy.deploy.draft import Situation, draft, recipe, situation
from orin_deploy.deploy.fitting import Fitting, fitting
from orin_deploy.deploy.plan import Plan
from orin_deploy.deploy.record import plain
from orin_deploy.errors import Refused
from orin_deploy.host import Host
from orin_deploy.intent.fit_table import Cell
from orin_deploy.intent.measured import Decision
from orin_deploy.intent.refusal import DoesNotFit
from orin_deploy.intent.request import Request
from orin_deploy.intent.serving import STEP
from tests.planning import PROFILES, Untouched

BOARDS = ("nano4", "nano8", "nx16", "agx32")
MODELS = ("minicpm5-2b", "smollm2-135m")
UNHURRIED = settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def quiet(fraction: float | None, text: str) -> None:
    pass


@lru_cache
def looked(board: str) -> Situation:
    """The board's stand-in, looked at once."""
    return situation(Untouched(), Request(board, profiles_folder=str(PROFILES)), elsewhere=True)


def request(board: str, model: str, wish: str, *sets: tuple[str, str]) -> Request:
    return Request(board, model, sets=sets, profiles_folder=str(PROFILES), draft=wish)


def asking(wish: Request, found: Fitting, cell: Cell, more: int = 0) -> Request:
    """The request with what is recommended where that is something else, and `more` tokens in each slot."""
    column, served = cell.column, found.serving
    words: dict[str, object] = {"ctx_size": cell.ctx_size + more * (cell.ctx_size // cell.context)}
    changed: dict[str, object] = {"cache_type_k": column.cache_type_k, "cache_type_v": column.cache_type_v}
    changed["parallel"] = column.slots
    words |= {key: value for key, value in changed.items() if value != getattr(served, key)}
    return replace(wish, sets=(*wish.sets, *((key, str(value)) for key, value in words.items())))


def planned(host: Host, wish: Request) -> Plan:
    return draft(host, wish, looked(wish.profile), quiet)


def drafting(plan: Plan) -> str | None:
    return plan.spec.draft.kind if plan.spec.draft else None


def check(host: Host, wish: Request, found: Fitting) -> None:
    best, kind = found.table.recommended, found.serving.drafting.kind if found.serving.drafting else None
    if best is None:
        with pytest.raises(Refused):
            planned(host, wish)
        return
    plan = planned(host, asking(wish, found, best))
    assert (drafting(plan), plan.spec.budget.total_bytes) == (kind, best.total_bytes)
    try:
        more = planned(host, asking(wish, found, best, STEP))
    except Refused:
        return
    assert plan.spec.decision is not None, "only what was measured is done without"
    assert (drafting(plan), drafting(more)) == (plan.spec.decision.kind, None)


@UNHURRIED
@given(
    st.sampled_from(BOARDS), st.sampled_from(MODELS), st.sampled_from(["none", "ngram-mod", "optional"]),
    st.integers(300, 9000), st.integers(1, 4), st.sampled_from(["on", "off"]),
)  # fmt: skip
def test_plan_accepts_what_is_recommended_and_nothing_larger(
    board: str, model: str, kind: str, limit: int, slots: int, unified: str
) -> None:
    sets = (("memory.limit_mib", str(limit)), ("parallel", str(slots)), ("kv_unified", unified))
    wish, host = request(board, model, kind, *sets), Untouched()
    check(host, wish, fitting(host, wish, looked(board), quiet))


def decided(folder: Path, wish: Request) -> Host:
    """A machine on which the model's own draft was measured to be the best."""
    host = Host(environ={"ORIN_DEPLOY_HOME": str(folder)})
    key = recipe(host, wish, looked(wish.profile), quiet).key
    assert key is not None
    best = Decision("draft-dspark", "measured 2026-11-30, bench record 1: 1.62 times none", where="inline")
    decisions.keep(host, Kept(key, best, 10_000))
    return host


@UNHURRIED
@given(st.sampled_from(BOARDS), st.integers(1500, 9000))
def test_the_draft_that_was_decided_is_in_the_table_as_in_the_plan(
    tmp_path_factory: pytest.TempPathFactory, board: str, limit: int
) -> None:
    wish = request(board, "minicpm5-2b", "auto", ("memory.limit_mib", str(limit)))
    host = decided(tmp_path_factory.mktemp("home"), wish)
    found = fitting(host, wish, looked(board), quiet)
    best, own = found.table.recommended, (found.serving.cache_type_k, found.serving.cache_type_v)
    if best is None or ((best.column.cache_type_k, best.column.cache_type_v) == own and best.context >= 4096):
        check(host, wish, found)
    else:  # what was measured does not hold for another type of cache or a short context
        assert planned(host, asking(wish, found, best)).spec.budget.fits
    free = min(limit, looked(board).device.memory.available >> 20)
    assert found.serving.drafting is not None or free < 6500, "it is done without only where there is no room"


@pytest.mark.parametrize(
    ("model", "kind", "said", "counts"),
    [
        ("minicpm5-2b", "auto", "none is counted: draft=auto is not decided, `up` measures none, draft-dspark", True),
        ("smollm2-135m", "auto", "none is counted: draft=auto is not decided, `up` measures none, ngram-simple", False),
        ("minicpm5-2b", "optional", "(draft-dspark, counted below)", False),
        ("minicpm5-2b", "none", None, False),
    ],
)
def test_fit_says_that_a_draft_nobody_has_decided_on_is_not_counted(
    model: str, kind: str, said: str | None, counts: bool
) -> None:
    wish, host, out = request("agx32", model, kind), Untouched(), io.StringIO()
    found, now = fitting(host, wish, looked("agx32"), quiet), looked("agx32")
    fit._show(found, now, wish, Console(out=out))
    told = [line for line in out.getvalue().splitlines() if line.split()[:1] == ["draft"]]
    assert len(told) == (said is not None)
    assert all(str(said) in line for line in told)
    assert any("--draft optional counts the draft" in line for line in told) == counts
    document = fit._document(found, now, wish)
    assert document["to_measure"] == plain(planned(host, wish).spec.to_measure)
    assert (document["to_measure"] is not None) == (kind == "auto")


def test_what_was_decided_and_cannot_be_any_more_is_done_without_and_says_why(tmp_path: Path) -> None:
    wish = request("agx32", "minicpm5-2b", "auto")
    host = decided(tmp_path, wish)
    whole = planned(host, wish).spec
    assert whole.draft is not None
    rows = {row.name: row.bytes for row in whole.budget.rows}
    need = whole.budget.total_bytes - rows["draft weights"]
    context = str(whole.settings["ctx_size"].value)
    smaller = replace(wish, sets=(("memory.limit_mib", str(need >> 20)), ("ctx_size", context)))
    plan = planned(host, smaller)
    assert plan.spec.draft is None
    assert plan.spec.decision is not None
    assert plan.spec.decision.kind == "none"
    with pytest.raises(DoesNotFit) as caught:
        planned(host, replace(smaller, draft="optional"))
    assert plan.spec.decision.source.endswith(f"1.62 times none; done without now: {caught.value.message}")
