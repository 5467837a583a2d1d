"""Processors: which there are, which of them we may use, how they group, and what they can do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from orin_deploy.facts import cgroup
from orin_deploy.facts.device import Cluster, Cpu
from orin_deploy.host.machine import Machine
from orin_deploy.host.procfs import MAX_CPUS as MAX_CPUS
from orin_deploy.host.procfs import parse_list as parse_list

SYSFS = "/sys/devices/system/cpu"

# Implementer and part of the MIDR register, as util-linux's lscpu names them.
_ARM_NAMES = {
    ("0x41", "0xd03"): "Cortex-A53",
    ("0x41", "0xd07"): "Cortex-A57",
    ("0x41", "0xd08"): "Cortex-A72",
    ("0x41", "0xd0b"): "Cortex-A76",
    ("0x41", "0xd0c"): "Neoverse-N1",
    ("0x41", "0xd40"): "Neoverse-V1",
    ("0x41", "0xd42"): "Cortex-A78AE",
    ("0x41", "0xd49"): "Neoverse-N2",
    ("0x41", "0xd4f"): "Neoverse-V2",
    ("0x41", "0xd83"): "Neoverse-V3AE",
    ("0x4e", "0x003"): "Denver 2",
    ("0x4e", "0x004"): "Carmel",
}

# What ggml reports (ggml-cpu.cpp, ggml_backend_cpu_get_features) by the kernel's name of the CPU feature. ggml looks at
# what the compiler was allowed to use, so this holds for builds for the CPU at hand; SME is left out because GCC knows
# it from 14 on only.
_GGML_X86 = {
    "pni": "SSE3",
    "ssse3": "SSSE3",
    "avx": "AVX",
    "avx_vnni": "AVX_VNNI",
    "avx2": "AVX2",
    "f16c": "F16C",
    "fma": "FMA",
    "bmi2": "BMI2",
    "avx512f": "AVX512",
    "avx512vbmi": "AVX512_VBMI",
    "avx512_vnni": "AVX512_VNNI",
    "avx512_bf16": "AVX512_BF16",
    "amx_int8": "AMX_INT8",
}
_GGML_ARM = {"asimdhp": "FP16_VA", "asimddp": "DOTPROD", "i8mm": "MATMUL_INT8", "sve": "SVE"}
_ARM_EXTENSIONS = (("asimddp", "dotprod"), ("asimdhp", "fp16"), ("i8mm", "i8mm"), ("sve", "sve"))


def read(machine: Machine) -> Cpu:
    """The machine's processors; what cannot be read is empty."""
    info = machine.read("/proc/cpuinfo") or ""
    present = _list(machine, f"{SYSFS}/present") or _list(machine, f"{SYSFS}/possible") or listed_processors(info)
    online = _list(machine, f"{SYSFS}/online") or present
    groups, source = _groups(machine, online)
    policies = [tuple(cpu for cpu in policy if cpu in present) for policy in _policies(machine, present)]
    return Cpu(
        model=model_name(info),
        features=features(info),
        clusters=clusters(complete(groups, policies)),
        present=present,
        online=online,
        allowed=_allowed(machine, present, online),
        clusters_from=source,
        thread_siblings=_thread_siblings(machine, online),
    )


def listed_processors(info: str) -> tuple[int, ...]:
    """The processors that /proc/cpuinfo has a block for; the online ones."""
    return parse_list(" ".join(re.findall(r"^processor[ \t]*:[ \t]*([0-9]+)$", info, re.MULTILINE)))


def features(info: str) -> frozenset[str]:
    """The CPU features in the kernel's names, from /proc/cpuinfo (`flags` on x86, `Features` on Arm)."""
    return frozenset((_field(info, "flags") or _field(info, "Features") or "").split())


def size_kib(text: str) -> int:
    """A cache's size as sysfs writes it ("32768K"), 0 when it does not say."""
    match = re.fullmatch(r"([0-9]{1,9})K", text)
    return int(match[1]) if match else 0


def model_name(info: str) -> str | None:
    """The core's name. On Arm by implementer and part: the kernel's own text is "ARMv8 Processor" for them all."""
    implementer, part = _field(info, "CPU implementer"), _field(info, "CPU part")
    if implementer and part:
        return _ARM_NAMES.get((implementer, part), f"implementer {implementer} part {part}")
    return _field(info, "model name")


def ggml_features(features: frozenset[str], machine: str) -> frozenset[str]:
    """The features, in ggml's names, that a build for this CPU must report; `machine` is as `uname -m` says."""
    if machine in ("x86_64", "i686"):
        return frozenset(name for flag, name in _GGML_X86.items() if flag in features)
    if machine == "aarch64":
        # Every ARMv8-A core has NEON and fused multiply-add.
        return frozenset(name for flag, name in _GGML_ARM.items() if flag in features) | {"NEON", "ARM_FMA"}
    return frozenset()


def arm_arch(features: frozenset[str]) -> str:
    """The value of GGML_CPU_ARM_ARCH (GCC's -march) for an Arm CPU, as in "armv8.2-a+dotprod+fp16" for Cortex-A78AE.

    Only what the CPU lists: code that uses i8mm fails for a core without it (ollama issue 7591).
    """
    extensions = [name for flag, name in _ARM_EXTENSIONS if flag in features]
    return "+".join(("armv8.2-a", *extensions)) if extensions else "armv8-a"


