"""What texts and documents tell of memory, its holders, KV caches and contexts, in the words of whoever wrote them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from orin_deploy.doctor.evidence import CachedTrial, CacheSpeed, Claims, Reading, Revision
from orin_deploy.facts.device import MIB, Tenant
from orin_deploy.facts.memory import KIB, zram_bytes
from orin_deploy.facts.tenants import is_desktop

_DEVICE = re.compile(r"^ *(\S+): (\S.*?) \((\d{1,9}) MiB, (\d{1,9}) MiB free\)$", re.MULTILINE)
_TEGRASTATS = re.compile(r"\bRAM (\d{1,8})/(\d{1,8})MB(?: \(lfb (\d{1,8})x(\d{1,8})([kM])B\))?")
_UNITS = {"bytes": 1, "kib": KIB, "mib": MIB, "gib": 1024 * MIB}
_PURPOSE = re.compile(
    r"(weights|model|kv|kv_cache|compute|output|draft|mmproj|prompt_cache|process)_(bytes|kib|mib|gib)"
)
_KV_LIMIT = re.compile(r"(?:budget_(bytes|kib|mib|gib)_for_kv|kv_(?:budget|limit)_(bytes|kib|mib|gib))")
_SHAPE = {
    "context_length": "context",
    "n_ctx_train": "context",
    "block_count": "blocks",
    "head_count_kv": "heads_kv",
    "key_length": "key",
    "value_length": "value",
}
_CONTEXT_KEYS = ("ctx", "ctx_size", "context", "context_size", "n_ctx", "num_ctx")
_MOST_HOLDERS = 64


def of_text(text: str) -> Claims:
    """What tegrastats, vmstat, ps, /proc/swaps and a runtime's list of devices say, each known by its own lines."""
    found: Claims = {}
    if readings := [Reading(match[1], int(match[3]), int(match[4])) for match in _DEVICE.finditer(text)]:
        found["readings"] = tuple(readings)
    if match := re.search(_TEGRASTATS, text):
        found |= {"ram_used": int(match[1]) * MIB, "ram_total": int(match[2]) * MIB}
        if match[4]:
            found["largest_block"] = int(match[4]) * (KIB if match[5] == "k" else MIB)
    if zram := zram_bytes(f"{text}\n"):
        found |= {"zram_total": zram, "zram_used": zram_bytes(f"{text}\n", used=True)}
    if rates := _swap_rates(text):
        found["swap_rates"] = rates
    if holders := _holders(text):
        found["holders"] = holders
    if match := re.fullmatch(r"\s*(graphical|multi-user)\.target\s*", text):
        found["boot_target"] = match[1]
    return found


def of_list(items: list[Any]) -> Claims:
    """A list of revisions with their smoke tests, of trials with the page cache, of speeds by type of KV cache."""
    tables = [item for item in items if isinstance(item, Mapping)]
    revisions = [
        Revision(str(item["rev"]), str(item["smoke"]).lower() in ("ok", "pass", "passed", "true"))
        for item in tables
        if isinstance(item.get("rev"), str) and "smoke" in item
    ]
    trials = [trial for item in tables if (trial := _trial(item)) is not None]
    speeds = [speed for item in tables if (speed := _speed(item)) is not None]
    found = {"revisions": tuple(revisions), "cached_trials": tuple(trials), "kv_speeds": tuple(speeds)}
    return {name: value for name, value in found.items() if value}


def of_table(document: Mapping[Any, Any]) -> Claims:
    """A request, a board, a header in plain words, or a profile: what it says of sizes, contexts and caches."""
    found: Claims = {}
    needs = {}
    document = {key: value for table in (*_tables(document), document) for key, value in table.items()}
    for key, value in document.items():
        number = _number(value)
        if number is None or not isinstance(key, str):
            continue
        if match := _PURPOSE.fullmatch(key):
            needs[match[1]] = round(number * _UNITS[match[2]])
        elif match := _KV_LIMIT.fullmatch(key):
            found["kv_limit_bytes"] = round(number * _UNITS[match[1] or match[2]])
        elif match := re.fullmatch(r"(?:ram|memory)_(mib|gib)", key):
            found["ram_bytes"] = round(number * _UNITS[match[1]])
        elif key in _CONTEXT_KEYS:
            found["ctx_wanted"] = round(number)
    shape = {
        _SHAPE[key]: int(number) for key, value in document.items() if key in _SHAPE and (number := _number(value))
    }
    found |= ({"needs": needs} if needs else {}) | ({"shape": shape} if shape else {})
    return found | _cache_types(document) | _profile(document)


