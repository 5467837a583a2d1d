"""The quick measurement of `up`: asked of the server, or taken from the proof where asking would take minutes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.cli.carry_out import measure_proved
from orin_deploy.deploy.apply import Events
from orin_deploy.deploy.record import Record
from orin_deploy.deploy.verify import Proof
from orin_deploy.errors import OrinError
from orin_deploy.host import Host, processes
from orin_deploy.observe.measure import measure
from tests.specs import free_port, make_spec


def proof(prompt_per_s: float, generated_per_s: float) -> Proof:
    return Proof(
        pid=1, answer="Ready.", prompt_tokens=40, prompt_per_s=prompt_per_s, generated_tokens=30,
        generated_per_s=generated_per_s, first_token_s=9.5, ready_s=1.0, memory=(), resident_bytes=0,
    )  # fmt: skip


def measured(host: Host, shown: Proof) -> Any:
    """Nothing listens, so whoever asks fails."""
    return measure(host, f"http://127.0.0.1:{free_port()}", {}, lambda fraction, text: None, shown)


@pytest.mark.parametrize("speeds", [(4.0, 1000.0), (1000.0, 1.5), (1000.0, 0.0)], ids=["prompt", "generation", "none"])
def test_a_server_so_slow_that_a_request_takes_minutes_is_not_asked_again(speeds: tuple[float, float]) -> None:
    told = measured(Host(), proof(*speeds))
    assert (told.prompt_per_s, told.generated_per_s) == speeds
    assert (told.repeats, told.prompt_tokens, told.generated_tokens, told.first_token_s) == (1, 40, 30, 9.5)


def test_any_other_is_asked() -> None:
    with pytest.raises(OrinError):
        measured(Host(), proof(20, 4))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Host, int]]:
    """A host with a deployment whose server runs and answers nobody; and its process number."""
    host = Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path)})
    launch = host.data / "deployments/test/launch.json"
    launch.parent.mkdir(parents=True)
    words = {
        "argv": ["sleep", "60"],
        "env": {},
        "log": str(tmp_path / "log"),
        "start_timeout_s": 9,
        "restart_delay_s": 9,
    }
    launch.write_text(json.dumps(words))
    processes.start(host, launch)
    now = processes.running(launch)
    assert now is not None
    assert now.server is not None
    yield host, now.server
    processes.stop(host, launch)


def test_what_was_proved_and_still_serves_is_up_although_it_cannot_be_measured(running: tuple[Host, int]) -> None:
    host, pid = running
    spec = make_spec(host.data, Path("/engine"), Path("/models/any.gguf"), free_port())
    record = Record(host, "test", "up")
    told = measure_proved(host, spec, replace(proof(20, 4), pid=pid), record, Events())
    assert told["measurement"] is None
    assert "completion failed" in told["unmeasured"]
    assert record.data["steps"][-1]["outcome"] == "failed"
    with pytest.raises(OrinError, match="completion failed"):  # another process than was proved: that one has ended
        measure_proved(host, spec, replace(proof(20, 4), pid=pid + 1), record, Events())
