"""Where a deployment keeps what belongs to its power settings."""

from __future__ import annotations

from dataclasses import dataclass

from orin_deploy.host import Host
from orin_deploy.intent import deployment

UNITS = "/etc/systemd/system"


@dataclass(frozen=True)
class Where:
    """Names and paths. The folder holds what was before, the script, and the log of what the tools said."""

    folder: str
    conf: str  # nvpmodel.conf as a path that a command of this machine can open
    unit: str

    @property
    def script(self) -> str:
        return f"{self.folder}/power.sh"

    @property
    def before(self) -> str:
        """The mode that was active before the first change."""
        return f"{self.folder}/mode"

    @property
    def clocks(self) -> str:
        """What `jetson_clocks --store` saw before the first change."""
        return f"{self.folder}/clocks"

    @property
    def log(self) -> str:
        return f"{self.folder}/log"

    @property
    def unit_file(self) -> str:
        return f"{UNITS}/{self.unit}"

    @property
    def enabled(self) -> str:
        return f"{UNITS}/multi-user.target.wants/{self.unit}"


def where(host: Host, name: str, conf: str) -> Where:
    return Where(
        folder=str(deployment.folder(host.data, name) / "power"),
        conf=str(host.path(conf)),
        unit=deployment.power_unit(name),
    )