def group_by_cluster_id(ids: Mapping[int, tuple[str, str]]) -> list[tuple[int, ...]]:
    """CPUs by (package, cluster_id). The kernel says -1, or 65535 on x86, where it knows no cluster."""
    if any(cluster in ("", "-1", "65535") for _, cluster in ids.values()):
        return []
    return [tuple(cpu for cpu in ids if ids[cpu] == key) for key in dict.fromkeys(ids.values())]


def group_by_cache(caches: Iterable[tuple[int, tuple[int, ...]]], online: tuple[int, ...]) -> list[tuple[int, ...]]:
    """CPUs by the largest cache (KiB, sharers) that more than one of them share but not all."""
    partial = [(size, cpus) for size, cpus in caches if len(cpus) > 1 and not set(online) <= set(cpus)]
    largest = max((size for size, _ in partial), default=0)
    return sorted({cpus for size, cpus in partial if size == largest})


def complete(groups: list[tuple[int, ...]], policies: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The groups of online CPUs with their offline members, known from cpufreq policies that lie within one group."""
    whole = [set(group) for group in groups]
    for policy in policies:
        homes = [number for number, group in enumerate(groups) if not set(group).isdisjoint(policy)]
        if len(homes) == 1:
            whole[homes[0]].update(policy)
    return [tuple(sorted(group)) for group in whole]


def clusters(groups: list[tuple[int, ...]]) -> tuple[Cluster, ...]:
    """Clusters in the order of their first CPU; those of a single CPU merge into one."""
    singles = tuple(sorted(cpu for group in groups if len(group) == 1 for cpu in group))
    merged = [group for group in groups if len(group) > 1] + ([singles] if singles else [])
    return tuple(Cluster(group) for group in sorted(merged))


def _field(info: str, name: str) -> str | None:
    match = re.search(rf"^{name}[ \t]*:[ \t]*(\S.*)$", info, re.MULTILINE)
    return match[1].strip() if match else None


def _list(machine: Machine, path: str) -> tuple[int, ...]:
    return parse_list(machine.read(path) or "")


def _groups(machine: Machine, online: tuple[int, ...]) -> tuple[list[tuple[int, ...]], str]:
    """The online CPUs in groups, each CPU in one, and where that was found: the first source that joins any two."""
    readers = {"cluster_id": _by_cluster_id, "cache": _by_cache, "cpufreq": _policies}
    for source, reader in readers.items():
        found = reader(machine, online)
        groups = _partition([tuple(cpu for cpu in group if cpu in online) for group in found], online)
        if any(len(group) > 1 for group in groups):
            return groups, source
    return [(cpu,) for cpu in online], "none"


def _partition(groups: list[tuple[int, ...]], cpus: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Each CPU in the first group that has it, or in one of its own."""
    home: dict[int, int] = {}
    for number, group in enumerate(groups):
        for cpu in group:
            home.setdefault(cpu, number)
    keys = [home.get(cpu, len(groups) + cpu) for cpu in cpus]
    return [tuple(cpu for cpu, key in zip(cpus, keys, strict=True) if key == wanted) for wanted in dict.fromkeys(keys)]


def _by_cluster_id(machine: Machine, online: tuple[int, ...]) -> list[tuple[int, ...]]:
    ids: dict[int, tuple[str, str]] = {}
    for cpu in online:
        topology = f"{SYSFS}/cpu{cpu}/topology"
        ids[cpu] = machine.read(f"{topology}/physical_package_id") or "", machine.read(f"{topology}/cluster_id") or ""
        if not ids[cpu][1]:
            return []
    return group_by_cluster_id(ids)


def _by_cache(machine: Machine, online: tuple[int, ...]) -> list[tuple[int, ...]]:
    caches: list[tuple[int, tuple[int, ...]]] = []
    for cpu in online:
        for index in range(8):
            folder = f"{SYSFS}/cpu{cpu}/cache/index{index}"
            if (shared := machine.read(f"{folder}/shared_cpu_list")) is not None:
                caches.append((size_kib(machine.read(f"{folder}/size") or ""), parse_list(shared)))
    return group_by_cache(caches, online)


def _policies(machine: Machine, cpus: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The cpufreq policies of these CPUs, offline members included; a policy that is all offline cannot be read."""
    found: list[tuple[int, ...]] = []
    for cpu in cpus:
        if not any(cpu in policy for policy in found) and (
            policy := _list(machine, f"{SYSFS}/cpu{cpu}/cpufreq/related_cpus")
        ):
            found.append(policy)
    return found


def _thread_siblings(machine: Machine, online: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    lists = (_list(machine, f"{SYSFS}/cpu{cpu}/topology/thread_siblings_list") for cpu in online)
    return tuple(sorted({cpus for cpus in lists if len(cpus) > 1}))


def _allowed(machine: Machine, present: tuple[int, ...], online: tuple[int, ...]) -> tuple[int, ...]:
    """CPUs that affinity and cpuset leave to this process, offline ones included.

    The kernel's text rather than sched_getaffinity(2), which leaves out what is offline now and may come on with
    another power mode; for the same reason a cpuset that covers all that is online counts as no restriction.
    """
    mask = re.search(r"^Cpus_allowed_list:[ \t]*(\S+)$", machine.read("/proc/self/status") or "", re.MULTILINE)
    allowed = set(present)
    if mask:
        allowed &= set(parse_list(mask[1]))
    for folder in cgroup.own_folders(machine, "cpuset"):
        names = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
        effective = next((cpus for name in names if (cpus := _list(machine, f"{folder}/{name}"))), online)
        if not set(online) <= set(effective):
            allowed &= set(effective)
    return tuple(sorted(allowed))
