"""Running the checks: each from its snapshot, with its seconds, and a report of what they saw."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tests.lab import report
from tests.lab.checks import CHECKS, Check, Lab
from tests.lab.commands import LabError
from tests.lab.cuts import CUT_CHECKS
from tests.lab.faults import FAULTS
from tests.lab.machine import Board
from tests.lab.report import Result
from tests.lab.snapshots import Snapshots

ALL: dict[str, Check] = {**CHECKS, **FAULTS, **CUT_CHECKS}
NAMES = tuple(name.replace(" ", "-") for name in ALL)
MAKERS = {"served": "serve"}  # the check that leaves a snapshot


def chosen(wanted: Sequence[str], has: Callable[[str], bool]) -> list[str]:
    """The checks to run, in order: all, or the wanted ones with what makes the snapshots that they begin from."""
    titles = [title for title in ALL if not wanted or title.replace(" ", "-") in wanted]
    needed = {MAKERS[ALL[title].begins] for title in titles if ALL[title].begins in MAKERS}
    missing = {maker for maker in needed if not has(next(name for name, by in MAKERS.items() if by == maker))}
    return [title for title in ALL if title in titles or title in missing]


def test(name: str, wanted: list[str], built: dict[str, float], again: bool) -> int:
    """Install the product in a fresh board, then check; returns 0 when everything passed."""
    board, results = Board(name), list[Result]()
    board.must_be_off()
    lab = Lab(Snapshots(board))
    told: dict[str, Any] = {}
    try:
        _one("install", results, lambda: {"how": lab.snapshots.install(again)})
        for title in chosen(wanted, lab.snapshots.has):
            check = ALL[title]
            if not lab.snapshots.has(check.begins):
                results.append(Result(title, "not run", why=f"no board is {check.begins}"))
            else:
                _one(title, results, partial(_from_snapshot, lab, check))
                _keep_last_words(board, results[-1])
            _write(lab, results, built)
    finally:
        board.cut()  # every check begins at a snapshot: nothing of this run is needed
        told = _write(lab, results, built)
    print(report.text(told))
    print(f"the report is in {board.folder}")
    return 0 if told["passed"] else 1


def _from_snapshot(lab: Lab, check: Check) -> dict[str, Any]:
    lab.snapshots.begin(check.begins)
    return check.work(lab)


def _keep_last_words(board: Board, result: Result) -> None:
    """What a board said before a check failed on it: the next one begins with another board."""
    if result.outcome == "failed":
        file = board.folder / f"failed-{result.name.replace(' ', '-')}.log"
        alive = board.pid() is not None
        journal = (
            board.ssh("journalctl -b --no-pager -n 300", check=False, timeout=120).stdout if alive else "it is off"
        )
        file.write_text(f"{journal}\n{board.console_tail(300)}\n")
        result.why += f"\nits journal and console: {file}"


def _one(title: str, results: list[Result], work: Callable[[], dict[str, Any]]) -> None:
    print(f"lab: {title} …", file=sys.stderr, flush=True)
    began = time.monotonic()
    seen: dict[str, Any] = {}
    outcome, why = "failed", ""
    try:
        seen, outcome = dict(work()), "passed"
    except LabError as error:
        why = f"{error.message}\n{error.hint}"
    except AssertionError as error:
        why = str(error)
    except (KeyError, TypeError, ValueError, IndexError, StopIteration):  # a document without what it should have
        why = traceback.format_exc()
    seconds = round(time.monotonic() - began, 1)
    results.append(Result(title, outcome, seconds, seen, why))
    print(f"lab: {title} {outcome} after {seconds:.0f} s {why[:300]}", file=sys.stderr, flush=True)


def _write(lab: Lab, results: list[Result], built: dict[str, float]) -> dict[str, Any]:
    snapshots = lab.snapshots
    told = report.document(lab.board.name, results, built, snapshots.boots, snapshots.restores)
    report.write(lab.board.folder, told)
    return told
