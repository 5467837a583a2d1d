"""What a lab was made of: every Debian package with version and hash. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Package:
    """A Debian package; `sha256` is that of its file."""

    name: str
    version: str
    sha256: str


def installed(status: str) -> tuple[tuple[str, str], ...]:
    """Name and version of what is installed, from the text of dpkg's status file."""
    found = []
    for block in re.split(r"\n\n+", status):
        fields = _fields(block)
        if fields.get("Status", "").endswith(" installed") and "Package" in fields:
            found.append((fields["Package"], fields.get("Version", "")))
    return tuple(sorted(found))


def hashes(text: str) -> dict[tuple[str, str], str]:
    """The files' hashes by name and version, from what `apt-cache show` prints."""
    blocks = [_fields(block) for block in re.split(r"\n\n+", text)]
    return {
        (fields["Package"], fields["Version"]): fields["SHA256"]
        for fields in blocks
        if {"Package", "Version", "SHA256"} <= fields.keys()
    }


def differences(before: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> tuple[str, ...]:
    """What a second build took otherwise than the one before it, a sentence for each package."""
    said = []
    for name in sorted(before.keys() | now.keys()):
        old, new = before.get(name), now.get(name)
        if old is None or new is None:
            said.append(f"{name} is {'new' if old is None else 'gone'}")
        elif old["version"] != new["version"]:
            said.append(f"{name} {old['version']} is now {new['version']}")
        elif old["sha256"] != new["sha256"]:
            said.append(f"{name} {new['version']} has another hash than before")
    return tuple(said)


def document(packages: tuple[Package, ...]) -> dict[str, dict[str, str]]:
    return {each.name: {"version": each.version, "sha256": each.sha256} for each in sorted(packages)}


def _fields(block: str) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", block, re.MULTILINE))
