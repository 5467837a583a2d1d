"""Breadth: the model that the engine's own test-llama-archs writes for each architecture it knows.

Weights, KV cache and recurrent state must be the server's to the last digit it prints. Compute buffers of such tiny
models say nothing about real ones; depth.py has those.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench_memory.compare import Case, Result, compare
from orin_deploy.intent.serving import Serving

EXACT = ("weights", "KV cache", "recurrent state")
CONTEXTS, TYPES, SLOTS = (1024, 6000), ("f16", "q8_0"), (1, 4)


def write_models(bin: Path, folder: Path) -> Path:
    """One small model of every architecture, about 0.9 GB; nothing is written again."""
    if not (folder / "written").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [bin / "test-llama-archs", "-o", folder], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        (folder / "written").touch()
    return folder


def cases(folder: Path) -> Iterable[Case]:
    """Every model at two contexts, two types of cache, one and four slots."""
    for path in sorted(folder.glob("*.gguf")):
        for ctx_size in CONTEXTS:
            for kind in TYPES:
                for slots in SLOTS:
                    serving = Serving(ctx_size=ctx_size, parallel=slots, cache_type_k=kind, cache_type_v=kind)
                    yield Case(f"{path.stem} {ctx_size} {kind} {slots}", path, serving)


def run(bin: Path, folder: Path) -> list[Result]:
    return [compare(bin, case) for case in cases(write_models(bin, folder))]


def inexact(result: Result) -> Iterator[str]:
    """What of a result should be exact and is not, in words."""
    for row in result.rows:
        if row.row in EXACT and not row.exact:
            yield f"{result.case.name}: {row.row} {row.predicted / 2**20:.3f} MiB, the server {row.taken / 2**20:.3f}"


def table(results: Sequence[Result]) -> str:
    """Counts, then everything that is not exact and everything that was not served, by name and reason."""
    served = [result for result in results if result.reason is None]
    models = {result.case.model for result in results}
    lines = [f"{len(models)} models, {len(results)} cases, {len(served)} served"]
    for name in EXACT:
        rows = [row for result in served for row in result.rows if row.row == name]
        lines.append(f"  {name:<16} {sum(row.exact for row in rows):>5} of {len(rows):>5} exact to 0.01 MiB")
    lines += [f"  not exact: {words}" for result in served for words in inexact(result)]
    lines += [f"  not served: {result.case.name}: {result.reason}" for result in results if result.reason]
    return "\n".join(lines)
