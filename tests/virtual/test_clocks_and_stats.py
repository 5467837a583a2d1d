"""The stubs of jetson_clocks and tegrastats against the layouts of the public captures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.virtual.conftest import Make, ask, line

DEVICES = Path(__file__).parents[3] / "shared/fixtures/devices"


def skeleton(text: str) -> str:
    """A capture without what differs from moment to moment: numbers, and blanks at line ends."""
    return re.sub(r"\d+(\.\d+)?", "9", "\n".join(each.rstrip() for each in text.splitlines()))


def limits(text: str) -> str:
    """A --show without current clocks, the fan and hwmon's numbers, which no table fixes."""
    return re.sub(r"CurrentFreq=\d+|hwmon\d+_pwm1(_enable)?=\d+", "X", "\n".join(map(str.rstrip, text.splitlines())))


@pytest.mark.parametrize(
    ("board", "l4t", "mode", "pinned", "capture"),
    [
        ("nano8", "36.4.3", "1", False, "orin-nano-8gb-devkit-super/jetson_clocks-show.25W"),
        ("nano8", "36.4.7", "1", False, "orin-nano-8gb-devkit-super/jetson_clocks-show.25W.R36.4.7"),
        ("nano8", "39.2.0", "1", False, "orin-nano-8gb-devkit-super-jp7/jetson_clocks-show.25W"),
        ("agx64", "36.4.3", "2", False, "agx-orin-64gb-devkit/jetson_clocks-show.MODE_30W"),
        ("agx64", "36.4.3", "2", True, "agx-orin-64gb-devkit/jetson_clocks-show.MODE_30W.pinned"),
    ],
)
def test_show_is_the_captured_one(make: Make, board: str, l4t: str, mode: str, pinned: bool, capture: str) -> None:
    file = DEVICES / capture
    if not file.exists():
        pytest.skip(f"{file} is not there")
    virtual = make(board, l4t)
    ask(virtual, "nvpmodel", "-m", mode)
    if pinned:
        assert ask(virtual, "jetson_clocks").returncode == 0
    assert limits(ask(virtual, "jetson_clocks", "--show").stdout) == limits(file.read_text())


def test_show_has_four_layouts(make: Make) -> None:
    old = ask(make("agx64", "35.4.1"), "jetson_clocks", "--show").stdout
    order = re.findall(r"^cpu(\d+):", old, re.MULTILINE)
    assert order == sorted(order)  # as text: cpu1 is followed by cpu10
    assert "cpu10: Online=0 " in old
    assert " FreqOverride=0" in old
    six = ask(make("agx64", "36.4.3"), "jetson_clocks", "--show").stdout
    assert re.findall(r"^cpu(\d+):", six, re.MULTILINE) == [str(cpu) for cpu in range(12)]
    nine = ask(make("agx64", "39.2.0"), "jetson_clocks", "--show").stdout
    assert "Online CPUs: 0-7, Offline CPUs: 8-11\n" in nine
    assert "Online=" not in re.findall(r"^cpu.*$", nine, re.MULTILINE)[0]
    assert "FreqOverride" not in nine
    thor = ask(make("thor-t5000", "38.4.0"), "jetson_clocks", "--show").stdout
    assert {"gpu-gpc-0", "gpu-nvd-0"} <= {each.split(" ")[0] for each in thor.splitlines()}
    assert "cc7=1" in thor
    assert "FreqOverride=0" in thor


@pytest.mark.parametrize("which", ["agx64 35.4.1", "nano8 36.4.3", "thor-t5000 38.4.0", "nx16 39.2.0"])
def test_pinned_store_and_restore(make: Make, which: str) -> None:
    board, l4t = which.split()
    virtual = make(board, l4t)
    file = virtual.root / "var/lib/clocks"

    def shown() -> str:
        return ask(virtual, "jetson_clocks", "--show").stdout

    before = shown()
    assert ask(virtual, "jetson_clocks", "--store", str(file)).returncode == 0
    ask(virtual, "jetson_clocks")
    pinned = shown()
    for row in re.findall(r"^(?:cpu\d+:|GPU|gpu-gpc-0).*MinFreq=.*$", pinned, re.MULTILINE):
        if "Online=0" not in row:
            found = re.search(r"MinFreq=(\d+) MaxFreq=(\d+) CurrentFreq=(\d+)", row)
            assert found is not None
            assert len(set(found.groups())) == 1, row
    assert "WFI=1" not in pinned
    assert ("FreqOverride=1" in pinned) == (not l4t.startswith("39"))
    assert ask(virtual, "jetson_clocks", "--restore", str(file)).returncode == 0
    assert shown() == before
    assert ask(virtual, "jetson_clocks", "--store", str(file)).returncode != 0  # asks before it overwrites


def test_what_unpins(make: Make) -> None:
    """A mode that is set again, as going headless does, and a reboot."""
    virtual = make("nano8", "36.4.3")
    for undo in (("nvpmodel", "-m", "1"), ("systemctl", "isolate", "multi-user.target"), ("reboot",)):
        ask(virtual, "jetson_clocks")
        assert virtual.kernel.emc_locked()
        ask(virtual, *undo)
        assert not virtual.kernel.emc_locked(), undo
        assert virtual.kernel.gpu_limits()[0] == 306_000_000, undo


def test_clocks_are_for_root(make: Make) -> None:
    done = ask(make(), "jetson_clocks", "--show", user="nvidia")
    assert done.returncode == 1
    assert done.stderr == "Error: Run this script(/usr/bin/jetson_clocks) as a root user\n"


@pytest.mark.parametrize(
    ("board", "l4t", "user", "capture", "row"),
    [
        ("nano8", "36.4.3", "nvidia", "orin-nano-8gb-devkit-super/tegrastats", 0),
        ("nano8", "36.4.3", "root", "orin-nano-8gb-devkit-super/tegrastats.root", 1),
        ("nano8", "39.2.0", "root", "orin-nano-8gb-devkit-super-jp7/tegrastats", 0),
        ("agx-orin-devkit-32gb", "36.4.3", "nvidia", "agx-orin-devkit-32gb-p3701-0000/tegrastats.jp6.MODE_30W", 0),
        ("thor-t5000", "38.4.0", "root", "agx-thor-t5000-devkit/tegrastats", 0),
        ("agx-xavier", "35.4.1", "root", "agx-xavier/tegrastats", 0),
    ],
)
def test_stats_have_the_captured_layout(make: Make, board: str, l4t: str, user: str, capture: str, row: int) -> None:
    file = DEVICES / capture
    if not file.exists():
        pytest.skip(f"{file} is not there")
    assert skeleton(line(make(board, l4t), user)) == skeleton(file.read_text().splitlines()[row])


def test_stats_go_with_the_load(make: Make) -> None:
    virtual = make("nano8", "36.4.3")
    idle = line(virtual)
    assert "GR3D_FREQ 0%@[306]" in idle
    virtual.set_load(gpu=0.99, cpu={0: 0.4})
    virtual.advance(60)
    busy = line(virtual)
    assert "GR3D_FREQ 99%@[918]" in busy
    assert "CPU [40%@" in busy

    def milliwatts(text: str) -> int:
        found = re.search(r"VDD_IN (\d+)mW", text)
        assert found is not None
        return int(found[1])

    assert milliwatts(busy) > 3 * milliwatts(idle)


def test_a_jetpack_5_line_prints_gated_zones(make: Make) -> None:
    text = line(make("agx64", "35.4.1"))
    assert "GPU@-256C" in text
    assert re.match(r"\d\d-\d\d-\d{4} ", text)
    assert "GR3D2_FREQ 0%@0" in text
