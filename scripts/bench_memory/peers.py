"""Peers: what other estimators say of the same cases, against what the server took.

llama-fit-params asks the engine itself (whole MiB, one context, as many rows of logits as a batch has tokens). The
packages xllamacpp and llama-mdl are installed into an environment of their own; what does not install is said so.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_memory.compare import Case, Result, compare, words
from orin_deploy.facts.device import MIB
from orin_deploy.intent.serving import Serving

PACKAGES = ("xllamacpp", "llama-mdl")

# Each reads {model, ctx, batch, ubatch, slots, k, v, fa, mapped} and prints bytes: weights, caches, state, compute.
_SCRIPTS = {
    "xllamacpp": """
from xllamacpp.memory import estimate_gpu_layers
gpu = {"name": "GPU", "memory_free": 1 << 50, "memory_min": 0}
print(estimate_gpu_layers([gpu], q["model"], [], q["ctx"], q["ubatch"], q["slots"], q["k"]).total_size)
""",
    "llama-mdl": """
from mdl_fit import gguf, model
flags = model.Flags(ctx=q["ctx"], ngl=0, fa=q["fa"], ctk=q["k"], ctv=q["v"], b=q["batch"], ub=q["ubatch"],
                    np=q["slots"], mmap=q["mapped"])
memory = model.memory(model.Shape(gguf.load(q["model"])), flags)
memory.on_host()
print(sum(getattr(memory, name) for name in memory.FIELDS))
""",
}


@dataclass(frozen=True)
class Judged:
    """One case: bytes that the server took without its output buffer, and each estimator's total or its complaint."""

    case: Case
    taken: int
    said: dict[str, int | str]


def cases(model: Path) -> Iterable[Case]:
    """A real model, served some ways; the caller adds the cases of depth."""
    for ctx_size, kind, slots, ubatch in ((2048, "f16", 1, 512), (8192, "q8_0", 1, 512), (8192, "f16", 4, 128)):
        serving = Serving(ctx_size, slots, ubatch_size=ubatch, cache_type_k=kind, cache_type_v=kind)
        yield Case(f"{model.stem} {ctx_size} {kind} {slots} ub{ubatch}", model, serving)


def alone(cases: Iterable[Case]) -> Iterable[Case]:
    """Of each model its first case without a draft: the others know of none."""
    seen: set[Path] = set()
    for case in cases:
        if case.serving.drafting is None and case.model not in seen:
            seen.add(case.model)
            yield case


def install(folder: Path) -> dict[str, str]:
    """Makes the environment; the packages that cannot be had, with pip's last word."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    missing = {}
    for package in (*PACKAGES, "gguf"):
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", package], capture_output=True, text=True)
        if done.returncode:
            missing[package] = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    return missing


def run(bin: Path, folder: Path, which: Iterable[Case]) -> list[Judged]:
    missing = install(folder)
    return [judged for case in which if (judged := _judge(bin, folder, case, missing))]


def _judge(bin: Path, folder: Path, case: Case, missing: dict[str, str]) -> Judged | None:
    result = compare(bin, case)
    if result.reason:
        return None
    said: dict[str, int | str] = {"orin-deploy": _total(result, predicted=True), "llama-fit-params": _ask(bin, case)}
    for package in PACKAGES:
        said[package] = f"not installed: {missing[package]}" if package in missing else _of(folder, package, case)
    return Judged(case, _total(result, predicted=False), said)


def _total(result: Result, *, predicted: bool) -> int:
    rows = [row for row in result.rows if row.row != "output"]
    return sum(row.predicted if predicted else row.taken for row in rows)


def _ask(bin: Path, case: Case) -> int | str:
    argv = [str(bin / "llama-fit-params"), "--fit-print", "on", *words(case.model, case.serving, tool=True)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    lines = [line.split() for line in done.stdout.splitlines()]
    sizes = [
        list(map(int, line[1:4])) for line in lines if len(line) >= 4 and all(each.isdigit() for each in line[1:4])
    ]
    return sum(map(sum, sizes)) * MIB if sizes else (done.stderr.strip().splitlines() or ["no word"])[-1]


def _of(folder: Path, package: str, case: Case) -> int | str:
    serving = case.serving
    question = {
        "model": str(case.model), "ctx": serving.ctx_size, "batch": serving.batch_size, "ubatch": serving.ubatch_size,
        "slots": serving.parallel, "k": serving.cache_type_k, "v": serving.cache_type_v, "fa": serving.flash_attn,
        "mapped": serving.mapped,
    }  # fmt: skip
    script = f"import json, sys\nq = json.loads(sys.argv[1])\n{_SCRIPTS[package]}"
    argv = [str(folder / "bin" / "python"), "-c", script, json.dumps(question)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    last = (done.stdout or done.stderr).strip().splitlines()[-1:]
    return int(last[0]) if done.returncode == 0 and last and last[0].isdigit() else (last or ["no word"])[0]


def table(judged: Sequence[Judged]) -> str:
    """Each estimator's error over the cases, then every case in MiB."""
    names = ["orin-deploy", "llama-fit-params", *PACKAGES]
    lines = [f"{len(judged)} cases: weights, caches, state and compute together, against the server's own"]
    for name in names:
        errors = [abs(told - each.taken) / each.taken for each in judged if isinstance(told := each.said[name], int)]
        why = next((told for each in judged if isinstance(told := each.said[name], str)), "")
        said = f"median {statistics.median(errors):.2%}, worst {max(errors):.2%}" if errors else "nothing"
        lines.append(f"  {name:<17} {said}, {len(errors)} of {len(judged)}{f' ({why[:90]})' if why else ''}")
    lines.append(f"  {'case':<44}{'server':>10}" + "".join(f"{name:>18}" for name in names))
    for each in judged:
        sizes = [f"{size / MIB:.1f}" if isinstance(size := each.said[name], int) else "-" for name in names]
        lines.append(f"  {each.case.name:<44}{each.taken / MIB:>10.1f}" + "".join(f"{text:>18}" for text in sizes))
    return "\n".join(lines)
