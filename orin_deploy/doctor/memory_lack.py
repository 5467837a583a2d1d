"""Rules about memory that could not be had: what did not fit, and what only looks as if it did not."""

from __future__ import annotations

from statistics import median

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.facts.device import MIB, WHOLE_BLOCK_BYTES, Tenant
from orin_deploy.facts.memory import COMPACT
from orin_deploy.parts import out_of_memory

_REFUSED = f"{out_of_memory.GPU}|{out_of_memory.BUFFERS}"  # what the program allocates may lie in pieces
_PROJECTED = r"use (\d{1,9}) MiB of device memory vs\. (\d{1,9}) MiB of free device memory"
_PROJECTED_HOST = r"host memory (\d{1,9}) MiB vs\. (\d{1,9}) MiB free"

_SWAPPING_KIB_PER_S = 100
_NEARLY_ALL = 0.9  # what two counts of the same free memory have in common at least
_NAMED = 3


def vmm_reserve(evidence: Evidence) -> Finding | None:
    """CUDA's virtual memory pool, which reserves more address space than an integrated GPU may give."""
    if evidence.find(r"cuMemAddressReserve") is None:
        return None
    built = evidence.find(r"^GGML_CUDA_NO_VMM:BOOL=(?:OFF|0|FALSE)$")
    return Finding(
        "mem.vmm-reserve",
        "diagnose",
        "CUDA could not reserve the 32 GiB of address space that llama.cpp's virtual memory pool begins with"
        + (": this build has GGML_CUDA_NO_VMM=OFF" if built else ""),
        "build with -DGGML_CUDA_NO_VMM=ON, as `orin-deploy up` does for every Jetson",
        why_not="it is address space and not memory that ran out: no other model helps, and no binary needs a patch",
    )


