"""The weights part: what is planned for what is there, and that a plan after apply is empty."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.actions import Fetch
from orin_deploy.errors import Exit, OrinError, Refused, UsageError
from orin_deploy.host.fetch_partial import SPACE_MARGIN
from orin_deploy.intent.reference import parse
from orin_deploy.intent.spec import Spec, WeightFile, Weights
from orin_deploy.parts import weights
from orin_deploy.parts.step import Step
from orin_deploy.parts.weights import FileState, WeightsState, destination
from tests.faulty_server import FaultyServer, QuickHost
from tests.specs import make_spec

DATA = b"GGUF" + random.Random(7).randbytes(100_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
MIB = 1024 * 1024


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as running:
        yield running


@pytest.fixture
def host(tmp_path: Path) -> QuickHost:
    return QuickHost(tmp_path)


def spec_of(*files: WeightFile) -> Spec:
    return make_spec(Path("/data"), Path("/engine"), Path("/m.gguf"), 8080, weights=Weights("test", files))


def planned(host: QuickHost, *files: WeightFile) -> tuple[Step, ...]:
    spec = spec_of(*files)
    return weights.plan(spec, weights.inspect(host, spec))


def stated(state: FileState, *files: WeightFile) -> tuple[Step, ...]:
    return weights.plan(spec_of(*files), WeightsState({file.path: state for file in files}))


@pytest.mark.parametrize("sha256", [None, SHA256, SHA256.upper()])
def test_a_plan_after_apply_is_empty(server: FaultyServer, host: QuickHost, tmp_path: Path, sha256: str | None) -> None:
    names = [f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    files = [WeightFile(server.serve(f"/{name}", DATA), str(tmp_path / name), len(DATA), sha256) for name in names]
    first = planned(host, *files)
    assert [step.name for step in first] == [f"fetch {name}" for name in names]
    assert [step.why for step in first] == ["100 kB, have 0"] * 2
    for step in first:
        for action in step.actions:
            host.do(action)
    assert [(step.why, step.actions) for step in planned(host, *files)] == [("already here, 100 kB", ())] * 2


def test_a_file_brought_by_hand_is_checked_where_it_lies(host: QuickHost, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(DATA)
    file = WeightFile("https://models.invalid/m.gguf", str(path), len(DATA), SHA256)
    (step,) = planned(host, file)
    assert "SHA-256" in step.why
    host.do(step.actions[0])
    assert planned(host, file)[0].actions == ()


def test_a_file_changed_since_it_was_checked_is_checked_again(host: QuickHost, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(DATA)
    file = WeightFile("https://models.invalid/m.gguf", str(path), len(DATA), SHA256)
    host.do(planned(host, file)[0].actions[0])
    path.write_bytes(DATA[:-1] + b"!")
    assert planned(host, file)[0].actions
    os.utime(path, ns=(0, 0))
    assert planned(host, file)[0].actions


@pytest.mark.parametrize("note", ["", "[]", "{}", '{"size": 1}', "\0"])
def test_a_damaged_note_of_the_hash_means_checking_again(host: QuickHost, tmp_path: Path, note: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(DATA)
    (tmp_path / "m.gguf.verified.json").write_text(note)
    file = WeightFile("https://models.invalid/m.gguf", str(path), len(DATA), SHA256)
    assert planned(host, file)[0].actions == (Fetch(file.reference, file.path, file.size, file.sha256),)


def test_the_reason_names_what_is_there() -> None:
    file = WeightFile("hf:o/r/m.gguf", "/models/m.gguf", 98_362_432)
    assert stated(FileState(), file)[0].why == "98.4 MB, have 0"
    assert stated(FileState(partial=34_000_000), file)[0].why == "98.4 MB, have 34.0 MB"
    assert stated(FileState(size=12), file)[0].why == "98.4 MB, the file here has 12 bytes"
    assert stated(FileState(), WeightFile("package:x", "/models/x.gguf"))[0].why == "size unknown, have 0"


def test_a_local_file_is_used_where_it_lies_and_must_be_there(host: QuickHost, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    file = WeightFile(f"file:{path}", str(path), len(DATA), "0" * 64)
    with pytest.raises(UsageError, match="no file"):
        planned(host, file)
    path.write_bytes(DATA)
    assert planned(host, file)[0].actions == ()
    path.write_bytes(DATA[:-1])
    with pytest.raises(OrinError, match="100003 bytes instead of 100004"):
        planned(host, file)


def test_space_is_refused_at_plan_time_with_the_numbers() -> None:
    files = [WeightFile(f"hf:o/r/{i}.gguf", f"/models/{i}.gguf", 300 * MIB) for i in range(2)]
    with pytest.raises(Refused, match=r"needs 629 MB more and 134 MB to spare, 524 MB are free for /models") as caught:
        stated(FileState(free=500 * MIB), *files)
    assert caught.value.code == Exit.REFUSED
    assert "ORIN_DEPLOY_HOME" in (caught.value.hint or "")


@given(size=st.integers(1, 2**40), partial=st.integers(0, 2**40), free=st.integers(0, 2**41))
def test_the_same_need_fits_more_space_and_a_longer_partial(size: int, partial: int, free: int) -> None:
    file = WeightFile("hf:o/r/m.gguf", "/models/m.gguf", size)

    def fits(partial: int, free: int) -> bool:
        try:
            stated(FileState(partial=partial, free=free), file)
        except Refused:
            return False
        return True

    assert fits(partial, free) == (max(0, size - partial) + SPACE_MARGIN <= free or partial >= size)
    if fits(partial, free):
        assert fits(partial, free + 1)
        assert fits(partial + 1, free)


def test_a_package_needs_room_for_its_wheel_too() -> None:
    file = WeightFile("package:p/m.gguf", "/models/m.gguf", 300 * MIB)
    with pytest.raises(Refused):
        stated(FileState(free=700 * MIB), file)
    assert stated(FileState(free=729 * MIB), file)[0].actions


def test_what_is_here_needs_no_space() -> None:
    file = WeightFile("hf:o/r/m.gguf", "/models/m.gguf", 300 * MIB, "0" * 64)
    assert stated(FileState(size=300 * MIB, free=0, sha256="0" * 64), file)[0].actions == ()


@pytest.mark.parametrize(
    ("reference", "path"),
    [
        ("hf:o/r/dir/m.gguf", "/d/models/hf/o/r/dir/m.gguf"),
        ("modelscope:o/r/m.gguf", "/d/models/modelscope/o/r/m.gguf"),
        ("package:p==1.0/m.gguf", "/d/models/package/p/1.0/m.gguf"),
        ("package:p", "/d/models/package/p/any/p.gguf"),
        ("https://h:8/a/m%20x.gguf", "/d/models/https/h:8/a/m x.gguf"),
        ("file:/x/m.gguf", "/x/m.gguf"),
        ("file:///x/m.gguf", "/x/m.gguf"),
        ("file:x/m.gguf", "x/m.gguf"),
    ],
)
def test_a_model_has_one_place(reference: str, path: str) -> None:
    assert destination("/d", reference) == path


@pytest.mark.parametrize(
    "reference",
    ["hf:o/r", "modelscope:o", "https://h/", "https://h/a/", "https://h/.", "hf:o/r/../../x", "package:p/../../x"],
)
def test_a_reference_without_a_file_has_no_place(reference: str) -> None:
    with pytest.raises(UsageError, match="names no file"):
        destination("/d", reference)


addresses = st.from_regex(r"https?://h(:1)?(/(a|b|%2F|%20| |\.|c{1,2})?){1,4}(\?[ab/]{1,2})?", fullmatch=True)
names = st.from_regex(r"(hf|modelscope):[ab]/[ab](/[ab]){1,3}|package:[ab](==[12])?(/[ab]){0,3}", fullmatch=True)


@given(st.lists(st.one_of(addresses, names), min_size=2, max_size=6))
def test_different_references_lie_apart_and_below_the_models(references: list[str]) -> None:
    places: dict[str, str] = {}
    for reference in references:
        try:
            parsed = parse(reference)
            place = destination("/d", parsed)
        except UsageError:
            continue
        assert os.path.normpath(place).startswith("/d/models/")
        assert places.setdefault(place, str(parsed)) == str(parsed)
