"""The server of an arm: one that we start and end, or the deployment that runs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orin_deploy.actions import Remove, Write
from orin_deploy.deploy import verify
from orin_deploy.errors import OrinError
from orin_deploy.host import Host, Progress
from orin_deploy.host.processes import FAILED, RUNNING
from orin_deploy.host.trial import Trial
from orin_deploy.intent.spec import Spec
from orin_deploy.observe.bench.arms import NONE
from orin_deploy.observe.bench.sample import Counts
from orin_deploy.observe.telemetry.serving import parse_metrics
from orin_deploy.parts import service

_TIMEOUT_S = 10.0
_BY_POSITION = re.compile(
    r'^llamacpp:spec_decode_num_accepted_tokens_per_pos_total\{position="(\d+)"\} ([0-9.e+]+)$', re.MULTILINE
)


class Server:
    """A server that answers for an arm; `trial` is what we started, None for the deployment."""

    def __init__(self, host: Host, arm: str, spec: Spec, trial: Trial | None = None) -> None:
        self.host = host
        self.arm = arm
        self.spec = spec
        self.trial = trial
        self.endpoint = spec.service.endpoint
        self.headers = service.auth_headers(spec)
        self.counted = Counts()

    def pids(self) -> tuple[int, ...]:
        """Our own processes: the server, its draft's, and this program."""
        known: tuple[int | None, ...]
        if self.trial is None:
            now = service.status(self.host, self.spec.name)
            known = now.pid, now.draft
        else:
            running = self.trial.running()
            known = (running.server, *running.companions) if running else ()
        return (os.getpid(), *(pid for pid in known if pid is not None))

    def counts(self) -> Counts | None:
        """What it speculated since the last call; None where it has no metrics."""
        reply = self.host.http("GET", f"{self.endpoint}/metrics", headers=self.headers, timeout_s=_TIMEOUT_S)
        if reply is None or reply.status != 200:
            return None
        now = parse_counts(reply.body.decode("utf-8", "replace"))
        since, self.counted = now.since(self.counted), now
        return since

    def tokens(self, text: str) -> int:
        """How many tokens a text is."""
        url = f"{self.endpoint}/tokenize"
        reply = self.host.http("POST", url, {"content": text}, headers=self.headers, timeout_s=_TIMEOUT_S)
        found = reply.json() if reply is not None and reply.status == 200 else None
        if not isinstance(found, dict) or not isinstance(found.get("tokens"), list):
            raise self.failure("it does not tokenize")
        return len(found["tokens"])

    def speculates(self) -> bool:
        """Whether each slot does, by the server's own word."""
        slots = service.slots(self.host, self.spec)
        return bool(slots) and all(slot.get("speculative") for slot in slots or ())

    def log(self) -> tuple[str, ...]:
        text = self.host.read(self.spec.service.log) or ""
        return tuple(text.splitlines())

    def failure(self, what: str) -> OrinError:
        """Why an arm's server cannot go on: what its log says once it has ended, else `what`."""
        if self.trial is None:
            return OrinError(
                f"{self.spec.name} cannot be measured: {what}", f"orin-deploy logs --name {self.spec.name}"
            )
        running = self.trial.running()
        if running is None or running.state != RUNNING:
            error = verify.failure(self.log(), running.exit if running else None, self.spec.name)
            ours = f"look at {self.spec.service.log}"
            return OrinError(error.message, ours if "orin-deploy logs" in (error.hint or "") else error.hint)
        return OrinError(f"the arm {self.arm} cannot be measured: {what}", f"look at {self.spec.service.log}")


@contextmanager
def started(host: Host, arm: str, spec: Spec, progress: Progress) -> Iterator[Server]:
    """Start an arm's server, wait until it answers, and check that it speculates as planned; it ends for certain.

    Raises OrinError when it cannot.
    """
    taskset = host.which("taskset")
    if taskset is None:
        raise OrinError("taskset is not on this machine, so the server cannot be pinned", "sudo apt install util-linux")
    launch = Path(spec.service.log).with_name("launch.json")
    host.do(Remove(str(launch.parent)))
    host.do(Write(str(launch), service.launch_text(spec, service.where(host, spec.name), taskset)))
    with host.trial(launch) as trial:
        server = Server(host, arm, spec, trial)
        _await(server, progress)
        planned = speculation(spec) != NONE
        if server.speculates() != planned:
            what = f"does not speculate, planned {speculation(spec)}" if planned else "speculates, and shall not"
            raise OrinError(f"the arm {arm} {what}", f"look at {spec.service.log}")
        yield server
    host.do(Remove(str(launch.parent)))


def speculation(spec: Spec) -> str:
    """The kinds of speculation that a spec asks for, or NONE."""
    setting = spec.settings.get("spec_type")
    return str(setting.value) if setting is not None and setting.value else NONE


def _await(server: Server, progress: Progress) -> None:
    assert server.trial is not None
    began = server.host.monotonic()
    while True:
        reply = server.host.http("GET", f"{server.endpoint}/health", timeout_s=1)
        running = server.trial.running()
        if server.trial.ended or (running is not None and running.state == FAILED):
            raise server.failure("it ended")
        if reply is not None and reply.status == 200 and running is not None:
            return
        seconds = server.host.monotonic() - began
        if seconds > server.spec.service.start_timeout_s:
            raise server.failure(f"it has not answered within {seconds:.0f} s")
        progress(None, f"{server.arm}: loading the model, {seconds:.0f} s")
        server.host.sleep_between_looks(seconds)


def parse_counts(text: str) -> Counts:
    """What /metrics says of speculation since the server started."""
    positions = {int(position): int(float(count)) for position, count in _BY_POSITION.findall(text)}
    return Counts(
        drafts=int(parse_metrics(text).get("spec_decode_num_drafts_total", 0)),
        by_position=tuple(positions.get(at, 0) for at in range(max(positions, default=-1) + 1)),
    )
