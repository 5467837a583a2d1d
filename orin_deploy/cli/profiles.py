"""`profiles list`, `profiles show`, `profiles check`."""

from __future__ import annotations

from pathlib import Path

from orin_deploy.cli.console import Console, error_document
from orin_deploy.deploy.lookup import profile_folders
from orin_deploy.deploy.record import plain
from orin_deploy.errors import UsageError
from orin_deploy.host import Host
from orin_deploy.intent import catalog, profile
from orin_deploy.intent.resolve import layer


def list_profiles(folder: str | None, console: Console) -> None:
    search = profile_folders(Host(), folder)
    found = [profile.load(str(path), search) for _, path in profile.names(search)]
    models = [entry for name in catalog.names(search) if (entry := catalog.find(name, search)) is not None]
    console.say("Profiles")
    console.table([(item.name, item.description or "", str(item.path)) for item in found])
    console.say("Models in the catalogue")
    console.table([(entry.name, entry.description, entry.licence) for entry in models])
    console.document(
        {
            "profiles": [
                {"name": item.name, "description": item.description, "path": str(item.path)} for item in found
            ],
            "models": [
                {"name": entry.name, "description": entry.description, "licence": entry.licence} for entry in models
            ],
        }
    )


def show(name: str, folder: str | None, console: Console) -> None:
    search = profile_folders(Host(), folder)
    chosen = profile.load(name, search)
    values = layer(chosen, ())
    console.say(f"{chosen.name}: {chosen.description or ''}")
    console.say(f"  {chosen.path}")
    console.table(
        [("model", chosen.model, "profile")]
        + [
            (key, str(setting.value), setting.source)
            for key, setting in sorted(values.items())
            if setting.value is not None
        ]
    )
    console.document(
        {
            "name": chosen.name,
            "description": chosen.description,
            "path": str(chosen.path),
            "model": chosen.model,
            "board": plain(chosen.board),
            "values": {key: plain(setting) for key, setting in values.items() if setting.value is not None},
        }
    )


def check(files: list[str], console: Console) -> None:
    """All errors of all files; raises UsageError (exit code 2) when there are any."""
    problems = [(file, problem) for file in files for problem in profile.check(Path(file))]
    for _, problem in problems:
        console.say(str(problem))
    if not problems:
        console.say(f"{len(files)} checked, no errors")
        console.document({"files": files, "problems": []})
        return
    error = UsageError(
        f"errors: {len(problems)}, in files: {len({file for file, _ in problems})}", "correct them and check again"
    )
    if not console.as_json:
        raise error
    console.document({"files": files, "problems": [plain(problem) for _, problem in problems], **error_document(error)})
    raise SystemExit(error.code)
