"""A captured or rebuilt machine: files below a folder and the recorded answers of its commands."""

from __future__ import annotations

from pathlib import Path

from orin_deploy.host.machine import Machine

PATH = "/usr/local/bin:/usr/bin:/bin"


class Capture(Machine):
    """A board's folder as a machine.

    `root/` holds its files, a program being there when a file of its name is. `commands/` holds what programs print:
    "nvcc --version.txt", or, where two programs of a name differ, "usr/local/cuda-11.4/bin/nvcc --version.txt". A
    command without a file fails. `environ` holds NAME=VALUE lines, if PATH and HOME should be others.
    """

    def __init__(self, board: Path) -> None:
        variables = board / "environ"
        lines = variables.read_text().splitlines() if variables.exists() else []
        environ = {"PATH": PATH, "HOME": "/root"} | dict(line.split("=", 1) for line in lines)
        super().__init__(board / "root", environ)
        self._commands = board / "commands"

    def which(self, program: str) -> str | None:
        folders = self.environ["PATH"].split(":")
        return next((f"{folder}/{program}" for folder in folders if self.path(f"{folder}/{program}").is_file()), None)

    def ask(self, *argv: str, timeout_s: float = 20) -> str | None:
        program = Path(argv[0])
        below = next((root for root in (self.root, Path("/")) if program.is_relative_to(root)), None)
        inside = program.relative_to(below) if below else program
        for name in (str(inside), program.name):
            answer = self._commands / " ".join((f"{name}", *argv[1:]))
            answer = answer.with_name(f"{answer.name}.txt")
            if answer.is_file():
                return answer.read_text().strip()
        return None
