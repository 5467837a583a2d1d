"""Printed plans, whole. ORIN_GOLDEN=write writes them anew; what they show is computed again from the tables here."""

from __future__ import annotations

import json
import os
import re
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

import orin_deploy
from orin_deploy.cli.console import Console
from orin_deploy.cli.documents import plan_document
from orin_deploy.cli.show_plan import show_plan
from orin_deploy.deploy.plan import PARTS, Plan
from orin_deploy.intent import options
from tests.planning import PROFILES, WORKSTATION, planned

FOLDER = Path(__file__).parents[1] / "golden/plans"

# The file's name, the profile, the --set words. A board is its own stand-in, the host is the workstation.
CASES: dict[str, tuple[str, tuple[str, ...]]] = {
    "host": ("host", ()),
    "host-blas": ("host", ("build.blas=on", "placement.cpus=2-5")),
    "agx32": ("agx32", ()),
    "agx32-four-slots": (
        "agx32",
        ("ctx_size=65536", "cache_type_k=q8_0", "cache_type_v=q8_0", "parallel=4", "build.blas=on"),
    ),
    "agx64": ("agx64", ()),
    "agx64-open": ("agx64", ("host=0.0.0.0", "api_key_file=/etc/orin-deploy/keys", "power.mode=keep")),
}
DOCUMENT = "agx32"

_BYTES = {"f16": 2.0, "q8_0": 34 / 32}  # a q8_0 block is 32 values of a byte and a scale of two

_SETTING = re.compile(
    r"default|--set|profile \w+( \(_shared/\w+\))?|fitted to memory(: all the model was trained for)?"
    r"|placement: (every usable CPU|\d+ left to the system|placement\.cpus \(--set\))|build\.cuda|the model's name"
)
_ROW = re.compile(
    r"the catalogue's file size.*|(formula|upstream|measured here|assumed)( \([^()]+\))?: .+|left to the system"
)
_LIMIT = re.compile(r"MemAvailable|MemTotal less idle use \(profile \w+\)")


def plan(case: str) -> Plan:
    profile, sets = CASES[case]
    return planned(profile, *sets, device=WORKSTATION if profile == "host" else None)


def neutral(text: str) -> str:
    """A text without what differs from one Python and one checkout to the next."""
    package, python = str(Path(orin_deploy.__file__).parent), f"{sys.version_info.major}.{sys.version_info.minor}"
    return text.replace(sys.executable, "PYTHON").replace(package, "PACKAGE").replace(f'"{python}\\n"', '"VERSION\\n"')


def printed(case: str) -> str:
    out = StringIO()
    show_plan(plan(case), Console(out=out))
    return neutral(out.getvalue())


def document(case: str) -> str:
    return neutral(json.dumps(plan_document(plan(case)), indent=1) + "\n")


def agree(path: Path, text: str) -> None:
    if os.environ.get("ORIN_GOLDEN") == "write":
        path.write_text(text)
    assert path.exists(), f"ORIN_GOLDEN=write makes {path.name}"
    assert text == path.read_text(), "if the change is meant: ORIN_GOLDEN=write, and read the diff"


@pytest.mark.parametrize("case", CASES)
def test_the_printed_plan(case: str) -> None:
    agree(FOLDER / f"{case}.txt", printed(case))


def test_the_document() -> None:
    agree(FOLDER / f"{DOCUMENT}.json", document(DOCUMENT))


def test_every_golden_file_is_a_case() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*(f"{case}.txt" for case in CASES), f"{DOCUMENT}.json"}


def golden(case: str) -> str:
    return (FOLDER / f"{case}.txt").read_text()


def section(text: str, title: str) -> list[list[str]]:
    """The cells of a printed table below its title."""
    lines = text.split(f"\n{title}\n")[1].split("\n\n")[0].splitlines()
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


def memory(case: str) -> dict[str, tuple[float, str]]:
    """MiB and source by row, as the file shows them."""
    rows = [row for row in section(golden(case), "Memory") if not row[0].startswith("[")]
    return {name: (float(size.split()[0].replace(",", "")), "".join(source)) for name, size, *source in rows}


