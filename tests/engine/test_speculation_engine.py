"""Speculation with the real engine: every kind active and proved, wrong pairs refused early, optional ones left out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.deploy import draft as planning
from orin_deploy.deploy import taken, verify
from orin_deploy.deploy.apply import Applied, Events, apply
from orin_deploy.deploy.drafting import NotDrafting, look
from orin_deploy.deploy.plan import Plan
from orin_deploy.deploy.record import Record, latest, plain
from orin_deploy.errors import OrinError, Refused
from orin_deploy.facts import gguf
from orin_deploy.facts.device import MIB
from orin_deploy.facts.draft import DFLASH, DSPARK, EAGLE3, SIMPLE
from orin_deploy.host import Host, processes
from orin_deploy.intent.request import Request
from orin_deploy.intent.spec import Draft, Value, WeightFile, Weights
from orin_deploy.intent.speculation import DRAFTLESS
from orin_deploy.intent.speculation.kinds import HANDS_OUT_LAYERS
from orin_deploy.parts import serverlog, service
from tests import drafts
from tests.engine.with_draft import quiet
from tests.faulty_server import FaultyServer
from tests.ggufs import Shape, write
from tests.specs import free_port, make_spec

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, engine_bin: Path, smollm2: Path) -> Path:
    """Drafts for the target: itself quantised further, and one untrained draft of each kind that reads its layers."""
    folder = tmp_path_factory.mktemp("drafts")
    words = [str(engine_bin / "llama-quantize"), "--allow-requantize", str(smollm2), f"{folder}/{SIMPLE}.gguf", "Q2_K"]
    subprocess.run(words, check=True, capture_output=True)
    drafts.eagle3(folder / f"{EAGLE3}.gguf", smollm2)
    drafts.dflash(folder / f"{DFLASH}.gguf", smollm2, markov=False)
    drafts.dflash(folder / f"{DSPARK}.gguf", smollm2, markov=True)
    return folder


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path / "data"), "HOME": str(tmp_path)})
    yield host
    for launch in (host.data / "deployments").glob("*/launch.json"):
        processes.stop(host, launch)


class Up:
    """`up` without its console: the plan of a request, carried out and recorded."""

    def __init__(self, host: Host, engine_bin: Path, model: Path, draft: str, **sets: Any) -> None:
        options = {
            "build.engine": engine_bin,
            "ctx_size": 1024,
            "port": free_port(),
            "service.manager": "process",
            **sets,
        }
        pairs = tuple((key.replace("__", "."), str(value)) for key, value in options.items())
        self.host, self.notes = host, list[str]()
        self.wish = Request("host", f"file:{model}", "test", pairs, draft=draft)
        self.now = planning.situation(host, self.wish, elsewhere=False)

    def plan(self) -> Plan:
        return planning.draft(self.host, self.wish, self.now, quiet)

    def __call__(self) -> Applied:
        plan, notes = self.plan(), self.notes

        class Noting(Events):
            def note(self, text: str) -> None:
                notes.append(text)

        record = Record(self.host, "test", "orin-deploy up")
        record.update(spec=plain(plan.spec))
        done = apply(self.host, plan, self.plan, record, Noting())
        record.update(spec=plain(done.plan.spec), proof=plain(done.proof))
        record.finish("done")
        return done


@pytest.mark.parametrize("context", [1024, 256])
@pytest.mark.parametrize("kind", DRAFTLESS)
def test_every_kind_without_a_draft_model_is_active_and_proved(
    host: Host, engine_bin: Path, smollm2: Path, kind: str, context: int
) -> None:
    up = Up(host, engine_bin, smollm2, kind, ctx_size=context)
    done = up()
    assert done.proof is not None
    assert done.proof.drafted is not None
    assert done.proof.drafted.kinds == (kind,)
    assert done.proof.drafted.drafted > 0
    assert done.proof.drafted.accepted > 0, "a text that repeats is guessed right"
    assert serverlog.speculation(service.log_lines(host, "test")) == (kind,)
    assert up.plan().empty


@pytest.mark.parametrize("kind", [SIMPLE, EAGLE3, DFLASH, DSPARK])
def test_every_kind_of_draft_model_is_told_by_its_header_active_and_proved(
    host: Host, engine_bin: Path, smollm2: Path, folder: Path, kind: str
) -> None:
    done = Up(host, engine_bin, smollm2, f"{folder}/{kind}.gguf")()
    spec = done.plan.spec
    assert spec.draft is not None
    assert (spec.draft.kind, spec.draft.where) == (kind, "inline")
    assert done.proof is not None
    assert done.proof.drafted is not None
    assert done.proof.drafted.drafted > 0
    now = look(host, spec, spec.draft)
    assert (now.active, now.reason) == (True, None)
    assert now.drafted is not None
    assert now.drafted >= done.proof.drafted.drafted
    assert (now.accepted or 0) > 0 or kind != SIMPLE, "an untrained draft is nearly never right"


def test_a_wrong_vocabulary_is_refused_before_anything_is_downloaded(
    host: Host, engine_bin: Path, smollm2: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.gguf"
    vocabulary = drafts.vocabulary(smollm2)
    vocabulary["tokenizer.ggml.tokens"][4321] += "!"
    shape = Shape(n_vocab=49152, n_layer=24)
    metadata = {key: value for key, value in shape.metadata().items() if not key.startswith("tokenizer")}
    write(other, metadata | vocabulary, shape.tensors())
    data, header = other.read_bytes(), gguf.read_file(other)
    assert len(data) > 3 * header.data_offset
    with FaultyServer() as server:
        url = server.serve("/other.gguf", data)
        up = Up(host, engine_bin, smollm2, url)
        with pytest.raises(Refused, match=r"token 4321 is \S+!. in the draft and \S+ in the target") as caught:
            up.plan()
        sent = sum(seen.sent for seen in server.got("/other.gguf"))
    assert caught.value.code == 4
    assert sent < 2 * header.data_offset + (1 << 20), "the header, and its texts once more"
    assert not (host.data / "models").exists()


def test_the_right_vocabulary_at_a_distance_is_planned_without_its_weights(
    host: Host, engine_bin: Path, smollm2: Path, folder: Path
) -> None:
    data = (folder / f"{SIMPLE}.gguf").read_bytes()
    with FaultyServer() as server:
        plan = Up(host, engine_bin, smollm2, server.serve("/d.gguf", data)).plan()
        sent = sum(seen.sent for seen in server.got("/d.gguf"))
    assert plan.spec.draft is not None
    assert [bool(step.actions) for step in plan.steps_of("weights")] == [False, True]
    assert sent < 4 << 20


def stranger(path: Path, draft: Path) -> Path:
    """A draft of an architecture that no engine knows, its vocabulary the target's."""
    data = bytearray(draft.read_bytes())
    tokens = gguf.read_file(draft).tokens
    assert tokens is not None
    data[: tokens.start] = data[: tokens.start].replace(b"llama", b"lxama")
    path.write_bytes(data)
    return path


