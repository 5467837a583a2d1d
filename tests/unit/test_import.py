"""Old command lines as today's profiles: every word translated or explained, and today's own words kept as they are."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.cli.console import Console
from orin_deploy.cli.import_ import import_
from orin_deploy.errors import UsageError
from orin_deploy.facts.device import Device
from orin_deploy.facts.inspect import inspect
from orin_deploy.host import Host
from orin_deploy.intent import options, profile
from orin_deploy.intent.basis import is_local
from orin_deploy.intent.option_table import GONE, LAYERS, OWNED, RENAMED, SERVER, Option
from orin_deploy.intent.options import parse, render
from orin_deploy.intent.spec import Value
from orin_deploy.intent.translate import Translation, translate
from orin_deploy.intent.translate_board import on_board
from orin_deploy.intent.translate_container import container
from orin_deploy.intent.translate_profile import profile_text
from orin_deploy.intent.translate_reading import VERDICTS

ROWS = [row for row in SERVER if row.owned is None]


def of(text: str) -> dict[str, Value]:
    found = translate(text)
    return found.values | ({"model": found.model} if found.model else {})


def verdicts(found: Translation) -> dict[str, set[str]]:
    said: dict[str, set[str]] = {}
    for note in found.notes:
        said.setdefault(note.word, set()).add(note.verdict)
    return said


# Today's words.


def values(row: Option) -> st.SearchStrategy[Value]:
    """What a row may hold and a command line can say."""
    match row.kind:
        case "bool":
            return st.booleans()
        case "int":
            low, high = int(row.low or 0), int(row.high or 0)
            number: st.SearchStrategy[Value] = st.integers(low, high)
            return number | st.sampled_from(row.choices) if row.choices else number
        case "float":
            return st.floats(-1e6 if row.low is None else row.low, 1e6 if row.high is None else row.high)
        case _ if row.form == "two":
            return st.tuples(st.integers(0, 99), st.integers(0, 99)).map(lambda pair: f"{pair[0]},{pair[1]}")
        case _ if row.choices:
            return st.sampled_from(row.choices)
        case _ if row.pattern:
            return st.from_regex(row.pattern, fullmatch=True)
        case _:
            return st.text(min_size=1).filter(lambda text: not text.startswith("-"))


def allowed(row: Option, raw: Value) -> Value:
    try:
        return parse(row, raw)
    except UsageError:
        return None


@st.composite
def settings(draw: st.DrawFn) -> tuple[Option, Value]:
    row = draw(st.sampled_from(ROWS))
    value = draw(values(row).map(lambda raw: allowed(row, raw)).filter(lambda value: value is not None))
    return row, value


@given(settings())
def test_what_is_rendered_is_imported_with_the_same_value(setting: tuple[Option, Value]) -> None:
    row, value = setting
    if row.auto and value == "auto":
        return  # is decided before it is rendered
    words = render({row.key: value}, None)
    found = translate(shlex.join(["llama-server", *words]))
    if row.key in ("model", "spec_draft_model"):  # a reference, where it can be one
        known = found.model if row.key == "model" else found.values.get("draft", found.values.get("spec_draft_model"))
        assert known in (f"file:{value}", value, str(value).removeprefix("file://")) or found.notes
    elif row.key in ("gpu_layers", "spec_draft_ngl") and isinstance(value, int) and (value == 99 or value > LAYERS):
        assert found.values[row.key] == "all"
    elif row.key == "host" and not is_local(str(value)):
        assert found.values == {}
        assert [note.verdict for note in found.notes] == ["owned"]
    elif not words:
        assert (row.form, value) == ("bare", False)
    else:
        assert found.values == {row.key: value}
        assert found.origin.keys() == {row.key}
        allowed_verdicts = {"kept"} if row.key == "predict" else {"no-effect"}  # no draft beside it
        assert {note.verdict for note in found.notes} <= allowed_verdicts


def test_every_row_in_one_command() -> None:
    told = {row.key: first for row in ROWS if (first := _example(row)) is not None and row.key != "load_mode"}
    del told["rpc"], told["spec_draft_device"], told["model"], told["spec_draft_model"]
    found = translate(shlex.join(["llama-server", *render(told, None)]))
    assert found.values == told


def _example(row: Option) -> Value:
    match row.kind:
        case "bool":
            return True
        case "int":
            return int(row.low or 0)
        case "float":
            return 0.25
        case _ if row.choices:
            return row.choices[-1]
    return "1,2" if row.form == "two" else "127.0.0.1"


@given(st.lists(settings(), max_size=6))
def test_a_profile_that_is_printed_says_what_was_read(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[Option, Value]]
) -> None:
    values = {row.key: value for row, value in told if not (row.auto and value == "auto") and row.key != "model"}
    found = translate(shlex.join(["llama-server", "-m", "/m.gguf", *render(values, None)]))
    path = tmp_path_factory.mktemp("profile") / "imported.yaml"
    path.write_text(profile_text(found, None), encoding="utf-8")
    assert profile.check(path) == []
    loaded = profile.load(str(path), (path.parent,))
    assert loaded.values == found.values
    assert loaded.model == "file:/m.gguf"


@pytest.mark.engine
def test_every_name_of_the_help_is_known(engine_bin: Path) -> None:
    help_text = subprocess.run([engine_bin / "llama-server", "--help"], capture_output=True, text=True, check=True)
    variables = set(re.findall(r"env: (LLAMA_ARG_\w+|LLAMA_API_KEY|HF_TOKEN)", help_text.stdout))
    assert len(variables) > 90
    for name in variables:
        assert verdicts(translate(f"{name}=1 llama-server")).get(f"{name}=1", set()) <= VERDICTS.keys() - {"unknown"}
    for flag in options.flags_in(help_text.stdout):
        assert "unknown" not in {note.verdict for note in translate(f"llama-server {flag} 1").notes}, flag
        assert plain(flag) not in RENAMED.keys() | GONE.keys(), f"{flag} is a name of today"


def plain(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


# Old words.


@pytest.mark.parametrize("name", [*RENAMED, *GONE])
def test_every_old_name_is_explained(name: str) -> None:
    old = RENAMED.get(name)
    value = next(iter(dict(old.values)), "3") if old else "3"
    text = f"{name}: {value}" if "." in name else f"llama-server --{name.replace('_', '-')} {value}"
    found = translate(text)
    assert found.notes or (old is not None and not old.fate and found.values)
    assert "unknown" not in {note.verdict for note in found.notes}


@pytest.mark.parametrize("row", OWNED, ids=lambda row: row.key)
def test_what_is_decided_elsewhere_is_never_taken_silently(row: Option) -> None:
    found = translate(f"llama-server {row.flags[0][0]} 3")
    assert found.notes or found.model or found.values


POSTS = {
    "the issue's": (
        "./server -m model.gguf -c 4096 --draft-max 6 --draft-min 3 -md draft.gguf -fa --mlock -ngl 99",
        {
            "model": "file:model.gguf", "ctx_size": 4096, "spec_draft_n_max": 6, "spec_draft_n_min": 3,
            "draft": "file:draft.gguf", "flash_attn": "on", "load_mode": "mmap+mlock", "gpu_layers": "all",
        },
    ),
    "pinned for a draft": (
        "taskset -c 4-7 llama-cli -md d.gguf --draft 16",
        {"draft": "file:d.gguf", "spec_draft_n_max": 16, "placement.cpus": "4-7"},
    ),
    "a mask": ("taskset 0xF0 ./main -m a.gguf -t 4", {"model": "file:a.gguf", "threads": 4, "placement.cpus": "4-7"}),
    "numactl": ("numactl -C 0-3 -N 0 llama-server -c 512", {"ctx_size": 512, "placement.cpus": "0-3"}),
    "never existed": ("--speculative-ngram 3", {"spec_type": "ngram-simple", "spec_ngram_simple_size_n": 3}),
    "n-grams of a kind": (
        "llama-server --spec-type ngram-map-k4v --spec-ngram-size-n 8 --spec-ngram-size-m 4",
        {"spec_type": "ngram-map-k4v", "spec_ngram_map_k4v_size_n": 8, "spec_ngram_map_k4v_size_m": 4},
    ),
    "ngram-mod": (
        "llama-server --spec-type ngram-mod --draft-max 32 --draft-min 8 --spec-ngram-size-n 20",
        {"spec_type": "ngram-mod", "spec_ngram_mod_n_max": 32, "spec_ngram_mod_n_min": 8, "spec_ngram_mod_n_match": 20},
    ),
    "a container": (
        "docker run --rm -it --gpus all -v /srv/models:/models:ro -p 9000:8080 --cpuset-cpus 2-5 "
        "-e LLAMA_ARG_CTX_SIZE=8192 ghcr.io/ggml-org/llama.cpp:server-cuda -m /models/m.gguf -np 2",
        {"model": "file:/srv/models/m.gguf", "port": 9000, "ctx_size": 8192, "parallel": 2, "placement.cpus": "2-5"},
    ),
    "the binding's server": (
        "python3 -m llama_cpp.server --model ~/m.gguf --n_gpu_layers -1 --n_ctx 4096 --use_mlock true --type_k 8",
        {"model": "file:~/m.gguf", "gpu_layers": "all", "ctx_size": 4096, "load_mode": "mmap+mlock",
         "cache_type_k": "q8_0"},
    ),
    "the binding": (
        'llm = Llama(model_path="/m.gguf", n_ctx=2048, n_threads=4, offload_kqv=False)',
        {"model": "file:/m.gguf", "ctx_size": 2048, "threads": 4, "kv_offload": False},
    ),
    "a Modelfile": (
        "FROM /m.gguf\nPARAMETER num_ctx 4096\nPARAMETER num_gpu 99\nPARAMETER temperature 0.7\n",
        {"model": "file:/m.gguf", "ctx_size": 4096, "gpu_layers": "all", "temp": 0.7},
    ),
    "the environment": (
        "export LLAMA_ARG_CTX_SIZE=8192 LLAMA_ARG_NO_MMAP=1\nLLAMA_ARG_FLASH_ATTN=1 llama-server -m /m.gguf",
        {"model": "file:/m.gguf", "ctx_size": 8192, "load_mode": "none", "flash_attn": "on"},
    ),
    "a script": (
        "#!/bin/bash\nMODEL=/srv/m.gguf # the big one\nsudo nvpmodel -m 0 && sudo jetson_clocks\n"
        "llama-server \\\n  -m ${MODEL} \\ \n  --port ${PORT:-8081} --no-mmap --mlock > log 2>&1 &\n",
        {"model": "file:/srv/m.gguf", "port": 8081, "load_mode": "mlock", "power.mode": "max", "power.clocks": "on"},
    ),
    "a build": (
        "cmake -B build -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES='87' -DGGML_CUDA_FA_ALL_QUANTS=ON -D GGML_LTO=ON\n"
        'CMAKE_ARGS="-DLLAMA_CUBLAS=on -DGGML_CUDA_F16=1" pip install llama-cpp-python\nmake LLAMA_OPENBLAS=1 -j4',
        {"build.cuda": "on", "build.cuda_architectures": "87", "build.fa_quants": "all", "build.blas": True,
         "build.cmake.GGML_LTO": "ON"},
    ),
    "cmake's words alone": (
        "-DGGML_CUDA=on -DGGML_LTO=ON -c 9", {"build.cuda": "on", "build.cmake.GGML_LTO": "ON", "ctx_size": 9},
    ),
    "Windows": (
        'C:\\llama\\llama-server.exe ^\r\n  -m "C:\\models\\m.gguf" ^\r\n  -c 4k\r\n',
        {"model": "file:C:\\models\\m.gguf", "ctx_size": 4096},
    ),
    "a blog's quotes and dashes": (
        "$ llama-server —model “/my models/m.gguf” –c 4096 –draft-max 8 —spec-type draft-simple",
        {"model": "file:/my models/m.gguf", "ctx_size": 4096, "spec_draft_n_max": 8, "spec_type": "draft-simple"},
    ),
    "a preset": ("[*]\nctx-size = 0\ndraft = 16\nno-mmap = 1\n", {"ctx_size": "auto", "spec_draft_n_max": 16,
                                                                  "load_mode": "none"}),
    "a unit": (
        "[Service]\nUser=edge\nCPUAffinity=4 5 6\nEnvironment=LLAMA_ARG_N_PARALLEL=2\n"
        "ExecStart=/opt/llama-server -c 9\n",
        {"placement.cpus": "4,5,6", "parallel": 2, "ctx_size": 9},
    ),
    "compose": (
        "services:\n  llm:\n    image: x\n    command: [-m, /m.gguf, --no-warmup]\n"
        "    environment: {LLAMA_ARG_PORT: 8082}\n",
        {"model": "file:/m.gguf", "warmup": False, "port": 8082},
    ),
    "compose, whole": (
        "version: '3'\nservices:\n  llm:\n    image: ghcr.io/llama.cpp\n    ports: ['127.0.0.1:9000:8080']\n"
        "    volumes: [/srv/models:/models:ro]\n    cpuset: 0-1\n    command: -ngl 0 -c 512\n"
        "    environment: [LLAMA_ARG_MODEL=/models/m.gguf]\n"
        "  webui:\n    image: open-webui\n    command: start --port 3000\n",
        {"model": "file:/srv/models/m.gguf", "port": 9000, "placement.cpus": "0-1", "gpu_layers": 0, "ctx_size": 512},
    ),
    "the image's own program": (
        "services: {a: {image: llama, environment: {LLAMA_ARG_CTX_SIZE: 512}, ports: [{target: 8080, published: 81}]}}",
        {"ctx_size": 512, "port": 81},
    ),
    "a port without the one inside": ("services: {a: {image: llama, ports: [{published: 81}]}}", {"port": 81}),
    "a program in parts": (
        "services: {a: {image: x, entrypoint: [/app/llama-server], command: [-c, '512']}}", {"ctx_size": 512},
    ),
    "a pod": (
        "spec:\n  containers:\n  - name: a\n    image: llama\n    args: [-m, /models/m.gguf]\n"
        "    volumeMounts: [{name: store, mountPath: /models}]\n    env: [{name: LLAMA_ARG_CTX_SIZE, value: '512'}]\n",
        {"model": "file:/models/m.gguf", "ctx_size": 512},
    ),
    "a container's folders for its variables, too": (
        "docker run -v ${MODELS:-./m}:/models -v C:\\x:/y -e LLAMA_ARG_MODEL=/models/a.gguf llama -c 512",
        {"model": "file:./m/a.gguf", "ctx_size": 512},
    ),
    "a profile of another tool": (
        "speculative: {type: draft, draft: d.gguf, n_max: 5}\nflash_attn: true\nbuild: {blas: on}\n",
        {"spec_type": "draft-simple", "draft": "file:d.gguf", "spec_draft_n_max": 5, "flash_attn": "on",
         "build.blas": True},
    ),
    "vLLM": (
        "vllm serve org/model --max-model-len=32k --max-num-seqs 4 --kv-cache-dtype fp8",
        {"ctx_size": 32768, "parallel": 4, "cache_type_k": "q8_0", "cache_type_v": "q8_0"},
    ),
    "a hub's model": (
        "llama-server -hf o/r:Q4_K_M -hfd o/d", {"model": "hf:o/r:Q4_K_M", "draft": "hf:o/d"},
    ),
    "a draft's own process": (
        "taskset -c 8-11 rpc-server -p 50053 -d CPU &\nllama-server -m /a.gguf -md /d.gguf "
        "--rpc 127.0.0.1:50053 -devd RPC0",
        {"model": "file:/a.gguf", "draft": "file:/d.gguf", "placement.draft_cpus": "8-11",
         "placement.draft_port": 50053, "placement.draft_device": "CPU"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "values"), POSTS.values(), ids=POSTS.keys())
def test_a_post_becomes_a_profile(text: str, values: dict[str, Value], tmp_path: Path) -> None:
    assert of(text) == values
    found = translate(text)
    assert found.origin.keys() >= found.values.keys()
    path = tmp_path / "imported.yaml"
    path.write_text(profile_text(found, None if found.model else "host"))
    assert profile.check(path) == []


EXPLAINED = {
    "./server --draft-max 6 -md d.gguf": {"--draft-max 6": "removed", "-md d.gguf": "added"},
    "llama-server -Crd 4-7 -Cd F0": {"-Crd 4-7": "no-effect", "-Cd F0": "no-effect"},
    "llama-server -fit on": {"-fit on": "owned"},
    "--ctx-sise 5": {"--ctx-sise 5": "unknown"},
    "llama-server --temp hot": {"--temp hot": "invalid"},
    "llama-server -np 2 -np 3": {"-np 3": "repeated"},
    "llama-server -p 'once upon a time'": {"-p once upon a time": "gone"},
    "llama-server --draft 4": {"--draft 4": "no-effect"},
    "llama-server -m": {"-m": "invalid"},
    "ollama run llama3.2:3b": {"llama3.2:3b": "invalid"},
    "nvpmodel -m 2": {"nvpmodel -m 2": "invalid"},
    "llama-server --host 0.0.0.0": {"--host 0.0.0.0": "owned"},
    "cmake -DLLAMA_CURL=OFF": {"-DLLAMA_CURL=OFF": "removed"},
    "llama-bench -m a.gguf -p 512": {"llama-bench": "passed"},
    "taskset -c 0-3 llama-server -md /d.gguf": {"taskset 0-3": "no-effect"},
    "llama-server -n 128": {"-n 128": "kept"},
    "./main -m a.gguf -n 128": {"-n 128": "passed"},
    "llama run -m a.gguf --predict 128": {"--predict 128": "passed"},
    "./server -m ggml-model-q4_0.bin": {"-m ggml-model-q4_0.bin": "kept"},
    "docker run --rm --gpus=all -v /a:/b -e X=1 i:t -c 9": {"docker run --rm, --gpus, -v, i:t": "passed"},
}


COMPOSE = """
services:
  llm:
    image: ghcr.io/ggml-org/llama.cpp:server
    restart: always
    runtime: nvidia
    mem_limit: 8g
    healthcheck: {test: curl}
    volumes: ["./m:/models", "named:/data", {type: bind, source: /b, target: /c}]
    x-anything: [1, 2]
    command: -m /data/m.gguf
  db: {image: postgres, command: postgres -p 1}
