"""Power cuts: the machine is killed at random moments of `up`, boots, and ends where it should."""

from __future__ import annotations

import os
import random
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue

from tests.lab import product
from tests.lab.checks import Check, Lab, Seen
from tests.lab.commands import LabError
from tests.lab.product import NAME, expect, must

CUTS = 10
SEED = "ORIN_LAB_SEED"  # repeats the moments of an earlier run

# Power to be set live: both modes leave the GPU the same width.
_BEFORE, _WANTED = "MAXN", "MODE_40W"
_UP = f"up --profile {NAME} --model {product.TINY} --set power.mode={_WANTED} --set speculation.measure_s=5"

# All that `up` changes on a board and `down` gives back.
_STATE = (
    "nvpmodel -q | head -1; cd /sys/devices/system/cpu; echo online $(cat online); "
    "grep . cpu*/cpufreq/scaling_min_freq cpu*/cpufreq/scaling_max_freq; "
    "cd /sys/class/devfreq && grep -H . */min_freq */max_freq; "
    "cd /sys/kernel/debug/bpmp/debug/clk/emc && grep -H . min_rate max_rate mrq_rate_locked; "
    "cat /var/lib/nvpmodel/status; ls /etc/systemd/system | grep orin-deploy; true"
)


def moments(seed: int, whole: float, count: int = CUTS) -> list[float]:
    """Random moments within `whole` seconds, one in each of as many equal parts of it: none of them is left out."""
    drawn = random.Random(seed)
    return [(number + drawn.random()) * whole / count for number in range(count)]


def power_cuts(lab: Lab) -> Seen:
    """The power is cut at random moments of `up`; then `up` or `down` finishes, and what was before comes back.

    Two boards share the cuts, for each is emulated by one of the workstation's cores.
    """
    _become(lab, _BEFORE)
    before = _state(lab)
    lab.snapshots.keep("before")
    began = time.monotonic()
    must(lab.board, _UP)
    whole = time.monotonic() - began
    _undo(lab, before)
    lab.board.cut()
    twin = Lab(lab.snapshots.twin("before"))
    seed = int(os.environ.get(SEED) or random.randrange(10**6))
    todo: SimpleQueue[tuple[int, float]] = SimpleQueue()
    for each in enumerate(moments(seed, whole), start=1):
        todo.put(each)
    try:
        with ThreadPoolExecutor(2) as pool:
            lanes = [pool.submit(_lane, each, todo, before) for each in (lab, twin)]
            try:
                ended = dict(sorted(pair for lane in lanes for pair in lane.result().items()))
            except BaseException:  # stopped: nobody waits for the cuts that are left
                while not todo.empty():
                    todo.get_nowait()
                lab.board.cut()
                twin.board.cut()
                raise
    finally:
        twin.board.cut()
        twin.board.disk.unlink(missing_ok=True)
    lab.snapshots.boots += twin.snapshots.boots
    lab.snapshots.restores += twin.snapshots.restores
    failed = [f"{name}: {how}" for name, (well, how) in ended.items() if not well]
    expect(not failed and len(ended) == CUTS, "\n".join((f"seed {seed}, {len(ended)} of {CUTS} cuts", *failed)))
    return {"seed": seed, "an undisturbed up": f"{whole:.0f} s"} | {name: how for name, (_, how) in ended.items()}


def _lane(lab: Lab, todo: SimpleQueue[tuple[int, float]], before: str) -> dict[str, tuple[bool, str]]:
    """Make cuts until none is left: whether each ended well, and how. One that did not is no reason to stop."""
    ended: dict[str, tuple[bool, str]] = {}
    while True:
        try:
            number, after = todo.get_nowait()
        except Empty:
            return ended
        try:
            how = True, _cut(lab, after, "down" if number % 3 == 0 else "up", before)
        except (LabError, AssertionError) as error:
            how = False, f"after {after:.1f} s: {error} {getattr(error, 'hint', '')}"
        ended[f"cut {number:2}"] = how


def _cut(lab: Lab, after: float, finish: str, before: str) -> str:
    lab.snapshots.begin("before")
    log = lab.board.folder / "up.log"
    with log.open("w") as told:
        running = subprocess.Popen(
            lab.board.shell(f"{product.PROGRAM} {_UP} --json"),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=told,
        )  # fmt: skip
        time.sleep(after)
        lab.board.cut()
        running.wait()
    told_last = (["nothing", *(line.strip() for line in log.read_text().splitlines() if line.strip())])[-1][:100]
    lab.snapshots.boot()
    known = lab.board.ssh(f"ls /var/lib/orin-deploy/deployments/{NAME}/records", check=False).stdout.split()
    if finish == "up":
        must(lab.board, _UP)
        expect(product.mode(lab.board) == _WANTED, f"the mode is {product.mode(lab.board)}")
    if finish == "up" or known:
        _undo(lab, before)
    else:  # `up` had not come so far that there is anything to undo
        _expect_state(lab, before)
    return f"after {after:.0f} s ({told_last!r}); {finish} finished, then as before"


def _become(lab: Lab, mode: str) -> None:
    """Let the board have been in this mode before anybody came."""
    if product.mode(lab.board) != mode:
        lab.reboot("echo yes | nvpmodel -m 0")
        expect(product.mode(lab.board) == mode, f"the mode is {product.mode(lab.board)}")


def _undo(lab: Lab, before: str) -> None:
    """`down`, and everything is as it was."""
    must(lab.board, f"down --name {NAME}")
    _expect_state(lab, before)


def _state(lab: Lab) -> str:
    return lab.board.ssh(_STATE).stdout


def _expect_state(lab: Lab, before: str) -> None:
    now = _state(lab)
    was, is_now = set(before.splitlines()), set(now.splitlines())
    expect(now == before, f"it was {sorted(was - is_now)}, it is {sorted(is_now - was)}")


CUT_CHECKS: dict[str, Check] = {"power cuts": Check(power_cuts)}
