"""Starts that fail, for real, each with the reason that ends `up`; and what a read-back finds."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.deploy import verify
from orin_deploy.errors import OrinError
from orin_deploy.host import Host, processes, procfs
from orin_deploy.intent.spec import Spec
from orin_deploy.parts import service
from tests.specs import free_port, make_spec

pytestmark = pytest.mark.engine


def quiet(fraction: float | None, text: str) -> None:
    pass


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path / "data")})
    yield host
    for launch in (host.data / "deployments").glob("*/launch.json"):
        processes.stop(host, launch)


def start(host: Host, spec: Spec) -> None:
    (step,) = service.plan(spec, service.inspect(host, spec))
    for action in step.actions:
        host.do(action)


def failure(host: Host, spec: Spec) -> OrinError:
    """How `up` ends for a spec that cannot serve; a server that has ended must not be waited for."""
    start(host, spec)
    began = time.monotonic()
    with pytest.raises(OrinError) as caught:
        verify.await_ready(host, spec, quiet)
    assert time.monotonic() - began < 10
    assert caught.value.hint
    return caught.value


HEADER = 8_000_000  # more than the header of the model takes; tensors' bytes are not looked at before these failures


def edited(head: bytes, key: str, value: bytes) -> bytes:
    """The head of a GGUF file with the text value of a key replaced by one of the same length."""
    data = bytearray(head)
    at = data.index(key.encode()) + len(key) + 4
    (length,) = struct.unpack("<Q", data[at : at + 8])
    assert length == len(value)
    data[at + 8 : at + 8 + length] = value
    return bytes(data)


MODELS: dict[str, tuple[Callable[[bytes], bytes], int | None, str]] = {
    "truncated tensors": (lambda head: head, 50_000_000, "truncated or corrupt"),
    "truncated header": (lambda head: head[:1_000_000], None, "truncated or corrupt"),
    "garbage": (lambda head: b"\x00\xffgarbage" * 1000, None, "not a GGUF file"),
    "a web page": (lambda head: b"<html>not found</html>", None, "not a GGUF file"),
    "empty": (lambda head: b"", None, "not a GGUF file"),
    "newer architecture": (
        lambda head: edited(head, "general.architecture", b"lxama"),
        100_000_000,
        r"newer than the binary: llama-server \(build \d+, [0-9a-f]{7,}\) does not know the architecture lxama",
    ),
    "newer pre-tokenizer": (
        lambda head: edited(head, "tokenizer.ggml.pre", b"smxllm"),
        100_000_000,
        r"newer than the binary: llama-server \(build \d+, [0-9a-f]{7,}\) does not know the pre-tokenizer smxllm",
    ),
}


@pytest.mark.parametrize(("content", "size", "expected"), MODELS.values(), ids=MODELS.keys())
def test_a_model_that_does_not_load(
    host: Host,
    engine_bin: Path,
    smollm2: Path,
    tmp_path: Path,
    content: Callable[[bytes], bytes],
    size: int | None,
    expected: str,
) -> None:
    model = tmp_path / "model.gguf"
    with smollm2.open("rb") as file:
        model.write_bytes(content(file.read(HEADER)))
    if size is not None:
        os.truncate(model, size)  # a hole in the place of the tensors
    message = failure(host, make_spec(host.data, engine_bin, model, free_port())).message
    assert re.search(expected, message)


OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown option": ({"no_mmap": "on"}, "has no option --no-mmap"),
    "removed option": ({"draft_max": 8}, "--draft-max: the argument has been removed. use --spec-draft-n-max"),
    "wrong value": ({"cache_type_k": "zz"}, "value of --cache-type-k: Unsupported cache type: zz"),
    "not a number": ({"ctx_size": "many"}, "wants a number for --ctx-size"),
    "quantised V without flash attention": (
        {"cache_type_v": "q4_0", "flash_attn": "off"},
        "a quantised cache_type_v needs flash attention",
    ),
    "no key file": ({"api_key_file": "/nonexistent/key"}, "/nonexistent/key"),
}


@pytest.mark.parametrize(("options", "expected"), OPTIONS.values(), ids=OPTIONS.keys())
def test_an_option_that_does_not_work(
    host: Host, engine_bin: Path, smollm2: Path, options: dict[str, Any], expected: str
) -> None:
    spec = make_spec(host.data, engine_bin, smollm2, free_port(), options=options)
    assert expected in failure(host, spec).message


def test_no_model_file(host: Host, engine_bin: Path, tmp_path: Path) -> None:
    spec = make_spec(host.data, engine_bin, tmp_path / "none.gguf", free_port())
    assert "none.gguf cannot be opened: No such file or directory" in failure(host, spec).message


def test_no_engine(host: Host, smollm2: Path, tmp_path: Path) -> None:
    spec = make_spec(host.data, tmp_path / "nowhere", smollm2, free_port())
    assert "nowhere/llama-server cannot be started: No such file" in failure(host, spec).message


def test_a_missing_library(host: Host, engine_bin: Path, smollm2: Path, tmp_path: Path) -> None:
    alone = tmp_path / "bin"
    alone.mkdir()
    shutil.copy2(engine_bin / "llama-server", alone / "llama-server")
    environ = {name: value for name, value in host.environ.items() if name != "LD_LIBRARY_PATH"}
    host.environ.clear()
    host.environ.update(environ)
    message = failure(host, make_spec(host.data, alone, smollm2, free_port())).message
    if "shared library" not in message:
        pytest.skip(f"this engine finds its libraries by an absolute path: {message}")
    assert ".so" in message


def test_a_cpu_that_is_not_there(host: Host, engine_bin: Path, smollm2: Path) -> None:
    spec = make_spec(host.data, engine_bin, smollm2, free_port(), cpus=(1000,))
    assert "none of the CPUs planned" in failure(host, spec).message


def test_out_of_memory(host: Host, engine_bin: Path, smollm2: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    spec = make_spec(host.data, engine_bin, smollm2, free_port(), options={"ctx_size": 8_000_000})
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, hard))  # inherited by the server: no machine is put at risk
    try:
        message = failure(host, spec).message
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert "out of memory" in message


def test_a_port_taken_after_the_plan(host: Host, engine_bin: Path, smollm2: Path) -> None:
    spec = make_spec(host.data, engine_bin, smollm2, free_port())
    (step,) = service.plan(spec, service.inspect(host, spec))
    words = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(spec.service.port)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as other:
        try:
            while procfs.port_holder(spec.service.port) is None:
                time.sleep(0.02)
            for action in step.actions:
                host.do(action)
            with pytest.raises(OrinError, match=f"port {spec.service.port}"):
                verify.await_ready(host, spec, quiet)
        finally:
            other.kill()


def test_a_server_that_hangs_is_given_up_at_the_deadline(host: Host, engine_bin: Path, smollm2: Path) -> None:
    spec = make_spec(host.data, engine_bin, smollm2, free_port())
    start(host, spec)
    pid = service.running_pid(host, spec)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    told: list[str] = []
    hasty = replace(spec, service=replace(spec.service, start_timeout_s=2))
    with pytest.raises(OrinError, match="has not answered within") as caught:
        verify.await_ready(host, hasty, lambda fraction, text: told.append(text))
    assert "service.start_timeout_s" in (caught.value.hint or "")
    assert told
    assert told[0].startswith("loading the model")
    os.kill(pid, signal.SIGCONT)


def test_a_server_killed_while_it_loads(host: Host, engine_bin: Path, smollm2: Path) -> None:
    spec = make_spec(host.data, engine_bin, smollm2, free_port())
    start(host, spec)
    pid = service.running_pid(host, spec)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(OrinError, match="killed: most likely the kernel ran out of memory"):
        verify.await_ready(host, spec, quiet)


def test_a_failed_start_is_followed_by_a_good_one(host: Host, engine_bin: Path, smollm2: Path) -> None:
    port = free_port()
    failure(host, make_spec(host.data, engine_bin, smollm2, port, options={"no_mmap": "on"}))
    good = make_spec(host.data, engine_bin, smollm2, port)
    start(host, good)
    verify.await_ready(host, good, quiet)
    assert verify.verify(host, good, quiet).answer


def test_halt_ends_a_crash_loop(host: Host, engine_bin: Path, smollm2: Path) -> None:
    spec = make_spec(host.data, engine_bin, smollm2, free_port(), options={"no_mmap": "on"})
    failure(host, spec)
    for action in service.halt(host, spec):
        host.do(action)
    assert service.status(host, spec.name).state is None


def test_a_server_of_another_plan_is_not_proved(host: Host, engine_bin: Path, smollm2: Path) -> None:
    port = free_port()
    spec = make_spec(host.data, engine_bin, smollm2, port, options={"ctx_size": 1024, "parallel": 2})
    start(host, spec)
    verify.await_ready(host, spec, quiet)
    assert verify.verify(host, spec, quiet).memory
    other = make_spec(host.data, engine_bin, smollm2, port, options={"ctx_size": 2048, "parallel": 1})
    with pytest.raises(OrinError, match="the service step's read-back differs") as caught:
        verify.verify(host, other, quiet)
    for words in ("--ctx-size 1024 -> 2048", "slots: 2, planned 1", "context per slot: 512, planned 2048"):
        assert words in caught.value.message


def test_no_answer_no_proof(host: Host, engine_bin: Path, smollm2: Path) -> None:
    spec = make_spec(host.data, engine_bin, smollm2, free_port())
    with pytest.raises(OrinError, match="the completion failed"):
        verify.verify(host, spec, quiet)
    start(host, spec)
    verify.await_ready(host, spec, quiet)
    elsewhere = replace(spec.weights, files=(replace(spec.weights.files[0], path="/other.gguf"),))
    with pytest.raises(OrinError, match="the model served is"):
        verify.verify(host, replace(spec, weights=elsewhere), quiet)