def nvml_assert(evidence: Evidence) -> Finding | None:
    """PyTorch's assertion about NVML, behind which an allocation failed that another program left no room for."""
    if evidence.find(r"NVML_SUCCESS == r\b.*INTERNAL ASSERT FAILED") is None:
        return None
    free = f" ({evidence.memory.available // MIB} MiB are left)" if evidence.memory else ""
    model = evidence.find(r"(\S+)(?:\[\d+\])?:.*\bCUDA\d model buffer size *= *(\d{1,9})(?:\.\d+)? MiB")
    beside = f"; beside it {model[1].partition('[')[0]} holds a model of {model[2]} MiB" if model else ""
    return Finding(
        "mem.cotenant-nvml-assert",
        "diagnose",
        f"PyTorch ran out of memory, which it reports as a failed NVML assertion on a Jetson{free}{beside}",
        "give each program a share: `orin-deploy plan --set memory.limit_mib=N`; start the largest buffer first",
        why_not="the driver is sound and needs no other version: the same call works with memory free",
        values={"available_mib": evidence.memory.available // MIB} if evidence.memory else {},
    )


def does_not_fit(evidence: Evidence) -> Finding | None:
    """A plan, or one allocation, that is larger than what can be had."""
    asked, total = requested_bytes(evidence), evidence.ram_total or (evidence.memory.total if evidence.memory else None)
    if asked is not None and total is not None and asked > total:
        return Finding(
            "mem.does-not-fit",
            "refuse",
            f"one buffer of {asked // MIB} MiB was asked for, and the whole board has {total // MIB} MiB",
            "take a smaller model, quantisation or context: no reboot and no swap makes room for that",
            values={"needed_mib": asked // MIB, "total_mib": total // MIB},
        )
    needed = sum(evidence.needs.values())
    if not needed or evidence.memory is None or needed <= evidence.memory.available:
        return None
    missing = needed - evidence.memory.available
    held = evidence.holders[:_NAMED]
    names = f"; the most is held by {', '.join(map(_named, held))}" if held else ""
    return Finding(
        "mem.does-not-fit",
        "refuse",
        f"{needed // MIB} MiB are needed and {evidence.memory.available // MIB} MiB are available{names}",
        _freeing(evidence, missing),
        why_not="swap is no way out: what the GPU uses cannot be swapped",
        values={
            "needed_mib": needed // MIB,
            "available_mib": evidence.memory.available // MIB,
            "missing_mib": -(-missing // MIB),
        },
    )


def _freeing(evidence: Evidence, missing: int) -> str:
    desktop = sum(tenant.bytes for tenant in evidence.holders if tenant.kind == "desktop")
    others = [tenant for tenant in evidence.holders if tenant.kind != "desktop"]
    ways = [f"sudo systemctl isolate multi-user.target (no desktop: {desktop // MIB} MiB)"] if desktop else []
    ways += [f"end {_named(tenant)}" for tenant in others[:_NAMED] if tenant.bytes >= missing // 8]
    smaller = "a smaller context, a q8_0 KV cache or a smaller model"
    return f"{'; '.join(ways)}; or {smaller}" if ways else f"take {smaller}"


def _named(tenant: Tenant) -> str:
    return f"{tenant.name} ({tenant.bytes // MIB} MiB)"


def fit_double_count(evidence: Evidence) -> Finding | None:
    """llama.cpp's own fitting, which holds device and host memory each against the one pool they share."""
    device, host = evidence.find(_PROJECTED), evidence.find(_PROJECTED_HOST)
    if device is None or host is None:
        return None
    free = [int(device[2]), int(host[2])]
    needed = int(device[1]) + int(host[1])
    can_be_had = evidence.memory.available // MIB if evidence.memory else min(free)
    if needed <= can_be_had or min(free) < _NEARLY_ALL * max(free):
        return None
    return Finding(
        "mem.fit-double-count",
        "refuse",
        f"device and host memory are one shared pool here: {device[1]} and {host[1]} MiB together are {needed} MiB, "
        f"and {can_be_had} MiB are available, not {free[0]} MiB for each",
        "start it with `-fit off` and sizes that fit, as `orin-deploy plan` renders them",
        why_not="each of the two fits by itself, which is all that llama.cpp's --fit looks at",
        values={"needed_mib": needed, "available_mib": can_be_had},
    )


def fragmented(evidence: Evidence) -> Finding | None:
    """An allocation that failed although more was free, on a board whose free memory lies in small blocks."""
    block = evidence.largest_block
    if evidence.find(_REFUSED) is None or block is None or block >= WHOLE_BLOCK_BYTES:
        return None
    asked = requested_bytes(evidence)
    free = evidence.memory.available if evidence.memory else (evidence.ram_total or 0) - (evidence.ram_used or 0)
    if asked is not None and asked > free:
        return None
    size = f"{block // MIB} MiB" if block >= MIB else f"{block // 1024} KiB"
    wanted = f"{asked // MIB} MiB" if asked is not None else "an allocation"
    up = evidence.find(r"^ ?(?:[\d:]+ )?up (.+?)(?:, +\d+ users?,.*)?$")
    return Finding(
        "mem.fragmented",
        "diagnose",
        f"{wanted} could not be had with {free // MIB} MiB free: memory is fragmented, its largest free block (lfb) is "
        f"{size}{f', after {up[1]} without a restart' if up else ''}",
        f"{COMPACT}, and try again; a reboot cures it for certain",
        why_not="the model is not too large for this board: what it asked for is free, but in pieces",
        values={"lfb_mib": block // MIB, "free_mib": free // MIB}
        | ({"requested_mib": asked // MIB} if asked is not None else {}),
    )


def swapping(evidence: Evidence) -> Finding | None:
    """A machine that reads from swap all the time: what is used does not fit."""
    read = [rate for rate, _ in evidence.swap_rates]
    if not read or median(read) < _SWAPPING_KIB_PER_S:
        return None
    return Finding(
        "mem.swapping-during-decode",
        "diagnose",
        f"the machine reads up to {max(read)} KiB/s from swap while it computes: model and context do not fit "
        "into memory",
        "take a smaller context, a q8_0 KV cache or a smaller model; `orin-deploy plan` counts no swap",
        why_not="the GPU and its clocks are not the reason: every token waits for the disk",
        values={"swap_in_kib_per_s": max(read)},
    )


def requested_bytes(evidence: Evidence) -> int | None:
    """The last allocation that a log says was refused."""
    return out_of_memory.requested_bytes(evidence.text)
