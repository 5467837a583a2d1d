"""The checks that hurt: the jtop service, a full disk, a clock that jumps."""

from __future__ import annotations

import json
import time
from pathlib import Path

from tests.lab import product
from tests.lab.checks import SERVER, TINY, Check, Lab, Seen
from tests.lab.product import PIP, VENV, call, expect, must

# What our telemetry reads through jtop on a board of this lab; a shorter list is a loss, and fails.
JTOP_FIELDS = Path(__file__).parent / "jtop_fields.json"

_JTOP_UNIT = f"""[Service]
Environment=JTOP_SERVICE=True
ExecStart={VENV}/bin/jtop --force
[Install]
WantedBy=multi-user.target
"""


def jtop(lab: Lab) -> Seen:
    """The real service of jetson-stats, installed and read through our telemetry."""
    lab.board.ssh(
        f"set -e; {PIP} install -q --no-index --find-links /opt/lab/wheels jetson-stats; "
        "getent group jtop || groupadd --system jtop; "
        f"printf '%s' '{_JTOP_UNIT}' > /etc/systemd/system/jtop.service; systemctl daemon-reload; "
        "systemctl start jtop; for n in $(seq 200); do [ -S /run/jtop.sock ] && exit 0; sleep 2; done; "
        "journalctl -u jtop --no-pager | tail -20; exit 1",
        timeout=1800,
    )
    sample = must(lab.board, "top --once")
    expect(sample["source"] == "jtop", f"the sample is from {sample['source']}: {sample['missing']}")
    own = {"gaps", "missing", "source", "time"}  # of the sample itself
    read = sorted(name for name in sample.keys() - own - set(sample["gaps"]) if sample[name] is not None)
    absent = sorted(sample["gaps"])
    wanted = json.loads(JTOP_FIELDS.read_text())
    lab.board.ssh("systemctl stop jtop")
    lost = sorted(set(wanted) - set(read))
    expect(not lost, f"jtop gave {', '.join(lost)} before, and does not now")
    return {"read": read, "absent": absent}


def full_disk(lab: Lab) -> Seen:
    """With a full disk `up` says so in a sentence; with room again the same command goes on."""
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
    lab.snapshots.boot(rtc="2001-01-01T00:00:00")
    product.await_answer(lab.board)
    early = lab.board.ssh("date -Is").stdout.strip()
    before = product.pid(lab.board, SERVER)
    # A server that was started by a boot is proved anew; there is nothing to be done for it.
    steps = must(lab.board, f"up {TINY}")["plan"]["steps"]
    found = [step["name"] for step in steps if step["actions"]]
    expect(not found, f"after the boot `up` found to do: {', '.join(found)}")
    lab.board.ssh(f"date -s @{int(time.time())}; sleep 30")
    product.await_answer(lab.board)
    expect(product.pid(lab.board, SERVER) == before, "the server was started again when the clock jumped")
    product.expect_nothing_to_do(lab.board, f"up {TINY}")
    must(lab.board, f"status --name {product.NAME}")
    return {"booted at": early, "jumped to": lab.board.ssh("date -Is").stdout.strip()}


FAULTS: dict[str, Check] = {"jtop": Check(jtop), "full disk": Check(full_disk), "clock": Check(clock)}
