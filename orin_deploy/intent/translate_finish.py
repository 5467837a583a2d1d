"""What a pasted text says only as a whole: which kind speculates, and what a draft's CPUs were meant to be. Pure."""

from __future__ import annotations

from orin_deploy.intent.translate_reading import Reading

_NGRAM = ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def finish(reading: Reading) -> None:
    """Add what was missing, and say what the words would not have done together."""
    _kinds(reading)
    _ngrams(reading)
    _lengths(reading)
    _apart(reading)
    host = reading.values.get("host")
    if host not in (None, *_LOOPBACK) and "api_key_file" not in reading.values:
        what = f"{host} can be reached from other machines, and orin-deploy wants an API key then"
        reading.note(reading.origin["host"], "owned", what, "api_key_file: /path/to/key, or leave host out")


def _kinds(reading: Reading) -> None:
    """A draft model alone does not speculate (common/speculative.cpp): the kind must be said, or known by its file."""
    model = next((key for key in ("draft", "spec_draft_model") if key in reading.values), None)
    said = str(reading.values.get("spec_type", "none")).split(",")
    if model is None or any(kind.startswith("draft-") for kind in said) or ":" not in str(reading.values[model]):
        return
    word = reading.origin[model]
    if said != ["none"]:
        what = f"the draft model is loaded and dropped: {','.join(said)} needs none"
        reading.note(word, "no-effect", what, "leave it out, or add draft-simple to spec_type")
        del reading.values[model], reading.origin[model]
        return
    reading.values.pop("spec_type", None)
    what = "a draft model alone is loaded and dropped: llama-server speculates when --spec-type names the kind, too"
    reading.note(word, "added", what, "draft: orin-deploy reads the kind from the file and passes it")


def _ngrams(reading: Reading) -> None:
    """Lengths of an n-gram kind, once it is known which."""
    for template, raw, word in reading.pending:
        said = str(reading.values.get("spec_type", "")).split(",")
        kinds = [kind for kind in said if kind in _NGRAM]
        if not kinds and "ngram-mod" in said and template.endswith("size_n"):
            reading.set("spec_ngram_mod_n_match", raw, word)
            continue
        if not kinds:
            kinds = ["ngram-simple"]
            reading.set("spec_type", kinds[0], word)
            reading.note(
                word, "added", "a length alone drafts nothing: the kind must be said", "spec_type: ngram-simple"
            )
        for kind in kinds:
            reading.set(template.format(kind=kind.removeprefix("ngram-").replace("-", "_")), raw, word)


def _lengths(reading: Reading) -> None:
    """The draft's length belongs to its kind, and to none it says nothing."""
    kinds = str(reading.values.get("spec_type", "none")).split(",")
    if "draft" in reading.values or any(kind.startswith("draft-") for kind in kinds):
        return
    for key in ("spec_draft_n_max", "spec_draft_n_min"):
        if key not in reading.values:
            continue
        word, value = reading.origin[key], reading.values[key]
        if "ngram-mod" in kinds:
            del reading.values[key], reading.origin[key]
            reading.set(key.replace("draft", "ngram_mod"), str(value), word)
        elif kinds == ["none"]:
            what = "nothing drafts here: neither a draft model nor a kind of speculation is named"
            reading.note(word, "no-effect", what, "draft: a model, or a kind such as ngram-map-k4v")
        else:
            what = f"it is the length of a draft model's draft, and {','.join(kinds)} has its own"
            reading.note(word, "no-effect", what, f"spec_{kinds[0].replace('-', '_')}_size_m")


def _apart(reading: Reading) -> None:
    """Where a draft computes: in the server's process it has the server's CPUs, whatever is typed."""
    if "placement.draft_cpus" in reading.values:
        for key in ("rpc", "spec_draft_device", "spec_draft_ngl"):
            if key in reading.values:
                what = f"{key} is set by orin-deploy where the draft has a process of its own"
                reading.note(reading.origin.pop(key), "owned", what)
                del reading.values[key]
    elif "placement.cpus" in reading.values and not {"draft", "spec_draft_model"}.isdisjoint(reading.values):
        what = "a draft inside the server runs on the server's CPUs: the two cannot be pinned apart there"
        way = "placement.draft: process gives a draft-simple draft a process and CPUs of its own"
        reading.note(reading.origin["placement.cpus"], "no-effect", what, way)
