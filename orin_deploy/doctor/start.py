"""Rules about a service's start: how long it may take, when it is ready, and whom the GPU's device lets in."""

from __future__ import annotations

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.intent.resolve import start_timeout_s

_SYSTEMD_S = 90  # systemd's DefaultTimeoutStartSec
_MB = 1_000_000


def start_timeout(evidence: Evidence) -> Finding | None:
    """Weights that take longer to read than systemd waits by itself."""
    weights, speed = evidence.needs.get("weights"), evidence.storage_mb_s
    if not weights or not speed:
        return None
    reading_s, limit_s = weights / (speed * _MB), start_timeout_s(weights)
    if reading_s <= _SYSTEMD_S:
        return None
    enough = f"`orin-deploy up` waits {limit_s} s for such a file (service.start_timeout_s)"
    return Finding(
        "service.start-timeout",
        "plan",
        f"{weights / _MB:.0f} MB at {speed:g} MB/s take {reading_s:.0f} s to read, and systemd waits {_SYSTEMD_S} s",
        enough if reading_s < limit_s else f"--set service.start_timeout_s={int(2 * reading_s)}",
        why_not="the server is not stuck: it is still reading",
        values={"timeout_s": limit_s, "reading_s": round(reading_s)},
    )


def readiness(evidence: Evidence) -> Finding | None:
    """An endpoint that answers while the model is still being loaded."""
    answers = dict(evidence.probes)
    early = [path for path, status in answers.items() if status == 200 and path != "/health"]
    if answers.get("/health") != 503 or not early:
        return None
    return Finding(
        "service.readiness",
        "plan",
        f"the server is not ready: /health says 503, it is loading; that {', '.join(early)} says 200 means nothing",
        "`orin-deploy up` waits for /health and then for a real completion",
        why_not="nothing is wrong with the server: a list of models needs no model",
        values={"ready": False},
    )


def group_video(evidence: Evidence) -> Finding | None:
    """A user that may not open the GPU's memory device."""
    denied = evidence.find(r"NvRmMem\w+ failed with Permission denied|/dev/nv(?:map|host-\S+): Permission denied")
    if denied is None:
        return None
    listed = evidence.find(r"^c[rwxsStT-]{9}\S?\s+\d+\s+(\S+)\s+(\S+)\s+\d+,\s*\d+.*?(/dev/nv\S+)$")
    owner, group, device = (listed[1], listed[2], listed[3]) if listed else ("root", "video", "/dev/nvmap")
    who = evidence.find(r"^uid=\d+\(([^)]+)\).*?groups=(\S.*)$")
    user = who[1] if who else "the service's user"
    if who is not None and f"({group})" in who[2]:
        return None
    return Finding(
        "service.group-video",
        "diagnose",
        f"{user} is not in the group {group}, which {device} ({owner}:{group}) is open to",
        f"`orin-deploy up` writes a unit with SupplementaryGroups={group} render (those there are); by hand: "
        f"sudo usermod -aG {group} {user if who else 'USER'}",
        why_not="neither CUDA nor the driver is missing: in a login shell of another user the same program works",
        values={"user": user, "group": group, "device": device},
    )
