"""What happens to the machine while it is measured: who else computes, what slows it down, how warm it gets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType

from orin_deploy.host import Host
from orin_deploy.observe.telemetry import Sample as Telemetry
from orin_deploy.observe.telemetry import Sampler

_EVERY_S = 0.5


@dataclass(frozen=True)
class Moment:
    """A look at the machine at `time` on the host's clock."""

    time: float
    sample: Telemetry


@dataclass(frozen=True)
class Busy:
    """CPU seconds since boot, all programs' (time stolen by other virtual machines included) and our own."""

    time: float
    all_s: float
    ours_s: float


def others_cpus(before: Busy | None, after: Busy | None) -> float | None:
    """How many CPUs other programs kept busy between two readings."""
    if before is None or after is None or after.time <= before.time:
        return None
    theirs = (after.all_s - before.all_s) - (after.ours_s - before.ours_s)
    return max(theirs, 0.0) / (after.time - before.time)


def slowed(moments: Sequence[Moment], began: float, ended: float) -> tuple[str, ...]:
    """What slowed the machine down between two times: cooling devices at work, over-current events counted."""
    before = [moment for moment in moments if moment.time <= began][-1:]
    after = [moment for moment in moments if moment.time >= ended][:1]
    span = [*before, *(moment for moment in moments if began < moment.time < ended), *after]
    found = [name for moment in span for name in moment.sample.throttled_by or ()]
    counters = [moment.sample.over_current for moment in span if moment.sample.over_current]
    if counters:
        grown = (name for name, count in counters[-1].items() if count > counters[0].get(name, count))
        found += [f"over-current {name}" for name in grown]
    return tuple(dict.fromkeys(found))


class Watch:
    """Watches in a thread of its own; use it with `with`."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.moments: list[Moment] = []
        self._stop = Event()
        self._thread = Thread(target=self._run, name="bench-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(2 * _EVERY_S)

    def busy(self, pids: Iterable[int]) -> Busy | None:
        """The CPU time used so far; None where the kernel does not say."""
        read = self.host.read
        return busy(self.host.monotonic(), read("/proc/stat"), [read(f"/proc/{pid}/stat") for pid in pids])

    def _run(self) -> None:
        with Sampler(self.host, _EVERY_S) as sampler:
            while not self._stop.is_set():
                self.moments.append(Moment(self.host.monotonic(), sampler.sample()))
                self._stop.wait(_EVERY_S)


def busy(time: float, stat: str | None, ours: Iterable[str | None]) -> Busy | None:
    """From /proc/stat and the /proc/PID/stat of our own processes; those that are gone count nothing (proc(5))."""
    match = re.match(r"cpu +(\d+) (\d+) (\d+) \d+ \d+ (\d+) (\d+) (\d+)", stat or "")
    if match is None:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    fields = (text[text.rindex(")") + 2 :].split() for text in ours if text and ")" in text)
    own = sum(int(each[11]) + int(each[12]) for each in fields)
    return Busy(time, sum(map(int, match.groups())) / ticks, own / ticks)
