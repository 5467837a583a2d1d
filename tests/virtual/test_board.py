"""The board itself: what its files say to the product's own readers, and how it goes with time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orin_deploy.facts.inspect import inspect
from orin_deploy.host import Host
from tests.virtual.boards_table import BOARDS, RELEASES
from tests.virtual.conftest import Make, ask
from tests.virtual.kernel import Kernel

FIXTURES = Path(__file__).parents[3] / "shared/fixtures/devices"
EVERY = [(name, l4t) for name, board in BOARDS.items() for l4t in board.releases]


@pytest.mark.parametrize(("name", "l4t"), EVERY)
def test_the_product_reads_every_board(make: Make, name: str, l4t: str) -> None:
    virtual, board = make(name, l4t), BOARDS[name]
    device = inspect(virtual.host())
    assert device.machine == "aarch64"
    assert device.systemd
    assert device.jetson is not None
    assert device.jetson.l4t == l4t
    assert device.jetson.module in (board.module, None if name == "agx-xavier" else board.module, "p2972-0000")
    assert device.cpu.present == board.cpus
    assert device.cpu.online == virtual.online()
    clusters = tuple(cluster.cpus for cluster in device.cpu.clusters)
    offline = set(board.cpus) - set(virtual.online())
    assert clusters == tuple(each for each in board.clusters if set(each) - offline)
    assert device.memory.total == board.total_kib[int(l4t[:2])] * 1024
    assert [kit.version_text[:4] for kit in device.toolchain.cuda] == [device.jetson.jetpack_cuda]


def test_a_gated_zone_cannot_be_read(make: Make) -> None:
    virtual = make("nano8", "36.4.3")
    host = virtual.host()
    kinds = {host.read(f"{zone}/type"): host.read(f"{zone}/temp") for zone in host.glob("/sys/class/thermal/*")}
    assert kinds["cv0-thermal"] is None
    assert kinds["tj-thermal"] == "45000"


def test_release_files_are_the_captured_ones(make: Make) -> None:
    if not FIXTURES.exists():
        pytest.skip(f"{FIXTURES} is not there")
    for l4t in RELEASES:
        name = "thor-t5000" if l4t.startswith("38") else "nano8"
        text = make(name, l4t).kernel.path("/etc/nv_tegra_release").read_text()
        assert text == (FIXTURES / f"_nv_tegra_release/R{l4t}").read_text()
    for name, l4t, folder in (
        ("nano8", "36.4.3", "orin-nano-8gb-devkit-super"), ("nano8", "35.4.1", "orin-nano-8gb-devkit"),
        ("agx32", "36.4.3", "agx-orin-32gb-p3701-0004"), ("thor-t5000", "38.4.0", "agx-thor-t5000-devkit"),
    ):  # fmt: skip
        tree = make(name, l4t).kernel.path("/proc/device-tree")
        for file in ("model", "compatible"):
            assert (tree / file).read_bytes() == (FIXTURES / folder / file).read_bytes()


def test_time_heats_throttles_and_cools(make: Make) -> None:
    virtual = make("nano8", "36.4.3")
    ask(virtual, "nvpmodel", "-m", "2")
    ask(virtual, "jetson_clocks")
    virtual.set_load(gpu=1.0, cpu=1.0)
    seen = []
    for _ in range(20):
        virtual.advance(30)
        heat = Kernel(virtual.root).heat
        seen.append((heat.celsius, heat.throttle, heat.events[2]))
    assert seen[0][0] < seen[1][0] < 99
    assert min(throttle for _, throttle, _ in seen) < 1
    assert all(celsius < 106 for celsius, _, _ in seen)
    assert seen[-1][2] > 100
    counter = "/sys/class/hwmon/hwmon3/oc3_event_cnt"
    assert int(virtual.host().read(counter) or 0) == int(seen[-1][2])
    virtual.set_load()
    virtual.advance(600)
    assert Kernel(virtual.root).heat.celsius < 60
    assert Kernel(virtual.root).heat.throttle == 1.0
    assert int(virtual.host().read(counter) or 0) >= int(seen[-1][2])  # they never go back


def test_the_model_is_deterministic(make: Make) -> None:
    ends = []
    for _ in range(2):
        virtual = make("agx64", "36.4.3")
        virtual.set_load(gpu=0.7, cpu=0.2)
        virtual.advance(123.5)
        ends.append(vars(Kernel(virtual.root).heat))
    assert ends[0] == ends[1]


def test_a_cooler_mode_takes_less(make: Make) -> None:
    """Power is monotone in the mode: the same load costs less where clocks and width are smaller."""
    virtual, taken = make("nx16", "36.4.3"), {}
    for mode in ("0", "4", "2", "1"):
        ask(virtual, "nvpmodel", "-m", mode, stdin="YES\n")
        virtual.set_load(gpu=1.0, cpu=0.5)
        virtual.advance(1)
        taken[virtual.mode] = Kernel(virtual.root).heat.power["VDD_IN"]
    assert taken["MAXN_SUPER"] > taken["40W"] * 0.99 > taken["15W"] > taken["10W"]


def test_memory_is_taken_and_given_back(make: Make) -> None:
    virtual = make("nano8", "36.4.3")
    before = inspect(virtual.host()).memory
    virtual.take(2048)
    less = inspect(virtual.host()).memory
    assert less.available < before.available - 1800 * 1024**2
    virtual.take(-2048)
    assert inspect(virtual.host()).memory == before
    assert before.zram_total == before.swap_total > 0
    assert inspect(make("nano8", "39.2.0").host()).memory.swap_total == 0


def test_another_root_comes_from_the_environment(tmp_path: Path, make: Make) -> None:
    virtual = make()
    host = Host(environ={"ORIN_DEPLOY_ROOT": str(virtual.root), "PATH": "/usr/bin"})
    assert host.read("/etc/nv_tegra_release") == virtual.kernel.read("/etc/nv_tegra_release")
    assert Host(environ={"PATH": os.defpath}).root == Path("/")
    assert Host(tmp_path, {"ORIN_DEPLOY_ROOT": str(virtual.root)}).root == tmp_path
