"""The bench with the real engine: what runs measured, arms compared, and nothing left behind whatever goes wrong."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.deploy.draft import situation
from orin_deploy.errors import OrinError, Refused
from orin_deploy.host import Host
from orin_deploy.intent.request import Request
from orin_deploy.observe.bench import Agenda, Arm, cases
from orin_deploy.observe.bench.planning import plan_field
from orin_deploy.observe.bench.server import started
from orin_deploy.observe.bench.workload import choose, shipped
from tests.engine.command import Command, command
from tests.specs import make_spec

pytestmark = pytest.mark.engine


def quiet(fraction: float | None, text: str) -> None:
    pass


ARMS = ("--compare", "none,ngram-map-k4v", "--workload", "copy")


@pytest.fixture(scope="module")
def orin(tmp_path_factory: pytest.TempPathFactory, engine_bin: Path, smollm2: Path) -> Iterator[Command]:
    """A deployment that is up."""
    with command(tmp_path_factory.mktemp("bench") / "home", engine_bin, smollm2) as each:
        done = each.up("--set", "ctx_size=2048", "--set", "metrics=on")
        assert done.code == 0, done.err
        yield each


def words(pid: int) -> bytes:
    """A process's words; none for one that is gone, or dead and not yet collected."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def processes(folder: Path) -> list[int]:
    """Everything that runs for the bench of a data folder: supervisors, by the launch file among their words."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if str(folder / "bench").encode() in words(pid)]


def servers(folder: Path) -> list[int]:
    """The arms' llama-servers, by the state their supervisors keep."""
    found = []
    for path in (folder / "bench/arms").glob("*/state.json"):
        with contextlib.suppress(OSError, ValueError, TypeError):
            pid = json.loads(path.read_text())["server"]["pid"]
            found += [pid] if words(pid) else []
    return found


