"""Decisions: what was measured to speculate best, kept on disk by all that it depends on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Any

from orin_deploy.actions import Write
from orin_deploy.facts.device import Device
from orin_deploy.host import Host
from orin_deploy.intent import power
from orin_deploy.intent.measured import Decision
from orin_deploy.intent.spec import Build, Setting, Weights
from orin_deploy.intent.speculation import Wish, mix

FORMAT = 1

FILE = "decisions.json"
_MOST = 256

# Options that change what a token or its verification costs, beside those of speculation itself.
_COSTS = (
    *("batch_size", "cache_type_k", "cache_type_v", "cpu_moe", "flash_attn", "gpu_layers", "kv_unified", "n_cpu_moe"),
    *("parallel", "threads", "threads_batch", "ubatch_size"),
)
_SPECULATES = ("spec_", "lookup_cache_", "placement.")
_LONG_CTX = 4096


@dataclass(frozen=True)
class Key:
    """All that a decision depends on, in words: another board, power mode, engine, model or load may decide otherwise.

    `settings` are the options, as asked for, that change what a token or its verification costs.
    """

    board: str
    power: str
    engine: str
    model: str
    draft: str
    workload: str
    concurrency: int
    context: str
    settings: str


@dataclass(frozen=True)
class Kept:
    """A decision on disk; `seconds` is how long it might be measured, `enough_bytes` the memory to be had from which on
    a way would be measured that lacked it, None where none did."""

    key: Key
    decision: Decision
    seconds: int
    enough_bytes: int | None = None


def key(
    host: Host,
    device: Device,
    build: Build,
    weights: Weights,
    wish: Wish,
    values: Mapping[str, Setting],
    *,
    reboot: bool = False,
) -> Key:
    """The key of a deployment that is to be; raises UsageError or Refused for power options that cannot be."""
    asked = {name: values[name].value for name in values if name in _COSTS or name.startswith(_SPECULATES)}
    asked.pop("placement.draft_port", None)
    told = {name: value for name, value in asked.items() if values[name].source != "default" and value is not None}
    context, slots = values["ctx_size"].value, int(str(values["parallel"].value or 1))
    long = context in (None, "auto", 0) or int(str(context)) // slots >= _LONG_CTX
    return Key(
        board=device.board,
        power=_power(host, device, values, reboot),
        engine=build.key,
        model=_identity([(file.path, file.size, file.sha256) for file in weights.files]),
        draft=_draft(wish),
        workload=" ".join(f"{name}={weight:g}" for name, weight in sorted(mix(values).items())) or "all",
        concurrency=int(str(values["speculation.concurrency"].value)),
        context=f"{_LONG_CTX} or more" if long else str(int(str(context)) // slots),
        settings=" ".join(f"{name}={value}" for name, value in sorted(told.items())),
    )


def _power(host: Host, device: Device, values: Mapping[str, Setting], reboot: bool) -> str:
    """The power mode that will be active, and whether we pin the clocks in it."""
    powered = power.resolve(device, values, is_root=host.is_root, reboot=reboot)
    active = device.power.current if device.power else None
    mode = (powered.mode if powered else None) or active or "no mode"
    return f"{mode}, clocks {'pinned' if powered and powered.clocks else 'as they were'}"


def _identity(files: Sequence[tuple[str, int | None, str | None]]) -> str:
    """What is in files: their hashes, or names and sizes where no hash is known."""
    return " ".join(digest or f"{PurePosixPath(path).name}:{size}" for path, size, digest in files)


def _draft(wish: Wish) -> str:
    """The draft that would be measured: its reference, with the size where it is a file of this machine."""
    if wish.model is None:
        return "+".join(wish.kinds) or "none"
    path = Path(wish.model.removeprefix("file:"))
    size = path.stat().st_size if path.is_absolute() and path.is_file() else None
    return _identity([(wish.model, size, None)]) if size is not None else wish.model


def find(host: Host, wanted: Key, seconds: int, limit_bytes: int = 0) -> Decision | None:
    """What was decided for that key; None where it is to be measured again.

    That is where it might be measured for fewer seconds than are allowed now, for who gives more time wants to know
    better, and where a way that lacked memory has it now: `limit_bytes` can be had. With 0 seconds what is on record
    counts.
    """
    kept = _read(host).get(wanted)
    if kept is None or kept.seconds < seconds:
        return None
    has_room = kept.enough_bytes is not None and limit_bytes >= kept.enough_bytes
    return None if has_room and seconds > 0 else kept.decision


def keep(host: Host, kept: Kept) -> None:
    """Write a decision, the newest last; the oldest go when there are too many."""
    entries = _read(host)
    entries.pop(kept.key, None)
    document = {"format": FORMAT, "decisions": [asdict(each) for each in [*entries.values(), kept][-_MOST:]]}
    host.do(Write(str(host.data / FILE), json.dumps(document, indent=1) + "\n"))


def _read(host: Host) -> dict[Key, Kept]:
    """What is on disk; nothing where it is damaged, absent or of another format: it is measured anew."""
    try:
        document = json.loads(host.read(host.data / FILE) or "null")
        if not isinstance(document, Mapping) or document.get("format") != FORMAT:
            return {}
        found = (_entry(item) for item in document["decisions"])
        return {kept.key: kept for kept in found if kept is not None}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "str | None": (str, type(None)),
    "int | None": (int, type(None)),
    "float | None": (float, int, type(None)),
}


def _entry(item: Any) -> Kept | None:
    """An entry as it was written, or None for one that is not whole."""
    try:
        read = Kept(Key(**item["key"]), Decision(**item["decision"]), item["seconds"], item.get("enough_bytes"))
    except (KeyError, TypeError):
        return None
    numbers = isinstance(read.seconds, int) and isinstance(read.enough_bytes, (int, type(None)))
    whole = _whole(read.key) and _whole(read.decision) and numbers
    return read if whole else None


def _whole(value: Key | Decision) -> bool:
    return all(isinstance(getattr(value, each.name), _TYPES[str(each.type)]) for each in fields(value))
