"""The first steps: the source, whole and outside any git tree, and the tools that the system lacks."""

from __future__ import annotations

from orin_deploy.actions import Action, Fetch, Remove, Run, Unpack
from orin_deploy.intent.spec import Build, Source
from orin_deploy.parts.engine import layout
from orin_deploy.parts.engine.state import EngineState
from orin_deploy.parts.step import Step

_TOOLS = ("cmake>=3.24,<5", "ninja>=1.11")

PIP_ENV = (("PIP_NO_INPUT", "1"), ("PIP_DISABLE_PIP_VERSION_CHECK", "1"), ("PIP_ROOT_USER_ACTION", "ignore"))


def fetch(source: Source, state: EngineState) -> tuple[Action, ...]:
    """The action that brings a source's archive to where it belongs; none when it is there."""
    path = layout.archive(source, state.cache)
    if path in state.archives or path == source.location:
        return ()
    reference = f"package:{source.location}=={source.version}" if source.kind == "package" else source.location
    return (Fetch(reference, path, sha256=source.sha256),)


def source_step(build: Build, state: EngineState) -> Step:
    """Unpack or clone the source, so that it appears whole or not at all."""
    source, folder = build.source, layout.source_folder(build)
    name = f"{source.location} {source.version}" if source.version else source.location
    step = Step("engine", "source", f"{name} lies in {folder}")
    if state.built or state.source:
        return step
    partial = f"{folder}.partial"
    publish = Run(("mv", "-T", partial, folder))
    actions: tuple[Action, ...]
    match source.kind:
        case "package":
            prefix = f"llama_cpp_python-{source.version}/vendor/llama.cpp/"
            actions = (*fetch(source, state), Unpack(layout.archive(source, state.cache), folder, prefix))
        case "archive":
            tar = ("tar", "-x", "--strip-components=1", "-f", layout.archive(source, state.cache))
            actions = (*fetch(source, state), Remove(partial), Run(tar, cwd=partial), publish)
        case _:
            # All commits without their files, so that the build number can be counted.
            clone = ("git", "clone", "--filter=blob:none", "--no-checkout", source.location, partial)
            checkout = ("git", "-C", partial, "checkout", "--detach", source.version or "HEAD")
            actions = (Remove(partial), Run(clone), Run(checkout), publish)
    pinned = ", whose hash is pinned" if source.sha256 else ""
    commit = f" (llama.cpp {source.commit})" if source.commit else ""
    return Step("engine", "source", f"{name}{pinned}{commit}, into {folder}", actions)


def tools_step(build: Build, state: EngineState) -> Step | None:
    """cmake and Ninja from the Python index, where the system's are missing or too old; None where they serve."""
    wanted = [
        name for name, program in (("cmake", build.cmake_program), ("ninja", build.ninja_program)) if program is None
    ]
    if not wanted or build.engine:
        return None
    if state.tools or state.built:
        return Step("engine", "build tools", f"{' and '.join(wanted)} from the Python index are in the cache")
    folder, partial = f"{state.cache}/tools", f"{state.cache}/tools.partial"
    install = (state.python, "-m", "pip", "install", "--target", partial, *_TOOLS)
    return Step(
        "engine",
        "build tools",
        f"{' and '.join(wanted)} missing or too old: from the Python index",
        (
            Remove(partial),
            Run(install, env=PIP_ENV, log=f"{build.folder}/{layout.LOG}", progress="pip"),
            Remove(folder),
            Run(("mv", "-T", partial, folder)),
        ),
    )
