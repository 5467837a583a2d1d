"""Where llama.cpp's source code comes from: the words a person writes and the Source they mean."""

from __future__ import annotations

import re

from orin_deploy.errors import UsageError
from orin_deploy.intent.spec import Source

DEFAULT = "package:llama-cpp-python==0.3.36"
PACKAGE = "llama-cpp-python"

# The pinned package carries upstream 0c1e57098bba43ac29e6e3b677cdceebdd22334f, which upstream's releases call b11312.
_PINNED = {
    "0.3.36": Source(
        kind="package",
        location=PACKAGE,
        version="0.3.36",
        sha256="832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
        commit="0c1e570",
        build_number=11312,
    )
}

# Revisions whose include/llama.h has the structures that the pinned binding was written for (b11434: compared).
_SAME_ABI = frozenset({"0c1e570", "b11312", "b11434"})

_ARCHIVE = (".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar")
_FORMS = "package:llama-cpp-python==VERSION, git:URL@REF, file:/folder, file:/archive.tar.gz or https://…tar.gz"


def parse_source(text: str) -> Source:
    """The Source that `build.source` names; raises UsageError with the forms there are."""
    kind, _, rest = text.strip().partition(":")
    match kind:
        case "package":
            return _package(rest)
        case "git":
            return _git(rest)
        case "file":
            return _file(rest)
        case "https" | "http" if rest.startswith("//"):
            _require_archive(text)
            return Source("archive", text.strip())
    raise UsageError(f'build.source "{text}" is no source', f"use {_FORMS}")


def has_binding(source: Source) -> bool:
    """Whether the Python binding fits: it comes with a package, and the pinned one fits revisions of the same ABI."""
    return source.kind == "package" or bool({source.commit, source.version} & _SAME_ABI)


def source_folder(source: Source, engines: str) -> str:
    """Where the source tree lies; a folder named after the commit or version, so that compiler caches see one path."""
    if source.kind == "tree":
        return source.location
    from hashlib import sha256

    name = source.commit or source.version or ""
    if source.kind != "package":  # two repositories may both have a tag b11434
        name = f"{name}-{sha256(source.location.encode()).hexdigest()[:8]}".lstrip("-")
    return f"{engines}/sources/llama.cpp-{name.replace('/', '-')}"


def _package(text: str) -> Source:
    name, _, version = text.partition("==")
    if re.sub(r"[-_.]+", "-", name).lower() != PACKAGE:
        raise UsageError(f"package {name or '(none)'} is not known to carry llama.cpp", f"use {DEFAULT}")
    if not re.fullmatch(r"\d+(\.\w+)*", version):
        raise UsageError(f'build.source "package:{text}" names no version', f"use {DEFAULT}")
    return _PINNED.get(version) or Source("package", PACKAGE, version)


def _git(text: str) -> Source:
    url, _, ref = text.rpartition("@")
    if not url or url == "git" or not re.fullmatch(r"\w[\w./-]*", ref) or ".." in ref:
        raise UsageError(f'build.source "git:{text}" names no tag or commit', "use git:URL@REF, with REF as in b11434")
    if url.startswith("-"):
        raise UsageError(f'build.source "git:{text}" names no repository', "use git:URL@REF")
    number = re.fullmatch(r"b(\d+)", ref)
    commit = ref[:7] if re.fullmatch(r"[0-9a-f]{7,40}", ref) else None
    return Source("git", url, version=ref, commit=commit, build_number=int(number[1]) if number else None)


def _file(text: str) -> Source:
    path = "/" + text.strip("/")
    if not text.startswith("/"):
        raise UsageError(
            f'build.source "file:{text}" is not an absolute path', "use file:/folder or file:/archive.tar.gz"
        )
    if path.endswith(_ARCHIVE):
        return Source("archive", path)
    return Source("tree", path)


def _require_archive(url: str) -> None:
    if not url.split("?")[0].split("#")[0].strip().endswith(_ARCHIVE):
        raise UsageError(f'build.source "{url}" is not an archive ({", ".join(_ARCHIVE)})', f"use {_FORMS}")
