"""draft=auto with the real engine where memory decides what is measured: when it is measured again."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.engine.command import Command
from tests.engine.test_auto_engine import mix, orin  # noqa: F401

pytestmark = pytest.mark.engine


def test_a_way_without_room_for_its_trial_is_measured_again_once_that_is_there(
    orin: Command,  # noqa: F811
    smollm2: Path,
    tmp_path: Path,
) -> None:
    """The target itself as its draft: both fit with slots of 2048 tokens, and are measured with slots of 4096."""
    copy = tmp_path / "draft.gguf"
    shutil.copyfile(smollm2, copy)
    words = (
        *mix("copy"),
        "--set",
        f"spec_draft_model={copy}",
        "--set",
        "spec_type=draft-simple",
        "--set",
        "parallel=6",
    )

    def needs(slot: int, draft: str) -> int:
        plan = orin.plan("--draft", draft, "--set", f"ctx_size={6 * slot}", "--set", "parallel=6", "--json")
        return int(plan.json["budget"]["total_bytes"]) >> 20

    def measuring(limit_mib: int) -> tuple[str, ...]:
        return ("--draft", "auto", *words, "--set", f"memory.limit_mib={limit_mib}", "--json")

    trial = needs(4096, str(copy))
    limit = max(needs(2048, str(copy)), needs(4096, "none")) + 20
    assert trial > limit + 300, "more than what is never reason enough"
    done = orin.up(*measuring(limit))
    assert done.code == 0, done.err
    assert "not enough memory" in done.json["decision"]["source"]
    told = re.search(r"from ([\d,]+) MiB to be had on", done.json["decision"]["again"])
    assert told is not None
    assert abs(int(told[1].replace(",", "")) - trial) < 20
    assert orin.plan(*measuring(trial - 20)).json["spec"]["to_measure"] is None
    assert orin.plan(*measuring(trial + 20)).json["spec"]["to_measure"] is not None
