"""The doctor on anything at all: bounded, deterministic, never a traceback."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orin_deploy.deploy.record import plain
from orin_deploy.doctor import documents, reading, texts
from orin_deploy.doctor.boards import board_of
from orin_deploy.doctor.diagnose import RULES, diagnose
from orin_deploy.doctor.evidence import Evidence, Log
from orin_deploy.doctor.finding import SEVERITY
from orin_deploy.doctor.live import live
from orin_deploy.doctor.reading import read_evidence
from orin_deploy.errors import OrinError, UsageError
from orin_deploy.facts.device import (
    Cpu,
    CudaToolkit,
    Device,
    Jetson,
    Memory,
    Tool,
    Toolchain,
)
from tests.ggufs import Shape, write

FIELD = Path(__file__).parents[1] / "field"
PROFILES = sorted((Path(__file__).parents[2] / "profiles").glob("*.yaml"))
SUFFIXES = ("", ".log", ".txt", ".json", ".yaml", ".gguf", ".bin", ".md")
PIECES = sorted(
    {line for file in FIELD.glob("F*/*") if file.suffix != ".gguf" for line in file.read_bytes().splitlines(True)}
)

contents = st.one_of(
    st.binary(max_size=600),
    st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("87"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["module", "cuda", "cuda_arch", "spec", "build", "cmake", "toolchain", "cpu", "cuda",
                                 "l4t", "gcc", "toolkits", "list_gpu_arch", "general.architecture", "jetson", "memory",
                                 "online", "features", "root", "version", "path", "nvcc_on_path", "service", "argv"]),
                inner, max_size=4,
            )
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode()),
)  # fmt: skip


@given(files=st.lists(st.tuples(st.sampled_from(SUFFIXES), contents), max_size=4))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_anything_in_a_folder_is_read_without_a_traceback(
    files: list[tuple[str, bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("evidence")
    for number, (suffix, content) in enumerate(files):
        (folder / f"f{number}{suffix}").write_bytes(content)
    found = diagnose(read_evidence(folder))
    gravity = [SEVERITY.index(finding.verdict) for finding in found]
    assert gravity == sorted(gravity)
    for finding in found:
        assert finding.what
        assert finding.next
        json.dumps(dict(finding.values))


def test_a_huge_log_is_read_at_both_ends_only(tmp_path: Path) -> None:
    log = tmp_path / "build.log"
    with log.open("wb") as file:
        file.write(b"-- The CXX compiler identification is GNU 11.4.0\n")
        file.truncate(8 << 30)  # takes no room on disk
        file.seek(0, os.SEEK_END)
        file.write(b"\n/usr/bin/ld: cannot find -lcuda\n")
    assert len(reading.read_ends(log)) == reading.HEAD_BYTES + 1 + reading.TAIL_BYTES
    text = tmp_path / "text.log"
    with text.open("wb") as file:
        file.write(b"g++ (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0\n" + b"[1/9] ok\n" * 2_000_000)
        file.write(b"/usr/bin/ld: cannot find -lcuda\n")
    evidence = read_evidence(text)
    assert evidence.gcc == "11.4.0"
    assert [finding.rule for finding in diagnose(evidence)] == ["build.libcuda-missing"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("one-line.log", b"error: " * 300_000),
        ("deep.json", b"[" * 300_000),
        ("deep.yaml", b"[" * 60_000),
        ("dashes.yaml", b"- " * 30_000),
        ("aliases.yaml", b"a: &a [x]\n" + b"".join(b"k%d: &k%d [*a, *a]\n" % (n, n) for n in range(2000))),
        ("keys.json", json.dumps({f"k{n}": n for n in range(50_000)}).encode()),
        ("big-number.json", b'{"cores": ' + b"9" * 100_000 + b"}"),
        ("paths.txt", b"/usr/local/cuda-12.6/bin/nvcc\n" * 30_000),
        ("spaces.txt", b" " * 1_000_000),
        ("runs.txt", b"docker docker docker " * 50_000),
        ("dashes.txt", (b"/-" * 900 + b"\n") * 500),
        ("unused.txt", b"Manually-specified variables were not used by the project:\n\n" + b"    A\n" * 20_000),
        ("versions.txt", b"cmake version 1." + b"1" * 5000 + b"\nMemTotal: " + b"9" * 5000 + b" kB\n"),
    ],
)
def test_no_content_takes_long(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    started = time.process_time()
    diagnose(read_evidence(tmp_path))
    assert time.process_time() - started < 5


def test_many_files_and_deep_folders_are_cut_off(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*"abcdefgh")
    deep.mkdir(parents=True)
    (deep / "build.log").write_text("/usr/bin/ld: cannot find -lcuda\n")
    for number in range(reading.MAX_FILES + 20):
        (tmp_path / f"{number:04d}.log").write_text("nothing\n")
    evidence = read_evidence(tmp_path)
    assert len(evidence.logs) == reading.MAX_FILES
    assert diagnose(evidence) == ()
    assert "too much to read" in evidence.unread[0]


def test_what_is_no_file_is_named_and_passed_over(tmp_path: Path) -> None:
    (tmp_path / "gone.log").symlink_to("/nowhere/at/all")
    (tmp_path / "round").symlink_to("round")
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "folder-link").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "link.log").symlink_to(FIELD / "F18" / "build.log")
    evidence = read_evidence(tmp_path)
    assert [finding.rule for finding in diagnose(evidence)] == ["build.libcuda-missing"]
    assert {line.split(":")[0] for line in evidence.unread} >= {"gone.log", "round", "pipe.log"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_folder_is_an_error_and_an_unreadable_file_is_named(tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0)
    with pytest.raises(OrinError):
        read_evidence(shut)
    (tmp_path / "a.log").write_text("x")
    (tmp_path / "a.log").chmod(0)
    assert any(line.startswith("a.log") for line in read_evidence(tmp_path).unread)


def test_a_path_that_is_not_there_is_the_callers_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        read_evidence(tmp_path / "none")
    with pytest.raises(OrinError):
        read_evidence(Path("a\0b"))


def test_a_single_file_is_evidence_too() -> None:
    assert [finding.rule for finding in diagnose(read_evidence(FIELD / "F18" / "build.log"))] == [
        "build.libcuda-missing"
    ]
    assert [finding.rule for finding in diagnose(read_evidence(FIELD / "F94" / "model.gguf"))] == ["gguf.lfs-pointer"]


def test_rules_speak_under_the_name_they_are_registered_with() -> None:
    for name, rule in RULES:
        for folder in FIELD.glob("F*"):
            finding = rule(read_evidence(folder))
            assert finding is None or finding.rule == name


@pytest.mark.parametrize(
    ("words", "module"),
    [
        ("orin-nano-8g", "p3767-0003"),
        ("agx-orin-64g", "p3701-0005"),
        ("NVIDIA Jetson AGX Orin 32GB", "p3701-0004"),
        ("AGX Xavier", "p2888-0004"),
        ("Orin NX", "p3767-0000"),
        ("NVIDIA Orin NX 8GB Developer Kit", "p3767-0001"),
        ("nvidia,p3768-0000+p3767-0004-super", "p3767-0004"),
        ("nvidia,p3509-0000+p3668-0001", "p3668-0001"),
        ("nvidia,p4071-0000+p3834-0008", "p3834-0008"),
        ("nano8", "p3767-0003"),
        ("NVIDIA Jetson Nano Developer Kit", "p3448-0000"),
        ("p3701-0000", "p3701-0000"),
        ("Raspberry Pi 5", None),
        ("nvidia,p3737-0000", None),
        ("hf:someone/Thor-8B-GGUF", None),
        ("thor-8b.gguf", None),
        ("", None),
    ],
)
def test_boards_by_the_words_people_use(words: str, module: str | None) -> None:
    board = board_of(words)
    assert (board.module if board else None) == module


@given(st.text(max_size=60))
def test_no_words_confuse_the_board_table(words: str) -> None:
    board_of(words)


# Model files: kinds beyond those that were reported.


def test_split_sets_are_judged_as_one(tmp_path: Path) -> None:
    shape = Shape(n_layer=1)
    for number in (0, 2):
        metadata = {**shape.metadata(), "split.no": number, "split.count": 3}
        write(tmp_path / f"m-{number + 1:05d}-of-00003.gguf", metadata, shape.tensors())
    (finding,) = diagnose(read_evidence(tmp_path))
    assert (finding.rule, finding.verdict) == ("gguf.split-name", "refuse")
    assert "m-00002-of-00003.gguf" in finding.what


def test_a_whole_model_has_no_finding_and_a_projector_has_one(tmp_path: Path) -> None:
    shape = Shape(n_layer=1)
    write(tmp_path / "whole.gguf", shape.metadata(), shape.tensors())
    assert diagnose(read_evidence(tmp_path)) == ()
    write(tmp_path / "mmproj.gguf", {**shape.metadata(), "general.architecture": "clip"}, shape.tensors())
    write(tmp_path / "nameless.gguf", {**shape.metadata(), "general.architecture": ""}, shape.tensors())
    assert [finding.rule for finding in diagnose(read_evidence(tmp_path))] == ["gguf.arch-empty"] * 2


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"<html>\r\n<body>404</body>", "gguf.html"),
        (b"lmgg" + bytes(40), "gguf.old-ggml"),
        (b"PK\x03\x04" + bytes(90), "gguf.zip"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n", "gguf.lfs-pointer"),
        (b"\x7fELF" + bytes(60), "gguf.magic"),
        (b"", "gguf.empty"),
    ],
)
def test_what_is_no_model_is_named_for_what_it_is(content: bytes, rule: str, tmp_path: Path) -> None:
    (tmp_path / "weights.Q4_K_M.gguf").write_bytes(content)
    assert [finding.rule for finding in diagnose(read_evidence(tmp_path))] == [rule]


# The machine at hand.

ORIN = Device(
    machine="aarch64",
    os="Ubuntu 22.04",
    kernel="5.15.148-tegra",
    cpu=Cpu("Cortex-A78AE", frozenset({"asimd", "asimdhp", "asimddp"}), (), (0, 1), (0, 1), (0, 1), "cluster_id"),
    memory=Memory(8 << 30, 6 << 30, 5 << 30),
    toolchain=Toolchain(
        cxx=Tool("/usr/bin/g++", (11, 4, 0)),
        cc=Tool("/usr/bin/gcc", (11, 4, 0)),
        cmakes=(Tool("/usr/bin/cmake", (3, 10, 2)),),
        cuda=(CudaToolkit("/usr/local/cuda-12.6", (12, 6, 68), on_path=True),),
    ),
    jetson=Jetson(
        "NVIDIA Jetson Orin Nano", ("nvidia,p3768-0000+p3767-0005",), "p3767-0005", "36.4.4", "6.2.1", "12.6"
    ),
    systemd=True,
    container=None,
)
RECORD: dict[str, Any] = {
    "format": 1,
    "spec": {
        "build": {
            "cmake": ["-DGGML_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=87"],
            "source": {"commit": "0c1e570", "build_number": 11312},
        },
        "service": {"argv": ["/var/lib/orin-deploy/engines/k/bin/llama-server"]},
    },
}


def test_a_healthy_machine_has_no_finding_with_or_without_a_deployment() -> None:
    assert diagnose(live(ORIN, None, ())) == ()
    assert diagnose(live(ORIN, RECORD, ["I srv  llama_server: listening on http://127.0.0.1:8080"])) == ()


def test_the_same_rules_run_on_the_machine_itself() -> None:
    newer = CudaToolkit("/usr/local/cuda-13.0", (13, 0), on_path=True)
    older = dataclasses.replace(ORIN.toolchain.cuda[0], on_path=False)
    chain = dataclasses.replace(ORIN.toolchain, cuda=(older, newer))
    log = ["E llama_model_load: error loading model: unknown model architecture: 'lfm9'", "exiting"]
    found = diagnose(live(dataclasses.replace(ORIN, toolchain=chain), RECORD, log))
    assert [finding.rule for finding in found] == ["gguf.newer-than-binary", "build.toolkit-not-jetpack"]
    assert found[1].values == {"chosen_toolkit": "/usr/local/cuda-12.6", "cuda_arch": "87"}


def test_a_record_for_another_board_is_told() -> None:
    xavier = dataclasses.replace(ORIN, jetson=Jetson(None, (), "p2888-0004", "35.4.1", "5.1.2", "11.4"))
    (wrong, toolkit) = diagnose(live(xavier, RECORD, ()))
    assert (wrong.rule, wrong.verdict) == ("build.arch-from-board", "refuse")
    assert toolkit.rule == "build.toolkit-not-jetpack"


def test_facts_written_to_a_file_say_what_the_machine_says(tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text(json.dumps(plain(ORIN)))
    (tmp_path / "record.json").write_text(json.dumps(RECORD))
    assert read_evidence(tmp_path) == live(ORIN, RECORD, ())


@pytest.mark.parametrize(
    "profile", sorted((Path(__file__).parents[2] / "profiles").glob("*.yaml")), ids=lambda p: p.stem
)
def test_our_own_profiles_need_no_advice(profile: Path) -> None:
    assert diagnose(read_evidence(profile)) == ()


@given(data=st.data())
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_facts_and_records_with_anything_in_any_place_are_read(data: st.DataObject, tmp_path: Path) -> None:
    document = plain({**RECORD["spec"], "device": ORIN})
    document = {"spec": document} if data.draw(st.booleans()) else plain(ORIN)
    here = document
    while True:
        key = data.draw(st.sampled_from(sorted(here)))
        if not (isinstance(here[key], dict) and here[key]) or data.draw(st.integers(0, 3)) == 0:
            break
        here = here[key]
    here[key] = data.draw(st.one_of(st.none(), st.integers(), st.text(), st.lists(st.integers() | st.text())))
    (tmp_path / "facts.json").write_text(json.dumps(document))
    diagnose(read_evidence(tmp_path))


words = st.sampled_from(
    ["", "cuda", "87", "native", "12.6", "10.2", "11.4.0", "x", "²", "1." * 20, "AGX Thor", "p3701-0004"]
)
answers = words | st.lists(words, max_size=3) | st.text(max_size=4) | st.integers() | st.floats() | st.none()


@given(facts=st.dictionaries(st.sampled_from(sorted(documents._WORDS)), answers), log=st.sampled_from(PIECES))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_facts_in_any_words_are_read(facts: dict[str, Any], log: bytes, tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text(json.dumps(facts))
    (tmp_path / "some.log").write_bytes(log)
    diagnose(read_evidence(tmp_path))


def test_a_desktop_with_an_old_cuda_is_no_jetson() -> None:
    desktop = Evidence(cuda="10.2", cpu_features=frozenset({"sse2", "avx2"}))
    assert diagnose(desktop) == ()
    assert [finding.rule for finding in diagnose(Evidence(cuda="10.2"))] == ["build.unsupported-jetpack4"]


def test_many_models_do_not_use_up_the_room_for_texts(tmp_path: Path) -> None:
    for number in range(24):
        with (tmp_path / f"{number}.gguf").open("wb") as file:
            file.truncate(4 << 20)
    (tmp_path / "z.log").write_text("/usr/bin/ld: cannot find -lcuda\n")
    assert "build.libcuda-missing" in [finding.rule for finding in diagnose(read_evidence(tmp_path))]


def test_lines_are_clipped_and_colours_removed() -> None:
    log: Log = texts.claims("a.log", "\x1b[31merror\x1b[0m: x\n" + "y" * 9000)["logs"][0]
    assert log.lines == ("error: x", "y" * texts.MAX_LINE_CHARS)


def test_no_evidence_no_findings() -> None:
    assert diagnose(Evidence()) == ()


# The real engine's own words.


@pytest.mark.engine
@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"tokenizer.ggml.pre": "of-next-year"}, "gguf.newer-than-binary"),
        ({"general.architecture": "of-next-year"}, "gguf.newer-than-binary"),
        ({"general.architecture": ""}, "gguf.arch-empty"),
    ],
)
def test_the_real_servers_log_is_understood(
    change: dict[str, str], rule: str, engine_bin: Path, tmp_path: Path
) -> None:
    shape = Shape(n_layer=1)
    model = write(tmp_path / "m.gguf", {**shape.metadata(), **change}, shape.tensors())
    argv = [str(engine_bin / "llama-server"), "-m", str(model), "-t", "1", "-c", "256", "--port", "0", "--no-warmup"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    (tmp_path / "server.log").write_text(done.stdout + done.stderr)
    model.unlink()
    assert [finding.rule for finding in diagnose(read_evidence(tmp_path))] == [rule]


def test_expectations_are_well_formed() -> None:
    for file in FIELD.glob("F*/expect.yaml"):
        document = yaml.safe_load(file.read_text())
        assert document["source"].startswith("https://")
        assert document["verdict"] in SEVERITY


@pytest.mark.parametrize("text", ["{" * 60_000, "a: " + "[" * 60_000, "a: {[" * 10_000])
def test_brackets_without_end_are_no_document_and_cost_no_time(text: str) -> None:
    began = time.process_time()
    assert documents.parse(text, ".yaml") is None
    assert time.process_time() - began < 2  # PyYAML would take minutes


def test_as_deep_as_people_nest_is_read() -> None:
    assert documents.parse("a: " + "[" * 30 + "1" + "]" * 30, ".yaml") is not None
