"""The rule about systemd units that wait for each other."""

from __future__ import annotations

from orin_deploy.doctor.evidence import Evidence, Log
from orin_deploy.doctor.finding import Finding

# jetson-stats installs its unit with After= and WantedBy= naming the same target.
_KNOWN_LATE = {"jtop.service": frozenset({"multi-user.target"})}


def ordering_cycle(evidence: Evidence) -> Finding | None:
    """A unit that starts after one which itself starts after the target that both belong to."""
    units = [log for log in evidence.logs if "[Unit]" in log.lines]
    late = dict(_KNOWN_LATE) | {unit.name: _words(unit, "After") & _words(unit, "WantedBy") for unit in units}
    for unit in units:
        for other in sorted(_words(unit, "After") & late.keys()):
            for target in sorted(late[other] & _words(unit, "WantedBy")):
                return Finding(
                    "service.ordering-cycle",
                    "refuse",
                    f"{unit.name} is to start after {other} and before {target} is reached, and {other} starts after "
                    f"{target}: a cycle, so systemd leaves one of them out at boot",
                    f"take {other} out of After= and Requires= of {unit.name}; a client of it can try again instead",
                    why_not="both units are sound by themselves, and started by hand both work",
                    values={"unit": unit.name, "after": other, "target": target},
                )
    return None


def _words(unit: Log, key: str) -> set[str]:
    return {word for line in unit.lines if line.startswith(f"{key}=") for word in line.partition("=")[2].split()}
