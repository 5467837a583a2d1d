"""jtop as a source: the service of jetson-stats through its own client. The one place that imports it.

jetson-stats is AGPL-3.0 and an optional dependency (`pip install 'orin-deploy[jtop]'`); nothing of it is copied here.
We only read: its setters, and `force` above all, are never called (force answers the reboot question with yes).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from orin_deploy.host import Host
from orin_deploy.observe.telemetry import jtop_faults
from orin_deploy.observe.telemetry.sample import Sample, total_power, zone_celsius, zone_name
from orin_deploy.observe.telemetry.source import SourceFailed

SOCKET = "/run/jtop.sock"
KIB = 1024
_STALE_READS = 3  # as many equal uptimes in a row and the service has stopped measuring


def sample_of(
    time: float,
    cpu: Mapping[str, Any],
    gpu: Mapping[str, Any],
    memory: Mapping[str, Any],
    power: Mapping[str, Any],
    temperature: Mapping[str, Any],
    mode: Any,
) -> Sample:
    """A sample of the client's dictionaries; what they lack is unknown (Thor's GPU is empty on some releases).

    Units as jetson-stats 4 to 7 give them: kHz, KiB, mW, degrees Celsius. Its opinion on jetson_clocks is not taken.
    """
    cores = [_table(core) for core in _list(cpu.get("cpu"))]
    unit = _table(next(iter(gpu.values()), None))
    ram, swap, emc = (_table(memory.get(name)) for name in ("RAM", "SWAP", "EMC"))
    rails = _rails(power)
    zones = {
        name: celsius
        for text, zone in temperature.items()
        if (name := zone_name(str(text))) and _table(zone).get("online", True)
        if (celsius := _celsius(_table(zone).get("temp"))) is not None
    }
    return Sample(
        time=time,
        source="jtop",
        cpu_percent=tuple(_busy(core) for core in cores) or None,
        cpu_mhz=tuple(_mhz(core.get("freq")) if core.get("online") else None for core in cores) or None,
        gpu_percent=_number(_table(unit.get("status")).get("load")),
        gpu_mhz=_mhz(unit.get("freq")),
        emc_percent=_number(emc.get("val")),
        emc_mhz=_mhz(emc),
        ram_used_bytes=_bytes(ram.get("used")),
        ram_total_bytes=_bytes(ram.get("tot")),
        swap_used_bytes=_bytes(swap.get("used")),
        swap_total_bytes=_bytes(swap.get("tot")),
        power_mw=rails or None,
        power_total_mw=total_power(rails),
        temperature_c=zones or None,
        mode=mode if isinstance(mode, str) and mode else None,
    )


def _rails(power: Mapping[str, Any]) -> dict[str, int]:
    """All rails; the client sets the board's input rail apart as the total, or sums them up under no name."""
    total = _table(power.get("tot"))
    named = {**_table(power.get("rail")), **({total["name"]: total} if isinstance(total.get("name"), str) else {})}
    powers = {str(name): _number(_table(rail).get("power")) for name, rail in named.items()}
    return {name: round(power) for name, power in powers.items() if power is not None}


def _busy(core: Mapping[str, Any]) -> float | None:
    idle = _number(core.get("idle"))
    return None if not core.get("online") or idle is None else round(min(max(100.0 - idle, 0.0), 100.0), 1)


def _mhz(clock: Any) -> int | None:
    """The current clock; jtop puts zero where it does not know."""
    khz = _number(_table(clock).get("cur"))
    return round(khz / 1000) if khz else None


def _celsius(value: Any) -> float | None:
    celsius = _number(value)
    return None if celsius is None else zone_celsius(celsius)


def _bytes(value: Any) -> int | None:
    kib = _number(value)
    return None if kib is None or kib < 0 else round(kib * KIB)


def _number(value: Any) -> float | None:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


class Jtop:
    """The client's newest data. Reading waits for the service at most three of its intervals."""

    name = "jtop"

    def __init__(self, host: Host, interval_s: float) -> None:
        self.host = host
        self.interval_s = interval_s
        self.client: Any = None
        self.uptimes: list[Any] = []

    def open(self) -> None:
        # Before the import, which takes a while: without a service there is nothing to talk to.
        fault = jtop_faults.socket_fault(jtop_faults.socket_kind(self.host, SOCKET))
        if fault is not None:
            raise SourceFailed(fault.what)
        try:
            from jtop import jtop
        except ImportError as error:
            raise SourceFailed("jetson-stats is not installed beside orin-deploy: orin-deploy[jtop]") from error
        self.client = jtop(interval=self.interval_s)
        self.client.start()

    def read(self) -> Sample:
        client = self.client
        if not client.ok():
            raise SourceFailed("the jtop service has gone quiet")
        self.uptimes = [*self.uptimes, client.uptime][-_STALE_READS:]
        if len(self.uptimes) == _STALE_READS and len(set(map(str, self.uptimes))) == 1:
            raise SourceFailed("the jtop service repeats old data")
        mode = getattr(client.nvpmodel, "name", None)
        gpu, memory = dict(client.gpu.items()), dict(client.memory.items())
        return sample_of(self.host.time(), client.cpu, gpu, memory, client.power, client.temperature, mode)

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
