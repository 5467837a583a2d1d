"""Where the engine's things lie: in its own folder, the sources beside it, and in the cache what can be had again."""

from __future__ import annotations

from hashlib import sha256
from pathlib import PurePosixPath

from orin_deploy.intent import source as sources
from orin_deploy.intent.build import TARGETS
from orin_deploy.intent.spec import Build, Source

# Below the engine's folder.
LOG = "build.log"
CONFIGURED = "configure.txt"  # what cmake said when it last went well
HELP, VERSION = "help.txt", "version.txt"
INFO = "system_info.json"
BUILT_FROM = "built_from"
BINDING = "python"
BINDING_PYTHON = f"{BINDING}/.python"  # the Python version that the binding's dependencies were installed for


def source_folder(build: Build) -> str:
    return sources.source_folder(build.source, str(PurePosixPath(build.folder).parent))


def binding_source(build: Build) -> Source | None:
    """The package whose binding fits this build, or None."""
    if build.engine or build.cross is not None or not sources.has_binding(build.source):
        return None
    return build.source if build.source.kind == "package" else sources.parse_source(sources.DEFAULT)


def archive(source: Source, cache: str) -> str:
    """Where a source's archive lies: in the cache, or where the user has it."""
    if source.kind == "package":
        return f"{cache}/downloads/llama_cpp_python-{source.version}.tar.gz"
    if source.location.startswith("/"):
        return source.location
    name = PurePosixPath(source.location.split("?")[0].split("#")[0]).name
    return f"{cache}/downloads/{sha256(source.location.encode()).hexdigest()[:8]}-{name}"


def archives(build: Build, cache: str) -> tuple[str, ...]:
    wanted = [build.source] if build.source.kind in ("package", "archive") and not build.engine else []
    if binding := binding_source(build):
        wanted.append(binding)
    return tuple(dict.fromkeys(archive(source, cache) for source in wanted))


def programs(build: Build) -> tuple[str, ...]:
    """The programs by which a build is known to be whole: the server and those that were asked for besides."""
    return tuple(
        f"{build.bin}/{name}" for name in ("llama-server", *(name for name in build.targets if name not in TARGETS))
    )


def tool_programs(cache: str) -> tuple[str, str]:
    """cmake and ninja from the Python index: the programs themselves, not the Python wrappers around them."""
    return f"{cache}/tools/cmake/data/bin/cmake", f"{cache}/tools/bin/ninja"
