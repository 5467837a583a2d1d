"""Down: take a deployment back with the undo actions remembered on disk, and on request remove what nothing uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orin_deploy.actions import Action, Remove
from orin_deploy.deploy.record import deployment_folder, deployments, forget_undo, known, latest, pending_undo
from orin_deploy.errors import UsageError
from orin_deploy.host import Host


@dataclass(frozen=True)
class Undone:
    """What `down` did: the actions, and with purge the folders removed and the bytes that freed."""

    name: str
    actions: tuple[Action, ...]
    removed: tuple[str, ...] = ()
    freed_bytes: int = 0


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


def down(host: Host, name: str, purge: bool = False) -> Undone:
    """Undo a deployment; after a failure it goes on with what is left. Engines and models stay unless purged."""
    pending = pending_undo(host, name)
    for action in pending:
        host.do(action)
    forget_undo(host, name)
    removed, freed = _purge(host, name) if purge else ((), 0)
    return Undone(name, pending, removed, freed)


def _purge(host: Host, name: str) -> tuple[tuple[str, ...], int]:
    """Remove the engines and models that no remaining deployment uses, the caches, and this deployment's own folder."""
    used = {path for other in deployments(host) if other != name for path in _uses(host, other)}
    candidates = [
        path
        for path in (*(host.data / "engines").glob("*"), *(host.data / "models").rglob("*"))
        if path.is_dir() and not any(item.is_relative_to(path) for item in used)
    ]
    doomed = [path for path in candidates if not any(parent in candidates for parent in path.parents)]
    doomed += [host.cache, deployment_folder(host, name)]
    present = [path for path in doomed if path.exists()]
    freed = sum(_size(path) for path in present)
    for path in present:
        host.do(Remove(str(path)))
    return tuple(map(str, present)), freed


def _uses(host: Host, name: str) -> tuple[Path, ...]:
    record = latest(host, name) or {}
    spec = record.get("spec") or {}
    files = [item.get("path") for item in (spec.get("weights") or {}).get("files", ())]
    return tuple(Path(path) for path in (*files, (spec.get("build") or {}).get("folder")) if path)


def _size(path: Path) -> int:
    return sum(item.lstat().st_size for item in path.rglob("*") if item.is_file() or item.is_symlink())
