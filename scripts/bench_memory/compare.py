"""One model served one way: what the budget predicts, and what the real llama-server then takes, row by row."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from orin_deploy.facts.device import MIB
from orin_deploy.facts.model import from_file
from orin_deploy.host import procfs
from orin_deploy.intent.budget import estimate
from orin_deploy.intent.options import render
from orin_deploy.intent.serving import Serving
from orin_deploy.intent.spec import Value
from orin_deploy.parts.serverlog import Buffer, complaint, memory_rows, reason

LOGGED = {"model": "weights", "KV": "KV cache", "RS": "recurrent state", "compute": "compute", "output": "output"}
_STAGE = {"model": 0, "output": 1, "KV": 2, "RS": 2, "compute": 3}  # the order in which a context logs its buffers
_PATIENCE_S = 120


@dataclass(frozen=True)
class Case:
    """A model file and how it is served. The draft's file is `serving.drafting.model`'s own reference."""

    name: str
    model: Path
    serving: Serving


@dataclass(frozen=True)
class Compared:
    """One row of a case in bytes; `taken` is the sum of so many lines of the log (0 where it has no such line)."""

    row: str
    predicted: int
    taken: int
    lines: int = 1

    @property
    def exact(self) -> bool:
        """Equal to the last digit that is printed: 0.01 MiB, rounded in each line."""
        return abs(self.predicted - self.taken) <= max(1, self.lines) * 0.005 * MIB + 1


@dataclass(frozen=True)
class Result:
    """`rows` are the buffers; `resident` is the server's own memory by kind ("anon", "file"), of the RPC server too
    as "draft anon" and "draft file". `reason` says why nothing was compared, in the server's words."""

    case: Case
    rows: tuple[Compared, ...] = ()
    resident: dict[str, int] | None = None
    predicted_other: dict[str, int] | None = None  # the budget's rows that no log line shows
    reason: str | None = None

    @property
    def off(self) -> int:
        """Bytes by which the worst row is off."""
        return max((abs(row.predicted - row.taken) for row in self.rows), default=0)


def compare(bin: Path, case: Case, *, prompt: bool = False) -> Result:
    """Serve a case with the programs in `bin` and compare; `prompt` has it compute a long prompt before the look at
    its resident memory."""
    serving = replace(case.serving, cpu_features=features(bin))
    lines, resident = _serve(bin, case.model, serving, prompt)
    taken = by_row(memory_rows(lines))
    if not any(name == "compute" for name in taken):
        said = reason(lines)
        return Result(case, reason=(said[0] if said else complaint(lines)) or (lines[-1] if lines else "no word"))
    rows = {row.name: row.bytes for row in estimate(from_file(case.model), serving).rows}
    logged = dict.fromkeys((*taken, *(name for name in rows if name.removeprefix("draft ") in LOGGED.values())))
    compared = tuple(
        Compared(name, rows.get(name, 0), sum(taken.get(name, [])), len(taken.get(name, []))) for name in logged
    )
    return Result(case, compared, resident, {name: size for name, size in rows.items() if name not in logged})


def by_row(buffers: tuple[Buffer, ...]) -> dict[str, list[int]]:
    """The log's buffers by the budget's row names, line by line.

    The draft's context comes after the target's. A context that reserves its graph again says so again, device by
    device, and the last word counts.
    """
    rows: dict[str, dict[tuple[str, int], int]] = {}
    draft, stage = "", 0
    for index, buffer in enumerate(buffers):
        now = _STAGE[buffer.kind]
        if now < stage:
            draft = "draft "
        stage = now
        key = (buffer.device, 0 if buffer.kind == "compute" else index)
        rows.setdefault(draft + LOGGED[buffer.kind], {})[key] = buffer.bytes
    return {name: list(sizes.values()) for name, sizes in rows.items()}


_SERVER_ONLY = ("cache_ram", "ctx_checkpoints", "kv_unified", "warmup", "host")


