"""`top`: what machine and server do, once a moment, for people or as lines of JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

from orin_deploy.cli.console import Console
from orin_deploy.cli.show_top import Moment, view_for
from orin_deploy.deploy.down import choose
from orin_deploy.deploy.record import deployments, latest, spec_of
from orin_deploy.errors import Exit, UsageError
from orin_deploy.facts import jetson
from orin_deploy.host import Host
from orin_deploy.observe.telemetry import Sampler
from orin_deploy.observe.telemetry.missing import reasons
from orin_deploy.observe.telemetry.serving import Serving, Watch
from orin_deploy.parts import service

INTERVALS_S = (0.1, 3600.0)


def top(name: str | None, interval_s: float, once: bool, console: Console) -> None:
    """Show moment after moment until Ctrl-C (exit code 130), or one."""
    if not (math.isfinite(interval_s) and INTERVALS_S[0] <= interval_s <= INTERVALS_S[1]):
        raise UsageError(f"--interval {interval_s:g} is not within {INTERVALS_S[0]:g} and {INTERVALS_S[1]:g} seconds")
    host = Host()
    watched = _watched(host, name, console)
    view = view_for(console, once)
    is_jetson = jetson.read(host) is not None
    with Sampler(host, interval_s) as sampler:
        try:
            watched.look()  # a rate takes two looks
            for _ in _ticks(host, interval_s):
                sample = sampler.sample()
                missing = reasons(sample, is_jetson, host.is_root, sampler.refused)
                view.show(Moment(sample, watched.name, watched.look(), missing))
                if once or console.out.stream is None:
                    return
        except KeyboardInterrupt:
            view.end()
            sys.exit(Exit.INTERRUPTED)


def _ticks(host: Host, interval_s: float) -> Iterator[int]:
    """One tick at once and then one an interval, by a clock that does not drift; ticks that were missed are skipped."""
    began = host.monotonic()
    number = 0
    while True:
        yield number
        number = max(number + 1, math.floor((host.monotonic() - began) / interval_s))
        host.sleep(max(began + number * interval_s - host.monotonic(), 0))


class _Watched:
    """The deployment looked at, if any; its record is read again when its server does not answer, for `up` may run."""

    def __init__(self, host: Host, name: str | None) -> None:
        self.host = host
        self.name = name
        self.watch: Watch | None = None

    def look(self) -> Serving | None:
        if self.name is None:
            return None
        self.watch = self.watch or self._watch(self.name)
        if self.watch is None:
            return Serving(
                missing=f"no record that can be read says where it answers: orin-deploy up --name {self.name}"
            )
        serving = self.watch.look()
        if serving.requests is None:
            self.watch = None
        return serving

    def _watch(self, name: str) -> Watch | None:
        spec = spec_of(latest(self.host, name))
        if spec is None:
            return None
        setting = spec.settings.get("metrics")
        metrics = setting is not None and setting.value is True
        return Watch(self.host, spec.service.endpoint, service.auth_headers(spec), metrics)


def _watched(host: Host, name: str | None, console: Console) -> _Watched:
    """The deployment named, else the only one that is up, else none."""
    if name is not None:
        return _Watched(host, choose(host, name))
    up = deployments(host)
    if len(up) > 1:
        console.tell(f"{len(up)} deployments are up: {', '.join(up)}; --name NAME shows one of them too")
    return _Watched(host, up[0] if len(up) == 1 else None)
