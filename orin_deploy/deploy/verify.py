"""Verify: wait until the server answers, have it complete something real, read back what took effect.

A healthy /health proves nothing by itself: the read-back compares the process, its threads, its slots and its log with
the spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orin_deploy.deploy import drafting
from orin_deploy.deploy.drafting import Drafted, NotDrafting
from orin_deploy.errors import OrinError
from orin_deploy.host import Host, Progress, procfs
from orin_deploy.host.processes import BACKING_OFF, FAILED, RUNNING
from orin_deploy.intent import serving
from orin_deploy.intent.spec import Spec
from orin_deploy.parts import serverlog, service

_TELL_EVERY_S = 1.0
_ENDS_WITHIN_S = 2.0
_APPEARS_WITHIN_S = 10.0
_PROMPT = "Say in one short sentence that you are ready."
_ANSWER_TOKENS = 32
_SIGNALS = {
    9: (
        "was killed: most likely the kernel ran out of memory",
        "--set ctx_size=N with a smaller N, or a smaller model",
    ),
    4: ("was built for another processor: illegal instruction", "build it on this machine: orin-deploy up"),
}


@dataclass(frozen=True)
class Proof:
    """That the server works as planned: a real answer, its timings, and what memory the server says it took.

    Speeds are tokens per second, times seconds, sizes bytes; `ready_s` is from start to listening, None when the log
    does not say. `resident_bytes` counts the process's own and its mapped pages.
    """

    pid: int
    answer: str
    prompt_tokens: int
    prompt_per_s: float
    generated_tokens: int
    generated_per_s: float
    first_token_s: float
    ready_s: float | None
    memory: tuple[serverlog.Buffer, ...]
    resident_bytes: int
    drafted: Drafted | None = None  # of speculation, where it was planned


def await_ready(host: Host, spec: Spec, progress: Progress) -> None:
    """Return once the server has its model and answers.

    Raises OrinError with the reason from the server's log as soon as it has ended, or after the start timeout.
    """
    began = told = host.monotonic()
    limit = began + spec.service.start_timeout_s
    failures = service.status(host, spec.name).failures
    while True:
        now = service.status(host, spec.name)
        if now.state in (BACKING_OFF, FAILED) or now.failures > failures:
            raise failure(service.log_lines(host, spec.name), now.exit, spec.name)
        reply = host.http("GET", f"{spec.service.endpoint}/health", timeout_s=1)
        if now.state == RUNNING and reply is not None and reply.status == 200:
            return
        clock = host.monotonic()
        if now.state is None and clock > began + _APPEARS_WITHIN_S:
            raise failure(service.log_lines(host, spec.name), None, spec.name)
        if clock > limit:
            raise _too_slow(host, spec, clock - began)
        if clock > told + _TELL_EVERY_S:
            told = clock
            progress(None, f"loading the model, {clock - began:.0f} s: {_last_words(host, spec)}")
        host.sleep_between_looks(clock - began)


def failure(lines: Sequence[str], exit: str | None, name: str) -> OrinError:
    """Why the server ended: what its log says of the last start, or of one that it repeats; else how it ended."""
    for start in reversed(serverlog.starts(lines)):
        if found := serverlog.reason(start):
            return OrinError(*found)
        if not serverlog.is_restart(start):
            break
    if (match := re.match(r"signal (\d+)", exit or "")) and int(match[1]) in _SIGNALS:
        what, hint = _SIGNALS[int(match[1])]
        return OrinError(f"llama-server {what} ({exit})", hint)
    ended = f"ended with {exit}" if exit else "is not running"
    said = f", its log says: {words}" if (words := serverlog.complaint(lines)) else ""
    return OrinError(f"llama-server {ended} before it answered{said}", f"orin-deploy logs --lines 500 --name {name}")


def verify(host: Host, spec: Spec, progress: Progress) -> Proof:
    """Prove a server that is ready. Raises OrinError when it gives no answer or something differs from the spec."""
    progress(None, "asking for a completion")
    hint = f"orin-deploy logs --name {spec.name}"
    headers = service.auth_headers(spec)
    try:
        answer = service.chat(host, spec.service.endpoint, _PROMPT, _ANSWER_TOKENS, headers, hint=hint)
    except OrinError as error:
        raise _ended(host, spec) or error from error
    if not answer.text.strip():
        raise OrinError("the completion is not whole: it is empty", hint)
    progress(None, "reading back what took effect")
    state = service.inspect(host, spec)
    lines = service.log_lines(host, spec.name)
    slots = service.slots(host, spec)
    contexts = None if slots is None else [int(slot["n_ctx"]) for slot in slots]
    found = tuple(differences(spec, state, contexts, lines))
    if found or state.status.pid is None:
        raise OrinError(f"the service step's read-back differs: {'; '.join(found) or 'the server is gone'}", hint)
    drafted = None
    if spec.draft is not None:
        if idle := tuple(drafting.active(spec.draft, slots, lines)):
            raise NotDrafting(f"the service step's read-back differs: {'; '.join(idle)}", hint)
        progress(None, "asking for drafted tokens")
        drafted = drafting.prove(host, spec, spec.draft, answer.timings.drafted, answer.timings.accepted)
    return Proof(
        pid=state.status.pid,
        answer=answer.text.strip(),
        prompt_tokens=answer.timings.prompt_tokens,
        prompt_per_s=answer.timings.prompt_per_s,
        generated_tokens=answer.timings.generated_tokens,
        generated_per_s=answer.timings.generated_per_s,
        first_token_s=answer.first_token_s,
        ready_s=serverlog.seconds_to_ready(lines),
        memory=serverlog.memory_rows(lines),
        resident_bytes=sum(procfs.memory(state.status.pid, host.path("/proc")).values()),
        drafted=drafted,
    )


def differences(
    spec: Spec, state: service.ServiceState, slots: Sequence[int] | None, lines: Sequence[str]
) -> Iterator[str]:
    """What a ready server is otherwise than planned, each a sentence; `slots` are each slot's context, if known."""
    endpoint = state.endpoint
    if state.server is None:
        yield "no server runs"
        return
    if state.holder is not None:
        yield f"port {spec.service.port} is answered by process {state.holder.pid}: {state.holder.program}"
    yield from service.drift(spec, state)
    if endpoint.model_path != spec.weights.files[0].path:
        yield f"the model served is {endpoint.model_path}, planned {spec.weights.files[0].path}"
    yield from _context(spec, endpoint, slots)
    yield from _build(spec, endpoint.build)
    yield from _offload(spec, lines)


