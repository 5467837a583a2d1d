"""draft=auto with the real engine: measured at `up`, kept, used again; and whatever goes wrong while it is measured.

Speeds on a shared machine prove nothing, so what is checked is that the decision follows from the figures on record.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.host import Host
from orin_deploy.intent.measured import Candidate
from orin_deploy.intent.request import Request
from orin_deploy.observe.bench import Agenda, cases, workload
from orin_deploy.tune.second_look import second_look
from orin_deploy.tune.work import Work, arm
from tests.engine.command import Command, command
from tests.engine.test_bench_engine import processes
from tests.engine.test_speculation_engine import stranger

pytestmark = pytest.mark.engine

AUTO = ("--draft", "auto", "--set", "ctx_size=4096")


@pytest.fixture
def orin(tmp_path: Path, engine_bin: Path, smollm2: Path) -> Iterator[Command]:
    with command(tmp_path / "home", engine_bin, smollm2) as each:
        yield each


def mix(*names: str, seconds: int = 20) -> tuple[str, ...]:
    words = [f"speculation.measure_s={seconds}", *(f"speculation.workload.{name}=1" for name in names)]
    return tuple(word for each in words for word in ("--set", each))


def records(orin: Command) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((orin.home / "bench").glob("*.json"))]


def follows(told: dict[str, Any], record: dict[str, Any]) -> None:
    """The decision is what the record's own figures say."""
    verdict, means = record["decision"], record["means"]
    assert told["record"] == record["record"]
    assert (verdict["why"] if told["sure"] else "could not tell") in told["source"]
    assert verdict["sure"] == told["sure"]
    assert told["kind"] == "none" or verdict["arm"].startswith(told["kind"])
    if told["kind"] == "none":
        return
    ratio = means[verdict["arm"]]["ratio"]
    assert told["gain"] == ratio["value"]["value"] >= 1.05
    assert ratio["verdict"] == "faster"
    assert ratio["value"]["low"] > 1
    for case in record["cases"]:
        value = case["arms"][verdict["arm"]]["ratio"]["value"]
        assert value["high"] is None or value["high"] > 0.99, f"slower on {case['workload']}"


def test_measured_once_then_used_from_its_record(orin: Command) -> None:
    before = orin.plan(*AUTO, *mix("copy", seconds=40), "--json").json
    assert [way["kind"] for way in before["spec"]["to_measure"]["candidates"]] == ["none", "ngram-simple"]
    assert "to be measured at up: none, ngram-simple; at most 40 s" in str(before["steps"])

    began = time.monotonic()
    first = orin.up(*AUTO, *mix("copy", seconds=40), "--json")
    assert first.code == 0, first.err
    assert time.monotonic() - began < 40 + 80, "the race keeps to its seconds; the rest is starting and proving"
    decision = first.json["decision"]
    assert decision["date"] in decision["source"]
    number = next(each for each in records(orin) if each["record"] == decision["record"])
    follows(decision, number)
    draft = first.json["plan"]["spec"]["draft"]
    assert (draft["kind"] if draft else "none") == decision["kind"]
    assert draft is None or draft["source"] == decision["source"]
    assert not processes(orin.home)

    again = orin.up(*AUTO, *mix("copy", seconds=40), "--json")
    assert (again.code, again.json["changed"]) == (0, False), again.err
    assert again.json["decision"] == decision
    status = orin("status", "--json").json
    assert status["decision"] == decision
    assert decision["source"] in orin("status").out
    assert decision["source"] in orin.plan(*AUTO, *mix("copy", seconds=0)).out, "the record is enough"
    longer = orin.plan(*AUTO, *mix("copy", seconds=400), "--json").json
    assert longer["spec"]["to_measure"]["seconds"] == 400


def test_a_story_is_never_served_with_what_loses_on_it(orin: Command) -> None:
    done = orin.up(*AUTO, *mix("story"), "--set", "speculation.concurrency=2", "--set", "parallel=2", "--json")
    assert done.code == 0, done.err
    decision = done.json["decision"]
    record = next(each for each in records(orin) if each["record"] == decision["record"])
    assert {case["clients"] for case in record["cases"]} == {2}
    assert "with 2 clients" in decision["source"]
    follows(decision, record)


def test_without_time_to_measure_it_serves_without_and_says_so(orin: Command) -> None:
    done = orin.up(*AUTO, *mix(seconds=0), "--json")
    assert done.code == 0, done.err
    assert done.json["decision"] is None
    assert "measures nothing: served without" in str(done.json["plan"]["warnings"])
    assert not records(orin)


