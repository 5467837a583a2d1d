"""The stub of nvpmodel against the words and rules of the public captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.virtual.boards_table import BOARDS, TABLES
from tests.virtual.conftest import Make, ask

FIXTURES = Path(__file__).parents[3] / "shared/fixtures"
REFUSED = ("NVPM ERROR: optMask is 1, no request for power mode",)
QUESTION = (
    "NVPM WARN: Golden image context is already created",
    "NVPM WARN: Reboot required for changing to this power mode: 0",
    "NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:",
)


def test_query_and_a_live_switch(make: Make) -> None:
    board = make("nano8", "36.4.3")
    assert ask(board, "nvpmodel", "-q").stdout == "NV Power Mode: 25W\n1\n"
    done = ask(board, "nvpmodel", "-m", "2")
    assert (done.returncode, done.stdout) == (0, "")
    assert ask(board, "nvpmodel", "-q").stdout == "NV Power Mode: MAXN_SUPER\n2\n"
    assert board.kernel.read("/var/lib/nvpmodel/status") == "pmode:0002"
    assert board.kernel.gpu_limits() == (306_000_000, 1_020_000_000)
    assert board.kernel.cpu_limits(0) == (729_600, 1_728_000)


def test_an_unknown_mode(make: Make) -> None:
    done = ask(make(), "nvpmodel", "-m", "9")
    assert done.returncode != 0
    assert done.stdout == "NVPM ERROR: request for bad power mode 9\n"


@pytest.mark.parametrize(("stdin", "more"), [("", ("NVPM ERROR: bad input!",)), ("no\n", ()), ("Yes\n", ())])
def test_a_switch_that_needs_a_reboot_and_no_consent(make: Make, stdin: str, more: tuple[str, ...]) -> None:
    board = make("agx64", "36.4.3")
    before = {path: path.read_bytes() for path in (board.root / "sys").rglob("*_freq") if path.is_file()}
    done = ask(board, "nvpmodel", "-m", "0", stdin=stdin)
    assert done.returncode != 0
    assert tuple(done.stdout.splitlines()) == (*QUESTION, *more, *REFUSED)
    assert before == {path: path.read_bytes() for path in before}
    assert board.mode == "MODE_30W"


@pytest.mark.parametrize("word", ["YES", "yes"])
def test_consent_reboots_into_the_mode(make: Make, word: str) -> None:
    board = make("agx64", "36.4.3")
    boot = board.kernel.read("/proc/sys/kernel/random/boot_id")
    done = ask(board, "nvpmodel", "-m", "0", stdin=f"{word}\n")
    assert tuple(done.stdout.splitlines()) == (*QUESTION, "NVPM WARN: rebooting")
    assert (board.mode, board.online()) == ("MAXN", tuple(range(12)))
    assert board.kernel.read("/proc/sys/kernel/random/boot_id") != boot


def test_thor_does_not_speak_of_a_golden_image(make: Make) -> None:
    done = ask(make("thor-t5000", "38.4.0"), "nvpmodel", "-m", "2")
    assert done.stdout.splitlines()[0] == "NVPM WARN: Reboot required for changing to this power mode: 2"


def test_who_is_not_root_changes_nothing(make: Make) -> None:
    board = make("agx64", "35.4.1")
    asked = ask(board, "nvpmodel", "-q", user="nvidia").stdout.splitlines()
    assert [text.split(":")[0] for text in asked] == ["NVPM ERROR", "NVPM ERROR", "NV Power Mode", "2"]
    assert ask(board, "nvpmodel", "-m", "3", user="nvidia").returncode != 0
    assert board.mode == "MODE_30W"


def test_in_a_container_only_the_status_file_changes(make: Make) -> None:
    board = make("nano8", "36.4.3")
    board.kernel.write("/.dockerenv", "")
    assert ask(board, "nvpmodel", "-m", "2").returncode == 0
    assert board.kernel.read("/var/lib/nvpmodel/status") == "pmode:0002"
    assert board.mode == "25W"


def test_parse_names_the_default(make: Make) -> None:
    said = ask(make("agx64", "36.4.3"), "nvpmodel", "-p", "--verbose").stdout.splitlines()
    assert "NVPM VERB: POWER_MODEL: ID=0 NAME=MAXN" in said
    assert said[-1] == "NVPM VERB: PM_CONFIG: DEFAULT=MODE_30W(2)"


@pytest.mark.parametrize("name", BOARDS)
def test_cores_go_off_and_their_files_vanish(make: Make, name: str) -> None:
    """Over every mode of every board: what is online is what the table says, and only that shows a topology."""
    board = make(name, BOARDS[name].releases[-1])
    conf, folder = board.kernel.conf(), "/sys/devices/system/cpu"
    table = TABLES[Path(board.kernel.path("/etc/nvpmodel.conf").readlink()).stem.removeprefix("nvpmodel_")]
    for number, mode in enumerate(table.modes):
        assert conf.names[number] == mode.name
        ask(board, "nvpmodel", "-m", str(number), stdin="YES\n")
        assert board.online() == tuple(range(mode.cores)), mode.name
        assert board.kernel.read(f"{folder}/online") == f"0-{mode.cores - 1}"
        for cpu in board.kernel.board.cpus:
            shown = cpu < mode.cores
            assert board.kernel.path(f"{folder}/cpu{cpu}/topology").exists() == shown
            assert board.kernel.path(f"{folder}/cpu{cpu}/cpufreq").exists() == shown
        limits = board.kernel.gpu_limits()
        if mode.gpu_mhz is not None and name not in ("agx-xavier", "xavier-nx"):
            assert limits[1] == mode.gpu_mhz * 1e6


def test_the_verbose_query_is_the_captured_one(make: Make) -> None:
    for name, l4t, mode, capture in (
        ("nano8", "36.4.3", "1", "orin-nano-8gb-devkit-super/nvpmodel-q-verbose.25W"),
        ("nx16", "36.5.0", "4", "orin-nx-16gb/nvpmodel-q-verbose.40W"),
    ):
        file = FIXTURES / "devices" / capture
        if not file.exists():
            pytest.skip(f"{file} is not there")
        board = make(name, l4t)
        ask(board, "nvpmodel", "-m", mode)
        assert ask(board, "nvpmodel", "-q", "--verbose").stdout == file.read_text()


def test_our_tables_are_the_published_ones() -> None:
    file = FIXTURES / "nvpmodel/modes.json"
    if not file.exists():
        pytest.skip(f"{file} is not there")
    import json

    for name, table in json.loads(file.read_text()).items():
        key = name.removeprefix("nvpmodel_").removesuffix(".conf").replace(".r35", "").replace(".r36", "")
        ours = TABLES[key]
        assert ours.default == table["default"], name
        assert len(ours.modes) == len(table["modes"]), name
        for number, (mode, theirs) in enumerate(zip(ours.modes, table["modes"], strict=True)):
            assert (number, mode.name, mode.cores) == (theirs["id"], theirs["name"], len(theirs["cores_on"])), name
            assert mode.mask == theirs["TPC_POWER_GATING.TPC_PG_MASK"], (name, mode.name)
            for mhz, key_, unit in ((mode.gpu_mhz, "GPU.MAX_FREQ", 1e6), (mode.emc_mhz, "EMC.MAX_FREQ", 1e6)):
                assert round((mhz or 0) * unit) == max(theirs[key_], 0), (name, mode.name, key_)
            assert {max(cap, 0) for cap in theirs["cpu_max_khz"].values()} == {round((mode.cpu_mhz or 0) * 1000)}
            if mode.engines is not None:
                keys = ("DLA0_CORE", "DLA0_FALCON", "DLA1_CORE", "DLA1_FALCON", "PVA0_VPS", "PVA0_AXI")
                caps = [theirs[f"{each}.MAX_FREQ"] for each in keys]
                assert [max(cap, 0) for cap in caps] == [round(max(each, 0) * 1e6) for each in mode.engines], mode.name
