"""Specs for tests: a whole, consistent Spec for the real engine and a real model, each part open to change."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

from orin_deploy.facts.device import Cluster, Cpu, Device, Memory, Toolchain
from orin_deploy.facts.layers import Layer
from orin_deploy.facts.model import Model
from orin_deploy.intent.budget import Budget
from orin_deploy.intent.engine_rows import Row
from orin_deploy.intent.spec import Build, Placement, Service, Setting, Source, Spec, Value, WeightFile, Weights

MIB = 1024 * 1024


def make_device(cpus: tuple[int, ...] = (0, 1)) -> Device:
    """A small x86 machine without systemd."""
    cpu = Cpu("Test CPU", frozenset({"avx2"}), (Cluster(cpus),), cpus, cpus, cpus, "cache")
    memory = Memory(total=8192 * MIB, available=6144 * MIB, free=4096 * MIB)
    return Device("x86_64", "Debian 12", "6.1", cpu, memory, Toolchain(), None, systemd=False, container=None)


def make_model(path: Path) -> Model:
    """What SmolLM2-135M's header says, for any file."""
    size = path.stat().st_size if path.exists() else 0
    return Model(
        reference=f"file:{path}",
        known_from="header",
        architecture="llama",
        name="SmolLM2",
        n_params=134_515_008,
        file_type="Q4_1",
        file_bytes=size,
        tensor_bytes=size,
        n_embd=576,
        n_ff=1536,
        n_head=9,
        layers=(Layer(3, 64, 64),) * 30,
        n_vocab=49152,
        n_ctx_train=8192,
        tokenizer="gpt2",
        pre_tokenizer="smollm",
        chat_template=True,
        vocab_fingerprint=None,
    )


def make_build(folder: Path) -> Build:
    return Build(
        key="test",
        folder=str(folder),
        source=Source("tree", str(folder)),
        cmake=(),
        targets=("llama-server",),
        cuda=False,
        cuda_architectures=(),
        blas=False,
        jobs=1,
        cmake_program=None,
        ninja_program=None,
        nvcc=None,
        cpu_features=frozenset(),
        estimate_s=0.0,
        engine=str(folder),
    )


def make_spec(
    data: Path, engine_bin: Path, model: Path, port: int, *, options: dict[str, Value] | None = None, **changes: Any
) -> Spec:
    """A deployment `test` of `model`, served by `engine_bin` on 127.0.0.1 and CPUs 0 and 1, by a supervised process.

    `data` is the Host's data folder; `options` are server options by key, None leaves one out; `changes` replace
    fields of the Spec, its Service, Placement or Build, wherever a field of that name is first found in that order.
    """
    server: dict[str, Value] = {
        "host": "127.0.0.1",
        "port": port,
        "ctx_size": 1024,
        "parallel": 1,
        "threads": 2,
        "threads_batch": 2,
        "fit": "off",
        "cache_ram": 0,
        "verbosity": 4,
        **(options or {}),
    }
    passed = {key: value for key, value in server.items() if value is not None}
    words = [word for key, value in passed.items() for word in (f"--{key.replace('_', '-')}", str(value))]
    weights = Weights(f"file:{model}", (WeightFile(f"file:{model}", str(model)),))
    service = Service(
        manager="process",
        unit="orin-deploy-test.service",
        user=None,
        start_timeout_s=60,
        restart_delay_s=1,
        host="127.0.0.1",
        port=port,
        argv=(f"{engine_bin}/llama-server", "--model", str(model), *words),
        env=(),
        log=f"{data}/deployments/test/server.log",
    )
    spec = Spec(
        name="test",
        profile="host",
        device=make_device(),
        model=make_model(model),
        weights=weights,
        build=make_build(engine_bin),
        settings={key: Setting(value, "test") for key, value in passed.items()},
        placement=Placement((0, 1), 2, 2, "test"),
        service=service,
        budget=Budget((Row("weights", 92 * MIB, "header"),), 4096 * MIB, "test"),
    )
    for name, value in changes.items():
        spec = _changed(spec, name, value)
    return spec


def _changed(spec: Spec, name: str, value: Any) -> Spec:
    if hasattr(spec, name):
        return replace(spec, **{name: value})
    for part in ("service", "placement", "build"):
        if hasattr(getattr(spec, part), name):
            return replace(spec, **{part: replace(getattr(spec, part), **{name: value})})
    raise AttributeError(f"no part of a Spec has a field {name}")


def free_port() -> int:
    """A TCP port of the loopback address that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
