"""Where a deployment's service lives on a machine: its files, how systemd is called there, and who keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orin_deploy.host import Host, processes
from orin_deploy.intent import deployment


@dataclass(frozen=True)
class Where:
    """Names and paths of one deployment. `enabled` is the link that makes systemd start the unit at boot or log-in."""

    name: str
    launch: str
    unit: str  # the unit's name
    unit_file: str
    enabled: str
    config: str  # an absent folder that stands for ~/.config, whose llama.cpp/config.ini would change the launch
    systemctl: tuple[str, ...]
    journalctl: tuple[str, ...]

    @property
    def draft_unit(self) -> str:
        """The unit of the draft's own process."""
        return deployment.draft_unit(self.name)

    @property
    def draft_file(self) -> str:
        return str(Path(self.unit_file).with_name(self.draft_unit))

    @property
    def of_system(self) -> bool:
        """The unit is the system's, not of a user's own systemd."""
        return "--user" not in self.systemctl


def where(host: Host, name: str) -> Where:
    """As root a system unit below /etc, else a unit of the user's own systemd."""
    folder, unit = deployment.folder(host.data, name), deployment.unit(name)
    scope: tuple[str, ...] = ()
    units, target = Path("/etc/systemd/system"), "multi-user.target"
    if not host.is_root:
        config = host.environ.get("XDG_CONFIG_HOME") or f"{host.environ.get('HOME', '')}/.config"
        units, target, scope = Path(config, "systemd/user"), "default.target", ("--user",)
    return Where(
        name=name,
        launch=str(folder / "launch.json"),
        unit=unit,
        unit_file=str(units / unit),
        enabled=str(units / f"{target}.wants" / unit),
        config=str(folder / "no-config"),
        systemctl=("systemctl", *scope),
        journalctl=("journalctl", *scope),
    )


def manager(host: Host, place: Where) -> str | None:
    """Who has the deployment, told by the files it left, or by what runs without them: "process", "systemd" or None."""
    if host.exists(place.launch):
        return "process"
    if host.exists(place.unit_file) or host.link_target(place.enabled) is not None:
        return "systemd"
    return None if processes.running(Path(place.launch), host.path("/proc")) is None else "process"
