"""Profiles: a board's facts and the defaults of a deployment, from YAML files that include one another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orin_deploy.errors import UsageError
from orin_deploy.intent import board_facts, options, schema, yaml_text
from orin_deploy.intent.board_facts import Board
from orin_deploy.intent.spec import Value
from orin_deploy.intent.yaml_text import Document, Problem, Where

__all__ = ["Board", "Problem", "Profile", "board_profile", "check", "load", "names", "search_path"]

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NOT_OPTIONS = ("description", "include", "model", "board")


SITE = Path("/etc/orin-deploy/profiles")


@dataclass(frozen=True)
class Profile:
    """A profile with all it includes. `values` are by option key; `origin` says which file each is from."""

    name: str
    path: Path
    description: str | None
    board: Board | None
    model: str
    values: dict[str, Value]
    origin: dict[str, str]


@dataclass
class _Merged:
    """What the files of one profile say together, later ones over earlier ones, and all that is wrong with them."""

    problems: list[Problem] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    plain: dict[str, str] = field(default_factory=dict)  # description and model
    board: dict[str, Any] = field(default_factory=dict)


def search_path(explicit: str | None, environ: Mapping[str, str], site: Path = SITE) -> tuple[Path, ...]:
    """Folders that hold profiles, first wins: the one given, the site's, the user's, the installed ones.

    Raises UsageError when the one given is no folder: what it was to override would silently stand.
    """
    if explicit is not None and not os.path.isdir(explicit):
        raise UsageError(f"--profiles {explicit or '(empty)'} is no folder", "name a folder that holds NAME.yaml files")
    config = Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "/", ".config"))
    given = () if explicit is None else (Path(explicit),)
    return (*given, site, config / "orin-deploy/profiles", _installed())


def _installed() -> Path:
    """The copy that came with us: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "_profiles"
    return inside if inside.is_dir() else package.parent / "profiles"


def names(search: Sequence[Path]) -> tuple[tuple[str, Path], ...]:
    """Every profile that can be named, with its file, sorted by name."""
    found: dict[str, Path] = {}
    for folder in search:
        for path in sorted(folder.glob("*.yaml")):
            found.setdefault(path.stem, path)
    return tuple(sorted(found.items()))


def load(name_or_path: str, search: Sequence[Path]) -> Profile:
    """The profile of that name, or in that file; raises UsageError with every fault when there are any."""
    path = _locate(name_or_path, search)
    merged = _merge(path, search)
    board = _board(merged, path)
    if merged.problems:
        lines = "\n".join(map(str, merged.problems))
        raise UsageError(
            f"profile {path.stem} has faults:\n{lines}", f"correct them; `orin-deploy profiles check {path}`"
        )
    plain = merged.plain
    return Profile(path.stem, path, plain.get("description"), board, plain["model"], merged.values, merged.origin)


def check(path: Path, search: Sequence[Path] | None = None) -> list[Problem]:
    """All that is wrong with a profile, a shared part or a catalogue entry; raises UsageError if it cannot be read."""
    from orin_deploy.intent import catalog

    if path.absolute().parent.name == "models":
        return catalog.check(path)
    search = (_installed(),) if search is None else search
    merged = _merge(path, search)
    _board(merged, path)
    if model := merged.plain.get("model"):
        merged.problems += _check_model(model, path, (path.parent, *search))
    return merged.problems


def board_profile(module: str | None, search: Sequence[Path]) -> str:
    """The name of the profile whose board is this module; "host" for a machine that is no Jetson (None)."""
    if module is None:
        return "host"
    # Loading every profile costs time: first those that name the module, then those that may include one that does.
    found = names(search)
    likely = [each for each in found if _mentions(each[1], module)]
    for name, path in likely + [each for each in found if each not in likely and _mentions(each[1], "include:")]:
        board = load(str(path), search).board
        if board is not None and module in board.modules:
            return name
    known = ", ".join(name for name, _ in names(search))
    raise UsageError(f"no profile is for the module {module}", f"name one with --profile; there are {known}")


def _mentions(path: Path, words: str) -> bool:
    try:
        return words in path.read_text(errors="replace")
    except OSError:
        return False


def _check_model(model: str, path: Path, folders: Sequence[Path]) -> list[Problem]:
    from orin_deploy.intent import catalog, reference

    known = catalog.names(folders)
    try:
        _ = model in known or reference.parse(model, known)
    except UsageError as error:
        return [Problem(str(path), None, "model", f"{error.message}; {error.hint}")]
    return []


def _locate(name: str, search: Sequence[Path]) -> Path:
    if "/" in name or name.endswith((".yaml", ".yml")):
        return Path(os.path.expanduser(name))
    found = dict(names(search))
    if name in found:
        return found[name]
    there = f"there are {', '.join(found)}" if found else "see --profiles"
    near = _meant(name, found)
    raise UsageError(f"there is no profile {name}", f"did you mean {near}? {there}" if near else there)


