"""Kill matrices on a virtual board: wherever a run breaks off, the next one comes to the same end."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from orin_deploy.actions import Action, Link, Start, Write
from orin_deploy.cli.carry_out import carry_out
from orin_deploy.deploy.apply import Events, translate
from orin_deploy.deploy.down import down
from orin_deploy.deploy.draft import draft, situation
from orin_deploy.deploy.plan import Plan
from orin_deploy.deploy.record import Record, deployments, known, latest
from orin_deploy.errors import OrinError
from orin_deploy.host import Progress
from orin_deploy.intent.request import Request
from orin_deploy.parts import service
from orin_deploy.parts.step import Step
from tests.virtual_board import SERVED, Killed, VirtualBoard


def no_space() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device", "/data/file")


FAULTS: dict[str, Callable[[], BaseException]] = {
    "killed": Killed, "power cut": Killed, "full disk": no_space, "Ctrl-C": KeyboardInterrupt,
}  # fmt: skip


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a catalogue entry for the model that the board fetches."""
    folder = tmp_path_factory.mktemp("profiles")
    size = SERVED.write(folder / "served.gguf").stat().st_size
    (folder / "models").mkdir()
    entry = {
        "description": "A model of a test.",
        "licence": "Apache-2.0",
        "references": ["https://models.test/served"],
        "files": [{"name": "served.gguf", "size": size}],
        "model": {
            "architecture": "llama", "n_layer": SERVED.n_layer, "n_embd": SERVED.n_embd, "n_ff": SERVED.n_ff,
            "n_head": SERVED.n_head, "n_head_kv": SERVED.n_head_kv, "head_size": SERVED.head,
            "n_vocab": SERVED.n_vocab, "n_ctx_train": SERVED.n_ctx_train,
        },
    }  # fmt: skip
    (folder / "models/served.yaml").write_text(yaml.safe_dump(entry))
    return folder


class Deployment:
    """One wish on one board, carried out by as many runs as it takes, each with a host of its own."""

    def __init__(self, folder: Path, profiles: Path, manager: str) -> None:
        self.folder, self.profiles, self.manager = folder, profiles, manager
        self.used = 0

    def wish(self, *sets: str) -> Request:
        # Power modes and clocks have a virtual board of their own, tests/virtual.
        words = (f"service.manager={self.manager}", "power.mode=keep", "power.clocks=keep", *sets)
        pairs = tuple((key, value) for key, _, value in (word.partition("=") for word in words))
        return Request("agx32", "served", None, pairs, str(self.profiles))

    def plan(self, *sets: str, host: VirtualBoard | None = None) -> Plan:
        host = host or VirtualBoard(self.folder)
        wish = self.wish(*sets)
        return draft(host, wish, situation(host, wish, elsewhere=False), lambda fraction, text: None)

    def up(
        self,
        *sets: str,
        at: int = 0,
        fault: Callable[[], BaseException] = Killed,
        kind: type[VirtualBoard] = VirtualBoard,
    ) -> VirtualBoard:
        """What `up` does; raises what broke it off."""
        host, wish = kind(self.folder), self.wish(*sets)
        host.at, host.fault = at, fault
        with host.lock("up"):
            now = situation(host, wish, elsewhere=False)
            planned = draft(host, wish, now, lambda fraction, text: None)
            if not planned.empty:
                carry_out(host, wish, now, planned, Record(host, now.name, "up"), Events())
        return host

    def down(self, at: int = 0) -> VirtualBoard:
        host = VirtualBoard(self.folder)
        host.at = at
        with host.lock("down"):
            down(host, "agx32")
        return host

    def broken(self, *sets: str, at: int, fault: str) -> None:
        """A run that breaks off, and the board after it. A full disk is no end only for what was to be learned, or
        measured; and a run after which nothing is left to be done is one that was done."""
        try:
            host = self.up(*sets, at=at, fault=FAULTS[fault])
        except (Killed, KeyboardInterrupt, OrinError, OSError):
            pass
        else:
            assert fault == "full disk", f"{fault} at {at} broke nothing off"
            moment = host.moments[at - 1]
            assert "learned.json" in moment or moment == "a completion", moment
        if self.plan(*sets).empty:
            last = latest(VirtualBoard(self.folder), "agx32") or {}
            assert last["outcome"] == "done", f"{fault} at {at}"
        if fault == "power cut":
            VirtualBoard(self.folder).boot()

    def end(self) -> dict[str, Any]:
        """All there is: files by path, and what runs. Records and logs tell of the way, not of the end."""
        host = VirtualBoard(self.folder)
        found: dict[str, Any] = {"running": [host.argv(pid) for pid in host.pids()]}
        for folder in (host.data, host.cache, host.path("/etc/systemd")):
            for path in folder.rglob("*"):
                if path.is_symlink():
                    found[str(path)] = path.readlink()
                elif path.is_file() and "records" not in path.parts and path.name not in _OF_THE_WAY:
                    found[str(path)] = path.read_bytes()
        return found

    def save(self) -> None:
        """Keep the board as it is now, for `again`."""
        shutil.copytree(self.folder, self.folder.with_name("saved"), symlinks=True)

    def again(self) -> None:
        """Back to the board as it was saved, or a new one."""
        self.used += 1
        self.folder.rename(self.folder.with_name(f"used-{self.used}"))  # removing it would take most of the time
        if self.folder.with_name("saved").exists():
            shutil.copytree(self.folder.with_name("saved"), self.folder, symlinks=True)