def words(model: Path, serving: Serving, *, tool: bool = False) -> tuple[str, ...]:
    """llama-server's words for a way of serving, written by the product's own option table.

    `tool` leaves out what the engine's other programs do not know.
    """
    values: dict[str, Value] = {
        "model": str(model),
        "threads": 1,
        "ctx_size": serving.ctx_size,
        "parallel": serving.parallel,
        "batch_size": serving.batch_size,
        "ubatch_size": serving.ubatch_size,
        "cache_type_k": serving.cache_type_k,
        "cache_type_v": serving.cache_type_v,
        "flash_attn": "on" if serving.flash_attn else "off",
        "cache_ram": serving.cache_ram_mib,
        "kv_unified": serving.kv_unified,
        "load_mode": serving.load_mode,
        "ctx_checkpoints": serving.ctx_checkpoints,
        "swa_full": serving.swa_full,
        "fit": "off",
        "verbosity": 4,
        "warmup": False,
        "host": "127.0.0.1",
    }
    if drafting := serving.drafting:
        values |= {"spec_type": drafting.kind, "spec_draft_n_max": drafting.n_max}
        if drafting.model:
            values |= {
                "spec_draft_model": drafting.model.reference.removeprefix("file:"),
                "spec_draft_type_k": drafting.cache_type_k,
                "spec_draft_type_v": drafting.cache_type_v,
            }
    return render({key: value for key, value in values.items() if not (tool and key in _SERVER_ONLY)}, None)


def _serve(bin: Path, model: Path, serving: Serving, prompt: bool) -> tuple[list[str], dict[str, int]]:
    """The server's log until it is ready, and its resident memory then."""
    argv = [str(bin / "llama-server"), *words(model, serving), "--port", str(free_port())]
    with _draft_process(bin, serving) as (more, draft):
        lines: list[str] = []
        with _running([*argv, *more]) as server:
            assert server.stdout is not None
            for line in server.stdout:
                lines.append(line.rstrip("\n"))
                if "all slots are idle" in line:  # earlier, SIGTERM is lost
                    break
            resident = procfs.memory(server.pid) if server.poll() is None else {}
            if prompt and resident:
                resident = _after_prompt(server.pid, int(argv[-1]), serving)
            if draft is not None:
                resident |= {f"draft {kind}": size for kind, size in procfs.memory(draft.pid).items()}
    return lines, resident


@contextmanager
def _running(argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, "GOMP_SPINCOUNT": "1000"}
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=env
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.communicate(timeout=_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()


@contextmanager
def _draft_process(bin: Path, serving: Serving) -> Iterator[tuple[list[str], subprocess.Popen[str] | None]]:
    """The RPC server of a draft that has a process of its own, and the server's words for it."""
    if serving.drafting is None or not serving.drafting.apart:
        yield [], None
        return
    port = free_port()
    with _running([str(bin / "ggml-rpc-server"), "-d", "CPU", "-t", "1", "-p", str(port)]) as process:
        until = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        words = f"--rpc 127.0.0.1:{port} -dev none -devd RPC0 -ngld all"
        yield words.split(), process


def _after_prompt(pid: int, port: int, serving: Serving) -> dict[str, int]:
    """Resident memory once a prompt that fills most of a slot was computed."""
    import json
    import urllib.request

    tokens = max(8, min(2048, serving.ctx_size // serving.slots - 64))
    body = json.dumps({"prompt": [7] * tokens, "n_predict": 8, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_PATIENCE_S) as reply:
        reply.read()
    return procfs.memory(pid)


@lru_cache
def features(bin: Path) -> frozenset[str]:
    """The CPU features these programs report ("system_info: … AVX2 = 1 | …")."""
    command = [str(bin / "llama-server"), "-m", "/nonexistent", "-lv", "4"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return frozenset(re.findall(r"(\w+) = 1 \|", said.stdout + said.stderr))


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
