"""The last step of a build for another machine: its files are read, since they cannot be run here."""

from __future__ import annotations

from pathlib import Path

from orin_deploy.actions import Run
from orin_deploy.facts.device import CrossCompiler
from orin_deploy.intent.spec import Build
from orin_deploy.parts.engine import layout, readelf
from orin_deploy.parts.engine.state import EngineState
from orin_deploy.parts.step import Step


def elf_step(build: Build, compiler: CrossCompiler, state: EngineState) -> Step:
    """Read for which machine the files are and what they need there; what would not run fails the step."""
    machine, has = compiler.machine, dict(build.libraries)
    files = (state.info or {}).get("files")
    if state.built and isinstance(files, dict) and not readelf.mismatches(files, machine, has):
        needs = ", ".join(f"{name} {version}" for name, version in sorted(readelf.newest(files).items()))
        return Step("engine", "check", f"{len(files)} files for {machine}, which need {needs}; not run here")
    limits = [f"{name}={version}" for name, version in build.libraries]
    argv: tuple[str, ...] = (state.python, str(Path(readelf.__file__)), build.bin, "--machine", machine)
    argv = (*argv, "--has", *limits) if limits else argv
    why = f"every file must be for {machine} and need no newer library than the board has; it cannot be run here"
    return Step("engine", "check", why, (Run(argv, output=f"{build.folder}/{layout.INFO}"),))
