"""A pair of real files that a command line makes, and the last word of the doctor on its own live log."""

from __future__ import annotations

from pathlib import Path

import pytest

from orin_deploy.doctor.diagnose import diagnose
from orin_deploy.doctor.reading import read_evidence
from tests.ggufs import write

TENSORS = {"token_embd.weight": ("F32", (32, 8))}
SHAPE = {
    "general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 64, "llama.embedding_length": 32,
    "llama.feed_forward_length": 32, "llama.attention.head_count": 2, "llama.attention.head_count_kv": 2,
}  # fmt: skip


def model(path: Path, tokens: list[str], kind: str = "gpt2") -> Path:
    return write(path, {**SHAPE, "tokenizer.ggml.model": kind, "tokenizer.ggml.tokens": tokens}, TENSORS)


TOKENS = list("abcdefgh")


@pytest.mark.parametrize(
    ("draft", "kind", "rule"),
    [
        (TOKENS, "gpt2", None),
        ([*TOKENS[:6], "x", "h"], "gpt2", "spec.vocab-mismatch"),
        (TOKENS, "llama", "spec.vocab-type-mismatch"),
    ],
)
def test_the_files_that_a_command_pairs_are_compared(
    draft: list[str], kind: str, rule: str | None, tmp_path: Path
) -> None:
    model(tmp_path / "t.gguf", TOKENS)
    model(tmp_path / "d.gguf", draft, kind)
    found = [each.rule for each in diagnose(read_evidence(tmp_path))]
    assert not any(each.startswith("spec.") for each in found)  # two files side by side are no pair
    (tmp_path / "cmd.txt").write_text("llama-server -m /srv/t.gguf -md /srv/d.gguf --spec-type draft-simple\n")
    found = [each.rule for each in diagnose(read_evidence(tmp_path))]
    assert [each for each in found if each.startswith("spec.")] == ([rule] if rule else [])


def test_the_first_token_that_differs_is_shown(tmp_path: Path) -> None:
    model(tmp_path / "t.gguf", TOKENS)
    model(tmp_path / "d.gguf", [*TOKENS[:6], "x", "h"])
    (tmp_path / "u.service").write_text("[Service]\nExecStart=/bin/llama-server -m t.gguf --model-draft d.gguf\n")
    told = next(each for each in diagnose(read_evidence(tmp_path)) if each.rule == "spec.vocab-mismatch")
    assert 'token 6 is "x" in one and "g" in the other' in told.what
