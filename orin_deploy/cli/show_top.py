"""How `top` looks: a frame that is drawn again on a terminal, lines elsewhere, or JSON lines."""

from __future__ import annotations

import json
import os
import shutil
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from orin_deploy.cli.console import Console, columns
from orin_deploy.deploy.record import plain
from orin_deploy.observe.telemetry import Sample
from orin_deploy.observe.telemetry.serving import Serving

GIB = 1024**3
_LABELS = 18  # what stands before the text of a frame's row


@dataclass(frozen=True)
class Moment:
    """What `top` shows at once: the machine, the deployment's name and server, and what is missing with its reasons."""

    sample: Sample
    name: str | None
    serving: Serving | None
    missing: Mapping[str, Sequence[str]]


class View(Protocol):
    """Shows one moment after another."""

    def show(self, moment: Moment) -> None: ...

    def end(self) -> None:
        """Leave the screen in order after an interrupt."""


def view_for(console: Console, once: bool) -> View:
    """The view for what the console writes to."""
    if console.as_json:
        return _JsonLines(console)
    if once:
        return _Once(console)
    return _Frames(console) if console.out.is_terminal and os.environ.get("TERM") != "dumb" else _Plain(console)


class _JsonLines:
    """One JSON document a line."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def show(self, moment: Moment) -> None:
        server = None if moment.serving is None else {"name": moment.name, **plain(moment.serving)}
        missing = [{"why": why, "what": list(what)} for why, what in moment.missing.items()]
        document = plain(moment.sample) | {"server": server, "missing": missing}
        self.console.out.print(json.dumps(document))

    def end(self) -> None:
        pass


class _Plain:
    """One line a moment; what is missing is said at the start, and when it changes."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.said: list[str] | None = None

    def show(self, moment: Moment) -> None:
        lines = missing_lines(moment)
        if lines != self.said:
            self.said = lines
            for line in lines:
                self.console.say(f"# {line}")
        self.console.say(one_line(moment))

    def end(self) -> None:
        pass


class _Frames:
    """A frame drawn again in place; the last one stays."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.height = 0
        self.first: Sample | None = None

    def show(self, moment: Moment) -> None:
        self.first = self.first or moment.sample
        size = shutil.get_terminal_size()
        lines = [line[: size.columns - 1] for line in frame(moment, self.first, size.columns)][: size.lines - 1]
        back = f"\033[{self.height}A\r" if self.height else ""
        self.height = len(lines)
        self.console.out.print(back + "\033[J" + "\n".join(lines))

    def end(self) -> None:
        self.console.say()


class _Once:
    """The frame, once."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def show(self, moment: Moment) -> None:
        for line in frame(moment, moment.sample, shutil.get_terminal_size().columns):
            self.console.say(line)

    def end(self) -> None:
        pass


def frame(moment: Moment, first: Sample, width: int) -> list[str]:
    """All that is known of a moment, by topic; counters also as what they grew by since the `first` sample."""
    sample = moment.sample
    clock = time.strftime("%H:%M:%S", time.localtime(sample.time))
    rows = [
        ("time", f"{clock}, from {sample.source}"),
        ("CPU", _cpus(sample)),
        ("GPU", _unit(sample.gpu_percent, sample.gpu_mhz)),
        ("memory bus", _unit(sample.emc_percent, sample.emc_mhz)),
        ("memory", _memory(sample)),
        ("power", _power(sample)),
        ("temperature", _temperatures(sample)),
        ("mode", ", ".join(filter(None, (sample.mode, _locked(sample.clocks_locked))))),
        ("over-current", _over_current(sample.over_current, first.over_current)),
        ("throttled by", None if sample.throttled_by is None else ", ".join(sample.throttled_by) or "nothing"),
        ("server", _server(moment)),
    ]
    known = [(label, textwrap.wrap(text, max(width - _LABELS, 20))) for label, text in rows if text]
    cells = [(label if number == 0 else "", line) for label, lines in known for number, line in enumerate(lines)]
    return columns(cells) + missing_lines(moment)


def missing_lines(moment: Moment) -> list[str]:
    """What is missing and why, a reason a line."""
    lines = [f"missing: {', '.join(subjects)} ({reason})" for reason, subjects in moment.missing.items()]
    if moment.serving is not None and moment.serving.missing:
        lines.append(f"missing: {moment.serving.missing}")
    return lines


