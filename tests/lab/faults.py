"""The checks that hurt: the jtop service, a full disk, a clock that jumps, power cuts in the middle of `up`."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

from tests.lab import product
from tests.lab.checks import SERVER, TINY, Lab, Seen
from tests.lab.commands import LabError
from tests.lab.product import NAME, VENV, call, expect, must

CUTS = 10
# What our telemetry reads through jtop on a board of this lab; a shorter list is a loss, and fails.
JTOP_FIELDS = Path(__file__).parent / "jtop_fields.json"

# Power to be set live: both modes leave the GPU the same width.
_BEFORE, _WANTED = "MAXN", "MODE_40W"
_POWERED = f"--profile {NAME} --model /opt/tiny.gguf --set power.mode={_WANTED}"

_JTOP_UNIT = f"""[Service]
Environment=JTOP_SERVICE=True
ExecStart={VENV}/bin/jtop --force
[Install]
WantedBy=multi-user.target
"""


def jtop(lab: Lab) -> Seen:
    """The real service of jetson-stats, installed and read through our telemetry."""
    lab.board.ssh(
        f"set -e; PYTHONPATH=$(ls -d /opt/lab/wheels/pip-*.whl) {VENV}/bin/python -m pip install -q --no-index "
        "--find-links /opt/lab/wheels jetson-stats; getent group jtop || groupadd --system jtop; "
        f"printf '%s' '{_JTOP_UNIT}' > /etc/systemd/system/jtop.service; systemctl daemon-reload; "
        "systemctl start jtop; for n in $(seq 200); do [ -S /run/jtop.sock ] && exit 0; sleep 2; done; "
        "journalctl -u jtop --no-pager | tail -20; exit 1",
        timeout=1800,
    )
    sample = must(lab.board, "top --once")
    expect(sample["source"] == "jtop", f"the sample is from {sample['source']}: {sample['missing']}")
    read = sorted(name for name, value in sample.items() if value is not None and name not in sample["gaps"])
    absent = sorted(sample["gaps"])
    wanted = json.loads(JTOP_FIELDS.read_text()) if JTOP_FIELDS.exists() else []
    lab.board.ssh("systemctl stop jtop")
    lost = sorted(set(wanted) - set(read))
    expect(not lost, f"jtop gave {', '.join(lost)} before, and does not now")
    return {"read": read, "absent": absent}


def full_disk(lab: Lab) -> Seen:
    """With a full disk `up` says so in a sentence; with room again the same command goes on."""
    must(lab.board, f"down --name {NAME}") if product.pid(lab.board, SERVER) else None
    lab.board.ssh(
        "fallocate -l $(($(df --output=avail -B1 / | tail -1) - 4096)) /filler; cat /dev/zero > /rest || true"
    )
    try:
        said = call(lab.board, f"up {TINY}")
    finally:
        lab.board.ssh("rm -f /filler /rest")
    expect(said.code == 1, f"exit code {said.code} with a full disk: {said.error}")
    expect("space" in said.error and "Traceback" not in said.told, f"it says: {said.error}")
    done = must(lab.board, f"up {TINY}")
    return {"said": said.error, "then": f"record {done['record']}"}


def clock(lab: Lab) -> Seen:
    """Without a battery the clock begins anywhere and jumps: the server starts at boot and stays."""
    must(lab.board, f"up {TINY}")
    lab.board.down()
    lab.boot(fresh=False, rtc="2001-01-01T00:00:00")
    product.await_answer(lab.board)
    early = lab.board.ssh("date -Is").stdout.strip()
    before = product.pid(lab.board, SERVER)
    lab.board.ssh(f"date -s @{int(time.time())}; sleep 30")
    product.await_answer(lab.board)
    expect(product.pid(lab.board, SERVER) == before, "the server was started again when the clock jumped")
    again = must(lab.board, f"up {TINY}")
    expect(not again["changed"], "`up` found something to do after the clock had jumped")
    must(lab.board, f"status --name {NAME}")
    return {"booted at": early, "jumped to": lab.board.ssh("date -Is").stdout.strip()}


def power_cuts(lab: Lab) -> Seen:
    """The power is cut at random moments of `up`; then `up` or `down` finishes, and what was before comes back."""
    _become(lab, _BEFORE)
    whole = _whole_up(lab)
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    seen: Seen = {"seed": seed, "an undisturbed up": f"{whole:.0f} s"}
    for number in range(CUTS):
        after = moments.uniform(0.05, 0.95) * whole
        seen[f"cut {number + 1}"] = _cut(lab, after, finish="up" if number % 3 < 2 else "down")
    return seen


def _become(lab: Lab, mode: str) -> None:
    """Let the board have been in this mode before anybody came."""
    if product.mode(lab.board) == mode:
        return
    boot, began = lab.board.boot_id(), time.monotonic()
    lab.board.ssh("echo yes | nvpmodel -m 0", check=False, timeout=120)
    lab.board.await_shell(other_boot=boot)
    lab.boots.append(time.monotonic() - began)
    expect(product.mode(lab.board) == mode, f"the mode is {product.mode(lab.board)}")


def _whole_up(lab: Lab) -> float:
    began = time.monotonic()
    must(lab.board, f"up {_POWERED}")
    seconds = time.monotonic() - began
    _undo(lab)
    return seconds


def _undo(lab: Lab) -> None:
    """`down`, and everything is as it was."""
    must(lab.board, f"down --name {NAME}")
    expect(product.mode(lab.board) == _BEFORE, f"the mode is {product.mode(lab.board)}, it was {_BEFORE}")
    floors = set(lab.board.ssh("cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_min_freq").stdout.split())
    expect(floors == {_floor(lab)}, f"the lowest clocks are {floors}, they were {_floor(lab)}")
    left = lab.board.ssh("ls /etc/systemd/system | grep orin-deploy || true").stdout.split()
    expect(not left, f"units are left: {left}")


def _floor(lab: Lab) -> str:
    """The mode's own lowest clock, as its table says it."""
    return lab.board.ssh("sed -n '/ID=0 /,/ID=1 /s/.*CPU_A78_0 MIN_FREQ //p' /etc/nvpmodel.conf").stdout.split()[0]


def _cut(lab: Lab, after: float, finish: str) -> str:
    lab.board.ssh(f"nohup {VENV}/bin/orin-deploy up {_POWERED} > /root/up.log 2>&1 & sleep {after:.1f}")
    lab.board.cut()
    lab.boot(fresh=False)
    had = (
        "a record"
        if lab.board.ssh(f"ls /var/lib/orin-deploy/deployments/{NAME}/records", check=False).stdout
        else "none"
    )
    if finish == "up":
        must(lab.board, f"up {_POWERED}")
        expect(product.mode(lab.board) == _WANTED, f"the mode is {product.mode(lab.board)}")
    try:
        _undo(lab)
    except LabError:
        if finish == "up" or had != "none":
            raise
        expect(product.mode(lab.board) == _BEFORE, f"the mode is {product.mode(lab.board)}")  # it had not begun
    return f"after {after:.0f} s with {had}; {finish} finished, then as before"
