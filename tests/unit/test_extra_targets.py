"""Further programs of the engine: of the same build, under the same key, built where they are missing."""

from __future__ import annotations

from orin_deploy.intent.build import TARGETS
from orin_deploy.parts.engine import layout
from tests.unit.test_engine_words import build


def test_they_join_the_targets_and_leave_the_key() -> None:
    plain, more = build(), build(build__extra_targets="test-llama-archs,llama-bench,llama-perplexity")
    assert more.targets == (*TARGETS, "test-llama-archs", "llama-perplexity")
    assert (more.key, more.folder) == (plain.key, plain.folder)
    assert [word for word in more.cmake if word not in plain.cmake] == ["-DLLAMA_BUILD_TESTS=ON"]
    assert build(build__extra_targets="llama-perplexity").cmake == plain.cmake


def test_a_build_is_whole_with_them() -> None:
    more = build(build__extra_targets="test-llama-archs")
    assert layout.programs(build()) == (f"{more.bin}/llama-server",)
    assert layout.programs(more) == (f"{more.bin}/llama-server", f"{more.bin}/test-llama-archs")
