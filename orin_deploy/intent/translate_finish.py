"""What a pasted text says only as a whole: which kind speculates, and what a draft's CPUs were meant to be. Pure."""

from __future__ import annotations

from dataclasses import replace

from orin_deploy.intent import options
from orin_deploy.intent.basis import is_local
from orin_deploy.intent.translate_reading import Note, Reading

_NGRAM = ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
_NEW_KEY = "(umask 077; openssl rand -hex 24 > /path/to/key)"
_RENAMES = ("removed", "foreign", "never")


def finish(reading: Reading) -> None:
    """Add what was missing, and say what the words would not have done together."""
    _kinds(reading)
    _ngrams(reading)
    _lengths(reading)
    _apart(reading)
    _exposure(reading)
    limit = reading.values.get("predict")
    if isinstance(limit, int) and limit >= 0:
        what = f"an answer ends after {limit} tokens wherever a request names no max_tokens of its own"
        reading.note(reading.origin["predict"], "kept", what, "leave predict out, unless answers shall be cut")
    reading.notes = [_settled(reading, note) for note in reading.notes]


def _exposure(reading: Reading) -> None:
    """An address that others can reach needs a file of API keys, without which a plan would be refused."""
    host = reading.values.get("host")
    if host is None or is_local(str(host)) or "api_key_file" in reading.values:
        return
    make = "(umask 077; cat > /path/to/key), paste the key of this text" if reading.has_key else _NEW_KEY
    what = f"{host} can be reached from other machines, which needs a file of API keys; only this one reaches it now"
    way = f"to serve others: {make}; then add host: {host} and api_key_file: /path/to/key"
    reading.note(reading.origin.pop("host"), "owned", what, way)
    del reading.values["host"]


def _settled(reading: Reading, note: Note) -> Note:
    """A word's new name with what it came to in the end: ways of loading join, and a length moves to its kind's key."""
    key, colon, _ = (note.next or "").partition(": ") if note.verdict in _RENAMES else ("", "", "")
    made = [
        each for each, words in reading.origin.items() if each in reading.values and f" {note.word} " in f" {words} "
    ]
    if not colon or key not in options.OPTIONS or not made or (key in reading.values and key not in made):
        return note
    ends = [key] if key in made else made
    return replace(note, next=", ".join(f"{each}: {options.written(reading.values[each])}" for each in ends))


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
