"""What a draft's header says it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orin_deploy.facts import draft, gguf
from orin_deploy.facts import model as models
from orin_deploy.facts.draft import DFLASH, DSPARK, EAGLE3, MTP, SIMPLE, Drafter
from tests import drafts
from tests.ggufs import Shape, write


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return Shape(n_vocab=600).write(tmp_path / "t.gguf")


def read(path: Path) -> Drafter:
    return draft.read(gguf.read_file(path))


def test_each_kind_is_told_by_its_header(tmp_path: Path, target: Path) -> None:
    path = tmp_path / "d.gguf"
    assert read(target) == Drafter(SIMPLE)
    assert read(drafts.eagle3(path, target, (0, 1, 2))) == Drafter(EAGLE3, target_layers=(0, 1, 2), target_embd=256)
    flash = Drafter(DFLASH, 7, True, (0, 2), 256, False)
    assert read(drafts.dflash(path, target, markov=False, layers=(0, 2))) == flash
    assert read(drafts.dflash(path, target, markov=True, layers=(0, 2))) == replace(flash, kind=DSPARK)
    ahead = Shape(architecture="qwen35")
    tensors = ahead.tensors() | {"blk.2.nextn.eh_proj.weight": ("F16", (512, 256))}
    assert read(write(path, ahead.metadata(), tensors)) == Drafter(MTP, target_embd=256)


def test_what_a_header_leaves_out_is_upstreams_default(tmp_path: Path) -> None:
    metadata = {"general.architecture": "dflash", "dflash.embedding_length": 64}
    path = write(tmp_path / "d.gguf", metadata, {"markov_w1.weight": ("F16", (8, 8))})
    assert read(path) == Drafter(DSPARK, 16, True, (), 64, True)


@pytest.mark.parametrize(("kind", "anchor", "most"), [(DSPARK, True, 7), (DSPARK, False, 6), (DFLASH, True, 6)])
def test_a_block_limits_what_is_drafted_at_once(kind: str, anchor: bool, most: int) -> None:
    assert Drafter(kind, 7, anchor).most == most


def test_without_a_block_there_is_no_limit() -> None:
    assert Drafter(SIMPLE).most is None


def test_drafts_are_models_whose_memory_can_be_counted(tmp_path: Path, target: Path) -> None:
    for path in (drafts.eagle3(tmp_path / "e.gguf", target), drafts.dflash(tmp_path / "d.gguf", target, markov=True)):
        model = models.from_file(path)
        assert (model.n_layer, model.layers[0].n_head_kv, model.n_embd) == (1, 2, 256)


def test_types_below_sixteen_bits_are_named() -> None:
    assert draft.coarse_types(["F32", "BF16", "F16"]) == ()
    assert draft.coarse_types(["Q8_0", "F16", "Q4_K"]) == ("Q8_0", "Q4_K")
