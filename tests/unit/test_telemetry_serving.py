"""The server's own numbers: tokens per second and acceptance rate from /metrics and /slots."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.host import Host
from orin_deploy.observe.telemetry.serving import Counts, Watch, acceptance, parse_metrics, parse_slots, rate

METRICS = """\
# HELP llamacpp:tokens_predicted_total Number of generation tokens processed
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 1.5e+06
llamacpp:spec_decode_num_draft_tokens_total 200
llamacpp:spec_decode_num_accepted_tokens_total 150
llamacpp:requests_deferred 2
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 60
"""


def slot(number: int, task: int, decoded: int, busy: bool = True) -> dict[str, Any]:
    return {"id": number, "id_task": task, "is_processing": busy, "next_token": [{"n_decoded": decoded}]}


def test_metrics_are_read_by_name() -> None:
    found = parse_metrics(METRICS)
    assert found["tokens_predicted_total"] == 1_500_000
    assert acceptance(found) == 0.75
    assert acceptance({}) is None
    assert acceptance({"spec_decode_num_draft_tokens_total": 0}) is None


def test_slots_at_work_count() -> None:
    assert parse_slots([slot(0, 7, 30), slot(1, 8, 99, busy=False), {"id": 2, "is_processing": False}]) == {(0, 7): 30}
    assert parse_slots([]) == {}
    assert parse_slots({"error": {"code": 501}}) is None


@pytest.mark.parametrize(
    ("before", "now", "speed"),
    [
        (Counts(0, None, {(0, 7): 10}), Counts(2, None, {(0, 7): 30}), 10.0),
        (Counts(0, None, {(0, 7): 10}), Counts(2, None, {(0, 8): 6}), 3.0),
        (Counts(0, None, {(0, 7): 10}), Counts(2, None, {}), 0.0),
        (Counts(0, 100, {(0, 7): 10}), Counts(2, 100, {(0, 7): 30}), 10.0),
        (Counts(0, 100, {(0, 7): 10}), Counts(2, 140, {}), 15.0),
        (Counts(0, 100, None), Counts(2, 140, None), 20.0),
        (Counts(0, 100, {(0, 7): 90}), Counts(2, 0, {}), 0.0),
        (Counts(0, None, None), Counts(2, None, {}), None),
        (Counts(2, 1, {}), Counts(2, 2, {}), None),
    ],
    ids=["runs on", "another", "ended unseen", "runs on", "ended", "metrics alone", "restarted", "unknown", "no time"],
)
def test_the_rate_between_two_looks(before: Counts, now: Counts, speed: float | None) -> None:
    assert rate(before, now) == speed


RUNNING = st.none() | st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 5)), st.integers(0, 1000), max_size=4)
COUNTS = st.builds(Counts, st.floats(0, 1e6), st.none() | st.floats(0, 1e9), RUNNING)


@given(COUNTS, COUNTS)
def test_a_rate_is_never_negative(before: Counts, now: Counts) -> None:
    speed = rate(before, now)
    assert speed is None or speed >= 0


@given(st.text(max_size=200))
def test_no_metrics_raise(text: str) -> None:
    acceptance(parse_metrics(text))
    acceptance(parse_metrics(f"llamacpp:spec_decode_num_draft_tokens_total {text}\n"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "id_task", "is_processing", "next_token", "n_decoded"]), inner)
    ),
    max_leaves=15,
)


@given(JSON)
def test_no_slots_raise(document: Any) -> None:
    parse_slots(document)


def test_a_server_that_is_not_there() -> None:
    found = Watch(Host(), "http://127.0.0.1:9", {}, metrics=True).look()
    assert (found.tokens_per_s, found.requests) == (None, None)
    assert "does not answer" in (found.missing or "")


@pytest.fixture(params=[True, False], ids=["metrics", "slots alone"])
def server(request: pytest.FixtureRequest, engine_bin: Path, smollm2: Path) -> Iterator[tuple[str, bool]]:
    """A real server, started with --metrics or without."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", str(smollm2), "-c", "2048", "-np", "1", "-t", "1", "--port", str(port), "-fit", "off"]
    words += ["--metrics"] if request.param else []
    log = subprocess.DEVNULL
    process = subprocess.Popen([str(engine_bin / "llama-server"), *words], stdout=log, stderr=log)
    endpoint = f"http://127.0.0.1:{port}"
    try:
        host = Host()
        for _ in range(300):
            reply = host.http("GET", f"{endpoint}/health", timeout_s=1)
            if reply is not None and reply.status == 200:
                break
            time.sleep(0.1)
        yield endpoint, request.param
    finally:
        process.terminate()
        process.wait()


@pytest.mark.engine
def test_a_real_server_while_it_generates(server: tuple[str, bool]) -> None:
    endpoint, metrics = server
    host = Host()
    watch = Watch(host, endpoint, {}, metrics)
    assert watch.look().requests == 0
    idle = watch.look()
    assert idle.tokens_per_s == 0
    payload = {"prompt": "Once upon a time", "n_predict": 300, "ignore_eos": True, "temperature": 0}
    answers: list[Any] = []
    client = Thread(target=lambda: answers.append(host.http("POST", f"{endpoint}/completion", payload, timeout_s=120)))
    client.start()
    speeds = []
    while client.is_alive():
        time.sleep(0.3)
        found = watch.look()
        if found.requests and found.tokens_per_s:
            speeds.append(found.tokens_per_s)
    client.join()
    said = answers[0].json()["timings"]["predicted_per_second"]
    assert speeds, "a request of 300 tokens is seen at work"
    assert 0.3 * said < mean(speeds) < 2 * said, "on the whole: a busy machine stops and hurries from look to look"
    assert watch.look().requests == 0
    assert ("--set metrics=on" in (found.missing or "")) is not metrics
    assert found.acceptance_rate is None
