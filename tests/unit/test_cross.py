"""Building for another machine: cmake's words, what is refused, and reading files that cannot be run."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.deploy import building
from orin_deploy.deploy.apply import Events
from orin_deploy.errors import OrinError, Refused, UsageError
from orin_deploy.facts.device import CrossCompiler, Device, Jetson, Tool
from orin_deploy.facts.toolchain import read_cross
from orin_deploy.host import Host, Machine
from orin_deploy.intent import cross
from orin_deploy.intent.build import resolve
from orin_deploy.intent.spec import Build, Setting, Value
from orin_deploy.parts import engine
from orin_deploy.parts.engine import readelf
from tests.unit.test_engine_plan import NOTHING
from tests.unit.test_engine_words import AGX, HOST, TAIL

TRIPLET = "aarch64-linux-gnu"
ORIN = Jetson(None, (), "p3701-0004", "36.4.3", "6.2", "12.6")
GCC = CrossCompiler(TRIPLET, Tool(f"/usr/bin/{TRIPLET}-gcc", (12, 2)), Tool(f"/usr/bin/{TRIPLET}-g++", (12, 2)))


def board(**more: Any) -> Device:
    return replace(AGX, jetson=ORIN, assumed="profile agx32", **more)


def build(compiler: CrossCompiler = GCC, /, **values: Value) -> Build:
    settings = {
        key.replace("__", "."): Setting(value, "--set") for key, value in {"build__cuda": "off", **values}.items()
    }
    device = cross.target(board(), HOST, compiler, TRIPLET)
    return resolve(device, settings, data="/data", arch=None, toolkit=None, compiler=compiler, cpus=2)


def test_words_for_an_orin_from_a_workstation() -> None:
    assert " ".join(build().cmake) == (
        "-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=OFF -DGGML_CPU_ARM_ARCH=armv8.2-a+dotprod+fp16 -DGGML_RPC=ON"
        f" -DGGML_CUDA=OFF{TAIL} -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64"
        f" -DCMAKE_C_COMPILER=/usr/bin/{TRIPLET}-gcc -DCMAKE_CXX_COMPILER=/usr/bin/{TRIPLET}-g++"
    )


def test_the_workstation_gives_the_tools_and_the_memory() -> None:
    made = build()
    assert made.jobs == 2
    assert made.cmake_program == HOST.toolchain.cmakes[0].path
    assert made.libraries == (("GLIBC", "2.35"), ("GLIBCXX", "3.4.30"))


def test_the_key_covers_the_compiler_and_differs_from_a_build_on_the_board() -> None:
    newer = replace(GCC, cxx=replace(GCC.cxx, version=(13, 1)))
    native = resolve(AGX, {"build.cuda": Setting("off", "--set")}, data="/data", arch=None, toolkit=None)
    assert len({build().key, build(newer).key, native.key}) == 3


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"build__cuda": "on"}, "CUDA"),
        ({"build__blas": True}, "OpenBLAS"),
        ({"build__cmake.GGML_NATIVE": "on"}, "GGML_NATIVE"),
    ],
)
def test_what_cannot_be_built_for_another_machine_is_refused(values: dict[str, Value], words: str) -> None:
    with pytest.raises(Refused, match=words):
        build(GCC, **values)


def test_an_old_compiler_is_refused_as_on_the_board() -> None:
    with pytest.raises(Refused, match="gcc 9"):
        build(replace(GCC, cxx=replace(GCC.cxx, version=(7, 5))))


def test_a_compiler_that_is_missing_is_named_with_its_package() -> None:
    with pytest.raises(OrinError) as caught:
        cross.target(board(), HOST, None, "x86_64-linux-gnu")
    assert caught.value.hint == "sudo apt install g++-x86-64-linux-gnu"


def test_a_triplet_for_another_machine_than_the_board_is_refused() -> None:
    with pytest.raises(UsageError, match="aarch64, and this machine is x86_64"):
        cross.target(HOST, HOST, GCC, TRIPLET)


def test_the_compilers_are_found_by_their_prefix(tmp_path: Path) -> None:
    for tool in ("gcc", "g++"):
        path = tmp_path / f"{TRIPLET}-{tool}"
        path.write_text(f"#!/bin/sh\necho {TRIPLET}-{tool} '(Debian 12.2.0-14) 12.2.0'\n")
        path.chmod(0o755)
        found = read_cross(Machine("/", {"PATH": str(tmp_path)}), TRIPLET)
        assert (found is None) == (tool == "gcc")
    assert found is not None
    assert (found.machine, found.cxx.version) == ("aarch64", (12, 2, 0))


def test_what_cannot_be_run_is_not_run() -> None:
    """The steps read files, and neither ask the server for its help nor load its libraries."""
    steps = engine.plan_build(build(), NOTHING, ccache=True)
    assert [step.name for step in steps] == ["source", "build", "check"]
    words = [str(action) for step in steps for action in step.actions]
    assert not any("llama-server --" in word or "probe.py" in word for word in words)
    assert any("readelf.py" in word and "--machine aarch64" in word and "GLIBC=2.35" in word for word in words)


FILE: dict[str, Any] = {
    "machine": "aarch64",
    "runpath": "$ORIGIN",
    "needed": ["libllama.so.0", "libc.so.6"],
    "versions": {},
}
LIBRARY: dict[str, Any] = {
    "machine": "aarch64",
    "runpath": None,
    "needed": ["libc.so.6"],
    "versions": {"GLIBC": "2.34"},
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"machine": "x86_64"}, "is for x86_64, not for aarch64"),
        ({"runpath": "/build/bin"}, "does not look for libllama.so.0 in its own folder, but in /build/bin"),
        ({"versions": {"GLIBC": "2.38"}}, "it needs GLIBC_2.38, and the board's libraries end at 2.35"),
    ],
)
def test_files_that_would_not_run_there(change: dict[str, Any], words: str) -> None:
    whole = {"llama-server": FILE, "libllama.so.0": LIBRARY}
    assert readelf.mismatches(whole, "aarch64", {"GLIBC": "2.35"}) == ()
    (found,) = readelf.mismatches({**whole, "llama-server": {**FILE, **change}}, "aarch64", {"GLIBC": "2.35"})
    assert words in found


def test_no_file_at_all_is_a_failure() -> None:
    assert readelf.mismatches({}, "aarch64", {}) == ("there is no program in it",)


def test_this_python_is_read_as_what_it_is() -> None:
    facts = readelf.parse(Path(sys.executable).resolve().read_bytes())
    assert facts is not None
    assert facts["machine"] == os.uname().machine
    assert any(name.startswith("libc.so") for name in facts["needed"])
    assert "GLIBC" in facts["versions"]


@given(st.binary(max_size=400), st.integers(0, 4000))
def test_broken_files_are_no_programs_and_nothing_worse(noise: bytes, end: int) -> None:
    whole = Path("/bin/sh").resolve().read_bytes()[:4096]
    for data in (noise, whole[:end], whole[:64] + noise):
        facts = readelf.parse(data)
        assert facts is None or facts["machine"]


def test_the_program_fails_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "llama-server").write_bytes(Path(sys.executable).resolve().read_bytes())
    done = subprocess.run(
        (sys.executable, readelf.__file__, str(tmp_path), "--machine", "riscv64"), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.strip() == f"llama-server is for {os.uname().machine}, not for riscv64"


def test_the_archive_has_programs_and_libraries_in_one_folder_and_is_the_same_every_time(tmp_path: Path) -> None:
    made = replace(build(), folder=str(tmp_path / "engine"))
    folder = Path(made.bin)
    folder.mkdir(parents=True)
    for name in ("llama-server", "libllama.so.0.5.0", "test-something", "CMakeFiles"):
        (folder / name).write_text(name)
    (folder / "libllama.so.0").symlink_to("libllama.so.0.5.0")
    host = Host("/", {**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path)})
    archives = [tmp_path / f"{number}.tar.gz" for number in range(2)]
    for archive in archives:
        building.pack(host, made, str(archive), Events())
        (folder / "llama-server").touch()
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as packed:
        members = {member.name: member.linkname for member in packed}
    assert members == {
        f"{made.key}/llama-server": "",
        f"{made.key}/libllama.so.0.5.0": "",
        f"{made.key}/libllama.so.0": "libllama.so.0.5.0",
    }


def test_an_archive_of_no_known_format_is_named_before_the_build() -> None:
    with pytest.raises(UsageError, match=r"engine.zip"):
        building.packing(Host("/", {}), build(), "/tmp/engine.zip")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("build --profile agx32", 4, "--set build.toolchain=aarch64-linux-gnu"),
        ("build --profile agx32 --set build.toolchain=s390x-linux-gnu", 1, "sudo apt install g++-s390x-linux-gnu"),
        ("plan --profile agx32 --set build.toolchain=aarch64-linux-gnu", 4, "orin-deploy build --output"),
    ],
)
def test_what_people_are_told(words: str, code: int, told: str, tmp_path: Path) -> None:
    environ = {**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        (sys.executable, "-m", "orin_deploy", *words.split()), env=environ, capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    assert told in done.stderr
