"""The toolchain: versions out of what tools print, and CUDA toolkits found through links, folders and scripts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.facts import toolchain
from orin_deploy.host.machine import Machine


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("g++ (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0\nCopyright (C) 2021 …", (11, 4, 0)),
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0", (12, 2, 0)),
        ("gcc (GCC) 13.2.1 20230801 (Red Hat 13.2.1-7)", (13, 2, 1)),
        ("Debian clang version 14.0.6\nTarget: x86_64-pc-linux-gnu", (14, 0, 6)),
        ("cmake version 3.22.1\n\nCMake suite …", (3, 22, 1)),
        ("cmake version 4.0.0-rc2", (4, 0, 0)),
        ("1.11.1.git.kitware.jobserver-1", (1, 11, 1)),
        ("git version 2.34.1", (2, 34, 1)),
        ("no number", ()),
        ("", ()),
    ],
)
def test_version(text: str, version: tuple[int, ...]) -> None:
    assert toolchain.version_of(text) == version


def test_nvcc_says_its_version_after_a_v() -> None:
    text = (
        "Built on Wed_Aug_14_10:14:07_PDT_2024\nCuda compilation tools, release 12.6, V12.6.68\nBuild cuda_12.6.r12.6/…"
    )
    assert toolchain.nvcc_version(text) == (12, 6, 68)
    assert toolchain.nvcc_version("") == ()


def test_version_json_names_nvcc_or_the_whole() -> None:
    assert toolchain.json_version('{"cuda": {"version": "12.6.11"}, "cuda_nvcc": {"version": "12.6.68"}}') == (
        12,
        6,
        68,
    )
    assert toolchain.json_version('{"cuda": {"name": "CUDA SDK", "version": "11.4.19"}}') == (11, 4, 19)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["cuda", "version", "cuda_nvcc"]), inner)
    ),
)


@given(st.text() | JSON.map(lambda value: json.dumps(value)))
def test_no_text_breaks_a_parser(text: str) -> None:
    assert all(number >= 0 for number in toolchain.json_version(text))
    toolchain.version_of(text)
    toolchain.nvcc_version(text)
    toolchain.architectures_of(text)


def test_architectures() -> None:
    assert toolchain.architectures_of("compute_75\ncompute_87\ncompute_110\n") == ("75", "87", "110")
    assert toolchain.architectures_of("nvcc fatal: Unknown option '--list-gpu-arch'") is None


def script(path: Path, *cases: str) -> None:
    """A program that prints a line for each `WORD=LINE` when its first argument is WORD."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "".join('if [ "$1" = "{}" ]; then echo "{}"; fi\n'.format(*case.split("=", 1)) for case in cases)
    path.write_text(f"#!/bin/sh\n{body}")
    path.chmod(0o755)


def nvcc(path: Path, version: str, architecture: str) -> None:
    script(path, f"--version=Cuda compilation tools, release 0, V{version}", f"--list-gpu-arch=compute_{architecture}")


def below(root: Path) -> Machine:
    return Machine(root, {"PATH": f"{root}/usr/local/bin:{root}/usr/bin", "HOME": "/home/user"})


def test_toolkits_behind_links_count_once_and_are_found_without_path(tmp_path: Path) -> None:
    nvcc(tmp_path / "usr/local/cuda-12.6/bin/nvcc", "12.6.68", "87")
    nvcc(tmp_path / "usr/local/cuda-9.2/bin/nvcc", "9.2.148", "72")
    (tmp_path / "usr/local/cuda-12.9").mkdir()  # left behind, without a compiler
    (tmp_path / "etc/alternatives").mkdir(parents=True)
    (tmp_path / "etc/alternatives/cuda").symlink_to("/usr/local/cuda-12.6")
    (tmp_path / "usr/local/cuda").symlink_to("/etc/alternatives/cuda")
    (tmp_path / "usr/local/cuda-12").symlink_to("cuda-12.6")
    kits = toolchain.read(below(tmp_path)).cuda
    assert [(kit.root, kit.version, kit.on_path, kit.architectures) for kit in kits] == [
        ("/usr/local/cuda-12.6", (12, 6, 68), False, ("87",)),
        ("/usr/local/cuda-9.2", (9, 2, 148), False, ("72",)),
    ]


