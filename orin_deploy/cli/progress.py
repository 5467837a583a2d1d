"""How steps and their progress look while they go on: lines, or on a terminal one that is drawn again in place."""

from __future__ import annotations

import time

from orin_deploy.cli.console import Output, duration
from orin_deploy.deploy.apply import Events
from orin_deploy.parts.step import Step

PLAIN_INTERVAL_S = 10.0


class PlainEvents(Events):
    """Progress as lines for pipes and logs: a step's beginning and end, and a sign of life every ten seconds."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.last = 0.0

    def _line(self, text: str) -> None:
        self.output.print(text)

    def begin(self, step: Step) -> None:
        self.last = time.monotonic()
        self._line(f"- {step.name}: {step.why}")

    def progress(self, fraction: float | None, text: str) -> None:
        if time.monotonic() - self.last >= PLAIN_INTERVAL_S:
            self.last = time.monotonic()
            self._line(f"  {percent(fraction)}{text}")

    def end(self, step: Step, seconds: float) -> None:
        self._line(f"  {step.name}: done in {duration(seconds)}")

    def fail(self, step: Step) -> None:
        self._line(f"  {step.name}: FAILED")

    def note(self, text: str) -> None:
        self._line(f"  {text}")


class LiveEvents(PlainEvents):
    """Progress on a terminal: one line that is drawn again in place."""

    def __init__(self, output: Output) -> None:
        super().__init__(output)
        self.started = 0.0
        self.name = ""
        self.drawn = 0.0

    def begin(self, step: Step) -> None:
        self.started, self.name, self.drawn = time.monotonic(), step.name, 0.0
        self._line(f"\033[1m{step.name}\033[0m  \033[2m{step.why}\033[0m")

    def progress(self, fraction: float | None, text: str) -> None:
        now = time.monotonic()
        if now - self.drawn < 0.1 and fraction != 1:
            return
        self.drawn = now
        width = _terminal_width()
        head = f"  {bar(fraction)} {percent(fraction)}{duration(now - self.started)}  "
        self.output.print(f"\r\033[K{head}{text[: max(width - len(head) - 1, 0)]}", end="")

    def end(self, step: Step, seconds: float) -> None:
        self.output.print("\r\033[K", end="")
        self._line(f"  \033[32mdone\033[0m in {duration(seconds)}")

    def fail(self, step: Step) -> None:
        self.output.print("\r\033[K", end="")
        self._line("  \033[31mfailed\033[0m")

    def note(self, text: str) -> None:
        self.output.print("\r\033[K", end="")
        super().note(text)


def _terminal_width() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def bar(fraction: float | None, width: int = 24) -> str:
    done = 0 if fraction is None else int(min(max(fraction, 0), 1) * width)
    return "█" * done + "·" * (width - done)


def percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{fraction:4.0%} "
