"""scripts/make-draft: what it refuses, that it writes only what it trained, and that it computes as a llama does.

Nothing is trained here. What needs PyTorch is skipped where it is not installed; the script brings its own.
"""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from make_draft import answers, engine, prompts, target, training
from make_draft import llama as model

from orin_deploy.errors import OrinError
from orin_deploy.facts import gguf
from orin_deploy.host import Host
from tests import ggufs

SCRIPT = Path(__file__).parents[2] / "scripts/make-draft"
TINY = ggufs.Shape(n_layer=3, n_embd=64, n_ff=96, n_head=4, n_head_kv=2, head=16, n_vocab=320, type="F32", tied=True)


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not in this environment")


def answer(tmp_path: Path, *argv: str | Path) -> tuple[int, str]:
    """Exit code and words, on a machine with nothing on its PATH and an empty home."""
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path), "ORIN_DEPLOY_HOME": str(tmp_path / "home")}
    done = subprocess.run((sys.executable, str(SCRIPT), *map(str, argv)), env=environ, capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


# What is refused, before anything is installed or written.


@pytest.mark.parametrize(
    ("changes", "code", "sentence"),
    [
        ({"metadata": {"general.architecture": "qwen3"}}, 4, "is of architecture qwen3; a draft can be made for llama"),
        ({"tensors": {"blk.0.ffn_gate_inp.weight": ("F32", (64, 8))}}, 4, "has the tensor blk.0.ffn_gate_inp.weight"),
        ({"tensors": {"blk.1.attn_q.bias": ("F32", (64,))}}, 4, "has the tensor blk.1.attn_q.bias"),
        ({"metadata": {"llama.rope.scaling.type": "yarn"}}, 4, "scales its positions (yarn)"),
        ({"options": ("--layers", "3")}, 2, "a draft of 3 layers is not smaller than target.gguf, which has 3"),
        ({"options": ("--layers", "0")}, 2, "a draft of 0 layers"),
        ({"options": ("--minutes", "0")}, 2, "--minutes and --threads are above 0"),
        ({"options": ("--minutes", "soon")}, 2, "invalid float value"),
        ({"options": ("--engine", "/nowhere")}, 1, "/nowhere has no llama-server"),
        ({"options": ("--layers", "2")}, 1, "no engine was found on this machine"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_done_is_said_first(tmp_path: Path, changes: dict[str, Any], code: int, sentence: str) -> None:
    metadata = TINY.metadata() | changes.get("metadata", {})
    target = ggufs.write(tmp_path / "target.gguf", metadata, TINY.tensors() | changes.get("tensors", {}))
    options = ("--layers", "1", *changes.get("options", ()))
    returncode, words = answer(tmp_path, target, tmp_path / "draft.gguf", *options)
    assert (returncode, sentence in words) == (code, True), words
    assert [path.name for path in tmp_path.iterdir()] == ["target.gguf"]


def test_a_part_of_a_split_model_is_no_target(tmp_path: Path) -> None:
    split = {"split.no": ggufs.Typed("u16", 0), "split.count": ggufs.Typed("u16", 2)}
    part = ggufs.write(tmp_path / "target-00001-of-00002.gguf", TINY.metadata() | split, TINY.tensors())
    returncode, words = answer(tmp_path, part, tmp_path / "draft.gguf", "--layers", "1")
    assert (returncode, "is one part of a split model" in words) == (4, True), words


def test_a_draft_never_overwrites_its_target(tmp_path: Path) -> None:
    target = TINY.write(tmp_path / "target.gguf")
    before = target.read_bytes()
    (tmp_path / "same.gguf").symlink_to(target)
    returncode, words = answer(tmp_path, target, tmp_path / "same.gguf")
    assert (returncode, "the draft would overwrite the target" in words) == (2, True)
    assert target.read_bytes() == before


@pytest.mark.parametrize("text", [None, b"too\nfew\n", b"\xff\xfe not text"], ids=["absent", "few", "binary"])
def test_prompts_that_teach_nothing_are_named(tmp_path: Path, text: bytes | None) -> None:
    file = tmp_path / "prompts.txt"
    if text is not None:
        file.write_bytes(text)
    with pytest.raises(OrinError, match="prompts"):
        prompts.read_prompts(file, 1)


def test_no_model_at_all(tmp_path: Path) -> None:
    (tmp_path / "words.gguf").write_text("not a model")
    for name in ("words.gguf", "absent.gguf"):
        returncode, words = answer(tmp_path, tmp_path / name, tmp_path / "draft.gguf")
        assert returncode != 0
        assert name in words


def test_what_would_run_out_of_memory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 8000000 kB\nMemAvailable: 3145728 kB\n")
    host = Host(tmp_path, {"ORIN_DEPLOY_HOME": str(tmp_path / "home")})
    with pytest.raises(OrinError, match=r"3\.0 GiB of memory are available.* needs about 3\.1"):
        target.check_room(gguf.read_file(replace(TINY, n_vocab=400_000).write(tmp_path / "large.gguf")), host)


# What it asks and what it writes.


def test_the_same_seed_asks_the_same_prompts() -> None:
    first, again, other = (list(islice(prompts.built_in(seed), 600)) for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first)) > 500
    assert not any("{" in prompt and "}" not in prompt for prompt in first)


def test_only_the_trained_tensors_change(tmp_path: Path) -> None:
    path = TINY.write(tmp_path / "draft.gguf")
    before, header = path.read_bytes(), gguf.read_file(path)
    dice = random.Random(5)
    trained = dice.sample(header.tensors, 4)
    target.patch(path, {tensor.name: dice.randbytes(tensor.bytes) for tensor in trained})
    after = path.read_bytes()
    changed = {at for at in range(len(before)) if before[at] != after[at]}
    ours = {header.data_offset + tensor.offset + at for tensor in trained for at in range(tensor.bytes)}
    assert changed <= ours
    assert len(changed) > 0.9 * len(ours)
    with pytest.raises(OrinError, match="takes 256 bytes"):
        target.patch(path, {"output_norm.weight": b"short"})


@pytest.mark.engine
def test_the_engine_takes_layers_out_and_the_vocabulary_stays(engine_bin: Path, tmp_path: Path) -> None:
    target, draft = TINY.write(tmp_path / "target.gguf"), tmp_path / "draft.gguf"
    engine.quantize(engine_bin, target, draft, "F32", "--prune-layers", "1")
    before, after = gguf.read_file(target), gguf.read_file(draft)
    assert after.metadata["llama.block_count"] == TINY.n_layer - 1
    assert after.vocab_fingerprint == before.vocab_fingerprint
    names = {tensor.name for tensor in after.tensors}
    assert names == {tensor.name for tensor in before.tensors if not tensor.name.startswith("blk.2.")}
    with pytest.raises(OrinError, match="llama-quantize failed"):
        engine.quantize(engine_bin, target, tmp_path / "nonsense.gguf", "Q99")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft.gguf", "target.gguf"]


# The model, with random weights. PyTorch needed.


@pytest.fixture
def llama(torch: Any, tmp_path: Path) -> Any:
    path = TINY.write(tmp_path / "target.gguf")
    dice = torch.Generator().manual_seed(3)
    weights = {
        name: torch.randn(shape.shape, generator=dice) * (0.2 if shape.dim() > 1 else 0.05) + (shape.dim() == 1)
        for name, shape in model.load(path, torch.float32).items()
    }
    return model.Llama(target.shape_of(gguf.read_file(path), 1), weights, torch.float32)


def test_padding_and_the_cache_change_nothing(torch: Any, llama: Any) -> None:
    tokens = torch.randint(0, TINY.n_vocab, (2, 9), generator=torch.Generator().manual_seed(1))
    whole = llama(tokens, model.causal(torch.tensor([0, 4]), 9))
    alone = llama(tokens[1:, 4:], model.causal(torch.tensor([0]), 5))
    torch.testing.assert_close(whole[1:, 4:], alone, rtol=1e-4, atol=1e-4)
    cache = [torch.zeros(2, 2, TINY.n_head_kv, 9, TINY.head) for _ in range(TINY.n_layer)]
    llama(tokens[:, :8], model.causal(torch.tensor([0, 4]), 8), cache)
    seen = (torch.arange(9) >= torch.tensor([[0], [4]]))[:, None, None]
    torch.testing.assert_close(llama(tokens[:, 8:], seen, cache, 8)[:, 0], whole[:, 8], rtol=1e-4, atol=1e-4)


def test_the_gradient_is_that_of_the_divergence(torch: Any, llama: Any) -> None:
    with torch.no_grad():
        batch = answers.answer(llama, [[5, 6, 7], [8, 9]], {2}, seed=1)
    assert batch["states"].shape[:2] == batch["valid"].shape
    trained = llama.weights["blk.1.ffn_up"]
    with torch.no_grad():
        trained += 0.1
    trained.requires_grad_()
    training.learn(llama, llama.head, batch)
    mine = training.hidden_states(llama, batch) @ llama.head.T
    theirs = batch["states"][batch["valid"]] @ llama.head.T
    divergence = torch.nn.functional.kl_div(
        mine.log_softmax(-1), theirs.log_softmax(-1), reduction="batchmean", log_target=True
    )
    (expected,) = torch.autograd.grad(divergence, trained)
    assert float(expected.abs().max()) > 0
    torch.testing.assert_close(trained.grad, expected, rtol=1e-3, atol=1e-6)


def test_answers_end_and_are_the_same_again(torch: Any, llama: Any) -> None:
    with torch.no_grad():
        free = answers.answer(llama, [[5, 6, 7]] * 4, set(), seed=7)
        ends = {int(free["tokens"][0, 3 + 2])}  # the third token of the first answer
        ended = answers.answer(llama, [[5, 6, 7]] * 4, ends, seed=7)
        again = answers.answer(llama, [[5, 6, 7]] * 4, ends, seed=7)
    assert all(torch.equal(ended[name], again[name]) for name in ended)
    assert int(ended["valid"][0].sum()) <= 3 < int(free["valid"][0].sum())


def test_invented_prompts_stand_in_the_frame_of_a_chat(torch: Any, llama: Any) -> None:
    prompts = [[7, 8, 20, 21, 9], [7, 8, 30, 9], [7, 8, 40, 41, 42, 9]]
    ends = set(range(1, TINY.n_vocab, 3))  # random weights would hardly ever say one certain token
    with torch.no_grad():
        made_up = answers.invented(llama, prompts, ends, seed=4)
    assert len(made_up) > 16
    assert all(prompt[:2] == [7, 8] and prompt[-1] == 9 and len(prompt) > 3 for prompt in made_up)
    assert not any(ends & set(prompt[2:-1]) for prompt in made_up)
    assert len(set(map(tuple, made_up))) > 8


def test_the_layer_that_does_nothing_goes_first(torch: Any, llama: Any) -> None:
    for name in ("attn_output", "ffn_down"):
        llama.weights[f"blk.1.{name}"] *= 0
    with torch.no_grad():
        batch = answers.answer(llama, [[5, 6, 7], [8, 9, 10]], set(), seed=2)
        assert training.kept(llama, batch, 2) == [0, 2]