def one_line(moment: Moment) -> str:
    """A moment in one line; what is unknown is left out."""
    sample = moment.sample
    load = sample.cpu_mean_percent
    hottest = max((sample.temperature_c or {}).items(), key=lambda zone: zone[1], default=None)
    parts = (
        time.strftime("%H:%M:%S", time.localtime(sample.time)),
        None if load is None else f"cpu {load:.0f} %",
        _labelled("gpu", _unit(sample.gpu_percent, sample.gpu_mhz)),
        _labelled("memory bus", _unit(sample.emc_percent, sample.emc_mhz)),
        _labelled("memory", _memory(sample)),
        None if sample.power_total_mw is None else f"{sample.power_total_mw / 1000:.2f} W",
        None if hottest is None else f"{hottest[0]} {hottest[1]:.1f} °C",
        f"throttled by {', '.join(sample.throttled_by)}" if sample.throttled_by else None,
        None if moment.serving is None else _server(moment),
    )
    return "  ".join(part for part in parts if part)


def _labelled(label: str, text: str | None) -> str | None:
    return f"{label} {text}" if text else None


def _cpus(sample: Sample) -> str | None:
    """The mean load, then each CPU's load and clock: "12 % [12%@729 off]"."""
    if sample.cpu_percent is None or sample.cpu_mean_percent is None:
        return None
    clocks = sample.cpu_mhz or ()
    each = []
    for cpu, load in enumerate(sample.cpu_percent):
        mhz = clocks[cpu] if cpu < len(clocks) else None
        each.append("off" if load is None else f"{load:.0f}%" + (f"@{mhz}" if mhz else ""))
    return f"{sample.cpu_mean_percent:.0f} % [{' '.join(each)}]"


def _unit(percent: float | None, mhz: int | None) -> str | None:
    load = None if percent is None else f"{percent:.0f} %"
    clock = None if mhz is None else f"{mhz} MHz"
    return " at ".join(filter(None, (load, clock))) or None


def _temperatures(sample: Sample) -> str | None:
    zones = ", ".join(f"{name} {celsius:.1f}" for name, celsius in (sample.temperature_c or {}).items())
    return f"{zones} °C" if zones else None


def _memory(sample: Sample) -> str | None:
    if sample.ram_used_bytes is None or not sample.ram_total_bytes:
        return None
    text = f"{sample.ram_used_bytes / GIB:.1f} of {sample.ram_total_bytes / GIB:.1f} GiB"
    if sample.swap_total_bytes:
        text += f", swap {(sample.swap_used_bytes or 0) / GIB:.1f} of {sample.swap_total_bytes / GIB:.1f} GiB"
    return text


def _power(sample: Sample) -> str | None:
    if sample.power_total_mw is None:
        return None
    rails = ", ".join(f"{name} {power / 1000:.2f}" for name, power in (sample.power_mw or {}).items())
    return f"{sample.power_total_mw / 1000:.2f} W ({rails})"


def _locked(locked: bool | None) -> str | None:
    return {True: "clocks locked", False: "clocks free", None: None}[locked]


def _over_current(now: Mapping[str, int] | None, first: Mapping[str, int] | None) -> str | None:
    if now is None:
        return None
    grown = {name: count - (first or {}).get(name, count) for name, count in now.items()}
    return ", ".join(f"{name} {count}" + (f" (+{grown[name]})" if grown[name] else "") for name, count in now.items())


def _server(moment: Moment) -> str | None:
    serving = moment.serving
    if serving is None:
        return None
    parts = (
        f"{moment.name}:",
        None if serving.tokens_per_s is None else f"{serving.tokens_per_s:.1f} tokens/s",
        None if serving.acceptance_rate is None else f"acceptance {serving.acceptance_rate:.0%}",
        None if serving.requests is None else f"requests {serving.requests}",
        f"waiting {serving.waiting}" if serving.waiting else None,
    )
    known = [part for part in parts if part]
    return " ".join(known[:2]) + "".join(f", {part}" for part in known[2:]) if len(known) > 1 else None
