"""Plans that are the same on every machine and for every user: for a board's stand-in or the workstation below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from orin_deploy.actions import Action
from orin_deploy.deploy.draft import draft, situation
from orin_deploy.deploy.plan import Plan
from orin_deploy.facts.device import MIB, Cluster, Cpu, Device, Memory, Tool, Toolchain
from orin_deploy.host import Host, Progress
from orin_deploy.intent.request import Request

PROFILES = Path(__file__).parents[1] / "profiles"

WORKSTATION = Device(
    machine="x86_64",
    os="Debian GNU/Linux 12 (bookworm)",
    kernel="6.1.0",
    cpu=Cpu(
        model="AMD Ryzen 5 7600 6-Core Processor",
        features=frozenset({"lm", "sse4_2", "avx", "avx2", "fma", "f16c", "bmi2"}),
        clusters=(Cluster(tuple(range(12))),),
        present=tuple(range(12)),
        online=tuple(range(12)),
        allowed=tuple(range(12)),
        clusters_from="none",
        thread_siblings=tuple((core, core + 6) for core in range(6)),
    ),
    memory=Memory(total=15_800 * MIB, available=12_000 * MIB, free=9_000 * MIB),
    toolchain=Toolchain(
        cxx=Tool("/usr/bin/g++", (12, 2, 0)),
        cc=Tool("/usr/bin/gcc", (12, 2, 0)),
        cmakes=(Tool("/usr/bin/cmake", (3, 25, 1)),),
        git=Tool("/usr/bin/git", (2, 39, 5)),
    ),
    jetson=None,
    systemd=False,
    container=None,
)


class Untouched(Host):
    """A machine on which nothing is: every file is absent, and a command, a request or a change fails the test."""

    def __init__(self) -> None:
        super().__init__("/absent", {"PATH": "/absent/bin", "HOME": "/absent/home"})
        self.is_root = True
        self.data, self.cache = Path("/absent/orin-deploy"), Path("/absent/cache")

    def which(self, program: str) -> str | None:
        return "/usr/bin/taskset" if program == "taskset" else None

    def free_bytes(self, path: str | Path) -> int | None:
        return None

    def ask(self, *argv: str, timeout_s: float = 20) -> NoReturn:
        raise AssertionError(f"asked {argv}")

    def http(self, method: str, url: str, payload: Any = None, **options: Any) -> NoReturn:
        raise AssertionError(f"requested {url}")

    def events(self, url: str, payload: Any, **options: Any) -> Iterator[Any]:
        raise AssertionError(f"requested {url}")

    def do(self, action: Action, progress: Progress = lambda fraction, text: None) -> NoReturn:
        raise AssertionError(f"did {action}")


def planned(profile: str, *sets: str, device: Device | None = None, **wish: Any) -> Plan:
    """The first plan for a profile and --set words; `device` is the machine at hand, else the board stands in."""
    pairs = tuple((key, value) for key, _, value in (word.partition("=") for word in sets))
    request = Request(profile, sets=pairs, profiles_folder=str(PROFILES), **wish)
    host = Untouched()
    now = situation(host, request, elsewhere=True)
    if device is not None:
        now = replace(now, device=device)
    return draft(host, request, now, lambda fraction, text: None)
