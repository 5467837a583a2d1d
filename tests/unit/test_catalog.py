"""The catalogue: what ships is sound, and agrees with the real model's header."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from orin_deploy.errors import UsageError
from orin_deploy.facts import model as models
from orin_deploy.intent import catalog
from orin_deploy.intent.profile import search_path

SEARCH = search_path(None, {})[-1:]

ENTRY = """\
description: A test model.
licence: MIT
references: [hf:a/b]
files: [{name: m.gguf, size: 10}]
model: {architecture: llama, n_layer: 2, n_embd: 8, n_head: 2, n_head_kv: 1, head_size: 4, n_vocab: 9, n_ctx_train: 64}
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "models/m.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_every_entry_that_ships_is_sound() -> None:
    assert catalog.names(SEARCH) == ("minicpm5-2b", "minicpm5-2b-dspark", "smollm2-135m")
    for name in catalog.names(SEARCH):
        entry = catalog.find(name, SEARCH)
        assert entry is not None
        assert catalog.check(entry.path) == []
        assert entry.alternatives()
        assert entry.model().n_layer > 0


@pytest.mark.engine
def test_smollm2_is_what_the_real_header_says(smollm2: Path) -> None:
    entry = catalog.find("smollm2-135m", SEARCH)
    assert entry is not None
    told, real = entry.model(), models.from_file(smollm2)
    for field in (
        "architecture", "name", "n_params", "file_type", "file_bytes", "n_embd", "n_ff", "n_head", "layers", "n_vocab",
        "n_ctx_train", "tokenizer", "pre_tokenizer", "chat_template", "rope_base", "token_embd_bytes", "output_bytes",
        "largest_tensor_bytes", "parts",
    ):  # fmt: skip
        assert getattr(told, field) == getattr(real, field), field
    assert hashlib.sha256(smollm2.read_bytes()).hexdigest() == entry.files[0].sha256


def test_minicpm5_adds_up() -> None:
    entry = catalog.find("minicpm5-2b", SEARCH)
    assert entry is not None
    model = entry.model()
    kv = model.layers[0].n_head_kv * model.layers[0].head_k
    layer = 2 * model.n_embd**2 + 2 * model.n_embd * kv + 3 * model.n_embd * model.n_ff + 2 * model.n_embd
    parameters = model.n_layer * layer + 2 * model.n_vocab * model.n_embd + model.n_embd
    assert parameters == model.n_params == 2516756480
    assert model.token_embd_bytes == model.n_vocab * model.n_embd // 256 * 144
    assert model.output_bytes == model.n_vocab * model.n_embd // 256 * 210
    assert model.file_bytes == 1561318368
    assert entry.sampling["thinking"] == {"temp": 0.9, "top_p": 0.95}
    assert [str(files[0]) for files in entry.alternatives()] == [
        "hf:openbmb/MiniCPM5-2B-GGUF/MiniCPM5-2B-Q4_K_M.gguf",
        "modelscope:OpenBMB/MiniCPM5-2B-GGUF/MiniCPM5-2B-Q4_K_M.gguf",
    ]


def test_an_unknown_name_is_no_entry(tmp_path: Path) -> None:
    assert catalog.find("nothing", SEARCH) is None
    assert catalog.find("../models/smollm2-135m", SEARCH) is None
    assert catalog.find("hf:a/b", (tmp_path,)) is None


def test_an_earlier_folder_wins(tmp_path: Path) -> None:
    _write(tmp_path, ENTRY).rename(tmp_path / "models/smollm2-135m.yaml")
    entry = catalog.find("smollm2-135m", (tmp_path, *SEARCH))
    assert entry is not None
    assert entry.description == "A test model."


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("size: 10", "size: many", "files.0.size"),
        ("licence: MIT\n", "", "lacks licence"),
        ("n_layer: 2", "n_layers: 2", "did you mean n_layer"),
        ("hf:a/b", "hf:a", "names no place of files"),
        ("size: 10", "size: 10, sha256: abc", "64 hexadecimal digits"),
        ("licence:", "sampling: {x: {temperature_: 1}}\nlicence:", "temp"),
        ("[hf:a/b]", "[hf:a/b", "is no YAML"),
    ],
)
def test_a_faulty_entry_says_where(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = _write(tmp_path, ENTRY)
    assert catalog.check(path) == []
    path = _write(tmp_path, ENTRY.replace(old, new))
    assert says in "\n".join(map(str, catalog.check(path)))
    with pytest.raises(UsageError) as caught:
        catalog.find("m", (tmp_path,))
    assert str(path) in caught.value.message
