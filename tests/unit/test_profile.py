"""Profiles: reading, including, faults with their lines, what ships."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import UsageError
from orin_deploy.intent import options, yaml_text
from orin_deploy.intent.profile import board_profile, check, load, names, search_path

SEARCH = search_path(None, {})[-1:]
BOARDS = (
    "agx64", "agx32", "agx-orin-devkit-32gb", "agx-industrial", "nx16", "nx8", "nano8", "nano4", "agx-xavier",
    "xavier-nx", "thor-t5000", "thor-t4000",
)  # fmt: skip


def _write(folder: Path, files: dict[str, str]) -> tuple[Path, ...]:
    for name, text in files.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return (folder, *SEARCH)


def _said(path: Path) -> str:
    return "\n".join(map(str, check(path)))


# YAML


def test_only_true_and_false_are_booleans() -> None:
    text = "a: on\nb: no\nc: auto\nd: true\ne: 0x10\nf: 1e3\ng: 12:30\nh: 2026-11-30\ni: ~\nj: '1'\non: 1_0\nk: .inf\n"
    assert yaml_text.parse(text, "x").data == {
        "a": "on", "b": "no", "c": "auto", "d": True, "e": 16, "f": 1000.0, "g": "12:30", "h": "2026-11-30", "i": None,
        "j": "1", "on": "1_0", "k": ".inf",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "twice, first in line 1"),
        ("a: {b: 1,\n b: 2}\n", 2, "twice"),
        ("a: [\n", 2, "no YAML"),
        ("a: &x [1]\nb: *x\n", 2, "anchors"),
        ("a: !!python/object:os.system x\n", 1, "tags"),
        ("? [a]\n: b\n", 1, "a key must be a word"),
        ("a: " + "[" * 40 + "]" * 40, 1, "too deep"),
        ("a: " + "[" * 500_000, 1, "no YAML"),
        ("- " * 100_000 + "a", 1, "no YAML"),
        ("a: 1\n---\nb: 2\n", 2, "no YAML"),
        ("a: \x00\n", None, "no YAML"),
    ],
)
def test_what_is_not_plain_yaml_is_said(text: str, line: int | None, says: str) -> None:
    problem = yaml_text.parse(text, "x").problems[0]
    assert says in str(problem)
    assert problem.line == line


@given(st.binary() | st.text())
def test_any_bytes_are_read_or_refused(raw: bytes | str) -> None:
    document = yaml_text.parse(raw, "x")
    assert document.problems or document.file == "x"


# What ships


def test_every_profile_that_ships_is_sound() -> None:
    assert [name for name, _ in names(SEARCH)] == sorted([*BOARDS, "host"])
    for path in (*SEARCH[0].glob("*.yaml"), *SEARCH[0].glob("*/*.yaml")):
        assert path.parent.name == "workloads" or check(path) == []


@pytest.mark.parametrize(
    ("name", "module", "cpus", "total", "sm"),
    [("agx32", "p3701-0004", 8, 30697, 14), ("agx64", "p3701-0005", 12, 62841, 16)],
)
def test_the_boards(name: str, module: str, cpus: int, total: int, sm: int) -> None:
    profile = load(name, SEARCH)
    board = profile.board
    assert board is not None
    assert (board.modules, board.memory_total_mib, board.gpu_sm) == ((module,), total, sm)
    assert [cpu for cluster in board.clusters for cpu in cluster] == list(range(cpus))
    assert {len(cluster) for cluster in board.clusters} == {4}
    assert "asimddp" in board.features
    assert not {"i8mm", "bf16", "sve"} & set(board.features)
    assert board.cuda is True
    assert profile.model == "minicpm5-2b"
    assert profile.values["build.cuda_architectures"] == "87"
    assert profile.origin["build.cuda_architectures"] == f"profile {name} (_shared/orin)"
    assert profile.origin["cache_ram"] == f"profile {name}"
    assert board_profile(module, SEARCH) == name


def test_the_host_is_any_machine() -> None:
    profile = load("host", SEARCH)
    assert (profile.board, profile.model, profile.values["build.cuda"]) == (None, "smollm2-135m", "off")
    assert board_profile(None, SEARCH) == "host"
    with pytest.raises(UsageError, match="p9999-0000"):
        board_profile("p9999-0000", SEARCH)


def test_a_site_s_own_profile_that_includes_the_board_s_is_found(tmp_path: Path) -> None:
    shipped = SEARCH[-1] / "agx32.yaml"
    (tmp_path / "agx32.yaml").write_text(f"include: {shipped}\nmodel: smollm2-135m\n")
    assert board_profile("p3701-0004", (tmp_path, *SEARCH)) == "agx32"
    assert load("agx32", (tmp_path, *SEARCH)).model == "smollm2-135m"


# Finding


def test_the_search_path_in_order(tmp_path: Path) -> None:
    found = search_path(str(tmp_path), {"HOME": "/home/a", "XDG_CONFIG_HOME": "/x"})
    assert [str(path) for path in found[:3]] == [
        str(tmp_path), "/etc/orin-deploy/profiles", "/x/orin-deploy/profiles",
    ]  # fmt: skip
    assert (found[3] / "host.yaml").is_file()
    assert search_path(None, {"HOME": "/home/a"})[1] == Path("/home/a/.config/orin-deploy/profiles")


def test_the_first_folder_wins(tmp_path: Path) -> None:
    search = _write(tmp_path, {"host": "model: m.gguf\n"})
    assert load("host", search).model == "m.gguf"
    assert load(str(SEARCH[0] / "host.yaml"), search).model == "smollm2-135m"


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        load("agx23", SEARCH)
    assert "did you mean agx32? there are agx-industrial, agx-orin-devkit-32gb, " in (caught.value.hint or "")
    with pytest.raises(UsageError, match="cannot be read"):
        load("/nowhere/x.yaml", SEARCH)
    with pytest.raises(UsageError, match="cannot be read"):
        load(str(SEARCH[0]) + "/", SEARCH)


# Including


def test_own_values_win_over_included_ones_and_later_over_earlier(tmp_path: Path) -> None:
    search = _write(
        tmp_path,
        {
            "_shared/one": "threads: 1\nparallel: 1\nport: 1111\n",
            "_shared/two": "parallel: 2\nport: 2222\n",
            "own": "include: [one, two]\nmodel: m.gguf\nport: 3333\n",
        },
    )
    profile = load("own", search)
    assert profile.values == {"threads": 1, "parallel": 2, "port": 3333}
    assert profile.origin == {
        "threads": "profile own (_shared/one)", "parallel": "profile own (_shared/two)", "port": "profile own",
    }  # fmt: skip


def test_an_overlay_starts_from_a_whole_profile(tmp_path: Path) -> None:
    search = _write(
        tmp_path,
        {
            "lab": "include: agx32\nbuild: {cuda: off, engine: /opt/engine}\n",
            "agx32": "include: agx32\nport: 9000\n",
            "sub/by-path": "include: ../lab.yaml\nport: 9001\n",
        },
    )
    lab = load("lab", search)
    assert lab.board is not None
    assert lab.board.modules == ("p3701-0004",)
    assert (lab.values["build.cuda"], lab.values["build.engine"]) == ("off", "/opt/engine")
    site = load("agx32", search)
    assert (site.values["port"], site.values["cache_ram"], site.model) == (9000, 2048, "minicpm5-2b")
    assert load(str(tmp_path / "sub/by-path.yaml"), search).values["port"] == 9001


def test_a_cycle_and_a_missing_part_are_refused(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {"a": "include: b\nmodel: m.gguf\n", "b": "model: m.gguf\ninclude:\n  - a\n", "c": "include: [none]\n"},
    )
    assert "b.yaml:3: include.0: a includes this file again" in _said(tmp_path / "a.yaml")
    assert "c.yaml:1: include.0: there is no shared part or profile none" in _said(tmp_path / "c.yaml")


# Faults

FAULTY = """\
model: m.gguf
n-gpu-layers: 35
threads: 4000
mmap: on
build:
  blas: maybe
  cuda_architectures: native
  cmake: {GGML_CUDAA: on, LLAMA_CUBLAS: on}
