"""Rules about the machine's memory: readings that cannot be, and what of it is not there to be used."""

from __future__ import annotations

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.facts.device import MIB

_LARGE_SHARE = 0.25  # of the board's memory, for a cache that nobody asked for
_FULL_SHARE = 0.5  # of zram: so much swapped out is a shortage


def reading_implausible(evidence: Evidence) -> Finding | None:
    """More free than there is: a reading that nothing may be planned on."""
    wrong = next((each for each in evidence.readings if each.free_mib > each.total_mib), None)
    doubts = evidence.memory.doubts if evidence.memory else ()
    if wrong is not None:
        what = f"{wrong.device} reports {wrong.free_mib} MiB free of {wrong.total_mib} MiB, which cannot be"
    elif doubts:
        what = "; ".join(doubts)
    else:
        return None
    return Finding(
        "mem.reading-implausible",
        "warn",
        what,
        "plan on /proc/meminfo of the machine itself, as `orin-deploy plan` does, or set memory.limit_mib",
        why_not="it is no memory to be gained: the runtime takes this GPU for one that shares the machine's memory"
        if wrong
        else None,
        values={"free_mib": wrong.free_mib, "total_mib": wrong.total_mib} if wrong else {},
    )


def prompt_cache_too_big(evidence: Evidence) -> Finding | None:
    """llama-server's prompt cache, whose default is larger than a small board."""
    said = evidence.find(r"prompt cache is enabled, size limit: (\d{1,9}) MiB")
    total = evidence.memory.total if evidence.memory else evidence.ram_bytes or evidence.ram_total
    if said is None or total is None or int(said[1]) * MIB <= _LARGE_SHARE * total:
        return None
    return Finding(
        "mem.prompt-cache-too-big",
        "warn",
        f"the prompt cache may grow to {said[1]} MiB, and the board has {total // MIB} MiB in all",
        "start it with --cache-ram 0, or a number of MiB that the budget has room for (--set cache_ram=N)",
        why_not="it is not there from the start: it fills with use, and fails hours later",
        values={"cache_ram_mib": int(said[1]), "total_mib": total // MIB},
    )


def zram_and_desktop(evidence: Evidence) -> Finding | None:
    """A board whose swap is its own memory, and full, while a desktop runs."""
    total, used = evidence.zram_total or 0, evidence.zram_used or 0
    desktop = [tenant for tenant in evidence.holders if tenant.kind == "desktop"]
    graphical = evidence.boot_target == "graphical" or bool(desktop)
    if not graphical or not total or used < _FULL_SHARE * total:
        return None
    held = sum(tenant.bytes for tenant in desktop)
    gives = f"{held // MIB} MiB by now" if held else "several hundred MiB"
    return Finding(
        "mem.zram-and-desktop",
        "warn",
        f"{used // MIB} of {total // MIB} MiB of zram are in use, which is this same memory, compressed, and the board "
        "runs its graphical target: it is short of memory before a model is loaded",
        f"sudo systemctl isolate multi-user.target gives {gives} (set-default keeps it); a swap file on NVMe instead "
        "of zram (sudo systemctl disable nvzramconfig) moves the rest off the board's memory",
        why_not="zram is no more memory: the kernel kills what is largest when it is full",
        values={"zram_used_mib": used // MIB, "zram_total_mib": total // MIB},
    )


def budget_from_available(evidence: Evidence) -> Finding | None:
    """A plan that fits, though free memory by itself looks too small: the page cache is given back."""
    needed = sum(evidence.needs.values())
    memory = evidence.memory
    if not needed or memory is None or not memory.free < needed <= memory.available:
        return None
    return Finding(
        "mem.budget-from-memavailable",
        "accept",
        f"{needed // MIB} MiB are needed and {memory.available // MIB} MiB are available (MemAvailable)",
        "go on; the reserve for the system comes on top (--set memory.reserve_mib=N)",
        why_not=f"MemFree, {memory.free // MIB} MiB, counts the page cache as used, which the kernel gives back",
        values={"needed_mib": needed // MIB, "available_mib": memory.available // MIB, "free_mib": memory.free // MIB},
    )


def memlock(evidence: Evidence) -> Finding | None:
    """A model that could not be locked into memory: a limit of the session or the service, and no lack of memory."""
    failed = evidence.find(r"failed to mlock (\d+)-byte buffer")
    if failed is None:
        return None
    unit = next((log.name for log in evidence.logs if any(line.strip() == "[Service]" for line in log.lines)), None)
    limited = evidence.find(r"^LimitMEMLOCK=(.*)$")
    if limited is not None and limited[1].strip() == "infinity":
        return None
    where = f"{unit} has no LimitMEMLOCK=infinity" if unit else "the process has a limit on locked memory"
    return Finding(
        "service.memlock",
        "diagnose",
        f"the model's {int(failed[1]) // MIB} MiB could not be locked: {where}",
        "add LimitMEMLOCK=infinity below [Service] and run systemctl daemon-reload; `orin-deploy up` writes it where "
        "mlock is set",
        why_not="memory is not short; with a GPU of the same memory locking only pins the file's second copy: leave "
        "mlock off there",
        values={"buffer_bytes": int(failed[1])},
    )
