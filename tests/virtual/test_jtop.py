"""The real jtop service of jetson-stats on a virtual board, and our telemetry through its real client.

In a mount namespace of its own the board's /sys, parts of its /proc and its /etc lie over this machine's. What cannot
be had there: the device tree, which /proc has no place for, and jetson_clocks, which jtop looks for in /usr/bin.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.virtual.conftest import Make, ask

pytestmark = [
    pytest.mark.root,
    pytest.mark.network,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="there is no unshare"),
]
TJ = "/sys/class/thermal/thermal_zone8/temp"
REPO = Path(__file__).parents[2]

NAMESPACE = """set -e
mount -t tmpfs tmpfs {scratch}
mkdir {scratch}/upper {scratch}/work {scratch}/etc {scratch}/site
(cat {root}/etc/group; echo jtop:x:998:) > {scratch}/etc/group
printf 'import platform\\nplatform.machine = lambda: "aarch64"\\n' > {scratch}/site/sitecustomize.py
mount -t overlay overlay -o lowerdir=/usr/local,upperdir={scratch}/upper,workdir={scratch}/work /usr/local
mount -t overlay overlay -o lowerdir={scratch}/etc:{root}/etc:/etc /etc
mount -t tmpfs tmpfs /run
for file in stat meminfo; do mount --bind {root}/proc/$file /proc/$file; done
mount --bind {root}/sys /sys
export PATH={root}/usr/bin:$PATH PYTHONPATH={scratch}/site:{packages}:{repo}
JTOP_SERVICE=True {python} -m jtop --force > {log} 2>&1 &
service=$!
trap 'kill $service' EXIT
for _ in $(seq 100); do [ -S /run/jtop.sock ] && break; sleep 0.1; done
{python} {client}
"""

CLIENT = """
import dataclasses, json
from jtop import JtopException, jtop
from orin_deploy.host import Host
from orin_deploy.observe.telemetry.jtop import Jtop

def sample():
    source = Jtop(Host("/"), 0.5)
    source.open()
    try:
        return dataclasses.asdict(source.read())
    finally:
        source.close()

first = sample()
with jtop(interval=0.5) as client:
    client.nvpmodel = "MAXN_SUPER"
    try:
        client.nvpmodel = "NO_SUCH"
        refused = False
    except JtopException:
        refused = True
import time
time.sleep(1.5)
print(json.dumps({"first": first, "second": sample(), "refused": refused}))
"""


@pytest.fixture
def packages(shared_home: Path) -> Path:
    """jetson-stats and what it needs, installed once beside the shared engine."""
    folder = shared_home / "jetson-stats"
    if not (folder / "jtop").is_dir():
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target")
        done = subprocess.run([*pip, str(folder), "jetson-stats"], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"jetson-stats cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return folder


def in_namespace(board: Path, tmp_path: Path, packages: Path) -> Any:
    client, log, scratch = tmp_path / "client.py", tmp_path / "jtop.log", tmp_path / "scratch"
    client.write_text(CLIENT)
    scratch.mkdir()
    script = NAMESPACE.format(
        scratch=scratch, root=board, packages=packages, repo=REPO, python=sys.executable, log=log, client=client
    )
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ORIN_", "JTOP_"))}
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], env=environ, capture_output=True, text=True, timeout=90
    )
    if done.returncode != 0 and ("unshare" in done.stderr or "mount:" in done.stderr):
        pytest.skip(f"no mount namespace here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, f"{done.stderr}\n{log.read_text() if log.exists() else ''}"
    return json.loads(done.stdout)


def test_telemetry_reads_the_board_through_the_real_jtop(make: Make, tmp_path: Path, packages: Path) -> None:
    board = make("nano8", "36.4.3")
    board.set_load(gpu=0.6, cpu={0: 0.5})
    board.advance(60)
    said = in_namespace(board.root, tmp_path, packages)
    first = said["first"]
    assert first["source"] == "jtop"
    assert first["mode"] == "25W"
    assert (first["gpu_percent"], first["gpu_mhz"]) == (60.0, 918)
    assert first["ram_total_bytes"] == 7_802_736 * 1024
    assert len(first["cpu_mhz"]) == 6
    rails = board.kernel.read("/sys/class/hwmon/hwmon1/curr1_input")
    assert rails is not None
    assert abs(first["power_mw"]["VDD_IN"] - int(rails) * 5) < 10
    assert first["temperature_c"]["tj"] == pytest.approx(int(board.host().read(TJ) or 0) / 1000, abs=0.01)
    assert not any(zone.startswith("cv") for zone in first["temperature_c"])  # gated: cannot be read
    assert said["refused"]
    assert said["second"]["mode"] == "MAXN_SUPER"
    assert board.mode == "MAXN_SUPER"
    assert ask(board, "nvpmodel", "-q").stdout == "NV Power Mode: MAXN_SUPER\n2\n"
