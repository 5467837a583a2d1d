"""The Hugging Face hub: what a repository holds, which file a quantization means, and where its bytes are.

Names, tokens and the hub's errors are huggingface_hub's; the bytes go through our own download, because
huggingface_hub (2.4) removes its partial file when a download ends early and starts from zero in the next run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orin_deploy.errors import OrinError, UsageError
from orin_deploy.host.fetch_http import QUESTION, Patience, Remote, Trouble, persist

if TYPE_CHECKING:
    from orin_deploy.host import Host

DEFAULT_QUANT = "Q4_K_M"
LISTED = 20
_SPLIT = re.compile(r"(?P<base>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf")
_NO_MODEL = re.compile(r"(?:^|/)(?:mmproj|imatrix)[^/]*$", re.IGNORECASE)


@dataclass(frozen=True)
class Listing:
    """A repository at one commit: size in bytes and SHA-256 of each file, None where the hub does not say."""

    commit: str
    files: Mapping[str, tuple[int | None, str | None]]


def listing(host: Host, repo: str, patience: Patience = QUESTION) -> Listing:
    """What `owner/name` holds on the hub; UsageError where there is no such repository, OrinError without network."""
    info = persist(host, patience, lambda: _model_info(host, repo), lambda _, __: None)
    files = {one.rfilename: (one.size, one.lfs.sha256 if one.lfs else None) for one in info.siblings or ()}
    return Listing(info.sha or "main", files)


def remote(host: Host, repo: str, filename: str, patience: Patience = QUESTION) -> Remote:
    """One file of a repository at the commit it has now; UsageError where the repository lacks it."""
    from huggingface_hub import get_token, hf_hub_url

    found = listing(host, repo, patience)
    demand(repo, found, (filename,))
    size, sha256 = found.files[filename]
    token = host.environ.get("HF_TOKEN") or get_token()
    return Remote(
        hf_hub_url(repo, filename, revision=found.commit, endpoint=_endpoint(host)),
        f"{repo}/{filename}",
        _terms(host, repo),
        {"Authorization": f"Bearer {token}"} if token else {},
        size,
        sha256,
    )


def demand(repo: str, found: Listing, names: Iterable[str]) -> None:
    """UsageError, with what there is, unless a repository holds all these files."""
    if missing := [name for name in names if name not in found.files]:
        raise UsageError(f"{repo} has no file {missing[0]}", _holds(repo, found.files))


def choose(repo: str, files: Iterable[str], quant: str | None) -> tuple[str, ...]:
    """The model file of a quantization, all parts in order where it is split; Q4_K_M where none is named.

    UsageError lists what there is when nothing or more than one model matches.
    """
    models = sorted(name for name in files if name.endswith(".gguf") and not _NO_MODEL.search(name))
    sets: dict[str, list[str]] = {}
    for name in models:
        split = _SPLIT.fullmatch(name)
        sets.setdefault(split["base"] if split else name[: -len(".gguf")], []).append(name)
    wanted = quant or DEFAULT_QUANT
    pattern = re.compile(rf"(?:^|[-._/]){re.escape(wanted)}(?=[-./]|$)", re.IGNORECASE)
    matching = [base for base in sets if pattern.search(base)]
    if len(matching) == 1:
        return _whole(repo, sets[matching[0]])
    if not quant and len(sets) == 1:
        return _whole(repo, next(iter(sets.values())))
    hint = _holds(repo, [names[0] for base, names in sets.items() if base in matching or not matching])
    if matching:
        raise UsageError(f"{repo} has {len(matching)} models of {wanted}", hint)
    raise UsageError(f"{repo} has no GGUF model" + (f" of {wanted}" if models else ""), hint)


def split_set(name: str) -> tuple[str, ...]:
    """The names of all parts of the set that a file belongs to, itself alone where it is no part."""
    if not (split := _SPLIT.fullmatch(name)):
        return (name,)
    return tuple(f"{split['base']}-{i + 1:05}-of-{split['count']}.gguf" for i in range(min(int(split["count"]), 999)))


def _whole(repo: str, names: list[str]) -> tuple[str, ...]:
    whole = split_set(names[0])
    if missing := sorted(set(whole) - set(names)):
        raise OrinError(f"{repo} lacks {len(missing)} of {len(whole)} parts: {missing[0]} …", "choose another file")
    return whole


def _holds(repo: str, files: Iterable[str]) -> str:
    models = [f"hf:{repo}/{name}" for name in files if name.endswith(".gguf")]
    if not models:
        return f"look for a repository with GGUF files, often {repo}-GGUF"
    return "choose one of " + ", ".join(models[:LISTED]) + (" …" if len(models) > LISTED else "")


def _endpoint(host: Host) -> str:
    return host.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def _model_info(host: Host, repo: str) -> Any:
    from huggingface_hub import HfApi, errors

    # The base class belongs to the HTTP client: requests, httpx or another, as the version wants.
    client_errors: tuple[type[BaseException], ...] = (*errors.HfHubHTTPError.__bases__, OSError)
    site = _endpoint(host).partition("://")[2]
    token = host.environ.get("HF_TOKEN") or None
    try:
        return HfApi(_endpoint(host), token).model_info(repo, files_metadata=True, timeout=QUESTION.read_s)
    except errors.GatedRepoError as error:
        raise OrinError(f"{repo} is gated at {site}", _terms(host, repo)) from error
    except errors.RepositoryNotFoundError as error:
        hint = f"check the spelling; for a private repository set HF_TOKEN{' to another token' if token else ''}"
        raise UsageError(f"{site} has no model repository {repo}", hint) from error
    except errors.HFValidationError as error:
        raise UsageError(f"{repo} is not the name of a repository", "write hf:OWNER/REPOSITORY/FILE") from error
    except errors.OfflineModeIsEnabled as error:
        raise OrinError("HF_HUB_OFFLINE is set: the hub is not asked", "unset HF_HUB_OFFLINE, or use file:") from error
    except client_errors as error:
        raise _trouble(error, site, host, repo) from error
    except (ValueError, KeyError, TypeError) as error:
        hint = "check HF_ENDPOINT, and open any page in a browser: some networks want a login first"
        raise OrinError(f"{site} does not answer like a model hub", hint) from error


def _terms(host: Host, repo: str) -> str:
    return f"accept the model's terms at {_endpoint(host)}/{repo}, then set HF_TOKEN to a token that may read it"


def _trouble(error: BaseException, site: str, host: Host, repo: str) -> OrinError:
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if response is None or status is None:
        return Trouble(f"no network: {site} cannot be reached", "check the network, then run the same command again")
    if status in (401, 403):
        return OrinError(f"{site} refuses {repo} (HTTP {status})", _terms(host, repo))
    if status == 429 or status >= 500:
        after = response.headers.get("Retry-After", "")
        wait = float(after) if after.isdigit() else None
        return Trouble(f"{site} answers HTTP {status}", "run the same command again later", wait)
    return OrinError(f"{site} answers HTTP {status} for {repo}", "check HF_ENDPOINT and the reference")
