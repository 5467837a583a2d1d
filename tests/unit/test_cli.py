"""The command line's own promises: one sentence and a way on for every error, one document, a true exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

import pytest

from orin_deploy.cli.console import Output
from orin_deploy.cli.show_speculation import proved_document, speculation_text
from tests.ggufs import Shape

MAIN = (sys.executable, "-m", "orin_deploy")


def run(*words: str, home: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "ORIN_DEPLOY_HOME": str(home), **options.pop("environ", {})}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run((*MAIN, *words), env=environ, text=True, timeout=30, **streams)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Shape().write(tmp_path / "m.gguf")


def make(path: Path, what: str) -> Path:
    match what:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case _:
            path.write_text(what)
    return path


PROFILES = {
    "a pipe": ("pipe", "must hold keys"),
    "a folder": ("folder", "directory"),
    "CPUs without end": ("model: smollm2-135m\nplacement: {cpus: 0-99999999999}\n", "placement.cpus"),
    "a cluster without end": ("model: smollm2-135m\nboard: {clusters: [0-99999999999]}\n", "board.clusters"),
    "no address": ("model: https://[::1/x.gguf\n", "address"),
}


@pytest.mark.parametrize(("what", "says"), PROFILES.values(), ids=PROFILES.keys())
def test_a_profile_that_is_none(what: str, says: str, tmp_path: Path) -> None:
    path = make(tmp_path / "bad.yaml", what)
    done = run("profiles", "check", str(path), "--json", home=tmp_path)
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert document["error"]["code"] == 2
    assert document["error"]["hint"]
    assert says in json.dumps(document)


PLANS = {
    "no folder of profiles": (("--profiles", "/nonexistent"), 2),
    "an empty name": (("--name", ""), 2),
    "an empty model": (("--model", ""), 2),
    "no such user's home": (("--model", "~nobody-here/m.gguf"), 2),
    "brackets without an address": (("--model", "http://[::1/m.gguf"), 2),
    "no port": (("--model", "http://localhost:99999/m.gguf"), 2),
    "CPUs without end": (("--set", "placement.cpus=0-99999999999"), 2),
    "a value with no default": (("--set", "threads=0"), 2),
    "a number with no default": (("--set", "temp=nan"), 2),
    "quantised values without flash attention": (("--set", "flash_attn=off", "--set", "cache_type_v=q8_0"), 4),
    "an API key file without a key": (("--set", "api_key_file=/dev/null"), 2),
    "a key file by a relative path": (("--set", "api_key_file=key"), 2),
}


@pytest.mark.parametrize(("words", "code"), PLANS.values(), ids=PLANS.keys())
def test_what_cannot_be_planned_names_the_way_on(
    words: tuple[str, ...], code: int, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("secret\n")
    done = run("plan", "--profile", "host", "--model", str(model), *words, "--json", home=tmp_path / "home")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["code"]) == (code, code), error
    assert error["message"]
    assert error["hint"]
    assert "at fault" not in error["message"]


DAMAGED = (
    "", "{", "3", '{"spec": 3}', '{"record": 1, "spec": {}}', '{"record": 1, "proof": 3, "measurement": 3}',
    '{"record": 1, "measurement": {"generated_per_s": null}}', '{"record": 1, "spec": {"budget": {"rows": [{}]}}}',
)  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_record_stops_no_verb(text: str, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "home/deployments/host"
    (folder / "records").mkdir(parents=True)
    (folder / "records/0001.json").write_text(text)
    (folder / "undo.json").write_text("{}")
    status = run("status", "--json", home=tmp_path / "home")
    planned = run("plan", "--profile", "host", "--model", str(model), home=tmp_path / "home")
    assert "at fault" not in planned.stderr
    down = run("down", "--name", "host", "--json", home=tmp_path / "home")
    assert (status.returncode, down.returncode) == (0, 0)
    assert json.loads(status.stdout)["unread_records"] == json.loads(down.stdout)["unread_records"] == [1]
    for done in (status, planned, down):
        said = [line for line in done.stderr.splitlines() if "cannot be read" in line]
        assert len(said) == 1, done.stderr
        assert said[0].startswith("warning: record 1 of host cannot be read")


def test_debug_adds_the_traceback_and_keeps_document_and_code(tmp_path: Path) -> None:
    done = run("plan", "--model", "no-such", "--json", "--debug", home=tmp_path)
    assert done.returncode == 2
    assert "no-such" in json.loads(done.stdout)["error"]["message"]
    assert "Traceback" in done.stderr


def test_a_file_with_a_parts_name_may_be_a_whole_model(model: Path, tmp_path: Path) -> None:
    part = model.rename(tmp_path / "m-00001-of-00003.gguf")
    done = run("gguf", str(part), "--json", home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["parts"] == 1


@pytest.mark.parametrize("home", ["/", "  "])
def test_odd_data_folders(home: str, model: Path, tmp_path: Path) -> None:
    done = run("plan", "--profile", "host", "--model", str(model), home=tmp_path, environ={"ORIN_DEPLOY_HOME": home})
    assert "at fault" not in done.stderr


def test_a_reader_that_leaves_changes_nothing_but_what_is_seen(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = run("facts", home=tmp_path, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_result_that_cannot_be_written_is_a_failure(words: tuple[str, ...], tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = run("facts", *words, home=tmp_path, stdout=full)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_streams_that_are_closed(tmp_path: Path) -> None:
    for words, code in (("facts", 0), ("plan --model no-such", 2), ("plan --model no-such --json", 2)):
        shell = f"{sys.executable} -m orin_deploy {words} >&- 2>&- <&-"
        assert subprocess.run(["sh", "-c", shell], timeout=30).returncode == code


def test_a_terminal_that_lacks_a_character(tmp_path: Path) -> None:
    environ = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    done = run("plan", "--profile", "host", home=tmp_path, environ=environ)
    assert "at fault" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_verb_in_one_document(number: int, tmp_path: Path) -> None:
    pipe = tmp_path / "log"
    deployments = tmp_path / "deployments/x/records"
    deployments.mkdir(parents=True)
    (deployments / "0001.json").write_text("{}")
    pipe.write_text("")
    process = subprocess.Popen(
        (*MAIN, "logs", "--follow", "--name", "x"), env={**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    _wait_for_handlers(process)
    process.send_signal(number)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err


def _wait_for_handlers(process: subprocess.Popen[str]) -> None:
    """Until the child catches SIGTERM, as its own status says, and has had time to reach its verb."""
    status = Path(f"/proc/{process.pid}/status")
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        caught = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        if int(caught, 16) & 1 << (signal.SIGTERM - 1):
            return
        time.sleep(0.01)
    raise AssertionError("the command never came to life")


def test_output_survives_its_stream(tmp_path: Path) -> None:
    Output(None).print("nobody reads this")
    reader, writer = os.pipe()
    os.close(reader)
    stream: IO[str] = os.fdopen(writer, "w")
    output = Output(stream)  # type: ignore[arg-type]
    output.print("lost")
    assert output.stream is None
    output.print("lost, too")
    stream.close()


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("chat", "61 of 61 drafted tokens accepted when it was proved"),
        ("forced", "61 tokens drafted when it was proved"),
    ],
)
def test_what_the_proof_saw_is_shown_until_other_requests_have_drafted(request_: str, said: str) -> None:
    proof = {"kinds": ["ngram-map-k4v"], "drafted": 61, "accepted": 61, "request": request_}
    record = {"spec": {"draft": {"kind": "ngram-map-k4v"}}, "proof": {"drafted": proof}, "measurement": {"drafted": 0}}
    document = proved_document(record)
    assert document is not None
    assert speculation_text(document) == f"ngram-map-k4v, active, {said}"
    measured = proved_document({**record, "measurement": {"drafted": 20, "accepted": 10}})
    assert measured is not None
    assert speculation_text(measured).endswith("10 of 20 drafted tokens accepted (50%)")
