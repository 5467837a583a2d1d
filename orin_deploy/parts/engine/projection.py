"""Asking the built engine what a model takes, for an architecture that is newer than the rules in facts/layers.py."""

from __future__ import annotations

import re
from dataclasses import replace

from orin_deploy.facts.architectures import KNOWN
from orin_deploy.facts.device import MIB
from orin_deploy.facts.model import Model, Projected
from orin_deploy.host import Host
from orin_deploy.intent.spec import Build

_FIRST, _SECOND = 32768, 65536  # contexts to ask at: it answers in whole MiB, so the longer the better


def completed(host: Host, build: Build, model: Model, path: str) -> Model:
    """The model with the engine's own projection where no rule knows it, the engine is built and the file is there.

    Anything else, an engine without llama-fit-params included, leaves the model as it is.
    """
    if model.architecture in KNOWN or not host.exists(f"{build.bin}/llama-fit-params") or not host.exists(path):
        return model
    first, second = (_ask(host, build, path, size) for size in (_FIRST, _SECOND))
    return replace(model, projected=between(first, second)) if first and second else model


def between(first: tuple[int, int, int], second: tuple[int, int, int]) -> Projected:
    """What two answers say together: context memory is a part for each sequence and one for each cell."""
    cell = max(0, second[1] - first[1]) / (_SECOND - _FIRST)
    return Projected(second[0], max(0, round(first[1] - cell * _FIRST)), cell, max(first[2], second[2]))


def _ask(host: Host, build: Build, path: str, ctx_size: int) -> tuple[int, int, int] | None:
    program = str(host.path(f"{build.bin}/llama-fit-params"))
    words = ("--fit-print", "on", "-fit", "off", "-np", "1", "-c", str(ctx_size), "-m", str(host.path(path)))
    return parse(host.ask(program, *words, timeout_s=60) or "")


def parse(text: str) -> tuple[int, int, int] | None:
    """Bytes of model, context and compute over all devices, from lines such as "Host 92 1440 98"; None without one."""
    found = re.findall(r"^.*\S (\d+) (\d+) (\d+)\s*$", text, re.MULTILINE)
    if not found:
        return None
    model, context, compute = (sum(map(int, column)) * MIB for column in zip(*found, strict=True))
    return model, context, compute
