"""How memory looks: the bar of the pool and its legend, the table of `fit`, the commands that a refusal offers."""

from __future__ import annotations

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.cli.console import Console
from orin_deploy.cli.fit import table_lines
from orin_deploy.cli.show_memory import bar_lines, show_budget
from orin_deploy.cli.ways import command
from orin_deploy.facts.device import MIB
from orin_deploy.intent.budget import SET, Budget
from orin_deploy.intent.engine_rows import Row
from orin_deploy.intent.fit_table import fit_table
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import Serving
from tests.unit.test_budget import MINICPM5

NAMES = (
    "weights", "KV cache", "recurrent state", "compute", "output", "draft weights", "draft compute", "prompt cache",
    "process", "CUDA context", "learned", "reserve", "something new",
)  # fmt: skip
ROWS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 60_000 * MIB)).map(
    lambda sizes: tuple(Row(name, size, "test") for name, size in sizes.items())
)


@given(ROWS, st.integers(1, 130_000), st.integers(0, 60_000))
def test_the_bar_shows_the_whole_pool(rows: tuple[Row, ...], limit: int, others: int) -> None:
    budget = Budget(rows, limit * MIB, "MemAvailable")
    bar, *legend = bar_lines(budget, (limit + others) * MIB)
    drawn = re.match(r"  \[(.{56})\]  (\d+|>999)% of the limit$", bar)
    assert drawn is not None
    assert all(len(line) <= 80 for line in (bar, *legend))
    assert all(line.isascii() for line in (bar, *legend))
    told = dict(re.findall(r"(\S) ([a-zA-Z ]+?) [\d,]+(?:  |\s*$)", "  ".join(legend)))
    assert set(drawn[1]) == set(told)
    assert ("." in told) == (budget.total_bytes < budget.limit_bytes)
    assert ("too much" in legend[-1]) == (not budget.fits)
    assert ("#" in told) == (others > 0)


def test_parts_are_as_long_as_they_are_large() -> None:
    rows = (Row("weights", 3000 * MIB, ""), Row("KV cache", 1000 * MIB, ""), Row("reserve", 1, ""))
    bar, *legend = bar_lines(Budget(rows, 5000 * MIB, "MemTotal less idle use"), 6000 * MIB)
    drawn = bar[3:59]
    assert {letter: drawn.count(letter) for letter in drawn} == {"w": 28, "k": 9, "r": 1, "#": 9, ".": 9}
    wanted = "w weights 3,000 k KV cache 1,000 r reserve 1 # others 1,000 . free 1,000 of 6,000 MiB"
    assert " ".join(" ".join(legend).split()) == wanted


def test_what_a_set_limit_keeps_away_is_not_called_others() -> None:
    *_, legend = bar_lines(Budget((), 100 * MIB, "memory.limit_mib (--set)", SET), 300 * MIB)
    assert "# out of reach 200" in legend


@pytest.mark.parametrize(("limit", "pool"), [(0, 0), (0, 100), (100, 0), (100, 300)])
def test_a_limit_that_is_not_known_is_not_shown_as_none(limit: int, pool: int) -> None:
    """Where a machine tells neither its memory nor a limit there is no share of it and no bar."""
    out = io.StringIO()
    budget = Budget((Row("weights", 50 * MIB, "test"),), limit * MIB, "a source")
    show_budget(budget, Console(out=out), pool * MIB)
    said = out.getvalue()
    assert ("unknown" in said) == (limit == pool == 0)
    assert ("of the limit" in said) == ("too much" in said or limit >= 50) == bool(limit or pool)


def test_the_table_ends_where_nothing_fits() -> None:
    need = Room(0, "").budget(MINICPM5, Serving(ctx_size=8192)).total_bytes
    lines = table_lines(fit_table(MINICPM5, Serving(), Room(need, "test")))
    assert all(len(line) <= 80 for line in lines)
    heads = [line.split()[0] for line in lines[2:]]
    assert heads[:4] == ["context", "2048", "4096", "8192"]
    assert heads[-1] == "largest"
    assert lines[-2].count("x") == 9
    assert all(line.count("x") < 9 for line in lines[3:-2])
    assert lines[-1].split()[1] == "8192"


COMMANDS = {
    "nothing asked": ("plan -p nano8", {"ctx_size": "1"}, "plan -p nano8 --set ctx_size=1"),
    "the same key": ("up --set ctx_size=9 --set port=1", {"ctx_size": "1"}, "up --set port=1 --set ctx_size=1"),
    "in one word": ("up --set=ctx-size=9 -s port=1", {"ctx_size": "1"}, "up -s port=1 --set ctx_size=1"),
    "another name": ("up --set c=9", {"ctx_size": "1"}, "up --set ctx_size=1"),
    "a draft": ("up --draft m.gguf --json", {"--draft": "none"}, "up --draft none"),
    "a draft in one word": ("up --draft=m.gguf", {"--draft": "none"}, "up --draft none"),
    "a draft by the server's options": (
        "up --set spec_type=draft-simple --set spec_draft_model=m.gguf",
        {"--draft": "none"},
        "up --draft none",
    ),
    "the draft stays": ("up --draft auto", {"cache_ram": "0"}, "up --draft auto --set cache_ram=0"),
    "spaces": ("up --model 'a b'", {"cache_ram": "0"}, "up --model 'a b' --set cache_ram=0"),
}


@pytest.mark.parametrize(("asked", "options", "wanted"), COMMANDS.values(), ids=COMMANDS.keys())
def test_the_command_that_was_typed_with_other_options(asked: str, options: dict[str, str], wanted: str) -> None:
    import shlex

    assert command(options, shlex.split(asked)) == f"orin-deploy {wanted}"
