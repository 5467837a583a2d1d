"""What there is of the engine: its source, its tools, what is built, and what it said when it was asked."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from orin_deploy.errors import OrinError
from orin_deploy.host import Host
from orin_deploy.intent.spec import Build, Spec
from orin_deploy.parts.engine import layout

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class EngineState:
    """The engine's state. `python` is the interpreter that installs and loads the binding, `cache` our cache folder.

    `fingerprint` tells one state of a source or engine that may change in place from another, None where it cannot
    change; `built_from` is the fingerprint of what was built. `info` is what the build said of itself.
    """

    cache: str
    python: str
    python_version: str
    archives: frozenset[str] = frozenset()  # those of the archives needed that are there
    source: bool = False
    tools: bool = False
    published: bool = False
    fingerprint: str | None = None
    built_from: str | None = None
    help: bool = False
    version: bool = False
    binding: bool = False
    libraries: bool = False
    info: Mapping[str, Any] | None = None

    @property
    def built(self) -> bool:
        return self.published and self.built_from == self.fingerprint


def inspect(host: Host, spec: Spec) -> EngineState:
    """Look at the engine's folders; raises OrinError for an engine, tree or archive that is not there."""
    if spec.device.assumed is not None:  # nothing of ours is on a board that is not at hand
        _require_what_is_named(host, spec.build)
        return EngineState(str(host.cache), sys.executable, _PYTHON)
    return inspect_build(host, spec.build)


def inspect_build(host: Host, build: Build) -> EngineState:
    """The same for a build alone, which may be for another machine."""
    cache, programs, source = str(host.cache), layout.programs(build), layout.source_folder(build)
    _require_what_is_named(host, build)
    return EngineState(
        cache=cache,
        python=sys.executable,
        python_version=_PYTHON,
        archives=frozenset(path for path in layout.archives(build, cache) if host.exists(path)),
        source=host.exists(source),
        tools=all(host.exists(path) for path in layout.tool_programs(cache)),
        published=all(host.exists(path) for path in programs),
        fingerprint=_fingerprint(host, build),
        built_from=host.read(f"{build.folder}/{layout.BUILT_FROM}"),
        help=bool(help_text(host, build)),
        version=bool(host.read(f"{build.folder}/{layout.VERSION}")),
        binding=host.read(f"{build.folder}/{layout.BINDING_PYTHON}") == _PYTHON,
        libraries=host.exists(f"{build.bin}/libllama.so"),
        info=_info(host, build),
    )


def _require_what_is_named(host: Host, build: Build) -> None:
    location = build.source.location
    if build.engine:
        if not host.exists(f"{build.engine}/llama-server"):
            raise OrinError(f"there is no llama-server in {build.engine}", "name another folder in build.engine")
    elif build.source.kind == "tree" and not host.exists(f"{location}/CMakeLists.txt"):
        raise OrinError(f"{location} is no source tree: it has no CMakeLists.txt", "name another one in build.source")
    elif build.source.kind == "archive" and location.startswith("/") and not host.exists(location):
        raise OrinError(f"there is no archive {location}", "name another one in build.source")


def help_text(host: Host, build: Build) -> str | None:
    """What the built server's --help prints, None before it is built."""
    return host.read(f"{build.folder}/{layout.HELP}")


def _info(host: Host, build: Build) -> Mapping[str, Any] | None:
    try:
        info = json.loads(host.read(f"{build.folder}/{layout.INFO}") or "")
    except (ValueError, RecursionError):
        return None
    whole = (
        isinstance(info, dict)
        and isinstance(info.get("features"), dict)
        and all(isinstance(backend, dict) for backend in info["features"].values())
        and isinstance(info.get("devices"), list)
        and all(isinstance(device, dict) and "name" in device for device in info["devices"])
    )
    return info if whole else None


def _fingerprint(host: Host, build: Build) -> str | None:
    """Size and time of a ready engine's server, or of every file of a local tree that is not git's or a build's."""
    if build.engine:
        return _digest([host.path(f"{build.engine}/llama-server")])
    if build.source.kind != "tree":
        return None
    files = []
    for folder, folders, names in os.walk(host.path(build.source.location)):
        folders[:] = sorted(name for name in folders if name != ".git" and not name.startswith("build"))
        files += [Path(folder, name) for name in sorted(names)]
    return _digest(files)


def _digest(files: list[Path]) -> str:
    digest = sha256()
    for file in files:
        try:
            status = file.stat()
        except OSError:
            continue
        digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()[:16]
