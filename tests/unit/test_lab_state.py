"""What the lab keeps between its calls: digests, disks, a board's state, and a sentence where something is amiss."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import __main__ as command
from tests.lab import build, digests, given, machine, qemu, snapshots, where
from tests.lab.commands import LabError, require_room, require_tools
from tests.lab.machine import Board
from tests.virtual.boards_table import BOARDS

needs_mke2fs = pytest.mark.skipif(shutil.which("mke2fs") is None, reason="there is no mke2fs")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ORIN_LAB_HOME", str(tmp_path))
    return tmp_path


def wheel(file: Path, text: str, year: int) -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo("module.py", (year, 1, 1, 0, 0, 0)), text)
    return file


def test_a_digest_is_of_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    before = digests.of(tmp_path)
    (tmp_path / ".stamp").write_text("hidden")
    (tmp_path / "a.pyc").write_text("made of another")
    os.utime(tmp_path / "a", (1, 1))
    assert digests.of(tmp_path) == before
    (tmp_path / "a").rename(tmp_path / "b")
    assert digests.of(tmp_path) != before
    assert digests.of("ab", "c") != digests.of("a", "bc")


def test_a_wheel_of_the_same_files_is_the_same(tmp_path: Path) -> None:
    first, second = wheel(tmp_path / "1.whl", "x", 2020), wheel(tmp_path / "2.whl", "x", 2021)
    assert first.read_bytes() != second.read_bytes()
    one, two, other = (digests.of(each) for each in (first, second, wheel(tmp_path / "3.whl", "y", 2020)))
    assert one == two != other


@needs_mke2fs
def test_the_shared_disk_is_made_again_only_for_other_contents(home: Path) -> None:
    engine, model = home / "engine.tar.gz", home / "model.gguf"
    engine.write_text("engine")
    model.write_text("model")
    (where.share() / "wheels").mkdir(parents=True)
    assert given.share(engine, model)
    before = given.share_digest()
    made = where.share_image().stat().st_mtime_ns
    assert not given.share(engine, model)
    os.utime(model)
    assert not given.share(engine, model)
    assert where.share_image().stat().st_mtime_ns == made
    other = home / "other"
    other.write_text("another model")
    other.rename(model)
    assert given.share(engine, model)
    assert given.share_digest() != before


@needs_mke2fs
def test_the_small_disk_has_one_size_and_the_stub_tools_source(home: Path) -> None:
    where.product().mkdir()
    image = given.source(home)
    size = image.stat().st_size
    said = subprocess.run(("debugfs", "-R", "ls -p /source/tests/lab/guest", image), capture_output=True, text=True)
    assert "/board.py/" in said.stdout
    wheel(where.product() / "orin_deploy-1.whl", "x" * 100_000, 2020)
    assert given.source(home).stat().st_size == size


def test_a_board_that_never_ran_is_off(home: Path) -> None:
    board = Board("agx32")
    assert board.pid() is None
    assert board.saved() == ()
    board.down()
    board.cut()
    with pytest.raises(LabError, match="agx32 does not run"):
        board.ssh("true")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": null}', '{"pid": 999999999, "port": 1}'])
def test_a_stale_state_file_is_a_board_that_is_off(home: Path, text: str) -> None:
    board = Board("agx32")
    board.folder.mkdir(parents=True)
    (board.folder / "machine.json").write_text(text)
    (board.folder / "ssh.socket").touch()
    assert board.pid() is None
    board.cut()
    assert not (board.folder / "ssh.socket").exists()


def test_another_process_with_the_number_is_not_the_board(home: Path) -> None:
    board = Board("agx32")
    board.folder.mkdir(parents=True)
    (board.folder / "machine.json").write_text(json.dumps({"pid": os.getpid(), "port": 1}))
    assert board.pid() is None
    board.cut()  # and we still live


@pytest.fixture
def running(home: Path) -> Iterator[Board]:
    """A process that looks like the board's twin."""
    board = Board("agx32", twin=True)
    board.folder.mkdir(parents=True)
    words = (sys.executable, "-c", "import time; time.sleep(600)", "qemu-system-aarch64", f"{board.folder}/disk.qcow2")
    process = subprocess.Popen(words)
    (board.folder / "machine.json").write_text(json.dumps({"pid": process.pid, "port": 1}))
    while board.pid() is None:  # it is on its way from this program to that one
        assert process.poll() is None
    yield board
    process.kill()
    process.wait()


def test_a_board_that_runs_is_found_and_its_twin_is_another(running: Board) -> None:
    assert [board.name for board in machine.running()] == ["agx32-twin"]
    assert Board("agx32").pid() is None
    with pytest.raises(LabError, match="agx32-twin is running") as caught:
        running.up()
    assert caught.value.hint == "scripts/lab down agx32"
    assert command.main(["down", "agx32", "--cut"]) == 0
    assert machine.running() == []


