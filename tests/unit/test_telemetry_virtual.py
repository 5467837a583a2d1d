"""Telemetry on virtual boards of every generation: what the sources say, and that they say the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orin_deploy.facts.clocks import EMC, parse_show
from orin_deploy.observe.telemetry.conditions import Conditions
from orin_deploy.observe.telemetry.sample import Sample, completed
from orin_deploy.observe.telemetry.sampler import Sampler
from orin_deploy.observe.telemetry.sysfs import Sysfs
from orin_deploy.observe.telemetry.tegrastats import Tegrastats
from tests.virtual import VirtualJetson, build
from tests.virtual.modes import gpus

PROJECT = Path(__file__).parents[2]
BOARDS = [
    ("agx-xavier", "35.4.1"),
    ("agx64", "35.4.1"),
    ("nano8", "36.4.3"),
    ("agx64", "36.5.0"),
    ("nano8", "39.2.0"),
    ("thor-t5000", "38.4.0"),
]


@pytest.fixture(scope="module", params=BOARDS, ids=lambda board: "-".join(board))
def board(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualJetson]:
    """One board for all tests of it: each sets the load it looks at, and puts the clocks back."""
    made = build(tmp_path_factory.mktemp("board") / "root", *request.param)
    yield made
    made.shut_down()


def by_tegrastats(board: VirtualJetson) -> Sample:
    host = board.host()
    with Sampler(host, 0.1, (lambda: Tegrastats(host, 0.1),)) as sampler:
        return sampler.sample()


def by_sysfs(board: VirtualJetson) -> Sample:
    """The mean of ten seconds of the board's time."""
    host = board.host()
    source = Sysfs(host)
    source.open()
    board.advance(10)
    return completed(source.read(), Conditions(host).read(0.0))


def test_the_tool_and_the_kernel_agree(board: VirtualJetson) -> None:
    board.set_load(gpu=0.5, cpu={0: 1.0, 1: 0.5})
    board.advance(30)
    kernel, tool = by_sysfs(board), by_tegrastats(board)
    assert tool.source == "tegrastats"
    assert tool.cpu_percent == pytest.approx(kernel.cpu_percent, abs=3)
    assert tool.cpu_mhz is not None
    assert kernel.cpu_mhz is not None
    assert tool.cpu_mhz[0] == kernel.cpu_mhz[0]  # of the others the file says the cluster's clock, the tool its own
    assert [mhz is None for mhz in tool.cpu_mhz] == [mhz is None for mhz in kernel.cpu_mhz]
    assert tool.temperature_c == pytest.approx(kernel.temperature_c, abs=0.1)
    assert tool.power_mw is not None
    assert kernel.power_mw is not None
    shared = tool.power_mw.keys() & kernel.power_mw.keys()
    assert len(shared) >= 3
    for rail in shared:
        assert tool.power_mw[rail] == pytest.approx(kernel.power_mw[rail], rel=0.03, abs=30)
    assert tool.power_total_mw == pytest.approx(kernel.power_total_mw, rel=0.03, abs=50)
    assert tool.ram_total_bytes == pytest.approx(kernel.ram_total_bytes, rel=0.001)
    assert (tool.gpu_mhz, tool.mode, tool.over_current) == (kernel.gpu_mhz, kernel.mode, kernel.over_current)
    assert kernel.mode == board.mode


def test_loads_are_those_that_were_set(board: VirtualJetson) -> None:
    online = board.online()
    board.set_load(gpu=0.5, cpu={0: 1.0, online[-1]: 0.25})
    found = by_sysfs(board)
    assert found.cpu_percent is not None
    expected = dict.fromkeys(online, 0.0) | {0: 100.0, online[-1]: 25.0}
    assert found.cpu_percent == pytest.approx(
        tuple(expected.get(cpu) for cpu in range(len(found.cpu_percent))), abs=3
    ), "an offline CPU is None"
    if board.kernel.board.soc != "tegra264":  # Thor's kernel need not say it
        assert found.gpu_percent == pytest.approx(50)


def test_locked_clocks_and_their_release_are_seen(board: VirtualJetson) -> None:
    host = board.host()
    store = "/var/tmp/clocks"
    assert Conditions(host).read(0.0).clocks_locked is False
    assert host.ask("jetson_clocks", "--store", str(host.path(store))) is not None
    assert host.ask("jetson_clocks") is not None
    assert Conditions(host).read(0.0).clocks_locked is True
    assert host.ask("jetson_clocks", "--restore", str(host.path(store))) is not None
    assert Conditions(host).read(0.0).clocks_locked is False


def test_what_up_reads_back_and_what_top_shows_is_one_rule(board: VirtualJetson) -> None:
    """With any one of the clocks that jetson_clocks pins let go again, the GPU's second part on Thor included."""
    host, store = board.host(), "/var/tmp/one-rule"
    host.ask("jetson_clocks", "--store", str(host.path(store)))

    def both() -> tuple[bool | None, bool | None]:
        return parse_show(host.ask("jetson_clocks", "--show") or "").locked, Conditions(host).read(0.0).clocks_locked

    assert both() == (False, False)
    pinned = {"/sys/devices/system/cpu/cpu0/cpuidle/state1/disable": 0}
    pinned |= {f"{folder}/min_freq": 1 for folder in gpus(board.kernel)}
    pinned |= {"/sys/devices/system/cpu/cpu1/cpufreq/scaling_min_freq": 1}
    if board.kernel.release.major < 39:  # there --show tells the memory's by its range
        pinned |= {f"{EMC}/mrq_rate_locked": 0}
    for path, free in pinned.items():
        host.ask("jetson_clocks")
        assert both() == (True, True)
        host.path(path).write_text(f"{free}\n")
        assert both() == (False, False), path
    host.ask("jetson_clocks", "--restore", str(host.path(store)))


def test_a_gated_zone_is_absent_and_over_current_counts(tmp_path: Path) -> None:
    board = build(tmp_path / "root", "nano8", "36.4.3")
    assert board.host().ask("nvpmodel", "-m", "2") is not None
    board.set_load(gpu=1.0, cpu=1.0)
    before = by_sysfs(board)
    board.advance(60)
    after = by_sysfs(board)
    assert after.temperature_c is not None
    assert not {"cv0", "cv1", "cv2"} & after.temperature_c.keys()
    assert after.mode == "MAXN_SUPER"
    assert before.over_current is not None
    assert after.over_current is not None
    assert after.over_current["oc3"] > before.over_current["oc3"]
    assert after.temperature_c["tj"] > (before.temperature_c or {})["tj"]


def test_an_ordinary_user_is_told_what_only_root_sees(tmp_path: Path) -> None:
    board = build(tmp_path / "root", "nano8", "36.4.3")
    environ = board.environ() | {"PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        (sys.executable, "-m", "orin_deploy", "top", "--once", "--json", "--interval", "0.2"),
        capture_output=True, text=True, env=environ, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert document["source"] == "tegrastats"
    assert document["mode"] == "25W"
    assert document["power_mw"].keys() == {"VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"}
    assert set(document["over_current"]) == {"oc1", "oc2", "oc3"}
