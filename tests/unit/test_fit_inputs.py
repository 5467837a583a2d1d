"""Bad input around memory: contexts that cannot be, sizes with units, misnamed profiles, headers that claim much."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orin_deploy.errors import OrinError, UsageError
from orin_deploy.facts.model import from_file
from orin_deploy.intent import options, profile
from orin_deploy.intent.fit_table import fit_table
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import Serving
from tests.ggufs import Shape, Typed, write
from tests.planning import PROFILES

SIZES = {
    "4k": 4096, "32K": 32_768, "8Ki": 8192, "1m": 1_048_576, "16 k": 16_384, "64kib": 65_536, "128kb": 131_072,
}  # fmt: skip


@pytest.mark.parametrize(("text", "meant"), SIZES.items())
def test_a_size_with_a_unit_is_told_as_a_number(text: str, meant: int) -> None:
    with pytest.raises(UsageError) as caught:
        options.parse(options.find("ctx_size"), text)
    assert caught.value.hint == f"write ctx_size={meant}"
    assert options.parse(options.find("ctx_size"), str(meant)) == meant


@pytest.mark.parametrize("text", ["0", "1", "-1", "4.5", "k", "9999999m", "1e4", "", "4 4"])
def test_other_contexts_get_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        options.parse(options.find("ctx_size"), text)
    assert caught.value.hint == "for instance ctx_size=auto"


def test_a_batch_that_the_engine_aborts_on_is_refused() -> None:
    """llama-server 0c1e570 with -b 1: "get_sub_batch: failed to add token 0 at index 1", SIGABRT; -b 2 serves."""
    with pytest.raises(UsageError, match="at least 2"):
        options.parse(options.find("batch_size"), "1")
    assert options.parse(options.find("batch_size"), "2") == 2


@pytest.mark.parametrize("number", [2**31, 2**63, 10**40])
def test_a_context_beyond_32_bits(number: int) -> None:
    with pytest.raises(UsageError) as caught:
        options.parse(options.find("ctx_size"), str(number))
    assert caught.value.hint == "write at most ctx_size=2147483647"


MISNAMED = {
    "orin-nano": ("nano4", "nano8"), "orin-nano-8gb": ("nano8",), "Jetson Orin NX": ("nx16", "nx8"), "nano": ("nano8",),
    "agx-64gb": ("agx64",),
}  # fmt: skip


@pytest.mark.parametrize(("name", "meant"), MISNAMED.items())
def test_a_profile_is_found_by_what_people_call_the_board(name: str, meant: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="there is no profile") as caught:
        profile.load(name, (PROFILES,))
    told = (caught.value.hint or "").partition("?")[0]
    assert all(each in told for each in meant)
    assert told.count(" or ") == len(meant) - 1


KEYS = [key for key, value in Shape().metadata().items() if key.startswith("llama.") and isinstance(value, int)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.dictionaries(st.sampled_from(KEYS), st.integers(-(2**63), 2**64 - 1), min_size=1, max_size=3))
def test_whatever_a_header_claims_is_a_table_or_a_refusal(tmp_path: Path, claims: dict[str, int]) -> None:
    shape = Shape()
    typed = {key: Typed("u64" if number >= 0 else "i64", number) for key, number in claims.items()}
    path = write(tmp_path / "m.gguf", {**shape.metadata(), **typed}, shape.tensors())
    began = time.process_time()
    try:
        model = from_file(path)
    except OrinError:
        return
    table = fit_table(model, Serving(gpu=True), Room(30 << 30, "test"))
    assert all(cell.total_bytes >= 0 for cell in table.cells)
    assert time.process_time() - began < 20


@pytest.mark.parametrize(("context", "beyond"), [("8192", False), ("8193", True)])
def test_gguf_says_when_a_context_is_beyond_training(tmp_path: Path, context: str, beyond: bool) -> None:
    path = Shape(n_ctx_train=8192).write(tmp_path / "m.gguf")
    told = gguf(tmp_path, str(path), "--ctx-size", context)
    assert told.returncode == 0, told.stderr
    assert ("beyond the 8192 tokens the model was trained for" in told.stdout) == beyond


@pytest.mark.parametrize("context", ["0", "-1", str(2**63)])
def test_gguf_refuses_contexts_that_cannot_be(tmp_path: Path, context: str) -> None:
    path = Shape().write(tmp_path / "m.gguf")
    told = gguf(tmp_path, str(path), "--ctx-size", context, "--json")
    assert told.returncode == 2
    assert json.loads(told.stdout)["error"]["code"] == 2


def gguf(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "ORIN_DEPLOY_HOME": str(home)}
    command = (sys.executable, "-m", "orin_deploy", "gguf", *words)
    return subprocess.run(command, env=environ, text=True, capture_output=True, timeout=60)
