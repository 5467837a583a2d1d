"""`orin-deploy top` as a process, and how a moment of a board looks."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from orin_deploy.cli.show_top import Moment, frame, one_line
from orin_deploy.observe.telemetry import Sample
from orin_deploy.observe.telemetry.missing import reasons
from orin_deploy.observe.telemetry.sample import FIELDS, completed
from orin_deploy.observe.telemetry.serving import Serving

PROJECT = Path(__file__).parents[2]
NANO = completed(
    Sample(
        1_800_000_000.0, "tegrastats",
        cpu_percent=(38.0, 2.0, None), cpu_mhz=(1497, 729, None), gpu_percent=99, gpu_mhz=612,
        ram_used_bytes=6 * 2**30, ram_total_bytes=8 * 2**30, swap_used_bytes=2**29, swap_total_bytes=4 * 2**30,
        power_mw={"VDD_IN": 16321, "VDD_SOC": 3120}, power_total_mw=16321, temperature_c={"cpu": 57.1, "tj": 58.3},
        over_current={"oc1": 0, "oc3": 45}, throttled_by=("cpufreq-cpu0",), mode="25W", clocks_locked=True,
    )
)  # fmt: skip
SERVING = Serving(tokens_per_s=12.34, acceptance_rate=0.71, requests=1, waiting=2)


def command(home: Path, *words: str, out: int = subprocess.PIPE) -> subprocess.Popen[str]:
    environ = {**os.environ, "ORIN_DEPLOY_HOME": str(home), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    argv = (sys.executable, "-m", "orin_deploy", "top", *words)
    return subprocess.Popen(argv, cwd=PROJECT, env=environ, text=True, stdout=out, stderr=subprocess.PIPE)


def moment(sample: Sample, serving: Serving | None = None) -> Moment:
    return Moment(sample, "edge", serving, reasons(sample, True, False, {"jtop": "the jtop service does not run"}))


def test_once_as_json_has_every_field(tmp_path: Path) -> None:
    process = command(tmp_path, "--once", "--json")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    document = json.loads(out)
    assert set(document) == {field.name for field in fields(Sample)} | {"server", "missing"}
    assert document["server"] is None, "nothing is deployed"
    assert all(document[name] is None for name in document["gaps"])
    assert all(document[name] is not None for name in FIELDS if name not in document["gaps"])
    assert not list(tmp_path.iterdir()), "looking changes nothing"


def test_json_lines_until_an_interrupt(tmp_path: Path) -> None:
    process = command(tmp_path, "--json", "--interval", "0.2")
    assert process.stdout is not None
    lines = [json.loads(process.stdout.readline()) for _ in range(4)]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "")
    lines += [json.loads(line) for line in out.splitlines()]
    times = [line["time"] for line in lines]
    assert times == sorted(times)
    assert 0.4 < times[3] - times[0] < 3


def test_on_a_pipe_lines_are_plain(tmp_path: Path) -> None:
    process = command(tmp_path, "--interval", "0.2")
    assert process.stdout is not None
    lines: list[str] = []
    while sum(not line.startswith("# ") for line in lines) < 3:
        lines.append(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "")
    assert "\033" not in "".join(lines) + out
    assert sum(line.startswith("# missing") for line in lines) == len({line for line in lines if line.startswith("#")})
    assert re.match(r"\d\d:\d\d:\d\d  cpu \d+ %  .*memory \d+\.\d of \d+\.\d GiB", lines[-1])


def test_a_reader_that_goes_ends_it(tmp_path: Path) -> None:
    with command(tmp_path, "--interval", "0.1") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=30) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_on_a_terminal_the_frame_is_drawn_again_in_place(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    process = command(tmp_path, "--interval", "0.2", out=follower)
    os.close(follower)
    said = b""
    deadline = time.monotonic() + 30
    while said.count(b"memory") < 4 and time.monotonic() < deadline:
        if select.select([leader], [], [], 1)[0]:
            said += os.read(leader, 65536)
    process.send_signal(signal.SIGINT)
    while process.poll() is None:
        if select.select([leader], [], [], 0.1)[0]:
            try:
                said += os.read(leader, 65536)
            except OSError:
                break
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, "")
    os.close(leader)
    assert re.search(rb"\033\[\d+A\r\033\[J", said)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "0.01", "1e9"])
def test_an_interval_without_sense_is_refused(tmp_path: Path, value: str) -> None:
    process = command(tmp_path, "--once", "--interval", value)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (2, "")
    assert "--interval" in err


def test_an_unknown_deployment_is_refused(tmp_path: Path) -> None:
    process = command(tmp_path, "--once", "--name", "nobody")
    _, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "nobody" in err or "nothing was ever deployed" in err


def test_a_frame_shows_all_that_is_known() -> None:
    first = completed(Sample(0.0, "tegrastats", over_current={"oc1": 0, "oc3": 37}))
    text = "\n".join(frame(moment(NANO, SERVING), first, 100))
    for words in (
        "from tegrastats", "20 % [38%@1497 2%@729 off]", "99 % at 612 MHz", "6.0 of 8.0 GiB, swap 0.5 of 4.0 GiB",
        "16.32 W (VDD_IN 16.32, VDD_SOC 3.12)", "cpu 57.1, tj 58.3 °C", "25W, clocks locked", "oc1 0, oc3 45 (+8)",
        "cpufreq-cpu0", "edge: 12.3 tokens/s, acceptance 71%, requests 1, waiting 2",
        "missing: memory load, memory clock (only root is shown it)",
    ):  # fmt: skip
        assert words in text


def test_a_frame_fits_the_terminal() -> None:
    wide = completed(Sample(0.0, "sysfs", cpu_percent=(100.0,) * 14, cpu_mhz=(2601,) * 14, ram_total_bytes=1))
    lines = frame(moment(wide), wide, 80)
    assert all(len(line) < 80 for line in lines if not line.startswith("missing"))
    assert sum(line.count("@2601") for line in lines) == 14


def test_a_line_says_the_hottest_zone_and_leaves_out_the_unknown() -> None:
    assert one_line(moment(NANO, SERVING)).endswith(
        "cpu 20 %  gpu 99 % at 612 MHz  memory 6.0 of 8.0 GiB, swap 0.5 of 4.0 GiB  16.32 W  tj 58.3 °C"
        "  throttled by cpufreq-cpu0  edge: 12.3 tokens/s, acceptance 71%, requests 1, waiting 2"
    )
    assert one_line(moment(completed(Sample(0.0, "none")))).count("  ") == 0


@pytest.mark.parametrize("jetson", [True, False])
@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize("source", ["jtop", "tegrastats", "sysfs", "psutil", "none"])
def test_every_gap_has_a_reason(source: str, jetson: bool, root: bool) -> None:
    empty = completed(Sample(0.0, source))
    found = reasons(empty, jetson, root, {"jtop": "the jtop service does not run"})
    assert all(why and what for why, what in found.items())
    assert {"GPU load", "power mode", "power"} <= {each for what in found.values() for each in what}
