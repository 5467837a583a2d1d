"""The main job, end to end through the public command, with the real llama-server and a real model."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.command import Command, command
from tests.faulty_server import FaultyServer

pytestmark = pytest.mark.engine


@pytest.fixture
def orin(tmp_path: Path, engine_bin: Path, smollm2: Path) -> Iterator[Command]:
    with command(tmp_path / "home", engine_bin, smollm2) as each:
        yield each


def chat(port: int, **options: Any) -> Any:
    payload = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 8, **options}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(payload).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def allowed_cpus(pid: int) -> set[str]:
    """What the kernel says each thread of a process may run on."""
    found = set()
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        found |= {line.split()[1] for line in status.read_text().splitlines() if line.startswith("Cpus_allowed_list")}
    return found


def test_from_nothing_to_an_answer_and_back(orin: Command) -> None:
    before = orin.plan("--json")
    assert before.code == 0, before.err
    assert before.json["changes"]
    assert not (orin.home).exists(), "plan must change nothing"

    up = orin.up("--set", "placement.cpus=1", "--json")
    assert up.code == 0, up.err
    first = up.json
    assert first["changed"]
    assert first["measurement"]["generated_per_s"] > 0
    assert first["ctx_size"] == 8192
    memory = first["memory"]
    assert abs(memory["taken_bytes"] - memory["planned_bytes"]) <= memory["planned_bytes"] * 0.02

    assert chat(orin.port)["choices"][0]["message"]["content"]
    status = orin("status", "--json").json
    assert (status["state"], status["endpoint"]) == ("running", f"http://127.0.0.1:{orin.port}")
    assert allowed_cpus(status["pid"]) == {"1"}

    began = time.monotonic()
    again = orin.up("--set", "placement.cpus=1", "--json")
    assert again.code == 0
    assert not again.json["changed"]
    assert again.json["measurement"] == first["measurement"]
    assert time.monotonic() - began < 10
    assert not orin.plan("--set", "placement.cpus=1", "--json").json["changes"]
    assert orin("status", "--json").json["pid"] == status["pid"]

    assert "llama" in orin("logs", "--lines", "500").out
    down = orin("down", "--json")
    assert (down.code, down.json["changed"]) == (0, True)
    assert not answers(orin.port)
    assert not Path(f"/proc/{status['pid']}").exists()
    second = orin("down", "--json")
    assert (second.code, second.json["changed"]) == (0, False)


def test_status_tells_a_server_that_hangs_from_one_that_answers(orin: Command) -> None:
    assert orin.up().code == 0
    pid = orin("status", "--json").json["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert orin("status", "--json").json["state"] == "not answering"
    finally:
        os.kill(pid, signal.SIGCONT)
    assert orin("status", "--json").json["state"] == "running"


def test_the_context_shown_is_what_a_slot_really_has(orin: Command) -> None:
    # Neither 1024 nor what was asked: the engine rounds a slot's share up.
    done = orin.up("--set", "parallel=3", "--set", "ctx_size=1024")
    assert done.code == 0, done.err
    with urllib.request.urlopen(f"http://127.0.0.1:{orin.port}/slots", timeout=10) as response:
        each = {slot["n_ctx"] for slot in json.load(response)}
    assert each == {512}
    assert "512 tokens in each of 3 slots" in done.out


def test_down_where_nothing_is_deployed_is_nothing_to_do(orin: Command) -> None:
    done = orin("down", "--json")
    assert (done.code, done.json["changed"]) == (0, False)
    assert orin("down", "--name", "typo").code == 2


def test_only_what_differs_is_done(orin: Command) -> None:
    assert orin.up("--set", "ctx_size=1024").code == 0
    pid = orin("status", "--json").json["pid"]
    plan = orin.plan("--set", "ctx_size=2048", "--json").json
    assert {step["part"] for step in plan["steps"] if step["actions"]} == {"service"}
    assert "1024" in next(step["why"] for step in plan["steps"] if step["part"] == "service")
    assert orin.up("--set", "ctx_size=2048").code == 0
    status = orin("status", "--json").json
    assert status["ctx_size"] == 2048
    assert status["pid"] != pid


def test_a_fitted_context_stays_although_memory_never_is_twice_the_same(orin: Command) -> None:
    words = ("--set", "memory.limit_mib=400", "--set", "memory.reserve_mib=100", "--json")
    first = orin.up(*words)
    assert first.code == 0, first.err
    context = first.json["ctx_size"]
    assert 256 <= context < 8192, "the limit is to bind in this test"
    again = orin.up(*words)
    assert not again.json["changed"]
    assert again.json["ctx_size"] == context
    assert "record 1" in again.json["plan"]["spec"]["sources"]["ctx_size"]


def test_the_old_service_still_runs_when_the_new_one_fails(orin: Command, tmp_path: Path, smollm2: Path) -> None:
    assert orin.up().code == 0
    broken = tmp_path / "broken.gguf"
    # Sound as far as a header tells, but with a pre-tokenizer that this engine does not know.
    broken.write_bytes(smollm2.read_bytes().replace(b"\x06\0\0\0\0\0\0\0smollm", b"\x06\0\0\0\0\0\0\0nopepe", 1))
    failed = orin("up", *orin.words, "--model", str(broken))
    assert failed.code == 1
    assert "nopepe" in failed.err
    assert "Traceback" not in failed.err
    assert chat(orin.port)["choices"][0]["message"]["content"]
    status = orin("status", "--json").json
    assert status["state"] == "running"
    assert status["outcome"] == "failed"
    assert not orin.plan("--json").json["changes"] or orin.up("--json").code == 0


def test_a_port_somebody_else_has_is_named_before_anything_is_done(orin: Command) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", orin.port))
        listener.listen()
        failed = orin.up()
    assert failed.code == 1
    assert str(os.getpid()) in failed.err
    assert "--set port=" in failed.err
    assert orin.up().code == 0


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--set", "ctx_size=20000"), 4, "8192"),
        (("--set", "memory.limit_mib=100"), 4, "limit_mib"),
        (("--set", "ctx_size=4096", "--set", "memory.limit_mib=700"), 4, "largest that fits"),
        (("--set", "ctxsize=1"), 2, "ctx_size"),
        (("--set", "threads=64"), 4, "threads=2"),
        (("--set", "draft_max=4"), 2, "spec_draft_n_max"),
        (("--set", "host=0.0.0.0"), 2, "api_key_file"),
        (("--profile", "no-such"), 2, "host"),
        (("--model", "no-such"), 2, "smollm2-135m"),
        (("--profile", "agx32"), 4, "p3701-0004"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_on(orin: Command, words: tuple[str, ...], code: int, says: str) -> None:
    failed = orin.up(*words)
    assert failed.code == code, failed.err
    assert says in failed.err
    assert "hint:" in failed.err
    assert "Traceback" not in failed.err
    document = orin.up(*words, "--json").json
    assert document["error"]["code"] == code
    assert not (orin.home / "deployments").exists()


def test_force_goes_on_with_a_profile_for_another_board(orin: Command) -> None:
    plan = orin.plan("--profile", "agx32", "--force", "--set", "build.cuda=off", "--json")
    assert plan.code == 0, plan.err
    assert plan.json["device"]["assumed"] is None


def test_interrupted_and_run_again_ends_the_same(orin: Command) -> None:
    first = orin.popen("up", *orin.words)
    assert first.stdout is not None
    for line in first.stdout:
        if "start llama-server" in line and line.startswith("- "):
            break
    first.send_signal(signal.SIGINT)
    assert first.wait(timeout=30) == 130
    first.communicate()
    assert orin("status", "--name", "host", "--json").json["outcome"] == "interrupted"
    assert orin.up().code == 0
    assert chat(orin.port)


def test_killed_and_run_again_ends_the_same(orin: Command) -> None:
    for mark in ("Plan for", "- build", "- start llama-server", "- prove the endpoint", "- measure"):
        process = orin.popen("up", *orin.words)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(mark):
                break
        process.kill()
        process.communicate()
    assert orin.up().code == 0
    assert not orin.plan("--json").json["changes"]
    assert chat(orin.port)


def test_two_at_once_and_the_second_names_the_first(orin: Command) -> None:
    first = orin.popen("up", *orin.words)
    assert first.stdout is not None
    first.stdout.readline()
    second = orin.up("--set", "ctx_size=512")
    assert second.code == 1
    assert str(first.pid) in second.err
    assert "up --profile host" in second.err
    first.communicate(timeout=120)
    assert first.returncode == 0


def test_a_state_folder_that_cannot_be_written_is_named(orin: Command) -> None:
    if os.geteuid() == 0:
        orin.home.parent.joinpath("home").write_text("a file where the folder should be")
    else:
        orin.home.mkdir(mode=0o500)
    failed = orin.up()
    assert failed.code == 1
    assert str(orin.home) in failed.err
    assert "ORIN_DEPLOY_HOME" in failed.err
    assert "Traceback" not in failed.err


def test_two_deployments_side_by_side(orin: Command) -> None:
    assert orin.up().code == 0
    other = orin.up("--name", "second")
    assert other.code == 1, "the port is the first one's"
    assert "host" in other.err
    from tests.engine.command import free_port

    port = free_port()
    assert orin.up("--name", "second", "--set", f"port={port}").code == 0
    assert answers(orin.port)
    assert answers(port)
    names = {each["name"] for each in orin("status", "--json").json["deployments"]}
    assert names == {"host", "second"}
    assert orin("down").code == 2
    assert orin("down", "--name", "second").code == 0
    assert answers(orin.port)
    assert not answers(port)


def test_a_model_from_the_hub_then_without_the_network(
    orin: Command, smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FaultyServer() as hub:
        hub.serve_repo("owner/SmolLM2-GGUF", {"SmolLM2-Q4_1.gguf": smollm2.read_bytes(), "README.md": b"hello"})
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        words = (*orin.words, "--model", "hf:owner/SmolLM2-GGUF:Q4_1")
        plan = orin("plan", *words, "--json")
        assert plan.code == 0, plan.err
        assert plan.json["spec"]["model"]["known_from"] == "header"
        read = sum(int(seen.sent or 0) for seen in hub.seen)
        assert read < smollm2.stat().st_size / 10, "the header is enough for a plan"
        up = orin("up", *words, "--json")
        assert up.code == 0, up.err
    again = orin("up", *words, "--json")
    assert again.code == 0, again.err
    assert not again.json["changed"]
    gone = orin("plan", *orin.words, "--model", "hf:owner/other:Q4_1")
    assert gone.code == 1
    assert "hint:" in gone.err