_FIRST_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_board_is_off_only_when_its_last_thread_has_ended(home: Path) -> None:
    board = Board("agx32")
    board.folder.mkdir(parents=True)
    process = subprocess.Popen((sys.executable, "-c", _FIRST_THREAD_ENDS))
    (board.folder / "machine.json").write_text(json.dumps({"pid": process.pid, "port": 1}))
    try:
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            assert process.poll() is None
        assert board.pid() == process.pid, "what it has open it still holds"
    finally:
        process.kill()
        process.wait()
    assert board.pid() is None


def test_the_disk_is_not_taken_from_under_a_board(running: Board, home: Path) -> None:
    (home / "manifest.json").write_text("{}")
    kept = running.folder / "disk.qcow2"
    kept.touch()
    with pytest.raises(LabError, match="agx32-twin runs on what is to be made anew"):
        build.make_disk({})
    assert kept.exists()


def test_no_room_is_a_sentence_before_anything_is_begun(tmp_path: Path) -> None:
    require_room(tmp_path, 0)
    with pytest.raises(LabError, match="GiB free, and 1000000 GiB") as caught:
        require_room(tmp_path, 10**6)
    assert "ORIN_LAB_HOME" in caught.value.hint


def test_a_folder_in_which_no_socket_fits_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORIN_LAB_HOME", f"{tmp_path}/{'long' * 20}")
    where.home().mkdir()
    with pytest.raises(LabError, match="too long a name"):
        Board("agx32").must_be_off()


def test_missing_programs_are_named_by_their_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError) as caught:
        require_tools()
    assert caught.value.hint.startswith("sudo apt-get install ")
    assert "qemu-system-arm" in caught.value.hint


def test_an_unknown_check_is_named_before_anything_is_made(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["test", "agx32", "no-such-check"]) == 1
    said = capsys.readouterr().err
    assert "there is no check no-such-check" in said
    assert "power-cuts" in said
    assert list(home.iterdir()) == []


def test_a_command_for_a_board_that_is_off_says_how_to_start_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["run", "nx8", "true"]) == 1
    assert "hint: scripts/lab up nx8" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["agx32", "agx64", "nx8", "nano8"])
def test_boards_are_reached_on_loopback_only_and_reach_nothing(home: Path, name: str) -> None:
    board = Board(name)
    words = qemu.machine(board.table, machine.L4T)
    assert words[words.index("-smp") + 1] == str(len(BOARDS[name].cpus))
    rest = qemu.devices(board.folder, board.disk, home / "t", home / "g", 2222, "utc")
    (network,) = (word for word in rest if word.startswith("user,"))
    assert network == "user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:2222-:22"
    drives = [word for word in rest if word.startswith("file=") and "if=virtio" in word]
    assert ["read-only=on" in drive for drive in drives] == [False, True, True], "as fstab has them"


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Path]:
    """A monitor that speaks as qemu does, with an event in between; it refuses what it does not know."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "monitor.socket"))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rw") as stream:

            def say(document: object) -> None:
                stream.write(json.dumps(document) + "\n")
                stream.flush()

            say({"QMP": {"version": {}}})
            for line in stream:
                asked = json.loads(line)
                say({"event": "STOP"})
                if asked["execute"] == "qmp_capabilities":
                    say({"return": {}})
                elif asked["arguments"]["command-line"] == "savevm full":
                    say({"return": "Error: No space left on device\r\n"})
                elif asked["arguments"]["command-line"] == "refused":
                    say({"error": {"class": "GenericError", "desc": "not now"}})
                else:
                    say({"return": ""})

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield tmp_path
    listener.close()


@pytest.mark.parametrize(("line", "answer"), [("savevm one", ""), ("savevm full", "Error: No space left on device")])
def test_the_monitor_answers(monitor: Path, line: str, answer: str) -> None:
    assert qemu.monitor(monitor, line) == answer


def test_what_the_monitor_refuses_is_an_error(monitor: Path) -> None:
    with pytest.raises(LabError, match="not now"):
        qemu.monitor(monitor, "refused")


def test_without_qemu_there_is_no_monitor(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="qemu does not take 'savevm'") as caught:
        qemu.monitor(tmp_path, "savevm")
    assert "qemu.log" in caught.value.hint


def test_a_board_with_a_product_stands_on_all_that_made_it(home: Path) -> None:
    (home / "disk.digest").write_text("disk")
    (home / "share.digest").write_text("share")
    before = {snapshots.base(Board(name)) for name in ("agx32", "nx8")}
    assert len(before) == 2, "each board is a machine of its own"
    assert snapshots.base(Board("agx32", twin=True)) in before, "a twin takes a copy"
    (home / "share.digest").write_text("another")
    assert snapshots.base(Board("agx32")) not in before