volumes: {named: {}}
"""


def test_whatever_a_compose_file_says_is_used_or_named() -> None:
    found = translate(COMPOSE)
    told = {note.word: note for note in found.notes}
    assert found.model == "file:/data/m.gguf"
    assert (found.values, {note.verdict for note in found.notes}) == ({}, {"passed"})
    assert set(told) == {
        "image: ghcr.io/ggml-org/llama.cpp:server", "restart: always", "runtime: nvidia", "mem_limit: 8g",
        "healthcheck: test", "volumes: ./m:/models", "volumes: named:/data", "volumes: /b:/c", "x-anything: 1, 2", "db",
        "volumes: named",
    }  # fmt: skip
    assert "/models/ is ./m/ here" in told["volumes: ./m:/models"].what
    assert "docker cp" in str(told["volumes: named:/data"].next), "the model's file is no file here"
    assert "memory.limit_mib" in str(told["mem_limit: 8g"].next)


READ = ("volumes", "ports", "env", "environment", "entrypoint", "command", "args")
TEXTS = st.sampled_from(
    (
        "N",
        "N:80",
        "1.2.3.4:N:80",
        "N-N:80",
        "${P:-N}:80",
        "/aN:/b",
        "nameN:/b",
        "AN",
        "AN=b",
        "AN=${B:-c}",
        "a N",
        "-c N",
    )
)
TABLES = st.dictionaries(st.sampled_from(("kN", "AN")), TEXTS | st.lists(TEXTS, max_size=1), max_size=2)
ITEMS = TEXTS | TABLES | st.lists(TEXTS, max_size=2)


def numbered(value: object, numbers: Iterator[int]) -> object:
    """The value with another number for the N of each text and each name in it."""
    if isinstance(value, list):
        return [numbered(each, numbers) for each in value]
    if isinstance(value, dict):
        return {numbered(name, numbers): numbered(each, numbers) for name, each in value.items()}
    return str(value).replace("N", str(next(numbers)))


def numbers_in(value: object) -> set[str]:
    """The numbers by which an item can be told: of a table those of its names."""
    return set(re.findall(r"\d{5}", " ".join(map(str, value)) if isinstance(value, (list, dict)) else str(value)))


@given(st.dictionaries(st.sampled_from((*READ, "cpuset", "x")), ITEMS | st.lists(ITEMS, max_size=3)))
def test_nothing_of_a_service_is_dropped_in_silence(drawn: dict[str, object]) -> None:
    """Each item is in a command, a variable, the port, the CPUs or an aside; of keys that hold one thing, the key."""
    numbers = itertools.count(10_000)
    service = {key: numbered(value, numbers) for key, value in drawn.items()}
    made = container(service, "a")
    words = [aside.word for aside in made.asides]
    told = numbers_in([made.commands, made.environment, made.port, made.cpus, *words])
    for key, value in service.items():
        if key not in READ:
            assert (made.cpus and key == "cpuset") or f"{key}:" in [word.partition(" ")[0] for word in words]
        for item in (value if isinstance(value, list) else [value]) if key in READ else ():
            assert numbers_in(item) <= told, (key, item, made)


LEFT = """
services:
  llm:
    image: llama
    environment: [LLAMA_ARG_CTX_SIZE, TZ=UTC, {name: LLAMA_ARG_PORT, valueFrom: x}, "LLAMA_ARG_N_PARALLEL=${SLOTS:-3}"]
    ports: ["${PORT:-9000}:8080", "9001:9001", "9100-9110:8081", "8082", {published: 9002, target: 80}]
    command: {run: llama-server}
    args: [-b, "${BATCH:-64}", [-ub, 32]]
  other: llama
