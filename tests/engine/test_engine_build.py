"""The engine part on the real thing: real cmake and Ninja on a small project, and what the real llama.cpp says."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from orin_deploy.actions import Run
from orin_deploy.errors import CommandFailed, OrinError
from orin_deploy.facts.cpu import ggml_features
from orin_deploy.facts.inspect import inspect
from orin_deploy.host import Host, Progress
from orin_deploy.intent.build import TARGETS, resolve
from orin_deploy.intent.spec import Setting, Spec
from orin_deploy.parts import engine
from orin_deploy.parts.engine import layout, probe
from tests.specs import make_spec

# The variables that our words set are used, as in llama.cpp; the programs print what they are called with.
PROJECT = f"""
cmake_minimum_required(VERSION 3.14)
project(tiny C)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${{CMAKE_BINARY_DIR}}/bin)
foreach(name GGML_NATIVE GGML_RPC GGML_CPU_ARM_ARCH LLAMA_BUILD_COMMIT LLAMA_BUILD_NUMBER)
    set(used "${{${{name}}}}")
endforeach()
foreach(name {" ".join(TARGETS)})
    add_executable(${{name}} main.c)
endforeach()
"""
MAIN = '#include <stdio.h>\nint main(int n, char ** words) { printf("tiny %s\\n", n > 1 ? words[1] : ""); return 0; }\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(PROJECT)
    (folder / "main.c").write_text(MAIN)
    return folder


@pytest.fixture
def host(tmp_path: Path) -> Host:
    # No compiler cache: what is compiled again is to be seen.
    return Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path / "home"), "CCACHE_DISABLE": "1"})


def make(host: Host, **values: str) -> Spec:
    """The spec of an engine built from `values` ("__" for the dot) on this machine."""
    settings = {key.replace("__", "."): Setting(value, "--set") for key, value in values.items()}
    device = inspect(host)
    build = resolve(device, settings, data=str(host.data), arch=None, toolkit=None)
    return replace(make_spec(host.data, Path(build.bin), Path("/m.gguf"), 8080), device=device, build=build)


def apply(host: Host, spec: Spec, progress: Progress = lambda fraction, text: None, last: str = "build") -> None:
    """Carry out what is planned, up to and with the step `last`: a tiny project has no libraries to check."""
    for step in engine.plan(spec, engine.inspect(host, spec)):
        for action in step.actions:
            host.do(action, progress)
        if step.name == last:
            return


def planned(host: Host, spec: Spec) -> list[str]:
    return [step.name for step in engine.plan(spec, engine.inspect(host, spec)) if step.actions]


def failure(host: Host, spec: Spec) -> OrinError:
    with pytest.raises(CommandFailed) as caught:
        apply(host, spec)
    return engine.explain(caught.value)


def test_a_tree_is_built_once(host: Host, tree: Path) -> None:
    spec = make(host, build__source=f"file:{tree}")
    assert engine.help_text(host, spec.build) is None
    assert planned(host, spec) == ["build", "check"]
    apply(host, spec)
    assert engine.help_text(host, spec.build) == "tiny --help"
    assert Path(spec.build.folder, "version.txt").read_text() == "tiny --version\n"
    assert planned(host, spec) == ["check"]


def test_a_tree_that_changes_is_built_again(host: Host, tree: Path) -> None:
    spec = make(host, build__source=f"file:{tree}")
    apply(host, spec)
    (tree / "main.c").write_text(MAIN.replace("tiny", "larger"))
    assert "build" in planned(host, spec)
    apply(host, spec)
    assert engine.help_text(host, spec.build) == "larger --help"


def test_the_engine_folder_can_be_moved(host: Host, tree: Path, tmp_path: Path) -> None:
    spec = make(host, build__source=f"file:{tree}")
    apply(host, spec)
    moved = Path(spec.build.folder).rename(tmp_path / "elsewhere")
    assert host.ask(f"{moved}/bin/llama-server", "--version") == "tiny --version"


def test_a_missing_tree_is_named(host: Host, tmp_path: Path) -> None:
    spec = make(host, build__source=f"file:{tmp_path}/none")
    with pytest.raises(OrinError, match="none is no source tree"):
        engine.inspect(host, spec)
    with pytest.raises(OrinError, match="there is no archive"):
        engine.inspect(host, make(host, build__source=f"file:{tmp_path}/none.tar.gz"))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"features": [], "devices": []}', '{"features": {}, "devices": [1]}']
)
def test_a_damaged_record_of_what_was_built_counts_as_none(host: Host, tree: Path, text: str) -> None:
    spec = make(host, build__source=f"file:{tree}")
    Path(spec.build.folder).mkdir(parents=True)
    Path(spec.build.folder, layout.INFO).write_text(text)
    assert engine.inspect(host, spec).info is None


def test_an_unused_variable_is_an_error(host: Host, tree: Path) -> None:
    spec = make(host, build__source=f"file:{tree}", build__cmake__GGML_CUDAA="ON")
    told = failure(host, spec)
    assert "GGML_CUDAA" in told.message
    assert "GGML_CUDA in place" in (told.hint or "")
    assert not host.exists(spec.build.bin)
    assert "build" in planned(host, spec)


def test_an_option_that_is_only_switched_off_may_be_unknown(host: Host, tree: Path) -> None:
    spec = make(host, build__source=f"file:{tree}")
    assert "-DLLAMA_OPENSSL=OFF" in spec.build.cmake
    apply(host, spec)
    assert "LLAMA_OPENSSL" in Path(spec.build.folder, layout.CONFIGURED).read_text()


def test_a_failed_compile_gives_the_first_error(host: Host, tree: Path) -> None:
    (tree / "main.c").write_text("int main(void) { return nothing_of_the_kind; }\n")
    spec = make(host, build__source=f"file:{tree}")
    told = failure(host, spec)
    assert "main.c:1:" in told.message
    assert "nothing_of_the_kind" in told.message
    assert f"{spec.build.folder}/build.log" in (told.hint or "")
    assert not host.exists(spec.build.bin)
    (tree / "main.c").write_text(MAIN)
    apply(host, spec)
    assert engine.help_text(host, spec.build) == "tiny --help"


def test_a_failed_configure_gives_cmakes_sentence(host: Host, tree: Path) -> None:
    (tree / "CMakeLists.txt").write_text(PROJECT + 'message(FATAL_ERROR "BLAS not found, please refer to it")\n')
    told = failure(host, make(host, build__source=f"file:{tree}"))
    assert "OpenBLAS" in told.message
    assert "BLAS not found, please refer to it" in told.message


@pytest.mark.parametrize("at", ["compiler", "Building C object"])
def test_an_interrupted_build_goes_on(host: Host, tree: Path, at: str) -> None:
    def interrupt(fraction: float | None, text: str) -> None:
        if at in text or (at.startswith("Building") and fraction is not None and fraction > 0.3):
            raise KeyboardInterrupt

    spec = make(host, build__source=f"file:{tree}", build__jobs="1")
    with pytest.raises(KeyboardInterrupt):
        apply(host, spec, interrupt)
    assert not host.exists(spec.build.bin)
    objects = {path: path.stat().st_mtime_ns for path in Path(spec.build.folder, "build").rglob("main.c.o")}
    assert bool(objects) == at.startswith("Building")
    apply(host, spec)
    assert engine.help_text(host, spec.build) == "tiny --help"
    # Ninja may take the last object for half-written; those before it are kept.
    kept = [path for path, time in objects.items() if path.stat().st_mtime_ns == time]
    assert len(kept) >= len(objects) - 1


def test_an_archive_is_unpacked_without_its_folder(host: Host, tree: Path, tmp_path: Path) -> None:
    archive = tmp_path / "tiny-1.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tree, "llama.cpp-b1")
    spec = make(host, build__source=f"file:{archive}")
    apply(host, spec)
    assert engine.help_text(host, spec.build) == "tiny --help"
    assert planned(host, spec) == ["check"]
    assert layout.source_folder(spec.build).startswith(f"{host.data}/engines/sources/")


def test_a_repository_is_cloned_at_its_tag(host: Host, tree: Path) -> None:
    git = ("git", "-C", str(tree), "-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "one"), ("tag", "b1")):
        subprocess.run([*git, *words], check=True)
    (tree / "main.c").write_text("later")
    subprocess.run([*git, "commit", "-qam", "two"], check=True)
    spec = make(host, build__source=f"git:file://{tree}@b1")
    apply(host, spec)
    assert engine.help_text(host, spec.build) == "tiny --help"
    assert planned(host, spec) == ["check"]
    told = failure(host, make(host, build__source=f"git:file://{tree}@b999"))
    assert "b999" in told.message


# The real engine.


def ask(folder: Path, *asked: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, probe.__file__, str(folder), *asked], capture_output=True, text=True, check=False
    )


@pytest.mark.engine
def test_the_real_engine_has_every_feature_of_this_cpu(engine_bin: Path) -> None:
    machine = inspect(Host())
    wanted = ggml_features(machine.cpu.features, machine.machine)
    done = ask(engine_bin, "--cpu", *wanted)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"commit": "0c1e570"' in done.stdout


@pytest.mark.engine
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("--cuda", "87"), "no CUDA backend (no libggml-cuda)"),
        (("--cpu", "NEON", "VSX"), "lacks"),
        (("--blas",), "no BLAS device"),
        (("--binding",), "binding does not load"),
    ],
)
def test_what_the_real_engine_lacks_fails_the_check(engine_bin: Path, asked: tuple[str, ...], says: str) -> None:
    done = ask(engine_bin, *asked)
    assert done.returncode == 1
    assert done.stdout == ""
    assert says in done.stderr


def test_a_folder_without_libraries_fails_the_check(tmp_path: Path) -> None:
    done = ask(tmp_path)
    assert done.returncode == 1
    assert "do not load" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.engine
def test_a_ready_engine_is_taken_as_it_is(host: Host, engine_bin: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.mkdir()
    for file in engine_bin.iterdir():
        (ready / file.name).symlink_to(file.resolve())
    spec = make(host, build__engine=str(ready))
    apply(host, spec, last="check")
    assert "--ctx-size" in (engine.help_text(host, spec.build) or "")
    assert "commit 0c1e570" in Path(spec.build.folder, "version.txt").read_text()
    assert planned(host, spec) == []
    (ready / "llama-server").unlink()
    with pytest.raises(OrinError, match="no llama-server"):
        engine.inspect(host, spec)
    (ready / "llama-server").write_text("#!/bin/sh\necho another\n")
    (ready / "llama-server").chmod(0o755)
    assert planned(host, spec)
    apply(host, spec, last="check")
    assert engine.help_text(host, spec.build) == "another"


@pytest.mark.engine
def test_a_ready_cpu_engine_on_a_cuda_board_fails_by_name(host: Host, engine_bin: Path) -> None:
    settings = {"build.engine": Setting(str(engine_bin), "--set"), "build.cuda": Setting("on", "--set")}
    build = resolve(inspect(host), settings, data=str(host.data), arch="87", toolkit=None)
    spec = replace(make(host, build__engine=str(engine_bin)), build=build)
    with pytest.raises(CommandFailed) as caught:
        apply(host, spec, last="check")
    assert "no CUDA backend" in engine.explain(caught.value).message
    assert planned(host, spec) == ["check"]


@pytest.mark.engine
def test_the_engine_that_was_built_here_is_whole(engine_bin: Path) -> None:
    folder = engine_bin.parent
    if not (folder / layout.INFO).exists():
        pytest.skip("a ready engine was given: it was not built here")
    host = Host()
    assert os.readlink(folder / "bin") == "build/bin"
    assert all((engine_bin / target).exists() for target in TARGETS)
    assert "build 11312, commit 0c1e570" in (folder / layout.VERSION).read_text()
    assert "--ctx-size" in (folder / layout.HELP).read_text()
    assert '"binding": "0.3.36"' in (folder / layout.INFO).read_text()
    assert "Manually-specified variables" not in (folder / layout.CONFIGURED).read_text()
    said = host.ask("readelf", "-d", str(engine_bin / "llama-server"))
    assert said is None or "[$ORIGIN]" in said


@pytest.mark.network
def test_cmake_and_ninja_come_from_the_index(host: Host, tree: Path) -> None:
    spec = make(host, build__source=f"file:{tree}")
    spec = replace(spec, build=replace(spec.build, cmake_program=None, ninja_program=None))
    assert planned(host, spec)[0] == "build tools"
    apply(host, spec)
    assert engine.help_text(host, spec.build) == "tiny --help"
    runs = [step for step in engine.plan(spec, engine.inspect(host, spec)) if step.name == "build tools"]
    assert not any(isinstance(action, Run) for step in runs for action in step.actions)
