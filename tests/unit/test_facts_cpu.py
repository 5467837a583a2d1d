"""Processors: the kernel's lists and topology, against examples, properties and this machine's own tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.facts import cpu
from orin_deploy.facts.device import Cluster
from orin_deploy.host.machine import Machine

COMMON = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm dcpop"
CARMEL = frozenset(COMMON.split())
A78AE = CARMEL | {"lrcpc", "asimddp", "uscat", "ilrcpc", "flagm", "paca", "pacg"}
SYSFS = "sys/devices/system/cpu"


def machine(root: Path, files: dict[str, str]) -> Machine:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(root, {"PATH": ""})


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,5\n", (0, 1, 2, 3, 5)),
        ("0", (0,)),
        ("0 1 2 3", (0, 1, 2, 3)),  # cpufreq's related_cpus
        ("", ()),
        ("\n", ()),
        ("0-", ()),
        ("3-1", ()),
        ("x,2,-1", (2,)),
        ("0-99999", tuple(range(cpu.MAX_CPUS))),
    ],
)
def test_list(text: str, cpus: tuple[int, ...]) -> None:
    assert cpu.parse_list(text) == cpus


@given(st.sets(st.integers(0, cpu.MAX_CPUS - 1), max_size=40), st.sampled_from([",", " "]))
def test_list_reads_back_what_is_written(cpus: set[int], separator: str) -> None:
    assert cpu.parse_list(separator.join(map(str, cpus))) == tuple(sorted(cpus))


@given(st.text())
def test_list_never_fails_and_stays_bounded(text: str) -> None:
    assert len(cpu.parse_list(text)) <= cpu.MAX_CPUS


def test_arm_core_is_named_by_its_part_even_where_the_kernel_has_a_name_of_its_own() -> None:
    info = "processor\t: 0\nmodel name\t: ARMv8 Processor rev 1 (v8l)\nCPU implementer\t: 0x41\nCPU part\t: 0xd42\n"
    assert cpu.model_name(info) == "Cortex-A78AE"
    assert cpu.model_name(info.replace("0xd42", "0xfff")) == "implementer 0x41 part 0xfff"
    assert cpu.model_name("model name\t: AMD EPYC\n") == "AMD EPYC"
    assert cpu.model_name("CPU implementer\t:\n") is None


def test_arm_arch_is_what_the_core_lists_and_no_more() -> None:
    assert cpu.arm_arch(A78AE) == "armv8.2-a+dotprod+fp16"
    assert cpu.arm_arch(A78AE | {"i8mm"}) == "armv8.2-a+dotprod+fp16+i8mm"
    assert cpu.arm_arch(CARMEL) == "armv8.2-a+fp16"
    assert cpu.arm_arch(frozenset({"fp", "asimd", "crc32"})) == "armv8-a"


@given(st.sets(st.sampled_from(["asimddp", "asimdhp", "i8mm", "sve", "sve2", "bf16", "asimd"])))
def test_what_arm_arch_switches_on_is_what_ggml_must_report(features: set[str]) -> None:
    words = set(cpu.arm_arch(frozenset(features)).split("+")[1:])
    names = {"dotprod": "DOTPROD", "fp16": "FP16_VA", "i8mm": "MATMUL_INT8", "sve": "SVE"}
    reported = cpu.ggml_features(frozenset(features), "aarch64")
    assert reported == {names[word] for word in words} | {"NEON", "ARM_FMA"}


@pytest.mark.engine
def test_ggml_features_are_those_of_the_real_engine_built_here(engine_bin: Path) -> None:
    library = next(engine_bin.parent.rglob("libllama.so"), None)
    if library is None:
        pytest.skip("the engine has no shared library to ask")
    script = (
        "import ctypes, sys; lib = ctypes.CDLL(sys.argv[1]); lib.llama_print_system_info.restype = ctypes.c_char_p; "
        "print(lib.llama_print_system_info().decode())"
    )
    said = subprocess.run([sys.executable, "-c", script, library], capture_output=True, text=True, check=True).stdout
    reported = {part.split(" = ")[0].split(":")[-1].strip() for part in said.split("|") if " = 1" in part}
    everything = cpu.ggml_features(frozenset(cpu._GGML_X86) | frozenset(cpu._GGML_ARM), os.uname().machine)
    features = cpu.features(Path("/proc/cpuinfo").read_text())
    assert reported & everything == cpu.ggml_features(features, os.uname().machine)


def test_a_cluster_id_the_kernel_does_not_know_is_none() -> None:
    assert cpu.group_by_cluster_id({0: ("0", "65535"), 1: ("0", "65535")}) == []
    assert cpu.group_by_cluster_id({0: ("0", "-1"), 1: ("0", "0")}) == []
    assert cpu.group_by_cluster_id({0: ("0", "0"), 1: ("0", "0"), 2: ("1", "0")}) == [(0, 1), (2,)]


def test_the_largest_partly_shared_cache_groups() -> None:
    threads, half, whole = (48, (0, 1)), (2048, (0, 1, 2, 3)), (32768, tuple(range(8)))
    other = [(48, (4, 5)), (2048, (4, 5, 6, 7))]
    assert cpu.group_by_cache([threads, half, whole, *other], tuple(range(8))) == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert cpu.group_by_cache([whole], tuple(range(8))) == []


def test_single_cpu_clusters_merge_into_one() -> None:
    groups = [(0,), (1,), (2, 3, 4, 5), (6,)]
    assert cpu.clusters(groups) == (Cluster((0, 1, 6)), Cluster((2, 3, 4, 5)))
    assert cpu.clusters([]) == ()


def test_an_offline_cpu_joins_the_cluster_its_cpufreq_policy_names(tmp_path: Path) -> None:
    files = {f"{SYSFS}/present": "0-5", f"{SYSFS}/online": "0-4", "proc/self/status": "Cpus_allowed_list:\t0-5\n"}
    for number in range(5):
        members = "0 1 2 3" if number < 4 else "4 5"
        files[f"{SYSFS}/cpu{number}/cpufreq/related_cpus"] = members
        files[f"{SYSFS}/cpu{number}/cache/index3/shared_cpu_list"] = "0-3" if number < 4 else "4"
        files[f"{SYSFS}/cpu{number}/cache/index3/size"] = "2048K"
    found = cpu.read(machine(tmp_path, files))
    assert found.clusters == (Cluster((0, 1, 2, 3)), Cluster((4, 5)))
    assert found.clusters_from == "cache"
    assert found.usable == (0, 1, 2, 3, 4)


def test_a_policy_across_clusters_says_nothing_about_an_offline_cpu() -> None:
    assert cpu.complete([(0, 1), (2, 3)], [(0, 1, 2, 3, 4)]) == [(0, 1), (2, 3)]


def test_affinity_and_cpuset_both_restrict(tmp_path: Path) -> None:
    found = cpu.read(
        machine(
            tmp_path,
            {
                f"{SYSFS}/present": "0-7",
                f"{SYSFS}/online": "0-5",
                "proc/self/status": "Cpus_allowed:\tff\nCpus_allowed_list:\t1-7\n",
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/cpuset.cpus.effective": "0-5",  # all that is online: no restriction for 6 and 7
                "sys/fs/cgroup/a/cpuset.cpus.effective": "0-5",
            },
        )
    )
    assert found.allowed == (1, 2, 3, 4, 5, 6, 7)
    assert found.usable == (1, 2, 3, 4, 5)
    (tmp_path / "sys/fs/cgroup/a/b").mkdir()
    (tmp_path / "sys/fs/cgroup/a/b/cpuset.cpus.effective").write_text("0-2\n")
    assert cpu.read(Machine(tmp_path, {})).allowed == (1, 2)


def test_without_sysfs_the_processors_are_those_of_cpuinfo(tmp_path: Path) -> None:
    found = cpu.read(machine(tmp_path, {"proc/cpuinfo": "processor\t: 0\n\nprocessor\t: 1\nflags\t\t: lm pni\n"}))
    assert found.present == found.online == found.allowed == (0, 1)
    assert found.clusters == (Cluster((0, 1)),)
    assert found.features == {"lm", "pni"}


def test_this_machine_agrees_with_the_system() -> None:
    found = cpu.read(Machine())
    assert set(found.usable) == os.sched_getaffinity(0)
    assert len(found.online) == psutil.cpu_count()
    assert sorted(number for cluster in found.clusters for number in cluster.cpus if number in found.online) == [
        *found.online
    ]
    hidden = sum(len(threads) - 1 for threads in found.thread_siblings)
    assert len(found.online) - hidden == (psutil.cpu_count(logical=False) or len(found.online) - hidden)


def test_this_process_pinned_to_one_cpu_may_use_that_one() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(before)})
        assert cpu.read(Machine()).usable == (max(before),)
    finally:
        os.sched_setaffinity(0, before)


def test_this_machine_agrees_with_nproc_and_lscpu() -> None:
    if shutil.which("nproc") is None or shutil.which("lscpu") is None:
        pytest.skip("nproc or lscpu is not here")
    found = cpu.read(Machine())
    environ = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    assert int(subprocess.run(["nproc"], env=environ, capture_output=True, text=True, check=True).stdout) == len(
        found.usable
    )
    rows = subprocess.run(["lscpu", "-p=CPU"], capture_output=True, text=True, check=True).stdout.splitlines()
    assert tuple(int(row) for row in rows if not row.startswith("#")) == found.online
