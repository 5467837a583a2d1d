"""Rules about CPUs: which ones, how many threads, and whether a mask took effect."""

from __future__ import annotations

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.errors import Refused
from orin_deploy.facts.device import Cpu
from orin_deploy.intent.placement import cpu_text, place
from orin_deploy.intent.spec import Setting


def threads_gt_online(evidence: Evidence) -> Finding | None:
    """More threads than there are CPUs, as our own placement refuses it."""
    online = evidence.cpus
    if evidence.threads is None or not online or evidence.threads <= len(online):
        return None
    wish = {
        "threads": Setting(evidence.threads, "profile"),
        "placement.cpus": Setting("auto", "default"),
        "placement.reserve_cpus": Setting(0, "default"),
    }
    try:
        place(Cpu(None, frozenset(), (), online, online, online, clusters_from="none"), wish)
    except Refused as refusal:
        return Finding(
            "cpu.threads-gt-online",
            "refuse",
            refusal.message,
            refusal.hint or "leave threads to the placement",
            why_not="threads run on CPUs; CUDA cores are used by offloading layers (gpu_layers), whatever threads is",
            values={"threads": evidence.threads, "cpus": len(online)},
        )
    return None


def fast_cluster(evidence: Evidence) -> Finding | None:
    """CPUs of unequal clocks: the slow ones hold the fast ones up at every barrier."""
    clocks = {core.id: core.max_khz for core in evidence.core_table}
    fastest = max(clocks.values(), default=0)
    fast = tuple(sorted(number for number, khz in clocks.items() if khz == fastest))
    if not clocks or len(fast) == len(clocks):
        return None
    return Finding(
        "cpu.fast-cluster",
        "plan",
        f"{len(fast)} of {len(clocks)} CPUs are faster than the others ({cpu_text(fast)}): threads on the others slow "
        "all of them down",
        f"--set placement.cpus={cpu_text(fast)} --set threads={len(fast)}",
        why_not="more threads are not more speed here",
        values={"threads": len(fast), "cpus": list(fast)},
    )


def mask_not_applied(evidence: Evidence) -> Finding | None:
    """Threads that may run on CPUs they were not given."""
    if not evidence.pinned:
        return None
    escaped = [(who, cpus) for who, cpus in evidence.masks if not set(cpus) <= set(evidence.pinned)]
    if not escaped:
        return None
    who = ", ".join(f"thread {name}" if name.isdigit() else name for name, _ in escaped[:8])
    more = f" and {len(escaped) - 8} more" if len(escaped) > 8 else ""
    return Finding(
        "cpu.mask-not-applied",
        "diagnose",
        f"{who}{more} may use the CPUs {cpu_text(escaped[0][1])} where {cpu_text(evidence.pinned)} were given",
        "`orin-deploy up` starts the server under taskset and reads every thread's mask back; a thread that still "
        "escapes set its mask itself: --set build.cmake.GGML_OPENMP=off",
        why_not="a mask asked for is no mask that holds: llama.cpp's own options did not reach OpenMP's threads",
        values={"threads": [name for name, _ in escaped], "pinned": list(evidence.pinned)},
    )
