"""Building a virtual Jetson and holding it: its root, its tools, hosts on it, and time."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from orin_deploy.host import Host
from tests.virtual import booting
from tests.virtual import root as roots
from tests.virtual.kernel import Kernel

# Of this machine, what scripts and people need; nothing that could be taken for the board's own compilers or CUDA.
_HOST_TOOLS = (
    "awk", "basename", "bash", "cat", "chmod", "cp", "curl", "cut", "date", "diff", "dirname", "du", "echo", "env",
    "expr", "false", "find", "grep", "head", "hostname", "id", "kill", "less", "ln", "ls", "mkdir", "mktemp",
    "mv", "nice", "printf", "ps", "pwd", "readlink", "rm", "rmdir", "sed", "seq", "sh", "sleep", "sort",
    "stat", "sync", "tail", "tar", "tee", "test", "timeout", "touch", "tr", "true", "tty", "uniq", "watch",
    "wc", "which", "xargs", "yes",
)  # fmt: skip
TOOLS = ("nvpmodel", "jetson_clocks", "tegrastats", "systemctl", "journalctl", "taskset", "reboot")
_REPO = Path(__file__).resolve().parents[2]
_STUB = """#!{python} -S
import sys
sys.path.insert(0, {repo!r})
from tests.virtual.tools import run
run({tool!r}, {root!r})
"""
_COMPILER = """#!/bin/sh
[ "$1" = --version ] && echo "{said}" && exit
echo "{tool}: nothing can be compiled on a virtual board" >&2
exit 1
"""
_VERSIONS = {
    "gcc": "gcc (Ubuntu {gcc}) {gcc}", "g++": "g++ (Ubuntu {gcc}) {gcc}",
    "cmake": "cmake version {cmake}", "git": "git version 2.34.1",
}  # fmt: skip


class VirtualJetson:
    """A virtual board: `root` has its files, `bin` its tools. State is on disk alone, so any number may hold it."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.bin = self.root / "usr/bin"
        self.kernel = Kernel(self.root)

    def environ(self, base: Mapping[str, str] | None = None, user: str = "root") -> dict[str, str]:
        """The environment in which this machine's programs see the board. `user` is who the tools take us for."""
        base = os.environ if base is None else base
        kept = {name: value for name, value in base.items() if not name.startswith(("ORIN_", "XDG_", "CUDA_"))}
        return kept | {
            "PATH": str(self.bin),
            "ORIN_DEPLOY_ROOT": str(self.root),
            "ORIN_DEPLOY_HOME": str(self.root / "var/lib/orin-deploy"),
            "VIRTUAL_JETSON_USER": user,
        }

    def host(self, user: str = "root") -> Host:
        """An ordinary host on the board; as "root" it is its root, whoever runs the tests."""
        host = Host(self.root, self.environ(user=user))
        host.is_root = user == "root"
        return host

    def share(self, path: Path) -> None:
        """Let the board have a file or folder of this machine at the same path, as a bind mount does."""
        place = self.kernel.path(str(path.absolute()))
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(path.absolute())

    def add_profile(self, engine: Path, base: str, **options: str) -> str:
        """A site profile of the same name over a board's: no CUDA, and this machine's own engine by path."""
        self.share(engine)
        lines = [
            f"# For module {self.kernel.board.module}.",  # what `--profile auto` looks for
            "description: A virtual board, with the engine of the machine it is on.", f"include: {base}",
            "build:", "  cuda: off", f"  engine: {engine}", *(f"{key}: {value}" for key, value in options.items()),
        ]  # fmt: skip
        self.kernel.write(f"/etc/orin-deploy/profiles/{base}.yaml", "\n".join(lines) + "\n")
        return base

    # What happens to it.

    def set_load(self, gpu: float = 0.0, cpu: float | Mapping[int, float] = 0.0) -> None:
        """The load of the GPU and of all CPUs, or of some by number, from 0 to 1, until it is set anew."""
        with self.kernel.changing():
            count = len(self.kernel.data["cpu_load"])
            loads = (
                [float(cpu)] * count if isinstance(cpu, (int, float)) else [cpu.get(each, 0.0) for each in range(count)]
            )
            self.kernel.data |= {"gpu_load": gpu, "cpu_load": loads}

    def advance(self, seconds: float) -> None:
        """Let the board's time pass."""
        with self.kernel.changing():
            self.kernel.advance(seconds)

    def take(self, mib: int) -> None:
        """Somebody takes memory, or with a negative number gives it back."""
        with self.kernel.changing():
            self.kernel.data["taken_kib"] = max(0, self.kernel.data["taken_kib"] + mib * 1024)

    def reboot(self) -> None:
        booting.reboot(self.kernel)

    def power_cut(self) -> None:
        """As a reboot, but nothing that runs is asked to end."""
        booting.reboot(self.kernel, power_cut=True)

    def shut_down(self) -> None:
        """End all that runs on it."""
        booting.shut_down(self.kernel)

    # What is.

    @property
    def mode(self) -> str:
        with self.kernel.changing():
            return self.kernel.conf().names[self.kernel.data["mode"]]

    def online(self) -> tuple[int, ...]:
        return self.kernel.online()


def build(root: Path, board: str, l4t: str, live: bool = False) -> VirtualJetson:
    """A freshly flashed board below an empty folder; time and load of a `live` one follow what really happens."""
    root.mkdir(parents=True, exist_ok=True)
    root = root.resolve()
    roots.make(root, board, l4t, live)
    folder = root / "usr/bin"
    folder.mkdir(parents=True, exist_ok=True)
    release = Kernel(root).release
    for tool in TOOLS:
        _script(folder / tool, _STUB.format(python=sys.executable, repo=str(_REPO), tool=tool, root=str(root)))
    for tool, said in _VERSIONS.items():
        _script(folder / tool, _COMPILER.format(said=said.format(gcc=release.gcc, cmake=release.cmake), tool=tool))
    for tool in _HOST_TOOLS:
        if (found := shutil.which(tool)) is not None:
            (folder / tool).symlink_to(found)
    _script(folder / "sudo", '#!/bin/sh\nVIRTUAL_JETSON_USER=root exec "$@"\n')
    _script(
        folder / "orin-deploy",
        f'#!/bin/sh\nPYTHONPATH={_REPO}${{PYTHONPATH:+:$PYTHONPATH}} exec {sys.executable} -m orin_deploy "$@"\n',
    )
    return VirtualJetson(root)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
