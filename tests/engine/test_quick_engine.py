"""What keeps `up` quick on a slow board: its plan is drafted after each part, and what cannot have changed is not read
again for that; a second `up` loads no more than a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.accounted import Account, accounted
from tests.engine.command import Command, command
from tests.unit.test_quick import HEAVY, OTHER_VERBS

pytestmark = pytest.mark.engine


@pytest.fixture
def orin(tmp_path: Path, engine_bin: Path, smollm2: Path) -> Iterator[Command]:
    with command(tmp_path / "home", engine_bin, smollm2) as each:
        yield each


def _up(orin: Command) -> Account:
    done = accounted("up", *orin.words, folder=orin.home.parent, environ={"ORIN_DEPLOY_HOME": str(orin.home)})
    assert done.code == 0, done.err
    return done


def test_up_reads_what_stays_the_same_once(orin: Command) -> None:
    first = _up(orin)
    assert first.times_opened(orin.model) == 1, "the model's header, for every draft of the plan"
    assert set(Counter(first.started).values()) == {1}, "a program is asked one thing twice"
    assert {count for path, count in Counter(first.opened).items() if path.endswith(".yaml")} == {1}

    second = _up(orin)
    assert second.out.startswith("Nothing to do")
    assert second.times_opened(orin.model) == 1
    assert not (HEAVY | OTHER_VERBS) & second.modules
    asked = {" ".join(words) for words in second.started}
    assert not [words for words in asked if "llama" in words], "the engine is asked again"