def wait_for(what: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "took too long"
        time.sleep(0.05)


def gone(pids: list[int]) -> bool:
    return not any(map(words, pids))


def test_what_runs_is_measured_as_it_runs(orin: Command) -> None:
    before = orin("status", "--json").json["pid"]
    done = orin("bench", "--workload", "copy", "--seconds", "25", "--clients", "1,2", "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    assert found == json.loads((orin.home / "bench" / f"{found['record']:04d}.json").read_text())
    assert [case["workload"] for case in found["cases"]] == ["copy"]
    assert "2 clients" in found["notes"][0]
    assert found["samples"]
    for sample in found["samples"]:
        assert sample["tokens"] >= 8
        assert len(sample["answers"][0]["arrivals_ms"]) > 4
    assert found["conditions"]["quant"] == "Q4_1"
    assert found["conditions"]["load_average"]
    assert orin("status", "--json").json["pid"] == before


def test_two_arms_are_compared_turn_by_turn_and_leave_nothing_behind(orin: Command) -> None:
    done = orin("bench", *ARMS, "--seconds", "40", "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = done.json
    assert found["arms"] == ["none", "ngram-map-k4v"]
    assert found["together"]
    assert found["outputs"]["compared"] >= 1
    assert all(each["token"] >= 0 and each["expected"] != each["found"] for each in found["outputs"]["different"])
    order = [(sample["turn"], sample["arm"]) for sample in found["samples"]]
    assert order[:2] == [(0, "none"), (0, "ngram-map-k4v")]
    assert order[2:3] in ([], [(1, "ngram-map-k4v")])
    assert not any(sample["drafted"] for sample in found["samples"] if sample["arm"] == "none")
    assert found["conditions"]["arms"]["ngram-map-k4v"]["spec_type"] == "ngram-map-k4v"
    assert processes(orin.home) == []
    assert not list((orin.home / "bench/arms").glob("*/launch.json"))
    assert orin("status", "--json").json["state"] == "running"


def test_an_arm_that_cannot_speculate_is_left_out_with_the_reason(orin: Command) -> None:
    alone = orin("bench", "--compare", "none,draft", "--workload", "copy", "--seconds", "5", "--json")
    assert alone.code == 1
    assert "there is no draft for this model" in alone.json["error"]["message"]
    done = orin(
        "bench", "--compare", "none,ngram-map-k,draft-eagle3", "--workload", "copy", "--seconds", "30", "--json"
    )
    assert done.code == 0, done.err
    assert list(done.json["left_out"]) == ["draft-eagle3"]
    assert done.json["arms"] == ["none", "ngram-map-k"]


def test_ctrl_c_ends_the_servers(orin: Command) -> None:
    running = orin.popen("bench", *ARMS, "--seconds", "120")
    wait_for(lambda: len(servers(orin.home)) == 2)
    pids = servers(orin.home)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert gone(pids)
    assert processes(orin.home) == []


def test_killed_it_leaves_no_server(orin: Command) -> None:
    running = orin.popen("bench", *ARMS, "--seconds", "120")
    wait_for(lambda: len(servers(orin.home)) == 2)
    pids = servers(orin.home)
    running.kill()
    running.communicate(timeout=60)
    wait_for(lambda: gone(pids) and processes(orin.home) == [], 10)


def test_a_server_that_dies_is_named_with_its_end(orin: Command) -> None:
    running = orin.popen("bench", *ARMS, "--seconds", "30", "--json")
    wait_for(lambda: len(servers(orin.home)) == 2)
    pids = servers(orin.home)
    os.kill(pids[0], signal.SIGKILL)
    out, _ = running.communicate(timeout=200)
    assert running.returncode == 1
    assert "signal 9" in json.loads(out)["error"]["message"]
    assert gone(pids)
    assert processes(orin.home) == []


def test_where_one_server_has_room_the_arms_take_turns_by_blocks(orin: Command) -> None:
    sets = (*orin.words[:-2], "--set", "ctx_size=1024")
    budget = orin("plan", *sets, "--json").json["budget"]
    limit = f"memory.limit_mib={round(1.1 * budget['total_bytes'] / 2**20)}"
    done = orin("bench", *ARMS, *sets, "--set", limit, "--seconds", "25", "--json")
    assert done.code == 0, done.err
    assert not done.json["together"]
    arms = [sample["arm"] for sample in done.json["samples"]]
    order = ["none"] * 2 + ["ngram-map-k4v"] * 4 + ["none"] * 4
    assert arms
    assert arms[:10] == order[: len(arms)]
    assert processes(orin.home) == []


def test_without_room_beside_the_deployment_the_way_on_is_to_take_it_down(orin: Command) -> None:
    host = Host(environ=orin.environ())
    wish = Request(profile="host", model=str(orin.model), sets=(("build.engine", str(orin.engine)),))
    now = situation(host, wish, elsewhere=False)
    memory = replace(now.device.memory, available=64 * 2**20, cgroup_limit=None)
    full = replace(now, device=replace(now.device, memory=memory), own_bytes=2**31)
    workloads = choose(shipped(now.search), ["copy"])
    with pytest.raises(Refused, match="no arm can run beside the deployment host") as caught:
        plan_field(host, wish, full, (Arm("none", "none"),), Agenda(workloads, cases(workloads), 10), quiet)
    assert "orin-deploy down --name host" in (caught.value.hint or "")


def test_a_long_context_is_filled_and_time_that_is_too_short_is_told(orin: Command) -> None:
    words = ("bench", "--workload", "copy", "--language", "zh", "--json")
    done = orin(*words, "--context", "long", "--seconds", "30")
    assert done.code == 0, done.err
    prompts = [sample["answers"][0]["prompt_tokens"] for sample in done.json["samples"]]
    assert all(900 < tokens < 2048 for tokens in prompts)
    short = orin(*words, "--seconds", "1e-3")
    assert short.code == 2
    none = orin(*words, "--seconds", "1")
    assert none.code in (0, 1)
    assert none.code == 0 or "--seconds" in none.json["error"]["hint"]


def test_nothing_runs_so_nothing_is_measured(orin: Command) -> None:
    state = json.loads((orin.home / "deployments/host/state.json").read_text())
    # The whole deployment stopped from outside, its record still there.
    os.kill(state["supervisor"]["pid"], signal.SIGTERM)
    wait_for(lambda: not Path(f"/proc/{state['server']['pid']}").exists())
    done = orin("bench", "--json")
    assert done.code == 1
    assert "does not run" in done.json["error"]["message"]
    assert orin.up("--set", "ctx_size=2048", "--set", "metrics=on").code == 0


def test_a_port_that_somebody_took_is_named(tmp_path: Path, engine_bin: Path, smollm2: Path) -> None:
    host = Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path)})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        spec = make_spec(host.data, engine_bin, smollm2, taken.getsockname()[1])
        with pytest.raises(OrinError, match="cannot listen"), started(host, "a", spec, quiet):
            pass
    assert processes(tmp_path) == []
