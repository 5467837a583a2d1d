"""The plan of every board on every L4T generation it runs, whole; what it decides is computed again from the tables.

ORIN_GOLDEN=write writes the files anew; reviewers read the diff.
"""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path

import pytest

from orin_deploy.cli.console import Console
from orin_deploy.cli.show_plan import show_plan
from orin_deploy.deploy.draft import draft, situation
from orin_deploy.deploy.plan import Plan
from orin_deploy.host import Host
from orin_deploy.intent.request import Request
from tests.virtual import VirtualJetson, build
from tests.virtual.boards_table import BOARDS, TABLES, Mode

FOLDER = Path(__file__).parents[1] / "golden/boards"
GENERATIONS = [
    (board, l4t)
    for board, table in BOARDS.items()
    for l4t in {release.partition(".")[0]: release for release in table.releases}.values()
]
ARCHITECTURES = {"p2888": "72", "p2972": "72", "p3668": "72", "p3701": "87", "p3767": "87", "p3834": "110"}


def planned(jetson: VirtualJetson) -> Plan:
    # The board's own host, but root whoever runs the tests: a plan changes nothing.
    host = Host(jetson.root, jetson.environ())
    host.is_root = True
    host.data, host.cache = jetson.root / "var/lib/orin-deploy", jetson.root / "var/cache/orin-deploy"
    wish = Request(draft="none")
    return draft(host, wish, situation(host, wish, elsewhere=False), lambda fraction, text: None)


@pytest.mark.parametrize(("board", "l4t"), GENERATIONS)
def test_the_plan_of_a_board_as_flashed(tmp_path: Path, board: str, l4t: str) -> None:
    jetson = build(tmp_path / "root", board, l4t)
    plan = planned(jetson)
    _agree(FOLDER / f"{board}-{l4t}.txt", _text(plan, jetson))

    module = BOARDS[board].module
    assert plan.spec.profile == board
    assert plan.spec.build.cuda_architectures == (ARCHITECTURES[module.partition("-")[0]],)
    power = plan.spec.power
    assert power is not None
    flashed, best = _modes(jetson)
    assert power.mode == best.name
    assert power.cores == tuple(range(best.cores))
    assert power.reboot_needed == (best.mask != flashed.mask)
    # The profile leaves one CPU to the system: the lowest, which serves the interrupts.
    assert plan.spec.placement.cpus == power.cores[1:]
    assert plan.spec.placement.threads <= len(plan.spec.placement.cpus)


def _modes(jetson: VirtualJetson) -> tuple[Mode, Mode]:
    """The mode a board is flashed with, and its best: MAXN-like, else by GPU width and clock, cores, memory."""
    kernel = jetson.kernel
    table = TABLES[kernel.board.conf + ("_super" if kernel.super else "")]
    maxn = [mode for mode in table.modes if mode.name.startswith("MAXN")]
    widest = max(table.modes, key=_worth)
    return table.modes[table.default], maxn[0] if maxn else widest


def _worth(mode: Mode) -> tuple[float, ...]:
    return -mode.mask.bit_count(), mode.gpu_mhz or 9999, mode.cores, mode.emc_mhz or 9999, mode.cpu_mhz or 9999


def _text(plan: Plan, jetson: VirtualJetson) -> str:
    out = StringIO()
    show_plan(plan, Console(out=out), actions=False)
    words = " ".join(plan.spec.build.cmake)
    server = " ".join(plan.spec.service.argv)
    return f"{out.getvalue()}\ncmake {words}\n{server}\n".replace(str(jetson.root), "")


def _agree(path: Path, text: str) -> None:
    if os.environ.get("ORIN_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.exists(), f"ORIN_GOLDEN=write makes {path.name}"
    assert text == path.read_text(), "if the change is meant: ORIN_GOLDEN=write, and read the diff"
