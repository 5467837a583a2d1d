"""Weights, caches and state to the last digit the real server prints: all architectures, and drafts of a real model."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from bench_memory import breadth
from bench_memory.compare import Case, Result, compare

from orin_deploy.facts.device import MIB
from orin_deploy.facts.model import from_file
from orin_deploy.host import Host
from orin_deploy.intent.engine_rows import engine_rows
from orin_deploy.intent.serving import Drafting, Serving
from orin_deploy.parts.engine import projection
from tests.specs import make_build

pytestmark = pytest.mark.engine


def test_every_architecture_the_engine_knows(engine_bin: Path, tmp_path: Path) -> None:
    """One setting here; scripts/bench-memory has all eight."""
    models = sorted(breadth.write_models(engine_bin, tmp_path).glob("*.gguf"))
    serving = Serving(ctx_size=1500, parallel=2)
    results = [compare(engine_bin, Case(path.stem, path, serving)) for path in models]
    assert len(results) >= 128
    assert [f"{each.case.name}: {each.reason}" for each in results if each.reason] == []
    assert [words for each in results for words in breadth.inexact(each)] == []
    assert sum("recurrent state" in {row.row for row in each.rows} for each in results) >= 20
    for path in models:
        path.unlink()


def test_quantised_weights_of_several_architectures(engine_bin: Path, tmp_path: Path) -> None:
    """What the CPU copies into its own layout drops out of the mapping, or does not."""
    chosen = "^(gemma3|llama4|falcon-h1|deepseek2|gpt2|qwen3next)$"
    command = [str(engine_bin / "test-llama-archs"), "-o", str(tmp_path), "-a", chosen]
    subprocess.run(command, check=True, capture_output=True)
    models = sorted(tmp_path.glob("*.gguf"))
    assert len(models) >= 6
    for path in models:
        small = path.with_suffix(".q4_0")
        command = [str(engine_bin / "llama-quantize"), str(path), str(small), "Q4_0", "1"]
        subprocess.run(command, check=True, capture_output=True)
        for load_mode in ("mmap", "none"):
            result = compare(engine_bin, Case(path.stem, small, Serving(ctx_size=512, load_mode=load_mode)))
            assert list(breadth.inexact(result)) == []


@pytest.fixture(scope="module")
def smaller(engine_bin: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A draft with the target's vocabulary."""
    path = tmp_path_factory.mktemp("draft") / "smaller.gguf"
    command = [str(engine_bin / "llama-quantize"), "--allow-requantize", str(smollm2), str(path), "Q2_K", "2"]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.mark.parametrize("apart", [False, True])
def test_a_draft_in_the_server_and_beside_it(engine_bin: Path, smollm2: Path, smaller: Path, apart: bool) -> None:
    drafting = Drafting("draft-simple", 4, from_file(smaller), cache_type_k="q8_0", cache_type_v="q8_0", apart=apart)
    case = Case("draft", smollm2, Serving(ctx_size=1500, parallel=2, drafting=drafting))
    result = compare(engine_bin, case, prompt=apart)
    sizes = {row.row: row for row in result.rows}
    for name in ("weights", "KV cache", "draft weights", "draft KV cache", "draft output"):
        assert sizes[name].exact, sizes[name]
    if apart:
        check_process(result)


def check_process(result: Result) -> None:
    """The draft's process holds its buffers and no more than its row besides."""
    assert result.resident is not None
    assert result.predicted_other is not None
    held = result.resident["draft anon"] + result.resident["draft file"]
    buffers = sum(row.predicted for row in result.rows if row.row.startswith("draft "))
    assert 0.6 * buffers < held < buffers + result.predicted_other["draft process"]


def test_an_architecture_without_rules_is_asked_of_its_engine(engine_bin: Path, smollm2: Path, tmp_path: Path) -> None:
    """SmolLM2 under a name that no rule knows: the engine's projection gives the same rows, in its whole MiB."""
    host = Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path)})
    build = make_build(engine_bin)
    model, serving = from_file(smollm2), Serving(ctx_size=8192, parallel=2, cache_type_k="q8_0", cache_type_v="q8_0")
    stranger = projection.completed(host, build, replace(model, architecture="newer"), str(smollm2))
    assert projection.completed(host, build, model, str(smollm2)) is model
    assert stranger.projected is not None
    known, asked = ({row.name: row.bytes for row in engine_rows(each, serving)} for each in (model, stranger))
    for name in ("weights", "KV cache"):
        assert asked[name] == pytest.approx(known[name], abs=1.5 * MIB)
    assert (
        projection.completed(host, build, replace(model, architecture="newer"), str(tmp_path / "none")).projected
        is None
    )


def test_answers_of_the_engine_in_words() -> None:
    assert projection.parse("Host 92 1440 98\nCUDA0 (Orin) 8 60 2\nnoise\n") == (100 * MIB, 1500 * MIB, 100 * MIB)
    assert projection.parse("error: unknown architecture") is None
    said = projection.between((5, 100 + 32768 * 3, 7), (5, 100 + 65536 * 3, 9))
    assert (said.weights, said.sequence, said.cell, said.compute) == (5, 100, 3.0, 9)