_OF_THE_WAY = ("lock", "state.json", "server.log", "learned.json")


@pytest.fixture(params=["systemd", "process"])
def board(request: pytest.FixtureRequest, tmp_path: Path, profiles: Path) -> Deployment:
    return Deployment(tmp_path / "board", profiles, request.param)


def moments(board: Deployment, *sets: str) -> list[tuple[int, str]]:
    """The points at which that run can break off, with one fault each in turn; once it serves, every point with two.

    Before that, of the writes of its record only the first counts: they all leave the same.
    """
    names = board.up(*sets).moments
    faults, serving = tuple(FAULTS), max(len(names) - 25, 1)
    early = [at for at in range(1, serving) if at == 1 or "/records/" not in names[at - 1]]
    late = range(serving, len(names) + 1)
    return [*((at, faults[at % 4]) for at in (*early, *late)), *((at, faults[(at + 1) % 4]) for at in late)]


def settled(host: VirtualBoard) -> bool:
    """Nothing of a deployment is left but its records and log, and nothing runs."""
    folder = host.data / "deployments/agx32"
    left = {path.name for path in folder.glob("*")} - {"records", "server.log"}
    units = [path for path in host.path("/etc/systemd").rglob("*") if not path.is_dir()]
    return not (left or units or host.pids() or deployments(host))


def serves(board: Deployment) -> str:
    """The context of the one server that runs."""
    host = VirtualBoard(board.folder)
    (pid,) = host.pids()
    return host.option(pid, "--ctx-size")


def kept(end: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in end.items() if "/engines/" in name or "/models/" in name}


def test_up_then_nothing_to_do_then_down(board: Deployment) -> None:
    host = board.up()
    record = latest(host, "agx32")
    assert record is not None
    assert (record["outcome"], record["proof"]["answer"]) == ("done", "I am ready.")
    assert {step["outcome"] for step in record["steps"]} == {"done"}
    assert len(host.pids()) == 1
    assert board.plan().empty
    assert board.up().moments == [], "a second run does nothing at all"
    up = board.end()
    board.down()
    assert settled(host)
    assert kept(board.end()) == kept(up) != {}
    assert len(board.down().moments) == 1, "only the undo file, which is absent, is removed again"


def test_wherever_the_first_run_breaks_off_the_next_one_finishes(board: Deployment) -> None:
    cases = moments(board)
    wanted = board.end()
    # Building and fetching know nothing of who keeps the server: they are broken off once.
    for at, fault in cases if board.manager == "systemd" else cases[-25:]:
        board.again()
        board.broken(at=at, fault=fault)
        host = VirtualBoard(board.folder)
        assert deployments(host) or settled(host), f"{fault} at {at}: something is there that no undo is known for"
        board.up()
        assert board.end() == wanted, f"{fault} at {at}"
        assert board.plan().empty, f"{fault} at {at}"


def test_down_clears_up_after_a_run_that_broke_off(board: Deployment) -> None:
    for at, fault in moments(board)[-25:]:
        board.again()
        board.broken(at=at, fault=fault)
        assert settled(board.down()), f"{fault} at {at}"


def test_wherever_a_change_breaks_off_the_next_run_finishes_it(board: Deployment) -> None:
    board.up("ctx_size=2048")
    board.save()
    cases = moments(board, "ctx_size=4096")
    wanted = board.end()
    board.again()
    proved = board.up("ctx_size=4096").moments.index("a completion") + 1
    for at, fault in cases:
        board.again()
        board.broken("ctx_size=4096", at=at, fault=fault)
        if fault == "full disk":
            assert serves(board) == ("2048" if at <= proved else "4096"), (
                f"{at}: the old server until the new is proved"
            )
        board.up("ctx_size=4096")
        assert board.end() == wanted, f"{fault} at {at}"
        assert board.plan("ctx_size=4096").empty, f"{fault} at {at}"
        assert settled(board.down()), f"{fault} at {at}"


def test_wherever_down_breaks_off_the_next_one_finishes(board: Deployment) -> None:
    board.up()
    board.save()
    for at in range(1, len(board.down().moments) + 1):
        board.again()
        with pytest.raises(Killed):
            board.down(at=at)
        assert settled(board.down()), at


