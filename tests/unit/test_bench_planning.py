"""The bench's arms as plans: each drafts as its name says, or it is left out with the reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orin_deploy.deploy import decisions
from orin_deploy.deploy.decisions import Kept
from orin_deploy.deploy.draft import situation
from orin_deploy.errors import OrinError, UsageError
from orin_deploy.intent.measured import Decision
from orin_deploy.observe.bench import Agenda, arms, cases
from orin_deploy.observe.bench.planning import Field, plan_field
from orin_deploy.observe.bench.workload import choose, shipped
from tests.unit.test_apply import profiles  # noqa: F401
from tests.unit.test_decide_apply import Auto, Speculating

FASTEST = Decision("ngram-mod", "measured 2026-11-30, bench record 1: 1.62 times none", n_max=56, record=1)
LONG = "long:spec_ngram_mod_n_max=50"


@pytest.fixture
def board(tmp_path: Path, profiles: Path) -> Auto:  # noqa: F811
    """A deployment that is up without speculation, and with nothing decided."""
    made = Auto(tmp_path / "board", profiles, "process")
    made.up("draft=none", "ctx_size=512", kind=Speculating)
    return made


def decide(board: Auto, decision: Decision) -> None:
    host = Speculating(board.folder)
    key = board.plan("ctx_size=512", host=host).key
    assert key is not None
    decisions.keep(host, Kept(key, decision, 10_000))


def planned(board: Auto, *words: str, draft: str | None = None) -> Field:
    host, wish = Speculating(board.folder), replace(board.wish("ctx_size=512"), draft=draft)
    now = situation(host, wish, elsewhere=False)
    workloads = choose(shipped(now.search), ["copy"])
    return plan_field(
        host, wish, now, arms.parse(words), Agenda(workloads, cases(workloads), 9), lambda fraction, text: None
    )


@pytest.mark.parametrize("draft", [None, "auto"])
def test_an_arm_of_ones_own_changes_only_what_it_names(board: Auto, draft: str | None) -> None:
    decide(board, FASTEST)
    found = planned(board, "none", "deployed", LONG, draft=draft)
    assert found.left_out == {}
    drafts = [spec.draft and (spec.draft.kind, spec.draft.n_max) for spec in found.specs.values()]
    assert drafts == [None, ("ngram-mod", 56), ("ngram-mod", 50)]
    assert [spec.to_measure for spec in found.specs.values()] == [None] * 3


def test_what_is_not_decided_is_not_measured_under_a_name(board: Auto) -> None:
    found = planned(board, "none", "deployed", LONG)
    assert list(found.specs) == ["none"]
    assert found.left_out["long"] == (
        "draft is auto and nothing is decided yet: say which, as in long:draft=ngram-map-k4v,spec_ngram_mod_n_max=50"
    )
    assert "deployed:draft=" in found.left_out["deployed"]
    assert list(planned(board, "none", "x:draft=ngram-mod,spec_ngram_mod_n_max=50", draft="auto").specs) == [
        "none",
        "x",
    ]


def test_a_change_that_leaves_the_draft_out_is_told(board: Auto) -> None:
    decide(board, FASTEST)
    left_out = planned(board, "none", "short:spec_ngram_mod_n_max=8").left_out
    assert left_out == {
        "short": "spec_ngram_mod_n_min=48 (default) is more than spec_ngram_mod_n_max=8, the most drafted at once"
    }


def test_a_length_says_nothing_where_none_was_decided(board: Auto) -> None:
    decide(board, replace(FASTEST, kind="none"))
    found = planned(board, "none", "deployed", LONG)
    assert list(found.specs) == ["none", "deployed"], "none is what is deployed"
    assert found.left_out == {"long": "nothing drafts in it, and spec_ngram_mod_n_max says nothing then"}


def test_a_draft_that_cannot_be_is_told_with_its_reason(board: Auto) -> None:
    assert planned(board, "none", "draft").left_out == {"draft": "there is no draft for this model"}
    with pytest.raises(OrinError, match="there is no draft for this model"):
        planned(board, "draft", "draft:spec_draft_n_max=3")


def test_the_draft_that_is_set_is_the_one_of_the_arm(board: Auto) -> None:
    host, wish = Speculating(board.folder), board.wish("draft=file:/absent/draft.gguf")
    now = situation(host, wish, elsewhere=False)
    workloads = choose(shipped(now.search), ["copy"])
    agenda = Agenda(workloads, cases(workloads), 9)
    found = plan_field(host, wish, now, arms.parse(["none,draft"]), agenda, lambda fraction, text: None)
    assert "/absent/draft.gguf" in found.left_out["draft"]


def test_a_kind_and_a_draft_in_one_arm_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="says twice how it drafts"):
        arms.parse(["none,ngram-mod:draft=auto"])