"""


def test_what_of_a_service_cannot_be_used_is_told_item_by_item() -> None:
    found = translate(LEFT)
    assert found.values == {"parallel": 3, "port": 9000, "batch_size": 64}
    assert found.origin["port"] == "ports: ${PORT:-9000}:8080"
    told = {note.word: note.what for note in found.notes if not note.word.startswith("image")}
    assert told == {
        "environment: LLAMA_ARG_CTX_SIZE": "it gives no variable a value",
        "environment: LLAMA_ARG_PORT": "its value is not told here",
        "ports: 9001:9001": "a server has one port, and another one stands first",
        "ports: 9100-9110:8081": "it tells no single port outside",
        "ports: 8082": "it tells no single port outside",
        "ports: 9002:80": "a server has one port, and another one stands first",
        "command: run": "it cannot be read in this form",
        "args: -ub, 32": "it cannot be read in this form",
        "services: other: llama": "it cannot be read in this form",
    }


def test_what_of_docker_run_cannot_be_used_is_told() -> None:
    found = translate("docker run -p 8080 --cpuset-cpus x -e LLAMA_ARG_PORT -p 9001:8080 -p 9002:80 -e X=1 llama -c 9")
    assert found.values == {"ctx_size": 9, "port": 9001}
    assert verdicts(found) == {"docker run -p 8080, --cpuset-cpus x, -e LLAMA_ARG_PORT, -p 9002:80, llama": {"passed"}}


def test_a_table_too_deep_and_a_list_in_a_list_are_told() -> None:
    assert verdicts(translate("ctx_size: 5\na: [[b, c], d]\n"))["a: b, c"] == {"passed"}
    deep = "ctx_size: 5\na: " + "{a: " * 12 + "1" + "}" * 12
    assert verdicts(translate(deep))[f"{'a.' * 8}a: a"] == {"passed"}


# Which of several serves.

LLAMA = (
    "image: 'ghcr.io/ggml-org/llama.cpp:server', command: '-m /m.gguf -c 512 --port 8080'",
    "image: '${IMAGE:-registry:5000/llama.cpp@sha256:1}', command: '-m /m.gguf -c 512', ports: ['8080:8080']",
    "image: my, entrypoint: [/app/llama-server], command: '-m /m.gguf -c 512', ports: ['8080:8080']",
    "build: ., command: 'python3 -m llama_cpp.server --model /m.gguf --n_ctx 512 --port 8080'",
)
OTHERS = (
    "image: 'ghcr.io/open-webui/open-webui:ollama', ports: ['3000:8080'], environment: ['OLLAMA_BASE_URL=http://a']",
    "image: 'ghcr.io/ollama-webui/ollama-webui', ports: ['3000:8080']",
    "image: 'llama.cpp/ui:llama', ports: ['3000:8080']",
    "image: hollama, ports: ['3000:8080']",
    "image: litellm, command: '--config /c.yaml --port 4000 --model x', ports: ['4000:4000']",
    "image: nginx, command: nginx -c 99",
    "image: n8n, ports: ['5678:5678'], environment: {OLLAMA_HOST: 'ollama:11434'}",
    "image: minio/minio, command: server /data -c 99, ports: ['9000:9000']",
)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("llama", LLAMA)
def test_a_service_beside_the_one_that_serves_sets_nothing(llama: str, other: str) -> None:
    for services in (f"a: {{{llama}}}, b: {{{other}}}", f"b: {{{other}}}, a: {{{llama}}}"):
        found = translate(f"services: {{{services}}}")
        assert (found.model, found.values) == ("file:/m.gguf", {"ctx_size": 512, "port": 8080})
        assert verdicts(found)["b"] == {"passed"}


@pytest.mark.parametrize(
    "service",
    [
        "image: open-webui, environment: ['OLLAMA_BASE_URL=http://llama:8080'], ports: ['3000:8080']",
        "image: n8n, environment: ['OLLAMA_HOST=ollama:11434'], ports: ['3000:8080']",
        "image: 'llama.cpp/web:llama', ports: ['3000:8080']",
        "image: minio, command: server /data --port 9000",
    ],
)
def test_who_only_asks_a_server_is_none(service: str) -> None:
    found = translate(f"services: {{a: {{{service}}}}}")
    assert (found.values, verdicts(found)) == ({}, {"a": {"passed"}})


@pytest.mark.parametrize(
    "service",
    [
        "image: x, environment: {OLLAMA_HOST: '0.0.0.0'}", "image: x, environment: [OLLAMA_NUM_PARALLEL=2]",
        "image: x, environment: [LLAMA_ARG_NO_MMAP=1]", "image: x, command: server -c 9", "image: x, command: -c 9",
        "image: atinoda/text-generation-webui", "image: 'vllm/vllm-openai:latest'", "image: 'ollama:0.3'",
    ],
)  # fmt: skip
def test_who_may_serve_does_where_nobody_surely_does(service: str) -> None:
    assert translate(f"services: {{a: {{{service}, ports: ['81:80']}}}}").values["port"] == 81


def test_commands_beside_a_server_set_nothing() -> None:
    text = "docker run -p 80:80 ollama-webui\nllama-server -m /m.gguf -c 512\ntail -n 20 log\ngit clone -b 4 x\n"
    assert of(text) == {"model": "file:/m.gguf", "ctx_size": 512}
    assert of("docker run -p 80:80 llama\ndocker run -p 81:80 -e OLLAMA_BASE_URL=x open-webui") == {"port": 80}
    assert of("./my-server.sh -m /m.gguf -c 512") == {"model": "file:/m.gguf", "ctx_size": 512}
    assert of("llama-server -m /m.gguf\ndocker run cuda cmake -B b -DGGML_LTO=ON")["build.cmake.GGML_LTO"] == "ON"


@pytest.mark.parametrize(("text", "said"), EXPLAINED.items())
def test_what_never_worked_is_explained(text: str, said: dict[str, str]) -> None:
    found = verdicts(translate(text))
    for word, verdict in said.items():
        assert verdict in found[word]


@pytest.mark.parametrize(
    ("draft", "value", "verdict"),
    [("mtp", "draft-mtp", "changed"), ("on", "auto", "changed"), ("optional", "optional", None),
     ("ngram-mod", "ngram-mod", None), ("smollm2-135m", "smollm2-135m", None), ("ngram-mood", None, "invalid")],
)  # fmt: skip
def test_a_kind_by_another_name_is_put_in_todays_and_none_is_left_out(
    draft: str, value: str | None, verdict: str | None
) -> None:
    found = translate(f"ctx_size: 512\ndraft: {draft}\n")
    assert found.values.get("draft") == value
    assert [note.verdict for note in found.notes] == ([verdict] if verdict else [])


def test_the_nearest_names_are_told() -> None:
    notes = translate("llama-server --ctx-sise 5 --draft-maxx 3").notes
    assert [note.next for note in notes if note.verdict == "unknown"] == [
        "did you mean ctx_size?", "did you mean spec_draft_n_max (or spec_ngram_mod_n_max)?"
    ]  # fmt: skip


def test_one_runs_length_is_no_servers() -> None:
    text = "llama-cli -m a.gguf -n 128\nllama-server -m a.gguf -n {}"
    assert of(text.format(64))["predict"] == 64
    assert "kept" not in {note.verdict for note in translate(text.format(-1)).notes}
    assert "predict" not in of("llama-cli.exe -m a.gguf -n 128")


@pytest.mark.parametrize(("name", "path"), [("a.bin", "file:./a.bin"), ("/m/a.bin", "file:/m/a.bin")])
def test_a_model_from_before_gguf_is_kept_by_its_path(name: str, path: str) -> None:
    assert of(f"llama-server -m {name}") == {"model": path}


def test_an_open_address_is_left_out_and_the_note_says_how_it_comes_back() -> None:
    for text, way in (("", "openssl rand"), (" --api-key hush", "paste the key")):
        found = translate(f"llama-server -m /m.gguf --host 0.0.0.0{text}")
        assert found.values == {}
        (note,) = (note for note in found.notes if note.word == "--host 0.0.0.0")
        assert note.next is not None
        assert all(word in note.next for word in (way, "host: 0.0.0.0", "api_key_file: /"))
    assert of("llama-server --host 0.0.0.0 --api-key-file /k") == {"host": "0.0.0.0", "api_key_file": "/k"}
    assert of("llama-server --host 127.0.0.2") == {"host": "127.0.0.2"}


@pytest.fixture(scope="module")
def here() -> Device:
    return inspect(Host())


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("-t 5 -tb 5", {"threads": 5, "threads_batch": 5}),  # of six CPUs one is left to the system
        ("-t 6 -tb 5", {"threads_batch": 5}),
        ("-t 8 -tb 99", {}),
        ("-t 6 -c 9", {"ctx_size": 9}),
        ("taskset -c 2-3 llama-server -t 3", {"placement.cpus": "2-3"}),
        ("taskset -c 4-7 llama-server -t 4", {"placement.cpus": "4-7", "threads": 4}),  # plan names the CPUs
    ],
)
def test_more_threads_than_the_board_gives_are_left_out(text: str, kept: dict[str, Value], here: Device) -> None:
    before = translate(text)
    chosen = profile.load("nano8", profile.search_path(None, {}))
    found = on_board(before, chosen, here)
    assert found.values == kept
    gone = [key for key in before.values if key not in kept]
    assert [note.word for note in found.notes[len(before.notes) :]] == [before.origin[key] for key in gone]
    assert on_board(found, chosen, here) == found


def test_a_key_is_neither_shown_nor_kept() -> None:
    found = translate("LLAMA_API_KEY=hush llama-server --api-key hush --hf-token=hush -m /m.gguf")
    assert "hush" not in f"{found} {profile_text(found, None)}"
    assert len(found.notes) == 3


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    for shape in (text, f"llama-server {text}", f"a: {text}", f"docker run {text}", f"taskset {text}"):
        found = translate(shape)
        assert all(note.verdict in VERDICTS for note in found.notes)
        assert found.values.keys() <= found.origin.keys()


@given(st.lists(st.sampled_from(["llama-server", *RENAMED, "-c", "4", "-fa", "=", "'", '"', "\\", "\n", "$X", "&&"])))
def test_any_words_can_be_read(words: list[str]) -> None:
    for glue in (" ", " --", ""):
        translate(glue.join(words))


def test_a_document_that_grows_is_bounded() -> None:
    steps = itertools.pairwise("abcdefghijklmnopqrstuvwxyz")
    bomb = "a: &a {x: 1}\n" + "".join(f"{y}: &{y} {{k: *{x}, l: *{x}, m: *{x}}}\n" for x, y in steps)
    assert translate(f"ctx_size: 5\n{bomb}").values == {}


@pytest.mark.parametrize("text", ["{" * 60_000, "$(" * 30_000, "${a:-" * 12_000, "'" * 60_001, "[a," * 20_000])
def test_brackets_without_end_take_no_time(text: str) -> None:
    began = time.monotonic()
    translate(text)
    assert time.monotonic() - began < 20


# The verb.


def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "orin_deploy", "import", *words]
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def test_the_verb_prints_a_profile_and_says_the_rest_on_standard_error(tmp_path: Path) -> None:
    done = run("-m /m.gguf --draft-max 6 --mlock", "--profile", "host")
    assert done.returncode == 0
    assert yaml.safe_load(done.stdout)["spec_draft_n_max"] == 6
    assert "removed: --draft-max 6" in done.stderr
    path = tmp_path / "imported.yaml"
    path.write_text(done.stdout)
    assert profile.check(path) == []


def test_the_verb_ends_with_the_next_command(tmp_path: Path) -> None:
    path = tmp_path / "my own.yaml"
    argv = [sys.executable, "-m", "orin_deploy", "import", "llama-server -m /m.gguf", "--profile", "host"]
    with path.open("w") as out:
        done = subprocess.run(argv, stdout=out, stderr=subprocess.PIPE, text=True, timeout=60, check=True)
    assert done.stderr.splitlines()[-1] == f"next: orin-deploy plan --profile {shlex.quote(str(path))}"
    assert profile.check(path) == []
    assert run(*argv[4:]).stderr.splitlines()[-1].startswith("next: orin-deploy plan --profile FILE")


def test_h_alone_asks_for_help() -> None:
    done, whole = run("-h"), run("--help")
    assert (done.returncode, done.stdout, done.stderr) == (0, whole.stdout, "")
    assert done.stdout.startswith("Usage: ")
    assert "owned: -h" in run("llama-server -h -m /m.gguf", "--profile", "host").stderr


def test_the_verb_as_json_by_file_by_pipe_and_unquoted(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text("llama-server \\\n -m /m.gguf -c 77\n")
    answers = [
        run("--file", str(script), "--json", "--profile", "host"),
        run("-", "--json", "--profile", "host", stdin=script.read_text()),
        run("--json", "--profile", "host", "llama-server", "-m", "/m.gguf", "-c", "77"),
    ]
    for done in answers:
        document = json.loads(done.stdout)
        assert document["profile"] == {"include": "host", "model": "file:/m.gguf", "ctx_size": 77}
        assert document["sources"] == {"model": "-m /m.gguf", "ctx_size": "-c 77"}
        assert document["notes"] == []


@pytest.mark.parametrize("file", ["no-such-file", "."])
def test_a_file_that_cannot_be_read_is_named(file: str) -> None:
    done = run("--file", file)
    assert done.returncode == 2
    assert f"{file} cannot be read" in done.stderr


@pytest.mark.parametrize("words", [["hello world"], [""], [], ["--frobnicate 2"], ["a", "--file", "b"]])
def test_a_text_that_says_nothing_is_an_error_of_usage(words: list[str]) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert "hint:" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    "text",
    [
        "--spec-type ngram-mod --draft 8", "--draft 8 --spec-type ngram-mod", "llama-server --mlock --no-mmap",
        "llama-server --no-mmap --mlock -m x.gguf", "--mlock --no-mmap --draft 8 --draft-min 2 --spec-type ngram-mod",
    ],
)  # fmt: skip
def test_a_renamed_word_names_the_key_that_the_profile_has(text: str) -> None:
    found = translate(text)
    named = [note.next for note in found.notes if note.verdict == "removed"]
    assert named
    assert set(named) <= {f"{key}: {options.written(value)}" for key, value in found.values.items()}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("llama-server -c -5 -np 0", ('-c -5: ctx_size cannot be "-5"', '-np 0: parallel cannot be "0"')),
        ("--ctx-size 1e4", ('ctx_size cannot be "1e4"',)),
        ("llama-server -m", ("-m stands without a value",)),
        ("--draft", ("--draft stands without a value",)),
    ],
)
def test_where_nothing_is_left_the_error_says_what_was_wrong(text: str, told: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="nothing in this text can be set: ") as caught:
        import_([text], None, "host", None, Console())
    assert all(each in caught.value.message for each in told)
    assert caught.value.hint