def _meant(name: str, found: Mapping[str, Path]) -> str | None:
    """The profile that a wrong name most likely means: one spelt alike, else those that the name's words describe."""
    from difflib import get_close_matches

    if near := get_close_matches(name, found, n=1):
        return near[0]
    words = {word for word in re.split(r"[^a-z0-9]+", name.lower()) if len(word) > 1}
    described = {each: _described(path) for each, path in found.items()}
    alike = [each for each, text in described.items() if words and words <= set(re.split(r"[^a-z0-9]+", text.lower()))]
    return " or ".join(f"{each} ({described[each].rstrip('.')})" for each in alike) or None


def _described(path: Path) -> str:
    """A profile's own description; nothing where it cannot be read: it is only looked at for a hint."""
    try:
        match = re.search(r"^description: *(.+)$", path.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return ""
    return match[1].strip("\"' ").partition(",")[0] if match else ""


def _merge(path: Path, search: Sequence[Path]) -> _Merged:
    merged = _Merged()
    for document in _files(path, search, (), merged.problems):
        file = Path(document.file)
        shared = file.parent.name == "_shared"
        part = f"_shared/{file.stem}" if shared else file.stem
        _take(document, merged, f"profile {path.stem}" if file == path else f"profile {path.stem} ({part})")
    merged.problems.sort(key=lambda problem: (problem.file, problem.line or 0))
    if path.absolute().parent.name != "_shared" and not merged.problems and "model" not in merged.plain:
        merged.problems.append(Problem(str(path), None, "model", "is missing: a catalogue name or a reference"))
    return merged


def _files(path: Path, search: Sequence[Path], chain: tuple[Path, ...], problems: list[Problem]) -> Iterator[Document]:
    """The documents of a file: those it includes, in order, then its own."""
    document = yaml_text.read(path)
    problems += schema.validate(document, schema.profile_schema(), schema.PROFILE_ROWS, schema.stranger_in_profile)
    wanted = document.data.get("include", []) if isinstance(document.data, dict) else []
    for i, name in enumerate(wanted if isinstance(wanted, list) else [wanted]):
        where: Where = ("include", i) if isinstance(wanted, list) else ("include",)
        found = _included(str(name), path, search)
        if found is None:
            problems.append(document.problem(where, f"there is no shared part or profile {name}"))
        elif found.resolve() in (*chain, path.resolve()):
            problems.append(document.problem(where, f"{name} includes this file again"))
        else:
            yield from _files(found, search, (*chain, path.resolve()), problems)
    yield document


def _included(name: str, path: Path, search: Sequence[Path]) -> Path | None:
    """A path is relative to the including file; a name is looked up beside it and on the search path.

    The including file itself does not count, so that a site's agx32 can include the installed one.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        found = path.parent / name
        return found if found.is_file() else None
    if not re.fullmatch(_NAME, name):
        return None
    beside = path.parent.parent if path.parent.name == "_shared" else path.parent
    for folder in (beside, *search):
        for found in (folder / "_shared" / f"{name}.yaml", folder / f"{name}.yaml"):
            if found.is_file() and found.resolve() != path.resolve():
                return found
    return None


def _take(document: Document, merged: _Merged, origin: str) -> None:
    """Lay one file's values over those taken before. Values the schema refused have been reported already."""
    if not isinstance(document.data, dict):
        return
    reported = tuple(problem.key for problem in merged.problems if problem.file == document.file)
    seen: dict[str, Where] = {}
    for where, raw in _flat(document.data):
        key = ".".join(map(str, where))
        if any(other == key or other.startswith(f"{key}.") for other in reported):
            continue
        try:
            option = options.find(key)
            value = options.parse(option, raw)
        except UsageError as error:
            merged.problems.append(document.problem(where, f"{error.message}; {error.hint}"))
            continue
        if option.key in seen:
            first = document.line(seen[option.key])
            merged.problems.append(document.problem(where, f"sets {option.key} again, first set in line {first}"))
        seen[option.key] = where
        merged.values[option.key], merged.origin[option.key] = value, origin
    for key in ("description", "model"):
        if key in document.data:
            merged.plain[key] = str(document.data[key])
    board = document.data.get("board")
    if isinstance(board, dict):
        sources = {**merged.board.get("sources", {}), **(board.get("sources") or {})}
        merged.board |= {**board, "sources": sources}


def _flat(data: dict[str, Any]) -> Iterator[tuple[Where, Any]]:
    for key, value in data.items():
        if key in _NOT_OPTIONS:
            continue
        if not isinstance(value, dict):
            yield (key,), value
            continue
        for inner, raw in value.items():
            if (key, inner) in (("build", "cmake"), ("speculation", "workload")) and isinstance(raw, dict):
                yield from (((key, inner, name), text) for name, text in raw.items())
            else:
                yield (key, inner), raw


def _board(merged: _Merged, path: Path) -> Board | None:
    """The board that the files describe together; what it lacks is added to the problems."""
    told = merged.board
    if not told or merged.problems or path.absolute().parent.name == "_shared":
        return None
    faults = board_facts.faults(told)
    merged.problems += [Problem(str(path), None, "board", text) for text in faults]
    return None if faults else board_facts.read(told)