def of_device(device: Mapping[str, Any]) -> Claims:
    """Our own inspection: who holds memory, and what is swapped out to zram."""
    memory = device.get("memory")
    table = memory if isinstance(memory, Mapping) else {}
    found: Claims = {
        name: size for name in ("zram_total", "zram_used", "largest_block") if isinstance(size := table.get(name), int)
    }
    told = device.get("tenants")
    tenants = [item for item in (told if isinstance(told, (list, tuple)) else ()) if isinstance(item, Mapping)]
    holders = [
        Tenant(item["kind"], item["name"], item["bytes"])
        for item in tenants
        if isinstance(item.get("kind"), str)
        and isinstance(item.get("name"), str)
        and isinstance(item.get("bytes"), int)
    ]
    return found | ({"holders": tuple(holders)} if holders else {})


def _tables(document: Mapping[Any, Any]) -> Iterator[Mapping[Any, Any]]:
    return (value for value in document.values() if isinstance(value, Mapping))


def _number(value: Any) -> float | None:
    """A number, or a word that is one (YAML is read as words); none that is negative or beyond any machine."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    word = str(value).strip()
    return float(word) if re.fullmatch(r"\d{1,15}(?:\.\d{1,6})?", word) else None


def _cache_types(document: Mapping[Any, Any]) -> Claims:
    nested = document.get("kv_cache")
    told = nested.get("v") if isinstance(nested, Mapping) else nested
    for key in ("cache_type_v", "type_v", "kv_cache_v", "kv"):
        told = document.get(key, told)
    found: Claims = {"kv_v": told.lower()} if isinstance(told, str) else {}
    flash = next((document[key] for key in ("flash_attn", "flash_attention", "fa") if key in document), None)
    if flash is not None:
        word = str(flash).lower()
        found["flash_attn"] = {"false": "off", "0": "off", "no": "off", "true": "on", "1": "on", "yes": "on"}.get(
            word, word
        )
    return found


def _profile(document: Mapping[Any, Any]) -> Claims:
    """Whether what names a model file names a context too."""
    if not str(document.get("model", "")).endswith(".gguf"):
        return {}
    return {"ctx_given": any(key in document for key in _CONTEXT_KEYS)}


def _trial(item: Mapping[Any, Any]) -> CachedTrial | None:
    cached, told = _number(item.get("cached_mib")), item.get("tps")
    speeds = [speed for each in (told if isinstance(told, list) else [told]) if (speed := _number(each)) is not None]
    if cached is None or not speeds:
        return None
    return CachedTrial(str(item.get("id", item.get("name", "a trial"))), median(speeds), cached)


def _speed(item: Mapping[Any, Any]) -> CacheSpeed | None:
    def first(kind: str) -> float | None:
        return next((_number(value) for key, value in item.items() if re.fullmatch(rf"{kind}\d*", str(key))), None)

    kind, prompt = item.get("kv"), first("pp")
    return CacheSpeed(kind, prompt, first("tg")) if isinstance(kind, str) and prompt else None


def _swap_rates(text: str) -> tuple[tuple[int, int], ...]:
    """vmstat's si and so, in KiB/s, without its first line where there are more: that one is since the boot."""
    lines = [line.split() for line in text.splitlines()]
    head = next((words for words in lines if {"swpd", "si", "so"} <= set(words)), None)
    if head is None:
        return ()
    rows = [words for words in lines if len(words) == len(head) and all(word.isdecimal() for word in words)]
    columns = head.index("si"), head.index("so")
    rates = [(int(row[columns[0]][:12]), int(row[columns[1]][:12])) for row in rows]
    return tuple(rates[1:] or rates)


def _holders(text: str) -> tuple[Tenant, ...]:
    """Processes by resident size as ps lists them; a column RSS is in KiB unless its name says otherwise."""
    lines = [line.split() for line in text.splitlines()]
    for number, words in enumerate(lines):
        column = next((at for at, word in enumerate(words) if re.fullmatch(r"RSS(?:_(?:KIB|MIB|GIB))?", word)), None)
        if column is None or words[-1] not in ("COMMAND", "CMD", "COMM"):
            continue
        unit = _UNITS[words[column].partition("_")[2].lower() or "kib"]
        rows = [row for row in lines[number + 1 :] if len(row) >= len(words) and re.fullmatch(r"\d{1,12}", row[column])]
        held = [
            Tenant("desktop" if is_desktop(name) else "process", name, int(row[column]) * unit)
            for row in rows
            if (name := row[len(words) - 1].rpartition("/")[2])
        ]
        return tuple(sorted(held, key=lambda each: -each.bytes)[:_MOST_HOLDERS])
    return ()
