"""The cores of a virtual board: going on and off, and the files that a core shows while it is on."""

from __future__ import annotations

import shutil

from tests.virtual.kernel import CPU, FLOOR_KHZ, OPP_KHZ, Kernel


def set_online(kernel: Kernel, cpu: int, on: bool) -> None:
    """Switch a core; the first never goes off. An offline core's topology, caches and cpufreq vanish."""
    if cpu == 0:
        return
    kernel.write(f"{CPU}/cpu{cpu}/online", int(on))
    if on:
        show_core(kernel, cpu)
    else:
        for name in ("topology", "cache"):
            shutil.rmtree(kernel.path(f"{CPU}/cpu{cpu}/{name}"), ignore_errors=True)
        kernel.path(f"{CPU}/cpu{cpu}/cpufreq").unlink(missing_ok=True)
    for cluster in kernel.board.clusters:
        policy = f"{CPU}/cpufreq/policy{cluster[0]}"
        if not set(cluster) & set(kernel.online()):
            shutil.rmtree(kernel.path(policy), ignore_errors=True)
        elif kernel.path(policy).is_dir():
            kernel.write(f"{policy}/affected_cpus", " ".join(str(c) for c in cluster if c in kernel.online()) + "\n")


def show_core(kernel: Kernel, cpu: int) -> None:
    """The files of a core that is on."""
    cluster, folder = kernel.cluster(cpu), f"{CPU}/cpu{cpu}"
    whole = f"0-{max(kernel.board.cpus)}"
    policy = f"{CPU}/cpufreq/policy{cluster[0]}"
    if not kernel.path(policy).is_dir():
        _make_policy(kernel, policy, cluster)
    link = kernel.path(f"{folder}/cpufreq")
    if not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../cpufreq/policy{cluster[0]}")
    topology = {"physical_package_id": "0" if kernel.release.major >= 38 else "-1", "core_id": str(cpu)}
    if kernel.release.major >= 38:  # since Linux 5.16
        topology["cluster_id"] = str(kernel.board.clusters.index(cluster))
    for name, text in {**topology, "thread_siblings_list": str(cpu)}.items():
        kernel.write(f"{folder}/topology/{name}", text + "\n")
    caches = {2: ("256K", str(cpu)), 3: (f"{kernel.board.l3_kib}K", ",".join(map(str, cluster)))}
    if kernel.board.soc == "tegra194":
        caches = {2: ("2048K", ",".join(map(str, cluster))), 3: ("4096K", whole)}
    elif kernel.board.soc == "tegra264":
        caches = {2: ("1024K", str(cpu)), 3: (f"{kernel.board.l3_kib}K", whole)}
    for level, (size, cpus) in caches.items():
        index = f"{folder}/cache/index{level}"
        for name, text in (("level", str(level)), ("type", "Unified"), ("size", size), ("shared_cpu_list", cpus)):
            kernel.write(f"{index}/{name}", text + "\n")
    for state, name in enumerate(kernel.idle_states()):
        kernel.write(f"{folder}/cpuidle/state{state}/name", name + "\n")
        kernel.write(f"{folder}/cpuidle/state{state}/disable", 0)


def _make_policy(kernel: Kernel, policy: str, cluster: tuple[int, ...]) -> None:
    top = kernel.cpu_max_khz
    table = [*range(FLOOR_KHZ, top, OPP_KHZ), top]
    texts = {
        "related_cpus": " ".join(map(str, cluster)),
        "affected_cpus": " ".join(map(str, cluster)),
        "scaling_available_frequencies": " ".join(map(str, table)),
        "scaling_governor": "schedutil",
        "cpuinfo_min_freq": str(FLOOR_KHZ),
        "cpuinfo_max_freq": str(top),
        "scaling_min_freq": str(FLOOR_KHZ),
        "scaling_max_freq": str(top),
    }
    for name, text in texts.items():
        kernel.write(f"{policy}/{name}", text + "\n")
