"""Records on disk: what is written reads back equal, and what is damaged stops nothing."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orin_deploy.actions import Action, Link, Remove, Run, Start, Stop, Write
from orin_deploy.deploy import earlier
from orin_deploy.deploy.record import (
    Record,
    deployment_folder,
    deployments,
    forget_undo,
    known,
    latest,
    pending_undo,
    plain,
    remember_undo,
    spec_of,
    unread,
    unread_text,
)
from orin_deploy.host import Host
from orin_deploy.intent.spec import Spec
from tests.planning import WORKSTATION, planned

DAMAGED = (
    "", "{", "[]", "[" * 100_000, "null", "5", "\0\0", "\udce9", '{"outcome": "done"',
    '{"spec": 5, "proof": [], "undo": 5}',
)  # fmt: skip


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(environ={"ORIN_DEPLOY_HOME": str(tmp_path)})


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("words", [("host", ()), ("agx32", ()), ("agx32", ("parallel=4", "cache_type_k=q8_0"))])
def test_a_spec_reads_back_equal(host: Host, words: tuple[str, tuple[str, ...]]) -> None:
    profile, sets = words
    spec = planned(profile, *sets, device=WORKSTATION if profile == "host" else None).spec
    record = Record(host, "test", "up")
    record.update(spec=plain(spec))
    assert spec_of(latest(host, "test")) == spec


@pytest.mark.parametrize(
    ("draft", "where"),
    [
        # As the first version wrote it, which knew nothing but a process of the draft's own.
        ({"weights": {"reference": "file:/d.gguf", "files": []}, "kind": "draft-simple", "device": "CPU",
          "port": 50052, "argv": ["/bin/ggml-rpc-server"]}, "process"),
        ({"weights": {"reference": "file:/d.gguf", "files": []}, "kind": "draft-simple", "where": "inline"}, "inline"),
        ({"weights": None, "kind": "ngram-mod"}, "draftless"),
    ],
)  # fmt: skip
def test_where_a_draft_computes_is_told_by_what_it_is(draft: dict[str, Any], where: str) -> None:
    spec = spec_of({"spec": plain(planned("agx32").spec) | {"draft": draft}})
    assert spec is not None
    assert spec.draft is not None
    assert spec.draft.where == where
    assert (spec.draft_process is not None) == (where == "process")


def test_only_a_context_that_nobody_chose_is_taken_over_from_a_record() -> None:
    for sets, fitted in ((), True), (("ctx_size=4096",), False), (("memory.limit_mib=9000",), True):
        spec = planned("agx32", *sets).spec
        record = {"record": 7, "outcome": "done", "spec": plain(spec)}
        known = earlier.fitted(record)
        assert (known is not None) == fitted
        assert known is None or (known.ctx_size, known.record) == (spec.settings["ctx_size"].value, 7)
        assert known is None or known.limit_kind == spec.budget.limit_kind
        assert earlier.fitted(record | {"outcome": "failed"}) is None


def test_a_spec_of_another_version_is_no_spec(host: Host) -> None:
    whole = plain(planned("agx32").spec)
    assert spec_of({"spec": whole}) is not None
    absent = dataclasses.MISSING
    needed = [each.name for each in dataclasses.fields(Spec) if each.default is absent is each.default_factory]
    assert len(needed) > 8
    for key in needed:
        assert spec_of({"spec": {name: value for name, value in whole.items() if name != key}}) is None, key
        assert spec_of({"spec": whole | {key: 5}}) is None or isinstance(whole[key], str), key
    nothing: tuple[dict[str, Any] | None, ...] = (None, {}, {"spec": None}, {"spec": []})
    assert [spec_of(record) for record in nothing] == [None] * 4


def test_records_are_numbered_on_and_the_newest_is_told(host: Host) -> None:
    outcomes = ["done", "failed", "done", "interrupted"]
    for outcome in outcomes:
        Record(host, "test", "up").finish(outcome)
    assert [latest(host, "test", outcome)["record"] for outcome in ("done", "failed")] == [3, 2]  # type: ignore[index]
    assert latest(host, "test")["outcome"] == "interrupted"  # type: ignore[index]
    assert latest(host, "test", "refused") is None
    names = sorted(path.name for path in (deployment_folder(host, "test") / "records").iterdir())
    assert names == ["0001.json", "0002.json", "0003.json", "0004.json"]


@settings(deadline=None, max_examples=50)
@given(st.sets(st.integers(1, 20_000), max_size=6))
def test_a_new_number_is_above_every_one_there_is(tmp_path_factory: pytest.TempPathFactory, numbers: set[int]) -> None:
    host = Host(environ={"ORIN_DEPLOY_HOME": str(tmp_path_factory.mktemp("home"))})
    folder = deployment_folder(host, "test") / "records"
    for number in numbers:
        put(folder / f"{number:04d}.json", json.dumps({"record": number, "outcome": "done"}))
    assert Record(host, "test", "up").number == max(numbers, default=0) + 1
    newest = latest(host, "test")
    assert (newest or {}).get("record") == max(numbers, default=None)


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_record_is_passed_over_and_its_number_stays_taken(host: Host, text: str) -> None:
    Record(host, "test", "up").finish("done")
    put(deployment_folder(host, "test") / "records/0002.json", text)
    put(deployment_folder(host, "test") / "records/notes.json", text)
    put(deployment_folder(host, "test") / "records/.0003.json.x1", text)
    assert latest(host, "test", "done")["record"] == 1  # type: ignore[index]
    newest = latest(host, "test")
    assert newest is not None
    assert (earlier.fitted(newest), earlier.proved_pid(newest), spec_of(newest)) == (None, None, None)
    assert unread(host, "test") == (2,)
    told = unread_text(host, "test") or ""
    assert told.startswith("record 2 of test cannot be read (in ")
    assert ": record 1 is used instead; " in told
    assert Record(host, "test", "up").number == 3


def test_what_cannot_be_read_is_told_until_a_run_ends_well(host: Host) -> None:
    folder = deployment_folder(host, "test") / "records"
    assert (unread(host, "test"), unread_text(host, "test")) == ((), None)
    put(folder / "0001.json", "{")
    assert unread(host, "test") == (1,)
    assert "there is no other" in (unread_text(host, "test") or "")
    Record(host, "test", "up").finish("failed")
    put(folder / "0003.json", "")
    assert unread(host, "test") == (1, 3), "nothing ended well yet, so the first counts as well"
    assert (unread_text(host, "test") or "").startswith("records 1, 3 of test cannot be read")
    Record(host, "test", "up").finish("done")
    assert (unread(host, "test"), unread_text(host, "test")) == ((), None)


def test_a_record_tells_at_every_moment_how_far_it_came(host: Host) -> None:
    record = Record(host, "test", "orin-deploy up")
    assert known(host) == ()
    record.step("engine", "build", "not built", "done", 1.234)
    saved = latest(host, "test")
    assert saved is not None
    assert (saved["outcome"], saved["finished"], saved["command"]) == ("running", None, "orin-deploy up")
    assert saved["steps"] == [
        {"part": "engine", "name": "build", "why": "not built", "outcome": "done", "seconds": 1.23}
    ]
    record.finish("failed", "why")
    saved = latest(host, "test")
    assert saved is not None
    assert (saved["outcome"], saved["error"], saved["finished"] is None) == ("failed", "why", False)
    assert known(host) == ("test",)


ACTIONS: st.SearchStrategy[Action] = st.one_of(
    st.builds(Stop, st.sampled_from("ab"), st.sampled_from(["/x", "/y"])),
    st.builds(Remove, st.sampled_from(["/x", "/y", "/z"])),
    st.builds(Run, st.tuples(st.sampled_from(["a", "b"]), st.text(max_size=3)), env=st.just((("K", "v"),))),
    st.builds(Link, st.just("/l"), st.sampled_from(["/t", "/u"])),
    st.builds(Write, st.just("/w"), st.text(max_size=5)),
    st.builds(Start, st.just("a"), st.just("/x")),
)
UNDO = st.lists(ACTIONS, max_size=4, unique=True).map(tuple)


@settings(deadline=None, max_examples=50)
@given(st.lists(UNDO, min_size=1, max_size=4))
def test_what_was_done_last_is_undone_first_and_nothing_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Action, ...]]
) -> None:
    host = Host(environ={"ORIN_DEPLOY_HOME": str(tmp_path_factory.mktemp("home"))})
    for undo in steps:
        before = pending_undo(host, "test")
        remember_undo(host, "test", undo)
        fresh = tuple(action for action in undo if action not in before)
        assert pending_undo(host, "test") == (*fresh, *before)
        assert deployments(host) == ("test",)
    forget_undo(host, "test")
    assert (pending_undo(host, "test"), deployments(host)) == ((), ())


def test_undo_actions_may_hold_secrets_so_only_the_owner_reads_them(host: Host) -> None:
    remember_undo(host, "test", (Remove("/x"),))
    assert (deployment_folder(host, "test") / "undo.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", [*DAMAGED, '{"undo": [{"do": "explode"}]}', '{"undo": [{"do": "write"}]}'])
def test_a_damaged_undo_file_is_written_anew(host: Host, text: str) -> None:
    put(deployment_folder(host, "test") / "undo.json", text)
    assert pending_undo(host, "test") == ()
    assert deployments(host) == ("test",)
    remember_undo(host, "test", (Remove("/x"),))
    assert pending_undo(host, "test") == (Remove("/x"),)


def test_plain_is_what_json_keeps() -> None:
    value: dict[str, Any] = {"a": (1, {3, 2}), "b": Path("/x"), "c": frozenset({"y", "x"}), "d": {1: None}}
    assert plain(value) == {"a": [1, [2, 3]], "b": "/x", "c": ["x", "y"], "d": {"1": None}}
    spec = planned("agx32").spec
    assert json.loads(json.dumps(plain(spec))) == plain(spec)
