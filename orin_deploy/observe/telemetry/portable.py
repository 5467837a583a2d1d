"""psutil as a source: the last one, for systems whose own files we cannot read."""

from __future__ import annotations

from orin_deploy.host import Host
from orin_deploy.host.meters import Meters
from orin_deploy.observe.telemetry.sample import Sample, zone_celsius, zone_name
from orin_deploy.observe.telemetry.source import SourceFailed

_FIRST_LOOK_S = 0.2  # psutil's loads are differences to the last reading too


class Portable:
    name = "psutil"

    def __init__(self, host: Host) -> None:
        self.host = host

    def open(self) -> None:
        self._meters()
        self.host.sleep(_FIRST_LOOK_S)

    def read(self) -> Sample:
        meters = self._meters()
        zones = ((zone_name(name), zone_celsius(celsius)) for name, celsius in meters.temperature_c.items())
        cpus = len(meters.cpu_percent)
        return Sample(
            time=self.host.time(),
            source=self.name,
            cpu_percent=meters.cpu_percent,
            # Some systems give one clock for all CPUs.
            cpu_mhz=meters.cpu_mhz if len(meters.cpu_mhz) == cpus else meters.cpu_mhz[:1] * cpus or None,
            ram_used_bytes=meters.ram_used,
            ram_total_bytes=meters.ram_total,
            swap_used_bytes=meters.swap_used,
            swap_total_bytes=meters.swap_total,
            temperature_c={name: celsius for name, celsius in zones if name and celsius is not None} or None,
        )

    def close(self) -> None:
        pass

    def _meters(self) -> Meters:
        meters = self.host.meters()
        if meters is None:
            raise SourceFailed("psutil cannot read this machine")
        return meters
