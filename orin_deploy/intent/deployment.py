"""How a deployment is spelt on a machine: its folder among our data, and its systemd units."""

from __future__ import annotations

import re
from pathlib import Path

_PREFIX, _SUFFIX = "orin-deploy-", ".service"
_DRAFT = "@draft"  # an instance, so that no deployment's own name can be the same

UNITS = f"{_PREFIX}*{_SUFFIX}"
"""A pattern of the file names of all units."""


def folder(data: Path, name: str) -> Path:
    """Where all is that belongs to one deployment alone."""
    return folders(data) / name


def folders(data: Path) -> Path:
    """Where the deployments' folders are."""
    return data / "deployments"


def unit(name: str) -> str:
    """The unit of its server."""
    return f"{_PREFIX}{name}{_SUFFIX}"


def draft_unit(name: str) -> str:
    """The unit of the draft's own process."""
    return f"{_PREFIX}{name}{_DRAFT}{_SUFFIX}"


def power_unit(name: str) -> str:
    """The unit that sets power again at every boot."""
    return f"{_PREFIX}power-{name}{_SUFFIX}"


def of_unit(text: str) -> str | None:
    """The deployment whose server's or draft's unit is the last part of a path, as of a control group or unit file."""
    match = re.search(rf"/{_PREFIX}([^/@]+)(?:{_DRAFT})?{re.escape(_SUFFIX)}", text)
    return match and match[1]