ngl: 3
gpu_layers: 4
tools: all
ctx_sise: 1
cuda: on
"""


def test_all_faults_at_once_each_with_line_key_and_advice(tmp_path: Path) -> None:
    _write(tmp_path, {"bad": FAULTY})
    said = [str(problem).removeprefix(f"{tmp_path}/bad.yaml:") for problem in check(tmp_path / "bad.yaml")]
    for line, (start, advice) in zip(
        said,
        [
            ("2: n-gpu-layers:", "gpu_layers"), ("3: threads:", "from 1 to 1024"), ("4: mmap:", "load_mode"),
            ("6: build.blas:", "on or off"), ("7: build.cuda_architectures:", "87"),
            ("8: build.cmake.GGML_CUDAA:", "GGML_CUDA"), ("8: build.cmake.LLAMA_CUBLAS:", "build.cuda"),
            ("10: gpu_layers:", "line 9"), ("11: tools:", "run programs"), ("12: ctx_sise:", "ctx_size"),
            ("13: cuda:", "build.cuda"),
        ],
        strict=True,
    ):  # fmt: skip
        assert line.startswith(start)
        assert advice in line
    with pytest.raises(UsageError) as caught:
        load(str(tmp_path / "bad.yaml"), SEARCH)
    assert all(line in caught.value.message for line in said)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("threads: 1\n", "model: is missing"),
        ("model: smolm2\n", "did you mean smollm2-135m"),
        ("model: m.gguf\nboard: {modules: [p3701-0004]}\n", "board: lacks clusters"),
        ("include: agx32\nboard: {bandwidth_gbs: 1, sources: {gpu: x}}\n", "source for gpu, which it does not tell"),
        ("include: _shared/orin.yaml\n", "there is no shared part"),
        ("model: m.gguf\nboard: {memory: 1}\n", "did you mean memory"),
        ("model:\n", "cannot be empty"),
        ("model: m.gguf\nbuild: on\n", 'build: cannot be "on"'),
    ],
)
def test_faults_of_the_whole(tmp_path: Path, text: str, says: str) -> None:
    _write(tmp_path, {"x": text})
    assert says in _said(tmp_path / "x.yaml")


def test_a_board_fact_without_a_source_is_a_fault(tmp_path: Path) -> None:
    text = (SEARCH[0] / "agx32.yaml").read_text().replace("    gpu_sm: TPC", "    # gpu_sm: TPC")
    _write(tmp_path, {"agx32": text})
    assert "board: names no source for gpu_sm" in _said(tmp_path / "agx32.yaml")


def test_a_value_reads_the_same_in_a_profile_and_with_set(tmp_path: Path) -> None:
    texts = {"flash_attn": "on", "warmup": "off", "build.blas": "on", "temp": "1", "ctx_size": "4096", "alias": "7"}
    for key, text in texts.items():
        section, _, inner = key.rpartition(".")
        line = f"{section}: {{{inner}: {text}}}" if section else f"{key}: {text}"
        search = _write(tmp_path, {"x": f"model: m.gguf\n{line}\n"})
        assert load("x", search).values == {key: options.parse(options.find(key), text)}
