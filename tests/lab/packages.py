"""Debian packages for another architecture, through an apt of the lab's own that knows nothing of the workstation's."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.lab import where
from tests.lab.commands import LabError, sh
from tests.lab.manifest import Package, hashes

_CONF = """APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
Dir::State::lists "{folder}/lists";
Dir::Cache "{folder}/cache";
Dir::State::status "{folder}/status";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "root";
"""
MIRROR = "http://deb.debian.org"
SOURCES = tuple(
    f"deb {MIRROR}/{archive} {suite} main"
    for archive, suite in (
        ("debian", where.SUITE),
        ("debian", f"{where.SUITE}-updates"),
        ("debian-security", f"{where.SUITE}-security"),
    )
)


class Apt:
    """apt for arm64 in a folder of the lab."""

    def __init__(self) -> None:
        self.folder = where.home() / "apt"
        self.conf = self.folder / "apt.conf"

    def update(self) -> None:
        for name in ("lists/partial", "cache/archives/partial", "debs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        (self.folder / "sources.list").write_text("\n".join(SOURCES) + "\n")
        self.conf.write_text(_CONF.format(folder=self.folder))
        sh(("apt-get", "-c", self.conf, "update"))

    def newest_kernel(self) -> str:
        """The package that linux-image-arm64 stands for now."""
        said = sh(("apt-cache", "-c", self.conf, "depends", "--important", "linux-image-arm64"))
        names = [line.split()[-1] for line in said.splitlines() if "Depends:" in line]
        if not names:
            raise LabError("Debian has no kernel for arm64 here", f"look at apt-cache -c {self.conf} policy")
        return names[0]

    def download(self, name: str) -> tuple[Path, Package]:
        """A package's file, fetched unless it is there."""
        debs = self.folder / "debs"
        sh(("apt-get", "-c", self.conf, "download", name), cwd=debs)
        file = max(debs.glob(f"{name}_*.deb"), key=lambda path: path.stat().st_mtime)
        version = sh(("dpkg-deb", "-f", file, "Version")).strip()
        return file, Package(name, version, hashlib.sha256(file.read_bytes()).hexdigest())

    def described(self, installed: tuple[tuple[str, str], ...]) -> tuple[Package, ...]:
        """Packages that are installed in a root, with the hash of each file."""
        words = [f"{name}={version}" for name, version in installed]
        known = hashes(sh(("apt-cache", "-c", self.conf, "show", *words)))
        return tuple(Package(name, version, known.get((name, version), "")) for name, version in installed)
