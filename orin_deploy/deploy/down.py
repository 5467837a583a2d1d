"""Down: take a deployment back with the undo actions remembered on disk, and on request remove what nothing uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orin_deploy.actions import Action, Remove
from orin_deploy.deploy import decisions, residual
from orin_deploy.deploy.record import (
    deployment_folder,
    deployments,
    forget_undo,
    known,
    latest,
    pending_undo,
    unread,
)
from orin_deploy.errors import CommandFailed, RebootNeeded, UsageError
from orin_deploy.host import Host
from orin_deploy.parts import power

_ABOUT_THE_MACHINE = ("bench", decisions.FILE, residual.FILE)


@dataclass(frozen=True)
class Undone:
    """What `down` did: the actions, and with purge the folders removed and the bytes that freed.

    `kept_for` are other deployments for which all engines and models stay: no record says what they use.
    """

    actions: tuple[Action, ...] = ()
    removed: tuple[str, ...] = ()
    freed_bytes: int = 0
    kept_for: tuple[str, ...] = ()


def choose(host: Host, name: str | None) -> str:
    """The deployment meant: the one named, or the only one there is or ever was; raises UsageError with their names."""
    up, ever = deployments(host), known(host)
    if name is not None and name in ever:
        return name
    candidates = up or ever
    if name is None and len(candidates) == 1:
        return candidates[0]
    if name is None and candidates:
        raise UsageError(
            f"there are {len(candidates)} deployments: {', '.join(candidates)}", "say which with --name NAME"
        )
    if name is None:
        raise UsageError("nothing was ever deployed on this machine", "orin-deploy up")
    raise UsageError(f"there is no deployment named {name}", f"there are: {', '.join(ever) or 'none'}")


def down(host: Host, name: str, purge: bool = False, reboot: bool = False) -> Undone:
    """Undo a deployment; after a failure it goes on with what is left. Engines and models stay unless purged.

    Raises RebootNeeded when all is undone but a power mode that only a reboot brings back, unless that is agreed to.
    """
    pending = pending_undo(host, name)
    for action in pending:
        try:
            host.do(power.with_consent(action) if reboot else action)
        except CommandFailed as error:
            if not power.asks(error):
                raise
            raise RebootNeeded(
                f"{name} is down, but the power mode from before comes back only with a reboot",
                f"orin-deploy down --name {name} --reboot, now or later",
            ) from error
    forget_undo(host, name)
    return _purge(host, name, pending) if purge else Undone(pending)


def _purge(host: Host, name: str, undone: tuple[Action, ...]) -> Undone:
    """Remove engines and models that no remaining deployment uses, the caches, the records of all that are down.

    What was measured and learned about this machine goes with the last deployment.
    """
    others = {other for other in deployments(host) if other != name}
    unknown = tuple(sorted(other for other in others if unread(host, other) or latest(host, other) is None))
    used = {path for other in others for path in _uses(host, other)}
    folders = () if unknown else ("engines", "models")
    doomed = [path for folder in folders for path in _unused(host.data / folder, used)]
    doomed += [] if others else [host.data / each for each in _ABOUT_THE_MACHINE]
    down_too = {name, *known(host)} - others
    doomed += [host.cache, *(deployment_folder(host, each) for each in sorted(down_too))]
    present = [path for path in doomed if path.exists()]
    freed = sum(_size(path) for path in present)
    for path in present:
        host.do(Remove(str(path)))
    return Undone(undone, tuple(map(str, present)), freed, unknown)


def _unused(folder: Path, used: set[Path]) -> Iterator[Path]:
    """The topmost files and folders that hold nothing used; a used file's own notes beside it stay with it."""
    for path in sorted(folder.glob("*")):
        kept = any(item.parent == folder and path.name.lstrip(".").startswith(item.name) for item in used)
        if any(item.is_relative_to(path) and item != path for item in used):
            yield from _unused(path, used)
        elif not kept:
            yield path


def _uses(host: Host, name: str) -> Iterator[Path]:
    """What the last run was to use, and the last that went well: after a failure its service is the one that runs."""
    for record in (latest(host, name), latest(host, name, "done")):
        try:
            spec = (record or {})["spec"]
            yield Path(spec["build"]["folder"])
            drafted = (spec.get("draft") or {}).get("weights") or {"files": ()}
            yield from [Path(file["path"]) for file in (*spec["weights"]["files"], *drafted["files"])]
        except (KeyError, TypeError):  # no spec yet, or a damaged record
            continue


def _size(path: Path) -> int:
    return sum(item.lstat().st_size for item in (path, *path.rglob("*")) if item.is_file() or item.is_symlink())