def test_a_link_or_a_script_on_path_belongs_to_its_toolkit_which_comes_first(tmp_path: Path) -> None:
    nvcc(tmp_path / "usr/local/cuda-12.6/bin/nvcc", "12.6.68", "87")
    nvcc(tmp_path / "usr/local/cuda-11.4/bin/nvcc", "11.4.315", "72")
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/nvcc").symlink_to("../local/cuda-11.4/bin/nvcc")
    assert [(kit.root, kit.on_path) for kit in toolchain.read(below(tmp_path)).cuda] == [
        ("/usr/local/cuda-11.4", True),
        ("/usr/local/cuda-12.6", False),
    ]
    nvcc(tmp_path / "usr/local/bin/nvcc", "12.6.85", "87")
    assert [(kit.root, kit.on_path) for kit in toolchain.read(below(tmp_path)).cuda] == [
        ("/usr/local/cuda-12.6", True),
        ("/usr/local/cuda-11.4", False),
    ]


def test_a_toolkit_elsewhere_on_path_or_in_cuda_home(tmp_path: Path) -> None:
    nvcc(tmp_path / "usr/bin/nvcc", "11.8.89", "87")  # Debian's nvidia-cuda-toolkit
    nvcc(tmp_path / "opt/nvidia/bin/nvcc", "13.0.48", "110")
    machine = below(tmp_path)
    machine.environ["CUDA_HOME"] = "/opt/nvidia/"
    assert [(kit.nvcc, kit.version, kit.on_path) for kit in toolchain.read(machine).cuda] == [
        ("/usr/bin/nvcc", (11, 8, 89), True),
        ("/opt/nvidia/bin/nvcc", (13, 0, 48), False),
    ]


def test_an_nvcc_that_does_not_run_is_no_toolkit(tmp_path: Path) -> None:
    nvcc(tmp_path / "usr/local/cuda-12.6/bin/nvcc", "12.6.68", "87")
    script(tmp_path / "usr/bin/nvcc")
    assert [(kit.root, kit.on_path) for kit in toolchain.read(below(tmp_path)).cuda] == [
        ("/usr/local/cuda-12.6", False)
    ]


def test_every_cmake_is_found_newest_first(tmp_path: Path) -> None:
    script(tmp_path / "usr/bin/cmake", "--version=cmake version 3.22.1")
    script(tmp_path / "opt/cmake/bin/cmake", "--version=cmake version 3.31.6")
    script(tmp_path / "home/user/.local/bin/cmake", "--version=cmake version 4.1.0")
    (tmp_path / "usr/local/bin").mkdir(parents=True)
    (tmp_path / "usr/local/bin/cmake").symlink_to("../../../opt/cmake/bin/cmake")
    assert [(tool.path, tool.version) for tool in toolchain.read(below(tmp_path)).cmakes] == [
        ("/home/user/.local/bin/cmake", (4, 1, 0)),
        ("/usr/local/bin/cmake", (3, 31, 6)),
        ("/usr/bin/cmake", (3, 22, 1)),
    ]


def test_a_compiler_that_does_not_run_is_there_without_a_version(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/clang++").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "usr/bin/clang++").chmod(0o755)
    found = toolchain.read(below(tmp_path)).cxx
    assert found is not None
    assert (found.path, found.version, found.version_text) == ("/usr/bin/clang++", (), "unknown")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("/a")
    assert toolchain.resolve(Machine(tmp_path, {}), "/a/bin") == "/a/bin"


def test_resolve_agrees_with_the_system() -> None:
    for path in ("/usr/bin/python3", "/bin/sh", "/proc/self/../1", "/etc/mtab", "/nowhere/at/all"):
        assert toolchain.resolve(Machine("/", {}), path) == str(Path(path).resolve())
