"""Residual: what a server took beyond its plan, kept on disk, so that later plans count it in a row of its own.

It is kept by board, engine build and the model's architecture, in it by model for the latest few, of which the largest
counts. A start that takes more than planned raises it, an end for lack of memory adds a margin, and each good start
takes half of a margin back, down to what was measured.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from orin_deploy.actions import Write
from orin_deploy.deploy import taken
from orin_deploy.deploy.verify import Proof
from orin_deploy.errors import OrinError
from orin_deploy.facts.device import MIB, Device
from orin_deploy.facts.tenants import NVMAP_CLIENTS, nvmap_clients
from orin_deploy.host import Host
from orin_deploy.intent.engine_rows import Row
from orin_deploy.intent.limit import LEARNED
from orin_deploy.intent.serving import mib
from orin_deploy.intent.spec import Spec
from orin_deploy.parts import out_of_memory as words
from orin_deploy.parts import service
from orin_deploy.parts.serverlog import starts

FORMAT = 1
ROW = LEARNED

FILE = "learned.json"
_TOLERANCE_BYTES, _TOLERANCE_SHARE = 4 * MIB, 0.005  # of the plan: as exact as the plan means to be
_MARGIN_BYTES, _MOST_MARGIN_BYTES = 256 * MIB, 1024 * MIB
_MOST_ENTRIES, _MOST_MODELS, _MOST_BYTES = 256, 4, 1 << 40


@dataclass(frozen=True)
class Learned:
    """What was learned for one board, engine and architecture, in bytes.

    `measured_bytes` is the difference of the last good start, negative where it took less than planned; `bytes` is what
    plans count, `margin_bytes` the part of it that failures added. `models` are the latest few that started, the newest
    last, with what each took beyond its plan. `record` and `name` say where it was last seen.
    """

    board: str
    engine: str
    architecture: str
    bytes: int = 0
    measured_bytes: int = 0
    margin_bytes: int = 0
    starts: int = 0
    name: str = ""
    record: int = 0
    models: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, str, str]:
        return self.board, self.engine, self.architecture


@dataclass(frozen=True)
class Lack:
    """An end for lack of memory; `requested_bytes` is what could not be had, None where nothing tells it."""

    requested_bytes: int | None = None


@dataclass(frozen=True)
class Watch:
    """Before a start: the kernel's count of kills for lack of memory, and the starts in the server's log."""

    kills: int | None
    starts: int


def rows(host: Host, device: Device, engine: str, architecture: str) -> tuple[Row, ...]:
    """The row to add to a plan; none where nothing was learned, or nothing that the plan is not exact enough to see."""
    known = _read(host).get((device.board, engine, architecture))
    if known is None or known.bytes <= 0:
        return ()
    return (Row(ROW, known.bytes, said(known)),)


def said(known: Learned) -> str:
    """Where a learned row comes from, in words."""
    starts = f"{known.starts} start{'' if known.starts == 1 else 's'}"
    what = f"record {known.record} of {known.name}, {starts}"
    model, more = max(reversed(list(known.models.items())), key=lambda each: each[1], default=("", 0))
    if more > 0:
        what += f": took {mib(more)} more than planned"
        what += f" with {model}" if len(known.models) > 1 else ""
    if known.margin_bytes:
        what += f"; {mib(known.margin_bytes)} after an end for lack of memory"
    return what


def after_start(known: Learned, model: str, measured: int, planned: int) -> Learned:
    """What is known after a good start of a model that took `measured` bytes more (or less) than the `planned`."""
    tolerance = max(_TOLERANCE_BYTES, round(planned * _TOLERANCE_SHARE))
    more = measured if measured > tolerance else 0
    margin = known.margin_bytes // 2
    margin = margin if margin > _TOLERANCE_BYTES else 0
    others = [each for each in known.models.items() if each[0] != model]
    models = dict([*others, (model, more)][-_MOST_MODELS:])
    return replace(
        known,
        bytes=max(models.values()) + margin,
        measured_bytes=measured,
        margin_bytes=margin,
        starts=known.starts + 1,
        models=models,
    )


def after_failure(known: Learned, told: int | None) -> Learned:
    """What is known after an end for lack of memory; `told` is what could not be allocated, which bounds the lack."""
    more = _MARGIN_BYTES if told is None else min(_MARGIN_BYTES, told)
    margin = min(known.margin_bytes + more, _MOST_MARGIN_BYTES)
    measured = max(known.bytes - known.margin_bytes, 0)
    return replace(known, bytes=measured + margin, margin_bytes=margin)


def measured(spec: Spec, proof: Proof, gpu_bytes: int | None) -> tuple[int, int]:
    """Bytes taken beyond the plan, and bytes planned, for what a server holds that has answered its first request.

    On the CPU the process is compared as a whole, and each buffer with its row, for buffers are not touched to their
    end by one request: the larger difference counts. With CUDA, `gpu_bytes` is what NvMap gives the process, None where
    that cannot be read; then only the buffers are compared.
    """
    planned = {row.name: row.bytes - row.apart_bytes for row in spec.budget.rows if row.name not in taken.NOT_RESIDENT}
    total = sum(planned.values())
    buffers = sum(row.taken_bytes - row.planned_bytes for row in taken.compare(spec, proof.memory))
    if not spec.build.cuda:
        return max(buffers, proof.resident_bytes - total), total
    if gpu_bytes is None:
        return buffers, total
    host = planned.get("process", 0)
    return max(buffers, gpu_bytes - (total - host)), total


def remember_start(host: Host, spec: Spec, proof: Proof, number: int) -> None:
    """Keep the difference of a start that was proved; `number` is its record's.

    Where it cannot be written, nothing is learned: the server runs, and the next start teaches the same.
    """
    clients = nvmap_clients(host.read(NVMAP_CLIENTS) or "") if spec.build.cuda else {}
    gpu = clients[proof.pid][1] if proof.pid in clients else None
    difference, planned = measured(spec, proof, gpu)
    known = after_start(_known(host, spec), _served(spec), difference, planned)
    with contextlib.suppress(OSError):
        _keep(host, replace(known, name=spec.name, record=number))


def watch(host: Host, name: str) -> Watch:
    """What to know before a start, to tell afterwards what it led to."""
    return Watch(kernel_kills(host), len(starts(service.log_lines(host, name))))


def remember_failure(host: Host, spec: Spec, error: OrinError, number: int, before: Watch) -> None:
    """Where a start failed for lack of memory, keep what later plans shall leave, and say so in the error."""
    now, log = kernel_kills(host), starts(service.log_lines(host, spec.name))
    killed = before.kills is None or now is None or now > before.kills
    lack = out_of_memory(log[-1] if len(log) != before.starts else (), error, killed=killed)
    if lack is None:
        return
    last = _known(host, spec)
    known = replace(after_failure(last, lack.requested_bytes), name=spec.name, record=number)
    with contextlib.suppress(OSError):  # a full disk must not hide why the start failed
        _keep(host, known)
    if known.bytes == last.bytes:
        more = f"plans already leave {mib(known.bytes)} more, and that was not it"
    else:
        more = f"from now on plans leave {mib(known.bytes)} more (row {ROW})"
    error.message = f"{error.message}; {more}"
    error.args = (error.message,)


def kernel_kills(host: Host) -> int | None:
    """How many processes the kernel has killed for lack of memory since it booted; None where it does not count."""
    match = re.search(r"^oom_kill ([0-9]{1,18})$", host.read("/proc/vmstat") or "", re.MULTILINE)
    return int(match[1]) if match else None


def out_of_memory(lines: Sequence[str], error: OrinError, *, killed: bool) -> Lack | None:
    """The lack of memory for which a server ended; None where that was not the reason.

    `lines` are its own of that start; `killed` says whether a SIGKILL can have been the kernel's.
    """
    text = "\n".join(lines)
    if not re.search(words.ANY, text) and not (killed and "signal 9 (SIGKILL)" in error.message):
        return None
    return Lack(words.requested_bytes(text))


def _known(host: Host, spec: Spec) -> Learned:
    key = (spec.device.board, spec.build.key, spec.model.architecture)
    return _read(host).get(key) or Learned(*key)


def _served(spec: Spec) -> str:
    """The model that is served, by its reference, with its draft where it has one."""
    draft = spec.draft.weights if spec.draft is not None else None
    return spec.weights.reference if draft is None else f"{spec.weights.reference} and {draft.reference}"


def _read(host: Host) -> dict[tuple[str, str, str], Learned]:
    """What is on disk; nothing where it is damaged, absent or of another format: it is learned anew."""
    try:
        document = json.loads(host.read(host.data / FILE) or "null")
        if not isinstance(document, Mapping) or document.get("format") != FORMAT:
            return {}
        found = (_entry(item) for item in document["learned"])
        return {known.key: known for known in found if known is not None}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _entry(item: Any) -> Learned | None:
    if not isinstance(item, Mapping):
        return None
    try:
        known = Learned(**item)
    except TypeError:
        return None
    if not isinstance(known.models, Mapping):
        return None
    texts = (known.board, known.engine, known.architecture, known.name)
    numbers = [known.bytes, known.measured_bytes, known.margin_bytes, known.starts, known.record]
    numbers += known.models.values()
    sound = all(isinstance(text, str) for text in texts) and all(
        isinstance(number, int) and not isinstance(number, bool) and abs(number) < _MOST_BYTES for number in numbers
    )
    return known if sound and known.bytes >= 0 and known.margin_bytes >= 0 else None


def _keep(host: Host, known: Learned) -> None:
    """Write what is known, the newest last; the oldest go when there are too many."""
    entries = _read(host)
    entries.pop(known.key, None)
    kept = [*entries.values(), known][-_MOST_ENTRIES:]
    document = {"format": FORMAT, "learned": [asdict(each) for each in kept]}
    host.do(Write(str(host.data / FILE), json.dumps(document, indent=1) + "\n"))