def test_an_optional_draft_that_does_not_work_is_left_out_and_stays_out(
    host: Host, engine_bin: Path, smollm2: Path, folder: Path, tmp_path: Path
) -> None:
    broken = stranger(tmp_path / "broken.gguf", folder / f"{SIMPLE}.gguf")
    up = Up(host, engine_bin, smollm2, "optional", spec_draft_model=broken)
    done = up()
    assert done.plan.spec.draft is None
    assert done.plan.spec.left_out is not None
    assert "lxama" in done.plan.spec.left_out.why
    assert any("goes on without speculation" in note for note in up.notes)
    assert any("left out" in warning for warning in done.plan.spec.warnings)
    assert done.proof is not None
    record = latest(host, "test")
    assert record is not None
    assert record["spec"]["left_out"]["kind"] == SIMPLE
    again = up.plan()
    assert again.empty, "it is not tried again with the same engine"
    required = Up(host, engine_bin, smollm2, str(broken), port=free_port())
    with pytest.raises(OrinError, match="lxama"):
        required()


def test_a_server_that_goes_on_without_its_draft_fails_with_its_reason(
    host: Host, engine_bin: Path, smollm2: Path, tmp_path: Path
) -> None:
    """As with a pair that a plan would have refused: llama-server answers, healthy, and drafts nothing."""
    other = Shape(n_vocab=2048).write(tmp_path / "other.gguf")
    draft = Draft(SIMPLE, Weights(f"file:{other}", (WeightFile(f"file:{other}", str(other)),)), n_max=3)
    options: dict[str, Value] = {"spec_type": SIMPLE, "spec_draft_model": str(other)}
    spec = make_spec(host.data, engine_bin, smollm2, free_port(), options=options, draft=draft)
    (step,) = service.plan(spec, service.inspect(host, spec))
    for action in step.actions:
        host.do(action)
    verify.await_ready(host, spec, quiet)
    with pytest.raises(NotDrafting, match="does not speculate, planned draft-simple: draft model vocab type"):
        verify.verify(host, spec, quiet)
    now = look(host, spec, draft)
    assert (now.active, now.drafted) == (False, None)
    assert "vocab" in (now.reason or "")


