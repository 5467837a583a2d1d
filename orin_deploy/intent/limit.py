"""The limit: how much memory can really be had now, what bounds it, and what of it deserves a warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from orin_deploy.errors import Refused
from orin_deploy.facts.device import MIB, Device, Memory
from orin_deploy.facts.memory import COMPACT
from orin_deploy.facts.model import Model
from orin_deploy.intent.budget import AVAILABLE, GROUP, SET, Budget
from orin_deploy.intent.engine_rows import Row
from orin_deploy.intent.serving import Serving, mib
from orin_deploy.intent.spec import Setting

SET_LIMIT = "memory.limit_mib"
FILE_COPY = "file copy"
LEARNED = "learned"

# L4T 36.4.7 fails large CUDA allocations with memory free (NVIDIA's issue 5602402, fixed in 36.5). Measured on an Orin
# Nano with 5.36 GiB free: 1 to 3 GiB work, 4 GiB fail.
_FAULTY_L4T, _WORKS_BYTES = "36.4.7", 3 * 1024 * MIB
_ZRAM_WORTH_A_WORD = 64 * MIB
_LEARNED_SHARE = 0.1  # from which on the row deserves a word of its own
_BUFFERS = ("weights", "KV cache", "compute", "draft weights", "draft KV cache", "draft compute")


class Limit(NamedTuple):
    """How many bytes can be had, what bounds them in words, and of which kind that is."""

    bytes: int
    source: str
    kind: str


def limit(device: Device, values: Mapping[str, Setting], own_bytes: int) -> Limit:
    """The limit: the tightest of the user's limit, the control groups', what is
    available and not promised to another deployment. `own_bytes` is what this deployment's server would give back.

    Raises Refused where the machine does not tell its memory and nobody has set a limit.
    """
    memory = device.memory
    own = " and what this deployment holds" if own_bytes else ""
    asked = values[SET_LIMIT]
    bounds: list[Limit] = []
    if asked.value not in ("auto", None):
        bounds.append(Limit(int(str(asked.value)) * MIB, f"{SET_LIMIT} ({asked.source})", SET))
    if memory.total:
        bounds.append(_available(device, own_bytes, own))
    elif not bounds:
        raise Refused("; ".join(memory.doubts) or "how much memory there is, is not known", f"--set {SET_LIMIT}=N")
    group, most, used = _group(memory, is_unit=_is_unit(device, values))
    if most is not None:
        left = max(most - (used or 0) + own_bytes, 0)
        bounds.append(Limit(left, f"{group}'s limit less its use{own}", GROUP))
    return min(bounds)


def _available(device: Device, own_bytes: int, own: str) -> Limit:
    if device.assumed:
        return Limit(device.memory.available, f"MemTotal less idle use ({device.assumed})", AVAILABLE)
    waiting = [tenant for tenant in device.tenants if tenant.promised_bytes]
    promised = sum(tenant.promised_bytes for tenant in waiting)
    names = " and ".join(tenant.name for tenant in waiting)
    less = f" less {mib(promised)} promised to {names}" if promised else ""
    left = max(device.memory.available + own_bytes - promised, 0)
    return Limit(left, f"MemAvailable{own}{less}", AVAILABLE)


def _is_unit(device: Device, values: Mapping[str, Setting]) -> bool:
    """The server will be a unit of systemd, in its group and not in ours."""
    return values["service.manager"].value == "systemd" or (
        values["service.manager"].value in ("auto", None) and device.systemd
    )


def _group(memory: Memory, *, is_unit: bool) -> tuple[str, int | None, int | None]:
    if is_unit and memory.service_group is not None:
        return memory.service_group.rpartition("/")[2] or "systemd", memory.service_limit, memory.service_used
    # Where systemd's own groups cannot be seen, as in a container, ours is the tightest that is known.
    return "the cgroup", memory.cgroup_limit, memory.cgroup_used


def file_copy(model: Model, serving: Serving) -> tuple[Row, ...]:
    """The file's second copy: mapped for a GPU, it is read into the page cache and copied from there."""
    if not (serving.gpu and serving.mapped):
        return ()
    said = f"the page cache's copy of the file while it is read: load_mode={serving.load_mode} with CUDA"
    return (Row(FILE_COPY, model.file_bytes, said),)


def warnings(device: Device, budget: Budget, *, cuda: bool) -> tuple[str, ...]:
    """What is wrong with the machine's memory as far as it bears on this budget, each with what helps."""
    memory = device.memory
    found = [*memory.doubts, *_set_aside(memory)]
    if cuda:
        found += _cuda(device, budget)
    found += _much_learned(budget)
    return tuple(found)


def _set_aside(memory: Memory) -> Iterator[str]:
    if memory.hugepages_total:
        yield (
            f"{mib(memory.hugepages_total)} are set aside as huge pages, of no use to llama.cpp (its own fit would see "
            "only those): sudo sysctl vm.nr_hugepages=0 gives the free ones back"
        )
    if memory.zram_used >= _ZRAM_WORTH_A_WORD:
        yield (
            f"{mib(memory.zram_used)} are swapped out to zram, which is this same memory, compressed: it adds none and "
            "is not counted"
        )


def _much_learned(budget: Budget) -> Iterator[str]:
    rows = {row.name: row for row in budget.rows}
    row = rows.get(LEARNED)
    planned = budget.total_bytes - sum(rows[name].bytes for name in (LEARNED, "reserve") if name in rows)
    if row is not None and row.bytes > planned * _LEARNED_SHARE:
        yield (
            f"the row {LEARNED} is more than {_LEARNED_SHARE:.0%} of what is planned without it ({row.source}): "
            "something takes memory here that no plan knows"
        )


def _cuda(device: Device, budget: Budget) -> Iterator[str]:
    memory = device.memory
    rows = {row.name: row.bytes for row in budget.rows}
    largest = max((name for name in rows if name in _BUFFERS), key=lambda name: rows[name], default=None)
    size = rows[largest] if largest else 0
    if device.jetson is not None and device.jetson.l4t == _FAULTY_L4T and size > _WORKS_BYTES:
        yield (
            f"L4T {_FAULTY_L4T} can fail to allocate more than 3 GiB at once with more free (NVIDIA's issue 5602402), "
            f"and the {largest} are one buffer of {mib(size)}: `sync; sudo sysctl -w vm.drop_caches=3` right before "
            "the start helps, L4T 36.5 cures it"
        )
    if device.jetson is not None and memory.fragmented:
        yield (
            f"memory is fragmented: its largest free block (lfb) is {(memory.largest_block or 0) // 1024} KiB; if CUDA "
            f"cannot allocate, `{COMPACT}` or a reboot helps"
        )
    if FILE_COPY in rows:
        yield (
            f"mapped for CUDA the file lies in memory twice while it is read, {mib(rows[FILE_COPY])} more: "
            "--set load_mode=auto reads it without that copy"
        )
    if budget.limit_kind == GROUP:
        yield f"{budget.limit_source}: the plan keeps to it, but a cgroup does not count what CUDA takes on a Jetson"
