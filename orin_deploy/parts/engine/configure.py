"""The build: cmake, Ninja, and the result made visible only when it is whole."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from orin_deploy.actions import Action, Link, Remove, Run, Write
from orin_deploy.intent.spec import Build
from orin_deploy.parts.engine import configured, layout
from orin_deploy.parts.engine.state import EngineState
from orin_deploy.parts.step import Step


def build_step(build: Build, state: EngineState, ccache: bool) -> Step:
    """Configure, build and publish; an interrupted build goes on in the same tree. `ccache`: it is there."""
    if state.built:
        return Step("engine", "build", f"built as {build.key}", _capture(build, state))
    where = f"{build.jobs} at a time" if build.jobs > 1 else "one at a time"
    what = f"CUDA {', '.join(build.cuda_architectures)}" if build.cuda else "the CPU"
    if build.cross is not None:
        what = f"{what} of {build.cross.machine} machines"
    return Step(
        "engine",
        "build",
        f"{build.key} for {what}, {where}",
        (
            *_forget(build, state),
            *_compile(build, state, ccache),
            *_stamp(build, state),
            *_publish(build),
            *_capture(build, None),
        ),
        hint=f"the whole log is {build.folder}/{layout.LOG}",
        seconds=build.estimate_s,
    )


def ready_step(build: Build, state: EngineState) -> Step:
    """Take a ready engine as it is: nothing is built, its help and version are kept."""
    if state.built:
        return Step("engine", "build", f"{build.engine} is used as it is (build.engine)", _capture(build, state))
    actions = (*_forget(build, state), *_capture(build, None), *_stamp(build, state))
    return Step("engine", "build", f"{build.engine} is used as it is (build.engine); its help is read", actions)


def _compile(build: Build, state: EngineState, ccache: bool) -> tuple[Action, ...]:
    cmake, ninja = layout.tool_programs(state.cache)
    cmake, ninja = build.cmake_program or cmake, build.ninja_program or ninja
    folder, log, report = f"{build.folder}/build", f"{build.folder}/{layout.LOG}", f"{build.folder}/{layout.CONFIGURED}"
    env = _environment(build, ccache)
    configure = (cmake, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", layout.source_folder(build), "-B", folder)
    # What is switched off need not exist: other revisions lack some of these options.
    off = [word[2:].removesuffix("=OFF") for word in build.cmake if word.endswith("=OFF")]
    return (
        Run((*configure, *build.cmake), env=env, log=log, output=report),
        Run((state.python, str(Path(configured.__file__)), report, *off), log=log),
        Run((ninja, "-C", folder, "-j", str(build.jobs), *build.targets), env=env, log=log, progress="ninja"),
    )


def _environment(build: Build, ccache: bool) -> tuple[tuple[str, str], ...]:
    env = [("NINJA_STATUS", "[%f/%t] ")]
    if ccache:
        # Paths relative to `engines`, no folder in debug data, no time macros: any engine's folder hits one cache.
        env += [
            ("CCACHE_BASEDIR", str(PurePosixPath(build.folder).parent)),
            ("CCACHE_NOHASHDIR", "1"),
            ("CCACHE_SLOPPINESS", "time_macros"),
        ]
    return tuple(env)


def _forget(build: Build, state: EngineState) -> tuple[Action, ...]:
    """What was said of an earlier build in this folder."""
    if not (state.help or state.version or state.info):
        return ()
    return tuple(Remove(f"{build.folder}/{name}") for name in (layout.HELP, layout.VERSION, layout.INFO))


def _stamp(build: Build, state: EngineState) -> tuple[Action, ...]:
    return (Write(f"{build.folder}/{layout.BUILT_FROM}", f"{state.fingerprint}\n"),) if state.fingerprint else ()


def _publish(build: Build) -> tuple[Action, ...]:
    return (Link(f"{build.folder}/bin", "build/bin"),)


def _capture(build: Build, state: EngineState | None) -> tuple[Action, ...]:
    """Keep what the server's --help and --version print; only what is missing of them, where a state is given.

    A build for another machine cannot be asked here.
    """
    if build.cross is not None:
        return ()
    wanted = (
        ("--help", layout.HELP, state is not None and state.help),
        ("--version", layout.VERSION, state is not None and state.version),
    )
    return tuple(
        Run((f"{build.bin}/llama-server", flag), output=f"{build.folder}/{name}")
        for flag, name, has in wanted
        if not has
    )
