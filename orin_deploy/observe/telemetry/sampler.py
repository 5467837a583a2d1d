"""The sampler: asks the best source that answers, replaces one that fails, and tries the better ones again later."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType

from orin_deploy.host import Host
from orin_deploy.observe.telemetry.conditions import Conditions
from orin_deploy.observe.telemetry.jtop import Jtop
from orin_deploy.observe.telemetry.portable import Portable
from orin_deploy.observe.telemetry.sample import Sample, completed
from orin_deploy.observe.telemetry.source import Source, SourceFailed
from orin_deploy.observe.telemetry.sysfs import Sysfs
from orin_deploy.observe.telemetry.tegrastats import Tegrastats

RETRY_S = 30.0
"""How long a source that failed is left alone."""

NO_SOURCE = "none"
_SLOWEST_S = 1.0  # sources go on at this pace when samples are wanted less often: a hanging one shows soon
_CLOSING_S = 1.5


class Worker:
    """A source in a thread of its own, so that one that hangs keeps nobody waiting; it is left behind then."""

    def __init__(self, source: Source, host: Host) -> None:
        self._source = source
        self._host = host
        self._requests: SimpleQueue[bool] = SimpleQueue()
        self._answers: SimpleQueue[Sample | str] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"telemetry-{source.name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def ask(self) -> None:
        """Ask for a sample; the last answer must have been taken."""
        self._requests.put(True)

    def answer(self, timeout_s: float) -> Sample | str | None:
        """The sample, or why the source failed; None when it has not answered in time."""
        try:
            return self._answers.get(block=timeout_s > 0, timeout=timeout_s)
        except Empty:
            return None

    def close(self, wait_s: float = 0.0) -> None:
        self._requests.put(False)
        if wait_s:
            self._thread.join(wait_s)

    def _run(self) -> None:
        # Whatever a source raises (jtop has raised KeyError and worse) ends the source, never what it watches.
        try:
            self._source.open()
            conditions = Conditions(self._host)
            while self._requests.get():
                self._answers.put(completed(self._source.read(), conditions.read(self._host.monotonic())))
        except SourceFailed as error:
            self._answers.put(str(error))
        except Exception as error:
            self._answers.put(f"{self._source.name} failed: {type(error).__name__}: {error}")
        finally:
            with contextlib.suppress(Exception):
                self._source.close()


class _Candidate:
    """A source's place in the order of preference: its worker while it runs, else why not and until when."""

    def __init__(self, host: Host, make: Callable[[], Source], retry_s: float) -> None:
        self.host = host
        self.make = make
        self.retry_s = retry_s
        self.name = make().name
        self.worker: Worker | None = None
        self.left: Worker | None = None  # one that was left behind; while it hangs, another would hang too
        self.refused: str | None = None
        self.again_at = float("-inf")
        self.deadline = 0.0  # when a worker that has yet to answer for the first time is given up

    @property
    def ready(self) -> bool:
        """Whether it may be tried, for the first time or again."""
        return self.host.monotonic() >= self.again_at and not (self.left and self.left.alive)

    def start(self, patience_s: float) -> Worker:
        self.worker = Worker(self.make(), self.host)
        self.worker.ask()
        self.deadline = self.host.monotonic() + patience_s
        return self.worker

    def refuse(self, why: str | None) -> None:
        self.refused = why or f"{self.name} does not answer"
        self.again_at = self.host.monotonic() + self.retry_s
        self.left = self.worker
        self.stop()

    def stop(self, wait_s: float = 0.0) -> None:
        if self.worker is not None:
            self.worker.close(wait_s)
            self.worker = None


class Sampler:
    """Samples of one machine, one at a call, about `interval_s` seconds apart. Close it, or use it with `with`.

    The call returns when there is a sample: at once with a source that has one ready, after a few seconds at most when
    a source has to be replaced.
    """

    def __init__(
        self,
        host: Host,
        interval_s: float = 1.0,
        sources: Sequence[Callable[[], Source]] = (),
        retry_s: float = RETRY_S,
    ) -> None:
        """`sources`, best first, are by default jtop, tegrastats, sysfs and psutil."""
        self.host = host
        pace_s = min(interval_s, _SLOWEST_S)
        self._patience_s = 3 + 2 * pace_s  # a source may wait for its next reading, and for one more
        makers: Sequence[Callable[[], Source]] = sources or (
            lambda: Jtop(host, pace_s),
            lambda: Tegrastats(host, pace_s),
            lambda: Sysfs(host),
            lambda: Portable(host),
        )
        self._candidates = [_Candidate(host, make, retry_s) for make in makers]
        self._current: _Candidate | None = None

    @property
    def refused(self) -> dict[str, str]:
        """Why the sources better than the present one are not used, by name."""
        better = self._candidates if self._current is None else self._candidates[: self._rank(self._current)]
        return {each.name: each.refused for each in better if each.refused is not None}

    def sample(self) -> Sample:
        """The next sample; with source NO_SOURCE and nothing in it when nobody answers."""
        found = self._from_better() or self._from_current() or self._from_others()
        return found or completed(Sample(self.host.time(), NO_SOURCE))

    def close(self) -> None:
        for candidate in self._candidates:
            candidate.stop(_CLOSING_S)

    def __enter__(self) -> Sampler:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _rank(self, candidate: _Candidate) -> int:
        return self._candidates.index(candidate)

    def _from_better(self) -> Sample | None:
        """Sources better than the present one whose time has come are tried beside it, without waiting for them."""
        if self._current is None:
            return None
        for candidate in self._candidates[: self._rank(self._current)]:
            if candidate.worker is None:
                if candidate.ready:
                    candidate.start(self._patience_s)
                continue
            answer = candidate.worker.answer(0)
            if isinstance(answer, Sample):
                return self._promote(candidate, answer)
            if answer is not None or self.host.monotonic() > candidate.deadline:
                candidate.refuse(answer)
        return None

    def _promote(self, candidate: _Candidate, sample: Sample) -> Sample:
        for other in self._candidates[self._rank(candidate) + 1 :]:
            other.stop()
        candidate.refused = None
        self._current = candidate
        return sample

    def _from_current(self) -> Sample | None:
        if self._current is None or self._current.worker is None:
            return None
        self._current.worker.ask()
        return self._waited(self._current, self._current.worker)

    def _from_others(self) -> Sample | None:
        """The best source that answers, each given its time, of those not refused lately."""
        self._current = None
        for candidate in [each for each in self._candidates if each.ready]:
            worker = candidate.worker or candidate.start(self._patience_s)
            if (sample := self._waited(candidate, worker)) is not None:
                return self._promote(candidate, sample)
        return None

    def _waited(self, candidate: _Candidate, worker: Worker) -> Sample | None:
        answer = worker.answer(self._patience_s)
        if isinstance(answer, Sample):
            return answer
        candidate.refuse(answer)
        return None