@pytest.mark.parametrize(
    "shape",
    [
        Shape(n_layer=6, n_vocab=600),
        Shape("qwen3", 6, n_vocab=600, head_norms=True),
        Shape("qwen2", 6, n_vocab=600, bias=True),
    ],
    ids=lambda shape: str(shape.architecture),
)
def test_who_hands_out_layers_is_as_the_table_says(host: Host, engine_bin: Path, tmp_path: Path, shape: Shape) -> None:
    """Without them the server starts, says that it speculates, and aborts over its first request."""
    target, path = shape.write(tmp_path / "t.gguf"), tmp_path / "d.gguf"
    file = drafts.eagle3(path, target, (1, 2, 3))
    draft = Draft(EAGLE3, Weights(f"file:{file}", (WeightFile(f"file:{file}", str(file)),)), n_max=3)
    options: dict[str, Value] = {"spec_type": EAGLE3, "spec_draft_model": str(file)}
    spec = make_spec(host.data, engine_bin, target, free_port(), options=options, draft=draft)
    (step,) = service.plan(spec, service.inspect(host, spec))
    for action in step.actions:
        host.do(action)
    verify.await_ready(host, spec, quiet)
    if shape.architecture in HANDS_OUT_LAYERS:
        assert verify.verify(host, spec, quiet).drafted is not None
        return
    with pytest.raises(OrinError, match=r"reads layers of its target that llama-server.* does not hand out"):
        verify.verify(host, spec, quiet)
    with pytest.raises(Refused, match="hands out no layer inputs"):
        Up(host, engine_bin, target, str(file)).plan()


def run(host: Host, verb: str, *words: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "orin_deploy", verb, *words, "--name", "test", "--json"],
        env={**os.environ, **host.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, json.loads(done.stdout)


def test_a_draft_in_its_own_process_from_up_to_a_death_in_mid_stream(
    host: Host, engine_bin: Path, smollm2: Path, folder: Path
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two processes on CPUs of their own need two CPUs")
    sets = {
        "build.engine": engine_bin, "ctx_size": 1024, "port": free_port(), "service.manager": "process",
        "placement.draft": "process", "placement.draft_port": free_port(), "service.restart_delay_s": 1,
    }  # fmt: skip
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    draft_file = f"{folder}/{SIMPLE}.gguf"
    code, told = run(host, "up", "--profile", "host", "--model", f"file:{smollm2}", "--draft", draft_file, *words)
    assert code == 0, told
    placement = told["plan"]["spec"]["placement"]
    assert not set(placement["target"]["cpus"]) & set(placement["draft"]["cpus"])
    assert told["speculation"]["active"]
    assert 0 < told["speculation"]["acceptance"] <= 1
    record = latest(host, "test")
    assert record is not None
    assert record["measurement"]["accepted"] > 0
    held = taken.resident(record)
    assert held is not None
    # Of the server's process alone; one request does not touch its buffers to their end.
    assert 0.8 * held.planned_bytes < held.taken_bytes < held.planned_bytes + 4 * MIB
    before = service.status(host, "test")
    assert before.draft is not None

    said = Stream(told["endpoint"])
    assert said.wait_for(8), "it streams"
    os.kill(before.draft, signal.SIGKILL)
    assert said.ended(20), "the client must not hang"
    assert not said.whole, "a stream that breaks off must not look whole"

    deadline = time.monotonic() + 60
    while (now := run(host, "status")[1])["state"] != "running" or now["pid"] in (None, before.pid):
        assert time.monotonic() < deadline, now
    assert now["failures"] == 1
    assert now["last_exit"] == "the draft process's signal 9 (SIGKILL)"
    assert (now["speculation"]["kind"], now["speculation"]["active"]) == (SIMPLE, True)


class Stream:
    """A streamed answer, read by a thread of its own: its events, and whether it came to its end."""

    def __init__(self, endpoint: str) -> None:
        self.events, self.whole = 0, False
        self._more = threading.Condition()
        self._thread = threading.Thread(target=self._read, args=(endpoint.removeprefix("http://"),), daemon=True)
        self._thread.start()

    def _read(self, address: str) -> None:
        connection = HTTPConnection(address, timeout=30)
        body = {"messages": [{"role": "user", "content": "Tell a long story."}], "max_tokens": 600, "stream": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        try:
            response = connection.getresponse()
            while line := response.readline():
                with self._more:
                    self.events += line.startswith(b"data:")
                    self.whole = self.whole or b"[DONE]" in line
                    self._more.notify_all()
        except OSError:
            pass
        finally:
            connection.close()

    def wait_for(self, events: int) -> bool:
        with self._more:
            return self._more.wait_for(lambda: self.events >= events, timeout=60)

    def ended(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()