def entry(case: str) -> dict[str, Any]:
    profile: dict[str, Any] = yaml.safe_load((PROFILES / f"{CASES[case][0]}.yaml").read_text())
    data: dict[str, Any] = yaml.safe_load((PROFILES / f"models/{profile['model']}.yaml").read_text())
    return data


def setting(case: str, key: str) -> str:
    return next(row[1] for row in section(golden(case), "Settings") if row[0] == key)


@pytest.mark.parametrize("case", CASES)
def test_the_memory_rows_sum_to_the_total(case: str) -> None:
    rows = memory(case)
    total, limit = rows.pop("total")[0], rows.pop("limit")[0]
    assert total == pytest.approx(sum(size for size, _ in rows.values()), abs=0.05 * len(rows))
    assert total <= limit
    assert f"{total / limit:.0%} of the limit" in golden(case)


@pytest.mark.parametrize("case", CASES)
def test_the_kv_cache_is_the_formula_on_the_catalogue(case: str) -> None:
    model = entry(case)["model"]
    slots = int(setting(case, "parallel"))
    cells = slots * (-(-(int(setting(case, "ctx_size")) // slots) // 256) * 256)
    used = {row[0]: row[1] for row in section(golden(case), "Settings")}
    kinds = [used.get(f"cache_type_{which}", "f16") for which in "kv"]
    heads = model["n_layer"] * model["n_head_kv"] * model["head_size"]
    size, source = memory(case)["KV cache"]
    assert size == pytest.approx(sum(cells * heads * _BYTES[kind] for kind in kinds) / 2**20, abs=0.06)
    assert f"{cells} cells, {kinds[0]}" in source


@pytest.mark.parametrize("case", CASES)
def test_the_other_rows_come_from_catalogue_and_settings(case: str) -> None:
    rows, data = memory(case), entry(case)
    size = sum(file["size"] for file in data["files"])
    tied = CASES[case][0] != "host" and data["model"]["output_bytes"] == 0
    assert rows["weights"][0] == pytest.approx((size + tied * data["model"]["token_embd_bytes"]) / 2**20, abs=0.06)
    slots = int(setting(case, "parallel"))
    assert rows["output"][0] == pytest.approx(slots * data["model"]["n_vocab"] * 4 / 2**20, abs=0.06)
    assert rows["prompt cache"][0] == float(setting(case, "cache_ram"))
    assert ("CUDA context" in rows) == ("staging" in rows) == (CASES[case][0] != "host")


@pytest.mark.parametrize("case", CASES)
def test_the_limit_is_what_the_machine_can_give(case: str) -> None:
    limit, source = memory(case)["limit"]
    assert _LIMIT.fullmatch(source)
    if CASES[case][0] == "host":
        assert limit == WORKSTATION.memory.available / 2**20
        return
    board = yaml.safe_load((PROFILES / f"{CASES[case][0]}.yaml").read_text())["board"]
    assert limit == board["memory_total_mib"] - board["memory_idle_mib"]


@pytest.mark.parametrize("case", CASES)
def test_every_source_is_of_a_known_kind(case: str) -> None:
    strangers = [row for row in section(golden(case), "Settings") if not _SETTING.fullmatch(row[2])]
    rows = {name: source for name, (_, source) in memory(case).items() if name not in ("total", "limit")}
    assert not strangers
    assert not [name for name, source in rows.items() if not _ROW.fullmatch(source)]


@pytest.mark.parametrize("case", CASES)
def test_the_words_given_stand_in_the_plan(case: str) -> None:
    shown = {row[0]: row[1:] for row in section(golden(case), "Settings")}
    server = [word.split("=") for word in CASES[case][1] if options.find(word.split("=")[0]).section == "server"]
    assert all(shown[key] == [value, "--set"] for key, value in server)


@pytest.mark.parametrize("case", CASES)
def test_the_build_is_for_the_board(case: str) -> None:
    text, board = golden(case), CASES[case][0] != "host"
    architectures = re.findall(r"-DCMAKE_CUDA_ARCHITECTURES=(\S+)", text)
    assert architectures == (["87"] if board else [])
    assert f"-DGGML_CUDA={'ON' if board else 'OFF'}" in text
    assert ("-DGGML_CUDA_NO_VMM=ON" in text) == board
    assert ("armv8.2-a+dotprod+fp16" in text) == board
    assert ("-DGGML_BLAS=ON" in text) == ("build.blas=on" in CASES[case][1])
    assert "ninja missing or too old" in text.split("build tools: ")[1].splitlines()[0]


@pytest.mark.parametrize("case", CASES)
def test_steps_are_numbered_and_each_has_a_reason(case: str) -> None:
    steps = re.findall(r"^  (\d+)\. \[(do|ok)\] (\w+): (.+?): (.+)$", golden(case), re.MULTILINE)
    assert [int(number) for number, *_ in steps] == list(range(1, len(steps) + 1))
    parts = [part.NAME for part in PARTS if part.NAME != "power" or CASES[case][0] != "host"]
    parts.insert(parts.index("service"), "speculation")  # nothing is measured yet
    assert list(dict.fromkeys(part for _, _, part, _, _ in steps)) == [*parts, "verify"]
    assert {mark for _, mark, *_ in steps} == {"do"}, "nothing is there yet"


def read_argv(words: list[str]) -> dict[str, Any]:
    """What llama-server would take its words for, by the option table."""
    negative = {flag: row.key for row in options.OPTIONS.values() for flag in row.flags[1]}
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in negative:
            found[negative[word]] = False
            continue
        option = options.find(word)
        values = 0 if option.form in ("pair", "bare") else 2 if option.form == "two" else 1
        given, rest = rest[:values], rest[values:]
        assert not any(value.startswith("--") for value in given), word
        found[option.key] = options.parse(option, " ".join(given) if given else "on")
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_servers_words_read_back_as_the_settings(case: str) -> None:
    data = plan_document(plan(case))
    program, *words = data["spec"]["server"]["argv"]
    assert program == f"{data['spec']['build']['bin']}/llama-server"
    assert read_argv(words) == data["spec"]["server"]["settings"]
    assert words.count("--ctx-size") == words.count("--fit") == 1


@pytest.mark.parametrize("case", CASES)
def test_text_and_document_say_the_same(case: str) -> None:
    data, text = plan_document(plan(case)), golden(case)
    assert data["budget"]["total_bytes"] == sum(row["bytes"] for row in data["budget"]["rows"])
    shown = [size for size, _ in memory(case).values()]
    budget = data["budget"]
    sizes = [*(row["bytes"] for row in budget["rows"]), budget["total_bytes"], budget["limit_bytes"]]
    assert shown == [round(size / 2**20, 1) for size in sizes]
    whys = re.findall(r"^  \d+\. \[\w+\] \w+: [^:]+: (.+)$", text, re.MULTILINE)
    assert [step["why"] for step in data["steps"]] == whys
    assert set(data["spec"]["sources"]) >= set(data["spec"]["server"]["settings"])
    assert all(word.startswith("-D") for word in data["spec"]["build"]["cmake"])


def test_the_golden_document_has_what_the_contract_names() -> None:
    data = json.loads((FOLDER / f"{DOCUMENT}.json").read_text())
    assert data["spec"]["build"]["source"]["kind"] == "package"
    assert re.fullmatch(r"[0-9a-f]{64}", data["spec"]["build"]["source"]["sha256"])
    assert "-DCMAKE_CUDA_ARCHITECTURES=87" in data["spec"]["build"]["cmake"]
    assert data["spec"]["placement"]["target"]["cpus"] == [1, 2, 3, 4, 5, 6, 7]
    assert all({"part", "name", "why", "actions"} <= step.keys() for step in data["steps"])
    assert data["device"]["assumed"] == "profile agx32"
    assert data["spec"]["model"]["files"][0]["size"] == entry(DOCUMENT)["files"][0]["size"]