def _context(spec: Spec, endpoint: service.Endpoint, slots: Sequence[int] | None) -> Iterator[str]:
    count, each = _number(spec, "parallel"), context_per_slot(spec)
    if count is not None and endpoint.slots != count:
        yield f"slots: {endpoint.slots}, planned {count}"
    if each is not None and endpoint.ctx_per_slot != each:
        yield f"context per slot: {endpoint.ctx_per_slot}, planned {each}"
    if slots is not None and each is not None and count is not None and list(slots) != [each] * count:
        yield f"the slots' contexts: {list(slots)}, planned {[each] * count}"


def context_per_slot(spec: Spec) -> int | None:
    """Tokens each slot gets; None when the options do not say."""
    total, count = _number(spec, "ctx_size"), _number(spec, "parallel")
    if not total or count is None:
        return None
    shared = "kv_unified" in spec.settings and spec.settings["kv_unified"].value is True
    return serving.context_per_slot(spec.model.n_ctx_train, ctx_size=total, parallel=count, kv_unified=shared)


def _number(spec: Spec, key: str) -> int | None:
    """A server option that is a number above nothing; None when it is left to the server."""
    value = spec.settings[key].value if key in spec.settings else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _build(spec: Spec, said: str | None) -> Iterator[str]:
    match = re.match(r"b(\d+)-([0-9a-f]+)$", said or "")
    source = spec.build.source
    if match is None or spec.build.engine is not None:
        return
    if source.commit and not source.commit.startswith(match[2]) and not match[2].startswith(source.commit):
        yield f"the server is of commit {match[2]}, planned {source.commit[:7]}"
    if source.build_number is not None and int(match[1]) != source.build_number:
        yield f"the server is build {match[1]}, planned {source.build_number}"


def _offload(spec: Spec, lines: Sequence[str]) -> Iterator[str]:
    """On CUDA all layers must be on the GPU: the same DRAM holds them either way. A build without a GPU also prints
    the line about offloading, so the buffers must name a CUDA device too."""
    asked = spec.settings["gpu_layers"].value if "gpu_layers" in spec.settings else None
    if not spec.build.cuda or asked not in (None, "all"):
        return
    layers = serverlog.offloaded(lines)
    if layers is None or layers[0] != layers[1]:
        yield f"layers on the GPU: {f'{layers[0]} of {layers[1]}' if layers else 'unknown'}, planned all"
    elif not any(row.kind == "model" and re.fullmatch(r"CUDA\d+", row.device) for row in serverlog.memory_rows(lines)):
        yield "no model buffer is on a CUDA device"


def _ended(host: Host, spec: Spec) -> OrinError | None:
    """The reason in the log of a server that ended over its first request; None for one that still runs."""
    began = host.monotonic()
    while True:
        passed = host.monotonic() - began
        now = service.status(host, spec.name)
        if now.state in (BACKING_OFF, FAILED):
            return failure(service.log_lines(host, spec.name), now.exit, spec.name)
        if passed > _ENDS_WITHIN_S:
            return None
        host.sleep_between_looks(passed)


def _too_slow(host: Host, spec: Spec, seconds: float) -> OrinError:
    return OrinError(
        f"llama-server has not answered within {seconds:.0f} s; its log ends with: {_last_words(host, spec)}",
        f"--set service.start_timeout_s={2 * spec.service.start_timeout_s}, or orin-deploy logs --name {spec.name}",
    )


def _last_words(host: Host, spec: Spec) -> str:
    lines = [line for line in service.log_lines(host, spec.name) if line.strip()]
    return re.sub(r"^[\d.]+ [A-Z] ", "", lines[-1]).strip() if lines else "nothing"