def test_an_interrupt_while_it_measures_says_that_it_serves(board: Deployment) -> None:
    board.up()
    board.down()
    moments = board.up().moments
    board.down()
    measuring = max(at for at, moment in enumerate(moments, 1) if moment == "a completion")
    with pytest.raises(OrinError, match="agx32 serves and was proved; its speed was not measured") as caught:
        board.up(at=measuring, fault=KeyboardInterrupt)
    assert (caught.value.code, caught.value.hint) == (130, "orin-deploy bench --name agx32 measures it")
    assert board.plan().empty


def test_after_a_power_cut_the_server_is_proved_anew(board: Deployment) -> None:
    board.up()
    VirtualBoard(board.folder).boot()
    plan = board.plan()
    assert plan.proof_due
    assert plan.changes == (board.manager == "process"), "systemd starts it at boot"
    done = [action for action in board.up().moments if "records" not in action]
    assert "a completion" in done
    assert board.plan().empty


def test_a_unit_whose_folder_was_removed_is_taken_over_or_taken_down(board: Deployment) -> None:
    if board.manager != "systemd":
        pytest.skip("tests/unit/test_supervisors.py and tests/engine/test_damaged.py have real supervisors")
    host = board.up()
    shutil.rmtree(host.data / "deployments")
    assert deployments(host) == known(host) == ("agx32",)
    assert settled(board.down())
    board.up()
    for lost in host.data / "deployments", host.path("/etc/systemd/system/orin-deploy-agx32.service"):
        shutil.rmtree(lost) if lost.is_dir() else lost.unlink()
        assert service.status(host, "agx32").state == "running"
        board.up()
        assert board.plan().empty
    assert len(host.pids()) == 1
    host.data, own = host.data / "another", host.data
    assert deployments(host) == (), "units of another data folder are another one's"
    host.data = own


class Forgetful(VirtualBoard):
    """Says that it has done everything, and does not link."""

    def do(self, action: Action, progress: Progress = lambda fraction, text: None) -> None:
        if not isinstance(action, Link):
            super().do(action, progress)


def test_what_did_not_take_effect_fails_by_name(board: Deployment) -> None:
    with pytest.raises(OrinError, match="llama-server failed with exit code 1"):
        board.up(kind=Forgetful)
    board.up()
    board.down()
    if board.manager == "systemd":
        with pytest.raises(OrinError, match="start llama-server: done, but it did not take effect: it would not start"):
            board.up(kind=Forgetful)
        assert VirtualBoard(board.folder).pids() == [], "a service that failed does not go on"
        assert board.plan().steps


class Silent(VirtualBoard):
    """A board whose server answers no completion."""

    def events(self, url: str, payload: Any, **options: Any) -> Iterator[Any]:
        yield {"choices": [{"delta": {"content": ""}}]}


def test_a_server_without_an_answer_is_stopped_or_the_old_one_put_back(board: Deployment) -> None:
    with pytest.raises(OrinError, match="the completion is not whole"):
        board.up("ctx_size=4096", kind=Silent)
    assert VirtualBoard(board.folder).pids() == []
    board.up("ctx_size=2048")
    with pytest.raises(OrinError, match="the completion is not whole"):
        board.up("ctx_size=4096", kind=Silent)
    assert serves(board) == "2048"
    failed = latest(VirtualBoard(board.folder), "agx32")
    assert failed is not None
    assert failed["outcome"] == "failed"
    assert failed["error"].startswith("the completion is not whole")


class Stuck(Silent):
    """As silent, and it can start nothing a second time."""

    def do(self, action: Action, progress: Progress = lambda fraction, text: None) -> None:
        if "a completion" in self.moments and isinstance(action, (Write, Start)) and "records" not in str(action):
            raise OrinError("nothing goes any more")
        super().do(action, progress)

    def events(self, url: str, payload: Any, **options: Any) -> Iterator[Any]:
        self.moment("a completion")
        return super().events(url, payload, **options)


def test_both_errors_are_told_when_the_old_one_cannot_be_put_back(board: Deployment) -> None:
    board.up("ctx_size=2048")
    with pytest.raises(OrinError, match=r"not whole.* could not be put back: nothing goes any more"):
        board.up("ctx_size=4096", kind=Stuck)


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "start it: no space is left where /x is written"),
        (errno.EDQUOT, "start it: no space is left where /x is written"),
        (errno.EACCES, "start it: no permission for /x"),
        (errno.EROFS, "start it: /x is on a read-only file system"),
        (errno.EIO, "start it: Input/output error: /x"),
    ],
)
def test_an_error_of_the_system_is_a_sentence_with_the_way_on(number: int, says: str) -> None:
    error = translate(OSError(number, os.strerror(number), "/x"), Step("service", "start it", "", hint="try again"))
    assert error.message == says
    assert error.hint
