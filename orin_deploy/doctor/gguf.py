"""Rules about model files, and about engines that do not know a model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.facts import model
from orin_deploy.facts.not_a_model import NotAModel

_UNKNOWN = r"unknown (pre-tokenizer type|model architecture): '([^'\n]*)'"


def model_files(evidence: Evidence) -> tuple[Finding, ...]:
    """One finding for every model file that cannot be served; `rule` says what it is instead ("gguf.html" …)."""
    files = set(evidence.models)
    wholes = (path for path in evidence.models if (first := _first_part(path)) == path or first not in files)
    return tuple(finding for path in wholes if (finding := _model_file(path)) is not None)


def _first_part(path: Path) -> Path:
    """The part by which a split set is read; for a file that is no part, itself."""
    return path.with_name(re.sub(r"-\d{5}-of-(\d{5}\.gguf)$", r"-00001-of-\1", path.name))


def _model_file(path: Path) -> Finding | None:
    try:
        model.from_file(path)
    except NotAModel as refusal:
        values = {"file": path.name}
        return Finding(refusal.rule, "refuse", refusal.message, refusal.hint or "fetch the model again", values=values)
    return None


def newer_than_binary(evidence: Evidence) -> Finding | None:
    """A model whose architecture or pre-tokenizer the running engine has no name for."""
    unknown = evidence.find(_UNKNOWN)
    if unknown is None or not unknown[2]:
        return None
    kind, name = unknown[1], unknown[2]
    key = "tokenizer.ggml.pre" if kind.startswith("pre") else "general.architecture"
    number = evidence.running_build
    who = f"{evidence.binary_running or 'the running llama-server'}{f', build {number},' if number is not None else ''}"
    what = f"{who} is older than the model: it has no {kind} '{name}' (the file's {key})"
    way = "build a newer llama.cpp (--set build.source=git:URL@TAG), or take a model that this one knows"
    values: dict[str, Any] = {key: name} | ({"running_build": number} if number is not None else {})
    if _is_another_binary(evidence):
        built = f" (build {evidence.built_build})" if evidence.built_build is not None else ""
        what = f"{what}; it is not the one that was built{built}"
        way = f"start {evidence.binary_built} by its full path instead"
        values["binary"] = evidence.binary_built
    return Finding("gguf.newer-than-binary", "diagnose", what, way, why_not="the file is sound", values=values)


def _is_another_binary(evidence: Evidence) -> bool:
    """Whether what runs is not what was built: by path where both are known, else by build number."""
    if evidence.binary_built is None:
        return False
    if evidence.binary_running is not None:
        return evidence.binary_running != evidence.binary_built
    return None not in (numbers := (evidence.running_build, evidence.built_build)) and numbers[0] != numbers[1]


def architecture_empty(evidence: Evidence) -> Finding | None:
    """A header that names no architecture, in an engine's log or in a header that was written out."""
    if evidence.header.get("general.architecture") != "" and not evidence.find(r"unknown model architecture: ''"):
        return None
    return Finding(
        "gguf.arch-empty",
        "diagnose",
        "the file names an empty architecture: it is no language model but a broken or an auxiliary file "
        "(a projector or an adapter)",
        "give the language model's own file; `orin-deploy gguf FILE` shows what a file is",
        why_not="no engine of any age would load it",
    )
