"""The compute buffer against the real llama-server, for models of real size: equal to the last digit it prints.

A covering choice; scripts/bench-memory has the whole table.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orin_deploy.facts.device import MIB
from orin_deploy.facts.model import from_file
from orin_deploy.intent.compute import compute_bytes
from orin_deploy.intent.draft_rows import draft_rows
from orin_deploy.intent.engine_rows import batch_of
from orin_deploy.intent.serving import Drafting, Serving
from tests.ggufs import Shape
from tests.shapes import SHAPES, dflash, eagle3, qwen35

pytestmark = pytest.mark.engine

LINE = re.compile(r"sched_reserve: +(?P<device>\S+) compute buffer size = +(?P<mib>[\d.]+) MiB")
DIGIT = 0.0101  # MiB: the last digit that is printed, and its rounding
TARGET = Shape(n_layer=8, n_embd=512, n_ff=1536, n_head=8, n_vocab=30000)

SMALL = Serving(ctx_size=2048)
LARGE = Serving(ctx_size=16384, ubatch_size=2048, parallel=4, cache_type_k="q8_0", cache_type_v="q8_0")
PLAIN = Serving(ctx_size=4096, ubatch_size=128, parallel=2, flash_attn=False)
UNIFIED = Serving(ctx_size=32768, parallel=3, kv_unified=True, cache_type_k="q4_0", cache_type_v="q8_0")
CASES = [
    ("minicpm5-2b", LARGE),
    ("gemma3", UNIFIED),
    ("gpt-oss", PLAIN),
    ("deepseek2", SMALL),
    ("qwen35", LARGE),
    ("qwen3next", PLAIN),
    ("granitehybrid", UNIFIED),
    ("lfm2", SMALL),
]


def words(serving: Serving) -> list[str]:
    return [
        *("-c", str(serving.ctx_size), "-np", str(serving.parallel), "-ub", str(serving.ubatch_size), "-cram", "0"),
        *("-ctk", serving.cache_type_k, "-ctv", serving.cache_type_v, "-fa", "on" if serving.flash_attn else "off"),
        "-kvu" if serving.kv_unified else "-no-kvu",
    ]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def reserved(engine_bin: Path, model: Path, serving: Serving, *more: str) -> list[tuple[str, float]]:
    """Device and MiB of every compute buffer, in the order of the log, until the server is ready."""
    fixed = ["-m", str(model), "--port", str(free_port()), "-t", "1", "-fit", "off", "-lv", "4", "--no-warmup"]
    command = [str(engine_bin / "llama-server"), *fixed, *words(serving), *more]
    found, said = [], []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        for line in server.stdout:
            said.append(line)
            if match := LINE.search(line):
                found.append((match["device"], float(match["mib"])))
            if "all slots are idle" in line:
                break
        server.kill()  # nothing is lost: it serves no one
    assert found, "".join(said[-20:])
    return found


@pytest.mark.parametrize(("shape", "serving"), CASES, ids=lambda value: value if isinstance(value, str) else None)
def test_the_buffer_is_the_servers_own(engine_bin: Path, tmp_path: Path, shape: str, serving: Serving) -> None:
    path = SHAPES[shape]().write(tmp_path / "model.gguf")
    model = from_file(path)
    sizes = compute_bytes(model, batch_of(model, serving), gpu=False)
    assert sizes.exact
    assert sizes.device / MIB == pytest.approx(reserved(engine_bin, path, serving)[-1][1], abs=DIGIT)


@pytest.mark.parametrize("kind", ["draft-eagle3", "draft-dflash", "draft-dspark", "draft-mtp"])
def test_the_drafts_buffer_is_the_servers_own(engine_bin: Path, tmp_path: Path, kind: str) -> None:
    makes = {
        "draft-eagle3": lambda: eagle3(TARGET, (2, 4, 6), 8000),
        "draft-dflash": lambda: dflash(TARGET, (1, 3, 5)),
        "draft-dspark": lambda: dflash(TARGET, (1, 3, 5), markov=64),
    }
    target = TARGET if kind in makes else qwen35(predicts=True)
    path = target.write(tmp_path / "target.gguf")
    more = ["--spec-type", kind, "--spec-draft-n-max", "4"]
    drafting = Drafting(kind, 4)
    if kind in makes:
        draft = makes[kind]().write(tmp_path / "draft.gguf")
        more += ["-md", str(draft)]
        drafting = Drafting(kind, 4, from_file(draft))
    serving = Serving(ctx_size=4096, parallel=2, drafting=drafting)
    row = next(row for row in draft_rows(from_file(path), serving) if row.name == "draft compute")
    assert row.source.startswith("formula")
    assert row.bytes / MIB == pytest.approx(reserved(engine_bin, path, serving, *more)[-1][1], abs=DIGIT)


def test_a_device_apart_gets_its_share_and_the_host_its_own(engine_bin: Path, tmp_path: Path) -> None:
    """The cut between host and device, which CUDA shares, behind ggml-rpc-server."""
    path = SHAPES["lfm2"]().write(tmp_path / "model.gguf")
    serving = Serving(ctx_size=2048, parallel=2)
    model = from_file(path)
    sizes = compute_bytes(model, batch_of(model, serving), gpu=True, cuda=False)
    with rpc_server(engine_bin) as port:
        more = f"--rpc 127.0.0.1:{port} -dev RPC0 -ngl all -lm none --no-op-offload".split()
        found = dict(reserved(engine_bin, path, serving, *more))
    device = next(size for name, size in found.items() if name.startswith("RPC"))
    assert (sizes.device / MIB, sizes.host / MIB) == pytest.approx((device, found["CPU"]), abs=DIGIT)


@contextmanager
def rpc_server(engine_bin: Path) -> Iterator[int]:
    port = free_port()
    command = [str(engine_bin / "ggml-rpc-server"), "-d", "CPU", "-t", "1", "-p", str(port)]
    env = {**os.environ, "GOMP_SPINCOUNT": "1000"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env) as process:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        try:
            yield port
        finally:
            process.terminate()