def test_a_candidate_that_fails_is_left_out_and_up_goes_on(orin: Command, smollm2: Path, tmp_path: Path) -> None:
    """A draft of an architecture that no engine knows, as the only candidate: none, loudly, and `up` goes on."""
    broken = stranger(tmp_path / "broken.gguf", smollm2)
    words = ("--set", f"spec_draft_model={broken}", "--set", "spec_type=draft-simple")
    done = orin.up(*AUTO, *mix("copy"), *words)
    assert done.code == 0, done.err
    assert "none: measured" in done.out
    assert "nothing else could be measured: draft-simple: " in done.out
    assert "lxama" in done.out
    (record,) = records(orin)
    assert list(record["left_out"]) == ["draft-simple"]
    assert orin.up(*AUTO, *mix("copy"), *words, "--json").json["changed"] is False


def test_what_lacked_memory_is_measured_again_when_it_is_there(orin: Command, smollm2: Path, tmp_path: Path) -> None:
    """The target itself as its draft, with room for one of the two: none, until there is room for both."""
    draft = tmp_path / "draft.gguf"
    shutil.copyfile(smollm2, draft)
    words = ("--set", f"spec_draft_model={draft}", "--set", "spec_type=draft-simple")
    both = orin.plan("--draft", str(draft), "--set", "ctx_size=4096", "--json")
    alone = orin.plan("--draft", "none", "--set", "ctx_size=4096", "--json")
    needs = both.json["budget"]["total_bytes"] >> 20
    assert needs - (alone.json["budget"]["total_bytes"] >> 20) > 100

    def limit(mib: int) -> tuple[str, ...]:
        return (*AUTO, *mix("copy"), *words, "--set", f"memory.limit_mib={mib}")

    done = orin.up(*limit(needs - 10), "--json")
    assert done.code == 0, done.err
    decision = done.json["decision"]
    assert decision["kind"] == "none"
    assert "not enough memory" in decision["source"]
    assert "measured again with speculation.measure_s above 20, from " in decision["again"]
    assert decision["again"] in orin.plan(*limit(needs - 10)).out
    assert orin.up(*limit(needs - 10), "--json").json["changed"] is False
    more = orin.plan(*limit(needs + 300), "--json").json["spec"]
    assert (more["decision"], more["to_measure"]["candidates"][1]["kind"]) == (None, "draft-simple")


def test_nothing_that_can_be_measured_is_none_and_up_goes_on(orin: Command) -> None:
    done = orin.up("--draft", "auto", "--set", "ctx_size=512", *mix("summary"))
    assert done.code == 0, done.err
    assert "nothing could be measured: a context of 512 tokens holds none of the workloads summary" in done.out


def test_ctrl_c_while_measuring_leaves_nothing_behind_and_the_next_up_goes_on(orin: Command) -> None:
    process = orin.popen("up", *orin.words, *AUTO, *mix("copy", seconds=300))
    deadline = time.monotonic() + 90
    while not processes(orin.home):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it measures"
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "choose speculation: FAILED" in out
    assert not processes(orin.home)
    assert orin("status", "--json").json.get("state") != "running"
    assert not (orin.home / "decisions.json").exists()
    done = orin.up(*AUTO, *mix("copy", seconds=0), "--json")
    assert done.code == 0, done.err


def test_a_second_look_races_what_the_measured_costs_promise(orin: Command) -> None:
    """ngram-mod drafts 48 tokens at least by default; what copying and verifying cost here says otherwise."""
    assert orin.up("--set", "ctx_size=4096").code == 0
    assert orin("down").code == 0
    sets = (("build.engine", str(orin.engine)), ("ctx_size", "4096"), ("speculation.workload.copy", "1"))
    host = Host(environ=orin.environ())
    work = Work(host, Request("host", str(orin.model), sets=sets, draft="auto"), "test", 70.0, lambda share, text: None)
    chosen = workload.choose(workload.shipped(work.now.search), ("copy",))
    agenda = Agenda(chosen, cases(chosen), 20.0)
    winner = Candidate("ngram-mod")
    found = work.race((arm(Candidate("none")), arm(winner)), agenda, 20.0)
    better = second_look(work, winner, found, agenda, gain=0.0)
    assert not processes(orin.home)
    raced = [record for record in records(orin) if "with" in record["arms"][-1]]
    if better is None:
        assert all(record["decision"]["arm"] == "none" for record in raced), "nothing that wins is thrown away"
        return
    assert raced[-1]["record"] == better.record
    assert 1 <= (better.numbers.n_min or 1) <= better.numbers.n_max <= 64
    assert better.verdict.arm == f"ngram-mod with {better.numbers.n_max} tokens"
