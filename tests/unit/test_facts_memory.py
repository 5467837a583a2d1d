"""Memory: /proc/meminfo, swaps and control groups, against examples, properties and this machine's own tools."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.facts import cgroup, memory
from orin_deploy.facts.device import MIB
from orin_deploy.host.machine import Machine

NO_LIMIT_V1 = 2**63 - 4096


def test_a_torn_line_is_left_out() -> None:
    info = memory.meminfo("MemTotal:       24684092 kB\nMemFree: x kB\nHugePages_Total:       3\nMemAvailable:   242")
    assert info == {"MemTotal": 24684092 * 1024, "HugePages_Total": 3}


@given(st.dictionaries(st.from_regex(r"[A-Z][A-Za-z]{0,12}(\([a-z]{1,5}\))?", fullmatch=True), st.integers(0, 2**50)))
def test_meminfo_reads_back_what_is_written(values: dict[str, int]) -> None:
    text = "".join(f"{name}:{value:>15} kB\n" for name, value in values.items())
    text = text.replace(":", ": ")
    assert memory.meminfo(text) == {name: value * 1024 for name, value in values.items()}


@given(st.text())
def test_no_text_breaks_a_parser(text: str) -> None:
    memory.meminfo(text)
    memory.zram_bytes(text)
    memory.used_bytes(0, text)
    cgroup.folders(text, "memory")


def test_available_is_estimated_where_the_kernel_does_not_say() -> None:
    info = {"MemTotal": 1000, "MemFree": 100, "Cached": 300, "Buffers": 50, "Shmem": 70, "SReclaimable": 20}
    assert memory.available(info) == 400
    assert memory.available(info | {"MemAvailable": 5}) == 5
    assert memory.available({}) == 0


def test_only_zram_counts_as_zram() -> None:
    swaps = (
        "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
        "/dev/zram0                              partition\t650224\t\t48874\t\t5\n"
        "/dev/zram11                             partition\t650224\t\t0\t\t5\n"
        "/swapfile                               file\t\t8388604\t\t0\t\t-2\n"
    )
    assert memory.zram_bytes(swaps) == 2 * 650224 * 1024


@pytest.mark.parametrize(
    ("text", "folders"),
    [
        ("0::/a/b\n", ("/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup")),
        ("0::/\n", ("/sys/fs/cgroup",)),  # in a container
        ("0::/../../x\n", ("/sys/fs/cgroup",)),  # outside our namespace
        ("4:memory:/j\n0::/\n", ("/sys/fs/cgroup/memory/j", "/sys/fs/cgroup/memory")),  # both versions mounted
        ("2:cpu,cpuacct:/\n", ()),
        ("nonsense", ()),
        ("", ()),
    ],
)
def test_own_groups(text: str, folders: tuple[str, ...]) -> None:
    assert cgroup.folders(text, "memory") == folders


def test_the_tightest_limit_is_the_one_that_leaves_least() -> None:
    total = 16 * MIB
    assert memory.tightest([], total) == (None, None)
    assert memory.tightest([(NO_LIMIT_V1, 3)], total) == (None, None)
    assert memory.tightest([(total, 3)], total) == (None, None)
    assert memory.tightest([(4 * MIB, 0), (8 * MIB, 7 * MIB)], total) == (8 * MIB, 7 * MIB)
    assert memory.tightest([(4 * MIB, None), (8 * MIB, MIB)], total) == (4 * MIB, None)


LEVELS = st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 2**40) | st.none()))


@given(LEVELS, st.tuples(st.integers(0, 2**40), st.none()))
def test_one_more_limit_never_leaves_more(levels: list[tuple[int, int | None]], more: tuple[int, None]) -> None:
    def left(found: tuple[int | None, int | None]) -> int:
        return 2**40 if found[0] is None else found[0] - (found[1] or 0)

    assert left(memory.tightest([*levels, more], 2**40)) <= left(memory.tightest(levels, 2**40))


def test_a_limit_further_up_binds(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 8000000 kB\n",
        "proc/self/cgroup": "0::/outer/inner\n",
        "sys/fs/cgroup/outer/memory.max": "1073741824\n",
        "sys/fs/cgroup/outer/memory.high": "max\n",
        "sys/fs/cgroup/outer/memory.current": "536870912\n",
        "sys/fs/cgroup/outer/memory.stat": "anon 1\ninactive_file 104857600\nactive_file 4\n",
        "sys/fs/cgroup/outer/inner/memory.max": "max\n",
        "sys/fs/cgroup/outer/inner/memory.high": "2147483648\n",
        "sys/fs/cgroup/outer/inner/memory.current": "1048576\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = memory.read(Machine(tmp_path, {}))
    assert (found.cgroup_limit, found.cgroup_used) == (1073741824, 536870912 - 104857600 - 4)


def test_this_machine_agrees_with_psutil() -> None:
    found, virtual, swap = memory.read(Machine()), psutil.virtual_memory(), psutil.swap_memory()
    assert (found.total, found.swap_total) == (virtual.total, swap.total)
    assert abs(found.available - virtual.available) < found.total // 10  # others work on this machine too
    assert found.free <= found.total


def test_this_machine_agrees_with_free() -> None:
    if shutil.which("free") is None:
        pytest.skip("free is not here")
    rows = subprocess.run(["free", "-b"], capture_output=True, text=True, check=True).stdout.splitlines()
    totals = {row.split()[0]: int(row.split()[1]) for row in rows[1:]}
    found = memory.read(Machine())
    assert (found.total, found.swap_total) == (totals["Mem:"], totals["Swap:"])


def machine(root: Path, files: dict[str, str]) -> Machine:
    """A machine of nothing but these files."""
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(root, {})


def kib(**values: object) -> str:
    return "".join(f"{name}: {value} kB\n" for name, value in values.items())


@pytest.mark.parametrize(
    ("text", "total", "available", "free", "doubted"),
    [
        (kib(MemTotal=8000, MemFree=9000, MemAvailable=6000), 8000, 6000, 8000, ["MemFree"]),
        (kib(MemTotal=8000, MemFree=100, MemAvailable=9000), 8000, 100, 100, ["MemAvailable"]),
        (kib(MemTotal=8000, MemFree=100, Cached=200, MemAvailable=9000), 8000, 300, 100, ["MemAvailable"]),
        (kib(MemTotal=8000, MemFree=9000, MemAvailable=9000), 8000, 8000, 8000, ["MemFree", "MemAvailable"]),
        (kib(MemTotal=0, MemFree=9000, MemAvailable=6000), 0, 0, 0, ["MemTotal"]),
        (kib(MemFree=9000, MemAvailable=6000), 0, 0, 0, ["MemTotal"]),
        (kib(MemTotal=-8000, MemFree=9000), 0, 0, 0, ["MemTotal"]),
        (kib(MemTotal=8000, MemFree=-5, MemAvailable="lots"), 8000, 0, 0, ["MemAvailable"]),
        (kib(MemTotal=8000, MemFree=1000, Cached=2000, Shmem=500), 8000, 2500, 1000, ["MemAvailable"]),
        (kib(MemTotal=8000, MemFree=1, MemAvailable=1, SwapTotal=5, SwapFree=6), 8000, 1, 1, ["SwapFree"]),
        ("\0\xff nonsense", 0, 0, 0, ["MemTotal"]),
    ],
)
def test_what_cannot_be_is_cut_and_said(
    text: str, total: int, available: int, free: int, doubted: list[str], tmp_path: Path
) -> None:
    found = memory.read(machine(tmp_path, {"/proc/meminfo": text}))
    assert [size // 1024 for size in (found.total, found.available, found.free)] == [total, available, free]
    assert len(found.doubts) == len(doubted)
    assert all(name in doubt for name, doubt in zip(doubted, found.doubts, strict=True))
    assert found.swap_free <= found.swap_total


@given(
    st.dictionaries(
        st.sampled_from(
            ["MemTotal", "MemFree", "MemAvailable", "Cached", "Buffers", "Shmem", "SwapTotal", "SwapFree", "Hugetlb"]
        ),
        st.integers(-(2**40), 2**50),
    )
)
def test_no_reading_leaves_more_than_there_is(tmp_path_factory: pytest.TempPathFactory, values: dict[str, int]) -> None:
    found = memory.read(machine(tmp_path_factory.mktemp("machine"), {"/proc/meminfo": kib(**values)}))
    parts = (found.available, found.free, found.hugepages_total, found.hugepages_free)
    assert all(0 <= part <= found.total for part in parts)
    assert 0 <= found.swap_free <= found.swap_total or found.total == 0
    assert found.doubts or "MemAvailable" in values


def test_a_sound_machine_raises_no_doubt() -> None:
    assert memory.read(Machine()).doubts == ()


@pytest.mark.parametrize("text", ["", "max", "-5", "0", "1e9", "99999999999999999999999", "nonsense\n", "4 8", "\0"])
def test_a_control_group_of_nonsense_is_no_limit(text: str, tmp_path: Path) -> None:
    files = {"/proc/meminfo": kib(MemTotal=8000, MemFree=1, MemAvailable=1), "/proc/self/cgroup": "0::/a\n"}
    found = memory.read(machine(tmp_path, files | {"/sys/fs/cgroup/a/memory.max": text}))
    assert found.cgroup_limit is None


def test_the_limit_of_the_group_that_systemd_would_use(tmp_path: Path) -> None:
    group = "/sys/fs/cgroup"
    files = {
        "/proc/meminfo": kib(MemTotal=8000, MemFree=1, MemAvailable=1),
        "/proc/self/cgroup": "0::/user.slice/user-1000.slice/user@1000.service/app.slice/term.scope\n",
        "/proc/self/status": "Name:\tx\nUid:\t1000\t0\t0\t0\n",
        "/run/systemd/system/x": "",
        f"{group}/user.slice/memory.max": str(3000 * 1024),
        f"{group}/system.slice/memory.max": str(6000 * 1024),
        f"{group}/system.slice/memory.high": str(5000 * 1024),
        f"{group}/system.slice/memory.current": str(900 * 1024),
        f"{group}/user.slice/user-1000.slice/user@1000.service/app.slice/memory.high": str(2000 * 1024),
    }
    as_root = memory.read(machine(tmp_path / "root", files))
    assert (as_root.cgroup_limit, as_root.service_limit) == (2000 * 1024, 5000 * 1024)
    assert (as_root.service_group, as_root.service_used) == ("/system.slice", 900 * 1024)
    as_user = memory.read(machine(tmp_path / "user", files | {"/proc/self/status": "Uid:\t1000\t1000\t1000\t1000\n"}))
    assert as_user.service_limit == 2000 * 1024
    assert as_user.service_group is not None
    assert as_user.service_group.endswith("/user@1000.service/app.slice")
    del files["/run/systemd/system/x"]
    assert memory.read(machine(tmp_path / "none", files)).service_limit is None


def test_the_largest_block_is_that_of_tegrastats() -> None:
    text = (
        "Node 0, zone      DMA     16    204     40      3      0      0      0      0      0      0      0 \n"
        "Node 0, zone   Normal    901    700    300     80     12      7      2      5      0      0      0 \n"
    )
    assert memory.largest_blocks(text, 4096) == (512 * 1024, 5)
    whole = text + "Node 1, zone   Normal  0 0 0 0 0 0 0 1 0 0 0\n"
    assert memory.largest_blocks(whole, 4096) == (512 * 1024, 6)
    assert memory.largest_blocks("Node 0, zone Normal 0 0 0 0 0 0 0 0 0 0 0\n", 4096) == (None, 0)
    assert memory.largest_blocks("nonsense 1 2 3", 4096) == (None, 0)


def test_used_zram_is_counted_before_compression() -> None:
    swaps = "Filename\tType\tSize\tUsed\tPriority\n/dev/zram0\tpartition\t650224\t\t48874\t\t5\n/swap file 9 9 -2\n"
    assert memory.zram_bytes(swaps, used=True) == 48874 * 1024
    assert memory.zram_bytes("/dev/zram0 partition 650224\n", used=True) == 0
