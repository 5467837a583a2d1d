"""Rules about containers."""

from __future__ import annotations

import re

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding

_RUN = r"^.*\b(?:docker|podman|nerdctl)\s+run\b.*$"


def no_nvidia_runtime(evidence: Evidence) -> Finding | None:
    """Driver libraries that are empty placeholders: the image was started without what mounts the host's."""
    empty = next((item.path for item in evidence.listed if _is_driver(item.path) and item.size == 0), None)
    if empty is None and (short := evidence.find(r"(libcuda\.so[.\d]*): file too short")):
        empty = short[1]
    if empty is None:
        return None
    command = evidence.find(_RUN)
    given = command is not None and re.search(r"--runtime[= ]nvidia|--gpus\b|--device[= ]nvidia\.com", command[0])
    started = f"; `{command[0].strip()}` does not ask for it" if command is not None and not given else ""
    return Finding(
        "container.no-nvidia-runtime",
        "diagnose",
        f"{empty} has 0 bytes: the container runs without the NVIDIA runtime, which mounts the board's driver{started}",
        "start the container with --runtime nvidia (or make it the default runtime in /etc/docker/daemon.json)",
        why_not="nothing is to be installed in the image, and --privileged does not mount the driver",
        values={"library": empty},
    )


def _is_driver(path: str) -> bool:
    return re.search(r"/libcuda\.so[.\d]*$|/tegra/libnv[\w-]+\.so[.\d]*$", path) is not None
