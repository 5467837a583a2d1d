"""Whether a power mode is in force, by what the kernel says and not by its name alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from orin_deploy.facts.power import PowerMode, PowerTable
from orin_deploy.intent.placement import cpu_text
from orin_deploy.parts.power.state import Current, Limit

# A cap that is no clock of the hardware is rounded to one in silence; the steps of Orin's CPUs are 76.8 MHz, those of
# its GPU up to 102 MHz.
_CPU_STEP_KHZ, _GPU_STEP_HZ = 76_800, 102_000_000


def differences(table: PowerTable, mode: PowerMode, now: Current, present: tuple[int, ...]) -> Iterator[str]:
    """In what the machine is not in that mode; nothing when it is."""
    if now.mode != mode.name:
        yield f"{now.mode or 'an unknown mode'} is active"
        return
    cores = tuple(cpu for cpu in mode.cores if cpu in present)
    if cores and now.online and now.online != cores:
        yield f"CPUs {cpu_text(now.online)} are online, {cpu_text(cores)} in {mode.name}"
    for cpu, limit in now.cpu_limits.items():
        if cpu in mode.cpu_max_khz and cpu in now.online:
            others = [other.cpu_max_khz.get(cpu) for other in table.modes]
            if wrong := _wrong(limit, mode.cpu_max_khz[cpu], others, _CPU_STEP_KHZ):
                yield f"CPU {cpu} is limited to {limit.now / 1000:g} MHz, {wrong / 1000:g} in {mode.name}"
                break
    if now.gpu_limit is not None:
        others = [other.gpu_max_hz for other in table.modes]
        if wrong := _wrong(now.gpu_limit, mode.gpu_max_hz, others, _GPU_STEP_HZ):
            yield f"the GPU is limited to {now.gpu_limit.now / 1e6:g} MHz, {wrong / 1e6:g} in {mode.name}"


def _wrong(limit: Limit, cap: int | None, others: Iterable[int | None], step: int) -> int | None:
    """The limit that should be, where the one that is cannot be this mode's.

    Above the cap it is not in force. Below it, heat may have lowered the limit for a moment, and a GPU whose image
    lacks the mode's clocks ends there: that counts only where the limit is exactly another mode's cap.
    """
    known = [value for value in (cap, limit.top) if value is not None]
    if not known:
        return None
    due = min(known)
    if limit.now > due + step:
        return due
    left_over = any(other is not None and abs(limit.now - other) < step // 10 for other in others)
    return due if limit.now < due - step and left_over else None
