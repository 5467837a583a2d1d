"""`orin-deploy up` and `down` on one board of each L4T generation, with the real llama.cpp of this machine serving."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from orin_deploy.host import procfs
from tests.engine.command import Result, free_port
from tests.virtual import VirtualJetson
from tests.virtual.conftest import Make, ask

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(os.geteuid() != 0, reason="a deployment that sets power modes is root's"),
]


def command(board: VirtualJetson, *words: str) -> Result:
    """The public command in the board's environment, as somebody types it there."""
    done = subprocess.run(
        [str(board.bin / "orin-deploy"), *words], env=board.environ(), text=True, capture_output=True, timeout=300
    )
    return Result(done.returncode, done.stdout, done.stderr)


def settings(board: VirtualJetson) -> dict[str, str]:
    """All that power may change: which cores are on, every limit, the GPU's masks, what keeps clocks from falling."""
    found = {}
    for path in sorted((board.root / "sys").rglob("*")):
        name = path.name
        wanted = name in ("online", "disable", "mrq_rate_locked", "min_rate", "emc", "emc_iso_cap")
        if (wanted or name.endswith(("pg_mask", "min_freq", "max_freq"))) and path.is_file():
            found[str(path.relative_to(board.root))] = path.read_text()
    return found


def units(board: VirtualJetson) -> list[str]:
    return sorted(path.name for path in board.kernel.path("/etc/systemd/system").rglob("orin-deploy*"))


@pytest.mark.parametrize(
    ("name", "l4t", "mode"),
    [
        ("agx32", "35.4.1", "MAXN"),
        ("nano8", "36.4.3", "MAXN_SUPER"),
        ("thor-t5000", "38.4.0", "MAXN"),
        ("nx16", "39.2.0", "MAXN_SUPER"),
    ],
)
def test_up_again_reboot_and_down(make: Make, engine_bin: Path, smollm2: Path, name: str, l4t: str, mode: str) -> None:
    board = make(name, l4t, live=True)
    board.share(smollm2)
    board.add_profile(engine_bin, name, model=f"file:{smollm2}", ctx_size="1024", port=str(free_port()), draft="none")
    before, factory = settings(board), board.mode
    reboots = name == "agx32"  # out of the box half of its GPU is off

    done = command(board, "up", "--json")
    if reboots:
        assert done.code == 3, done.err
        assert settings(board) == before
        boot = board.kernel.read("/proc/sys/kernel/random/boot_id")
        assert command(board, "up", "--reboot").code == 3
        assert board.kernel.read("/proc/sys/kernel/random/boot_id") != boot
        done = command(board, "up", "--json")
    assert done.code == 0, done.err
    assert done.json["changed"]
    assert board.mode == mode
    assert board.kernel.emc_locked()
    assert_pinned(board, done)

    again = command(board, "up", "--json")
    assert (again.code, again.json["changed"]) == (0, False), again.err

    first = main_pid(board, name)
    board.power_cut()
    assert board.mode == mode
    back = command(board, "up", "--json")  # waits for the server that the board's own boot has started
    assert back.code == 0, back.err
    assert main_pid(board, name) not in (0, first)
    assert board.kernel.emc_locked()

    down = command(board, "down")
    if reboots:
        assert down.code == 3, down.err
        assert command(board, "down", "--reboot", "--name", name).code in (0, 3)
    else:
        assert down.code == 0, down.err
    assert board.mode == factory
    assert settings(board) == before
    assert units(board) == []
    assert list(board.kernel.path("/proc").glob("[2-9]*")) == []


def assert_pinned(board: VirtualJetson, done: Result) -> None:
    """Every thread may use the planned CPUs and no other, none of which is off."""
    planned = tuple(done.json["plan"]["spec"]["placement"]["target"]["cpus"])
    assert set(planned) <= set(board.online())
    threads = procfs.threads(main_pid(board, done.json["name"]), board.root / "proc")
    assert len(threads) > 1
    assert set(threads.values()) == {planned}


def main_pid(board: VirtualJetson, name: str) -> int:
    said = ask(board, "systemctl", "show", f"orin-deploy-{name}.service", "-p", "MainPID").stdout
    return int(said.strip().removeprefix("MainPID="))


def test_status_and_facts_on_a_board(make: Make) -> None:
    board = make("nano8", "36.4.3")
    assert command(board, "status").code == 0
    facts = json.loads(command(board, "facts", "--json").out)
    assert facts["jetson"]["module"] == "p3767-0005"
