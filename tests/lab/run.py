"""Running the checks: one after the other, each with its seconds, and a report of what they saw."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.lab import faults, product, report, where
from tests.lab.checks import CHECKS, Lab
from tests.lab.commands import LabError, sh
from tests.lab.machine import Board
from tests.lab.report import Result

ALL = {**CHECKS, "jtop": faults.jtop, "full disk": faults.full_disk, "clock": faults.clock,
       "power cuts": faults.power_cuts}  # fmt: skip
NAMES = tuple(name.replace(" ", "-") for name in ALL)


def test(name: str, wanted: list[str], built: dict[str, float], again: bool) -> int:
    """Install the product in a fresh board, then check; returns 0 when everything passed."""
    lab, results = Lab(Board(name)), list[Result]()
    lab.board.cut()
    try:
        installed = _one("install", results, lambda: _installed(lab, again))
        for title, check in ALL.items():
            if wanted and title.replace(" ", "-") not in wanted:
                continue
            if not installed:
                results.append(Result(title, "not run", why="the product is not installed"))
                continue
            if lab.board.pid() is None:
                lab.boot(fresh=False)
            _one(title, results, partial(check, lab))
            _write(lab, results, built)
    finally:
        lab.board.down()
        told = _write(lab, results, built)
    print(report.text(told))
    return 0 if told["passed"] else 1


def _one(title: str, results: list[Result], work: Callable[[], dict[str, Any]]) -> bool:
    print(f"lab: {title} …", file=sys.stderr, flush=True)
    began = time.monotonic()
    try:
        seen, outcome, why = dict(work()), "passed", ""
    except LabError as error:
        seen, outcome, why = {}, "failed", f"{error.message}\n{error.hint}"
    except AssertionError as error:
        seen, outcome, why = {}, "failed", str(error)
    except (KeyError, TypeError, ValueError, IndexError, StopIteration):  # a document without what it should have
        seen, outcome, why = {}, "failed", traceback.format_exc()
    seconds = round(time.monotonic() - began, 1)
    results.append(Result(title, outcome, seconds, seen, why))
    print(f"lab: {title} {outcome} after {seconds:.0f} s {why[:300]}", file=sys.stderr, flush=True)
    return outcome == "passed"


def _installed(lab: Lab, again: bool) -> dict[str, Any]:
    """A board with the product on it: kept as a disk of its own, from which later runs begin."""
    kept = lab.board.folder / "installed.qcow2"
    if again or not kept.exists() or kept.stat().st_mtime < (where.home() / "share.img").stat().st_mtime:
        lab.boot()
        began = time.monotonic()
        product.install(lab.board)
        seconds = time.monotonic() - began
        lab.board.down()
        sh(("qemu-img", "convert", "-O", "qcow2", "-B", where.disk(), "-F", "qcow2", lab.board.disk, kept))
        lab.boot(base=kept)
        return {"seconds of the installation itself": round(seconds)}
    lab.boot(base=kept)
    return {"begun from": str(kept)}


def _write(lab: Lab, results: list[Result], built: dict[str, float]) -> dict[str, Any]:
    told = report.document(lab.board.name, results, built, lab.boots)
    report.write(lab.board.folder, told)
    return told
