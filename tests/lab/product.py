"""The product in a board: installing it without a network, calling it, and looking at what it runs."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any

from tests.lab.commands import LabError
from tests.lab.machine import Board

VENV = "/opt/orin-deploy"
PROGRAM = f"{VENV}/bin/orin-deploy"
ENGINE = "/opt/engine"
NAME = "lab"
TINY = "/opt/tiny.gguf"  # the model with one layer of its thirty: what it says is nonsense, and quick
_WHEELS = "--find-links /opt/lab/wheels --find-links /opt/given/wheels"
PIP = f"PYTHONPATH=$(ls -d /opt/lab/wheels/pip-*.whl) {VENV}/bin/python -m pip"
ENDPOINT = "http://127.0.0.1:8080"

# One thread: two emulated ones that wait for one another at every layer are slower.
_PROFILE = """# For module {module}.
description: The lab's board, with an engine that was built elsewhere for its CPU.
include: {board}
model: /opt/lab/model.gguf
ctx_size: 1024
threads: 1
threads_batch: 1
cache_ram: 0
build: {{cuda: off, engine: {engine}}}
service: {{start_timeout_s: 1800}}
"""


@dataclass(frozen=True)
class Said:
    """How a call of the product ended: exit code, its JSON document, and what it told beside it."""

    code: int
    document: Any
    told: str

    @property
    def error(self) -> str:
        error = self.document.get("error", {}) if isinstance(self.document, dict) else {}
        return f"{error.get('message')} ({error.get('hint')})" if error else self.told.strip()[-800:]


@dataclass(frozen=True)
class Thread:
    """A thread of a process: the CPUs that it may use, its user, and whether it may gain privileges."""

    cpus: str
    uid: int
    no_new_privileges: bool


def installation(board: Board) -> str:
    """As a site without a network does: a virtual environment, wheels from a folder, the engine's archive unpacked."""
    text = _PROFILE.format(module=board.table.module, board=board.kind, engine=ENGINE)
    layers = ",".join(map(str, range(1, 29)))
    return (
        f"set -e; python3 -m venv --without-pip {VENV}; "
        f"{PIP} install -q --no-index {_WHEELS} orin-deploy; "
        f"mkdir -p {ENGINE} /etc/orin-deploy/profiles; "
        f"tar -xf /opt/lab/engine.tar.gz -C {ENGINE} --strip-components=1; "
        f"printf %s {shlex.quote(text)} > /etc/orin-deploy/profiles/{NAME}.yaml; "
        f"{ENGINE}/llama-quantize --allow-requantize --prune-layers {layers} /opt/lab/model.gguf {TINY} COPY; sync"
    )


def install(board: Board) -> None:
    board.ssh(installation(board), timeout=3600)


def upgrade(board: Board) -> None:
    """Only the product's own wheel, over an older one."""
    board.ssh(f"{PIP} install -q --no-index --no-deps --force-reinstall {_WHEELS} orin-deploy; sync", timeout=1800)


def call(board: Board, words: str, timeout: float = 3600) -> Said:
    """`orin-deploy WORDS --json` on the board."""
    done = board.ssh(f"{PROGRAM} {words} --json", check=False, timeout=timeout)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = {}
    return Said(done.returncode, document, done.stderr if document else done.stdout + done.stderr)


def must(board: Board, words: str, timeout: float = 3600) -> Any:
    """The document of a call that must end well."""
    said = call(board, words, timeout)
    if said.code != 0:
        raise LabError(f"orin-deploy {words} ended with {said.code}: {said.error}", said.told[-1500:])
    return said.document


def expect_nothing_to_do(board: Board, words: str) -> None:
    """The same `up` again changes nothing; else the steps that it found are told."""
    again = must(board, words)
    found = [f"{step['name']}: {step['why']}" for step in again["plan"]["steps"] if step["actions"]]
    expect(not again["changed"], f"{words} found something to do: {'; '.join(found)}")


def pid(board: Board, unit: str) -> int:
    """A unit's main process, 0 when it does not run."""
    return int(board.ssh(f"systemctl show -p MainPID --value {unit}").stdout or 0)


def threads(board: Board, process: int) -> list[Thread]:
    said = board.ssh(f"grep -hE '^(Uid|NoNewPrivs|Cpus_allowed_list)' /proc/{process}/task/*/status").stdout
    rows = [line.split(":", 1)[1].split() for line in said.splitlines()]
    # Three lines a thread, in the kernel's order.
    return [
        Thread(cpus[0], int(uid[0]), privileges[0] == "1")
        for uid, privileges, cpus in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
    ]


def await_answer(board: Board, seconds: float = 1200) -> None:
    """Wait until the server says that it has its model."""
    board.ssh(
        f"for n in $(seq {int(seconds / 3)}); do "
        f"python3 -S -c 'import urllib.request as u; u.urlopen(\"{ENDPOINT}/health\", timeout=30)' 2>/dev/null "
        "&& exit 0;"
        " sleep 3; done; exit 1",
        timeout=seconds + 120,
    )


def mode(board: Board) -> str:
    said = board.ssh("nvpmodel -q").stdout
    return next(line.rpartition(" ")[2] for line in said.splitlines() if "NV Power Mode" in line)


def online(board: Board) -> str:
    return board.ssh("cat /sys/devices/system/cpu/online").stdout.strip()


def expect(condition: object, sentence: str) -> None:
    """What a check demands; the sentence says what is the case when it does not hold."""
    if not condition:
        raise AssertionError(sentence)
