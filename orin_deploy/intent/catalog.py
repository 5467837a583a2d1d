"""The catalogue: models known by name, with what their headers say and where their files are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orin_deploy.errors import UsageError
from orin_deploy.facts.draft import Drafter
from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model
from orin_deploy.intent import reference, schema, yaml_text
from orin_deploy.intent.reference import Reference
from orin_deploy.intent.yaml_text import Document, Problem, Where


@dataclass(frozen=True)
class File:
    """One file of a model: its name below each reference, its bytes and its hash where they are known."""

    name: str
    size: int | None
    sha256: str | None = None


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue. `references` are alternatives in order; `sampling` presets hold option keys.

    `drafts` names the entries that can draft for it, the best first; `drafter` says what the model is as a draft.
    """

    name: str
    path: Path
    description: str
    licence: str
    references: tuple[str, ...]
    files: tuple[File, ...]
    header: dict[str, Any]
    sampling: dict[str, dict[str, float]]
    drafts: tuple[str, ...] = ()
    drafter: Drafter | None = None

    def alternatives(self) -> tuple[tuple[Reference, ...], ...]:
        """For each place the model can come from, the references of its files in order."""
        return tuple(tuple(reference.parse(f"{base}/{file.name}") for file in self.files) for base in self.references)

    def model(self) -> Model:
        """The model as its header will describe it."""
        told = self.header
        size = sum(file.size or 0 for file in self.files) or told.get("tensor_bytes", 0)
        layer = Layer(told["n_head_kv"], told["head_size"], told["head_size"])
        return Model(
            reference=str(self.alternatives()[0][0]),
            known_from="catalogue",
            architecture=told["architecture"],
            name=told.get("title"),
            n_params=told.get("n_params"),
            file_type=told.get("file_type"),
            file_bytes=size,
            tensor_bytes=size,
            n_embd=told["n_embd"],
            n_ff=told.get("n_ff", 0),
            n_head=told["n_head"],
            layers=(layer,) * told["n_layer"],
            n_vocab=told["n_vocab"],
            n_ctx_train=told["n_ctx_train"],
            tokenizer=told.get("tokenizer"),
            pre_tokenizer=told.get("pre_tokenizer"),
            chat_template=told.get("chat_template") in (True, "on"),
            vocab_fingerprint=None,
            rope_base=told.get("rope_base"),
            token_embd_bytes=told.get("token_embd_bytes", 0),
            output_bytes=told.get("output_bytes", 0),
            largest_tensor_bytes=told.get("largest_tensor_bytes", 0),
            parts=len(self.files),
        )


def names(search: Sequence[Path]) -> tuple[str, ...]:
    """The names of all entries, sorted."""
    return tuple(sorted({path.stem for folder in search for path in folder.glob("models/*.yaml")}))


def find(name: str, search: Sequence[Path]) -> Entry | None:
    """The entry of that name, from the first folder that has one; raises UsageError when it is faulty."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        return None
    path = next((path for folder in search if (path := folder / "models" / f"{name}.yaml").is_file()), None)
    if path is None:
        return None
    document = yaml_text.read(path)
    if problems := _problems(document):
        lines = "\n".join(map(str, problems))
        raise UsageError(f"the catalogue entry {name} is faulty:\n{lines}", f"correct {path}")
    return _entry(path, document.data)


def check(path: Path) -> list[Problem]:
    """All that is wrong with an entry's file."""
    return _problems(yaml_text.read(path))


def _problems(document: Document) -> list[Problem]:
    problems = schema.validate(document, schema.entry_schema(), schema.ENTRY_ROWS, _stranger)
    if problems:
        return problems
    sized = all("size" in file for file in document.data["files"])
    if not sized and "tensor_bytes" not in document.data["model"]:
        problems.append(document.problem(("files",), "lacks a size: give each file's, or model.tensor_bytes"))
    for i, base in enumerate(_listed(document.data["references"])):
        for file in document.data["files"]:
            try:
                told = reference.parse(f"{base}/{file['name']}").filename
                fault = None if told == str(file["name"]).rpartition("/")[2] else f"{base} names no place of files"
            except UsageError as error:
                fault = f"{error.message}; {error.hint}"
            if fault is not None:
                problems.append(document.problem(("references", i), fault))
    return problems


def _stranger(where: Where) -> str:
    if where[0] == "sampling":
        return schema.stranger_in_profile(where[-1:])
    if len(where) == 1:
        return schema.closest(
            where, {key: row for key, row in schema.ENTRY_ROWS.items() if "." not in key} | {"model": 0}
        )
    section = f"{where[0]}."
    return schema.closest(where, {key.removeprefix(section): 0 for key in schema.ENTRY_ROWS if key.startswith(section)})


def _listed(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def _entry(path: Path, data: dict[str, Any]) -> Entry:
    return Entry(
        name=path.stem,
        path=path,
        description=str(data["description"]),
        licence=str(data["licence"]),
        references=tuple(_listed(data["references"])),
        files=tuple(File(str(file["name"]), file.get("size"), file.get("sha256")) for file in data["files"]),
        header=data["model"],
        sampling=data.get("sampling", {}),
        drafts=tuple(_listed(data.get("drafts", []))),
        drafter=_drafter(data["draft"], data["model"]) if "draft" in data else None,
    )


def _drafter(told: dict[str, Any], model: dict[str, Any]) -> Drafter:
    layers = tuple(told.get("target_layers", ()))
    return Drafter(
        kind=str(told["kind"]),
        block_size=told.get("block_size", 0),
        target_layers=layers,
        target_embd=model["n_embd"] if layers else 0,
        confidence_head=told.get("confidence_head") in (True, "on", None),
    )
