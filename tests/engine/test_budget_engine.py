"""The budget against the real llama-server: its own log lines for every buffer, over shapes and ways of serving."""

from __future__ import annotations

import re
import socket
import subprocess
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from orin_deploy.facts.device import MIB
from orin_deploy.facts.model import from_file
from orin_deploy.intent.budget import estimate
from orin_deploy.intent.engine_rows import ENGINE_ROWS, Row
from orin_deploy.intent.serving import Serving
from tests.ggufs import Shape

pytestmark = pytest.mark.engine

LINE = re.compile(r" (?P<kind>model|KV|compute|output) buffer size = +(?P<mib>[\d.]+) MiB")
ROW = {"model": "weights", "KV": "KV cache", "compute": "compute", "output": "output"}

SHAPES = {
    "llama": Shape(n_layer=3, n_embd=512, n_ff=1536, n_head=8, n_head_kv=2, n_vocab=30000, type="Q4_0"),
    "qwen2": Shape("qwen2", bias=True, tied=True, n_embd=448, n_ff=2432, n_head=7, n_head_kv=1, n_vocab=60000),
    "qwen3": Shape("qwen3", head_norms=True, n_embd=512, n_head=8, n_head_kv=4, head=128, n_vocab=9000, type="F16"),
    "gemma2": Shape("gemma2", n_layer=4, post_norms=True, tied=True, window=1024, n_embd=512, n_ff=2048, n_head=8),
    "tied repacked": Shape(n_layer=2, n_embd=512, tied=True, n_vocab=40000, type="Q4_0"),
}
CASES = [
    ("llama", Serving(ctx_size=4096)),
    ("llama", Serving(ctx_size=4096, flash_attn=False, load_mode="none")),
    ("llama", Serving(ctx_size=4096, parallel=4, ubatch_size=128)),
    ("llama", Serving(ctx_size=4096, parallel=4, kv_unified=True)),
    ("llama", Serving(ctx_size=1000, parallel=3, cache_type_k="q8_0", cache_type_v="q4_0")),
    ("qwen2", Serving(ctx_size=8192, ubatch_size=2048)),
    ("qwen3", Serving(ctx_size=2048, flash_attn=False, parallel=2)),
    ("qwen3", Serving(ctx_size=8192, cache_type_k="q8_0", cache_type_v="q8_0", load_mode="none")),
    ("gemma2", Serving(ctx_size=8192)),
    ("gemma2", Serving(ctx_size=8192, parallel=2, flash_attn=False, ubatch_size=256)),
    ("gemma2", Serving(ctx_size=8192, parallel=2, kv_unified=True, cache_type_k="q8_0", cache_type_v="q8_0")),
    ("tied repacked", Serving(ctx_size=1024, load_mode="none")),
    ("tied repacked", Serving(ctx_size=1024)),
]


def words(serving: Serving) -> list[str]:
    """The server's arguments for a way of serving."""
    return [
        *("-c", str(serving.ctx_size), "-np", str(serving.parallel), "-ub", str(serving.ubatch_size)),
        *("-ctk", serving.cache_type_k, "-ctv", serving.cache_type_v, "-cram", str(serving.cache_ram_mib)),
        *("-fa", "on" if serving.flash_attn else "off", "-lm", "mmap" if serving.mapped else "none"),
        "-kvu" if serving.kv_unified else "-no-kvu",
    ]


def served(engine_bin: Path, model: Path, serving: Serving) -> dict[str, float]:
    """MiB by row, as the server says when it has loaded the model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fixed = ["-m", str(model), "--port", str(port), "-t", "1", "-fit", "off", "-lv", "4", "--no-warmup"]
    command = [str(engine_bin / "llama-server"), *fixed, *words(serving)]
    sizes: dict[str, float] = defaultdict(float)
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        assert server.stdout is not None
        for line in server.stdout:
            said.append(line)
            if found := LINE.search(line):
                sizes[ROW[found["kind"]]] += float(found["mib"])
            if "all slots are idle" in line:  # earlier, SIGTERM is lost
                break
        server.terminate()
        server.stdout.read()
    assert set(sizes) == set(ENGINE_ROWS) - {"recurrent state"}, "".join(said[-20:])
    return dict(sizes)


def features(engine_bin: Path) -> frozenset[str]:
    """The CPU features this engine reports ("system_info: … AVX2 = 1 | …")."""
    command = [str(engine_bin / "llama-server"), "-m", "/nonexistent", "-lv", "4"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return frozenset(re.findall(r"(\w+) = 1 \|", said.stdout + said.stderr))


@pytest.mark.parametrize(("shape", "serving"), CASES, ids=lambda value: value if isinstance(value, str) else None)
def test_rows_are_the_servers_own(engine_bin: Path, tmp_path: Path, shape: str, serving: Serving) -> None:
    path = SHAPES[shape].write(tmp_path / "model.gguf")
    serving = replace(serving, cpu_features=features(engine_bin))
    compare(estimate(from_file(path), serving).rows, served(engine_bin, path, serving))


def test_rows_of_a_real_model(engine_bin: Path, smollm2: Path) -> None:
    serving = Serving(ctx_size=4096, parallel=2, cpu_features=features(engine_bin))
    compare(estimate(from_file(smollm2), serving).rows, served(engine_bin, smollm2, serving))


def compare(rows: tuple[Row, ...], sizes: dict[str, float]) -> None:
    ours = {row.name: row.bytes / MIB for row in rows}
    for name, size in sizes.items():
        allowed = max(0.02 * size, 0.1)
        assert ours[name] == pytest.approx(size, abs=allowed), f"{name}: {ours[name]:.2f} MiB, server {size:.2f} MiB"
