"""The last steps: the Python binding, installed without compiling, and the proof that the build is what was asked."""

from __future__ import annotations

from pathlib import Path

from orin_deploy.actions import Remove, Run, Write
from orin_deploy.intent.build_words import base_architecture
from orin_deploy.intent.spec import Build
from orin_deploy.parts.engine import layout, probe
from orin_deploy.parts.engine.sources import PIP_ENV, fetch
from orin_deploy.parts.engine.state import EngineState
from orin_deploy.parts.step import Step

_NO_BUILD = ("CMAKE_ARGS", "-DLLAMA_BUILD=OFF -DLLAVA_BUILD=OFF")


def binding_step(build: Build, state: EngineState) -> Step:
    """Install the binding beside the engine, from the package that carries the source."""
    source = layout.binding_source(build)
    if source is None:
        fits = "of a ready engine" if build.engine else f"of {build.source.location}"
        return Step(
            "engine",
            "Python binding",
            f"left out: its structures are written for one revision, and that {fits} is unknown",
        )
    name = f"{source.location} {source.version}"
    if state.binding:
        return Step("engine", "Python binding", f"{name} is beside the engine")
    folder = f"{build.folder}/{layout.BINDING}"
    partial = f"{folder}.partial"
    install = (state.python, "-m", "pip", "install", "--target", partial, layout.archive(source, state.cache))
    return Step(
        "engine",
        "Python binding",
        f"{name}, not compiled: it loads this engine's libraries",
        (
            *(() if _fetched_before(build, state) else fetch(source, state)),
            Remove(partial),
            Run(install, env=(*PIP_ENV, _NO_BUILD), log=f"{build.folder}/{layout.LOG}", progress="pip"),
            Write(f"{partial}/{Path(layout.BINDING_PYTHON).name}", f"{state.python_version}\n"),
            Remove(folder),
            Run(("mv", "-T", partial, folder)),
        ),
        seconds=30,
    )


def check_step(build: Build, state: EngineState) -> Step:
    """Ask the libraries what they were built with; what was asked for and is missing fails the step."""
    if build.engine and not state.libraries:
        return Step("engine", "check", f"{build.engine} has no libllama.so to ask")
    binding = layout.binding_source(build) is not None
    cuda = tuple(base_architecture(name) for name in build.cuda_architectures) if build.cuda else None
    if state.built and _holds(build, state, cuda, binding):
        assert state.info is not None
        return Step("engine", "check", f"the libraries say: {_summary(state)}")
    asked = sorted(build.cpu_features)
    argv = [state.python, str(Path(probe.__file__)), build.bin, *(["--cpu", *asked] if asked else [])]
    if cuda is not None:
        asked.append(" ".join(["CUDA", *cuda]))
        argv += ["--cuda", *cuda]
    if build.blas:
        asked.append("BLAS")
        argv.append("--blas")
    env: tuple[tuple[str, str], ...] = ()
    if binding:
        argv.append("--binding")
        env = (("LLAMA_CPP_LIB_PATH", build.bin), ("PYTHONPATH", f"{build.folder}/{layout.BINDING}"))
    why = f"the libraries must report {', '.join(asked)}" if asked else "the libraries must load"
    return Step("engine", "check", why, (Run(tuple(argv), env=env, output=f"{build.folder}/{layout.INFO}"),))


def _holds(build: Build, state: EngineState, cuda: tuple[str, ...] | None, binding: bool) -> bool:
    if state.info is None or (binding and state.info.get("python") != state.python_version):
        return False
    return not probe.mismatches(state.info, build.cpu_features, cuda, build.blas, binding)


def _summary(state: EngineState) -> str:
    assert state.info is not None
    features = state.info.get("features", {})
    parts = [", ".join(features.get("CPU", {}))]
    if "CUDA" in features:
        parts.append(f"CUDA {', '.join(probe.cuda_architectures(features['CUDA']))}")
    devices = [device["name"] for device in state.info.get("devices", ()) if device["name"] != "CPU"]
    return "; ".join([*parts, *devices])


def _fetched_before(build: Build, state: EngineState) -> bool:
    """Whether the source step of this plan fetches the same archive."""
    return build.source.kind == "package" and not (state.built or state.source)
