"""Text evidence: logs, listings, /proc files and what tools print, each known by its own lines."""

from __future__ import annotations

import re

from orin_deploy.doctor import memory_claims, speculation_claims, states
from orin_deploy.doctor.boards import board_of
from orin_deploy.doctor.documents import toolkit, version
from orin_deploy.doctor.evidence import Claims, Listed, Log
from orin_deploy.facts import cpu, memory
from orin_deploy.facts.device import Memory, Tool
from orin_deploy.parts.serverlog import starts

MAX_LINE_CHARS = 2000

# One answer each, wherever it stands.
_ANSWERS: tuple[tuple[str, str], ...] = (
    ("gcc", r"^(?:\S*[/-])?(?:gcc|g\+\+|cc|c\+\+)(?:-\d+)? \([^)\n]*\) (\d+\.\d+[.\d]*)"),
    ("gcc", r"The CX?X? compiler identification is GNU (\d+\.\d+[.\d]*)"),
    ("cuda", r"The CUDA compiler identification is NVIDIA (\d+\.\d+)"),
    ("cuda", r"Cuda compilation tools, release (\d+\.\d+)"),
    ("running_build", r"\bbuild(?: ?=|:|_info:)? +b?(\d{1,9})(?: \(|-)"),
)

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_LS = re.compile(r"^[-lbcdps][-rwxsStT]{9}[.+@]?\s+(?:\d+\s+)?\S+\s+\S+\s+(\d{1,15})\s+(\S.*)$")
_PATH = re.compile(r"^(/\S+|\S+\.gguf)(?: -> (\S+))?$")
_TOOLKIT = re.compile(r"^(/usr/local/cuda-\d+\.\d+)(?:/bin/nvcc)?/?$")


def decode(raw: bytes) -> str | None:
    """The text that bytes are, or None when they are none. A NUL ends a line, but only device-tree strings have any."""
    if b"\0" in raw and (len(raw) > 4096 or b"nvidia," not in raw.lower()):
        return None
    return raw.decode("utf-8", "replace").replace("\0", "\n")


def claims(name: str, text: str) -> Claims:
    """What a text says; it is kept as a log, of a server's log what belongs to its last start."""
    plain = _COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    lines = tuple(line[:MAX_LINE_CHARS].rstrip() for line in plain.split("\n"))
    lines = starts(lines)[-1]
    text = "\n".join(lines)
    return {
        "logs": (Log(name, lines),),
        **said(text),
        **states.of_text(text),
        **memory_claims.of_text(text),
        **speculation_claims.of_text(text),
        **_listing(lines),
        **_architectures(lines),
    }


def said(text: str) -> Claims:
    """Versions, identities, CPU features and memory that a text states."""
    found: Claims = {}
    for field, pattern in _ANSWERS:
        if field not in found and (match := re.search(pattern, text, re.MULTILINE)):
            found[field] = int(match[1]) if field == "running_build" else match[1].rstrip(".")
    if match := re.search(r"^# R(\d+) \(release\), REVISION: (\d+(?:\.\d+)*)", text, re.MULTILINE):
        found["l4t"] = f"{match[1]}.{match[2]}"
    if cmakes := re.findall(r"^cmake version (\d+\.\d+[.\d]*)", text, re.MULTILINE):
        found["cmakes"] = tuple(Tool("cmake", version(number)) for number in cmakes)
    if features := cpu.features(text):
        found |= {"cpu_features": features, "cores": len(cpu.listed_processors(text))}
    if match := re.search(r"^(?:NVIDIA .*|.*nvidia,p\d{4}-\d{4}.*)$", text, re.MULTILINE):
        board = board_of(match[0])
        found |= {"board": board} if board is not None else {}
    return found | _memory(text)


def _memory(text: str) -> Claims:
    info = memory.meminfo(text)
    if not {"MemTotal", "MemAvailable"} <= info.keys():
        return {}
    info, doubts = memory.plausible(info)
    total, available, free = (info.get(name, 0) for name in ("MemTotal", "MemAvailable", "MemFree"))
    swap, swap_free = info.get("SwapTotal", 0), info.get("SwapFree", 0)
    return {"memory": Memory(total, available, free, swap_total=swap, swap_free=swap_free, doubts=doubts)}


def _listing(lines: tuple[str, ...]) -> Claims:
    """Files that `ls`, `ls -l` or `find` listed, and the CUDA toolkits among them."""
    listed: list[Listed] = []
    for line in lines:
        if match := _LS.match(line):
            path, _, target = match[2].partition(" -> ")
            listed.append(Listed(path.split()[-1], int(match[1]), target or None))
        elif match := _PATH.match(line):
            listed.append(Listed(match[1], None, match[2]))
    if not listed:
        return {}
    paths = (path for item in listed for path in (item.path, item.target) if path)
    roots = dict.fromkeys(match[1] for path in paths if (match := _TOOLKIT.match(path)))
    return {"listed": tuple(listed), "toolkits": tuple(toolkit(root) for root in roots)}


def _architectures(lines: tuple[str, ...]) -> Claims:
    """A list of GPU architectures: compiled into a library (cuobjdump), or known to nvcc (virtual ones only)."""
    bare = [match for line in lines if (match := re.fullmatch(r"\s*(sm|compute)_(\d{2,3}[af]?)\s*", line))]
    if bare and all(match[1] == "compute" for match in bare):
        return {"nvcc_architectures": tuple(match[2] for match in bare)}
    compiled = [f"{match[1]}_{match[2]}" for match in bare]
    for line in lines:
        if match := re.search(r"\bsm_(\d{2,3}[af]?)\.(cubin|ptx)\b", line):
            compiled.append(f"{'sm' if match[2] == 'cubin' else 'compute'}_{match[1]}")
    return {"compiled_archs": tuple(dict.fromkeys(compiled))} if compiled else {}
