"""`bench`: how fast what runs is, or which of several ways to serve is faster."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orin_deploy.cli.console import Console, roughly
from orin_deploy.cli.show_bench import show
from orin_deploy.deploy.down import choose
from orin_deploy.deploy.draft import Situation, situation
from orin_deploy.deploy.lookup import profile_folders
from orin_deploy.deploy.record import deployments, latest, spec_of
from orin_deploy.errors import OrinError, UsageError
from orin_deploy.host import Host
from orin_deploy.intent import catalog
from orin_deploy.intent.request import Request
from orin_deploy.intent.resolve import layer
from orin_deploy.observe.bench import Agenda, Arm, Comparison, cases, measure_running, race, record, workload
from orin_deploy.observe.bench import arms as naming
from orin_deploy.observe.bench.agenda import FULL_S, QUICK_S
from orin_deploy.observe.bench.sample import GREEDY, LONG, OWN_SAMPLING, SHORT
from orin_deploy.parts.step import Step

_DRAFTLESS = "ngram-map-k4v"
_FIELDS = {"temp": "temperature"}
"""What a request calls an option of the server, where that differs."""


@dataclass(frozen=True)
class Wanted:
    """What is to be measured, as typed; None where nothing was said."""

    workloads: str | None = None
    prompts: str | None = None
    languages: str | None = None
    samplings: str | None = None
    contexts: str | None = None
    clients: str | None = None
    full: bool = False
    seconds: float | None = None


def bench(wish: Request, compare: list[str] | None, wanted: Wanted, console: Console) -> None:
    host = Host()
    if not compare and (wish.model or wish.sets or wish.profile != "auto" or wish.draft):
        raise UsageError(
            "bench without --compare measures what runs, as it runs",
            "leave out the options of `up`, or name arms, as in --compare none,ngram-map-k4v",
        )
    arms = naming.parse(compare) if compare else ()
    command = shlex.join(["orin-deploy", *sys.argv[1:]])
    with host.lock(command):
        if arms:
            name, agenda, found = _compared(host, wish, arms, wanted, console)
        else:
            name, agenda, found = _running(host, wish, wanted, console)
        kept = _kept(host, record.document(host, name, command, agenda, found), found, agenda, console)
    show(found, agenda, kept["record"], console)
    console.document(kept)


def _kept(
    host: Host, document: Mapping[str, Any], found: Comparison, agenda: Agenda, console: Console
) -> dict[str, Any]:
    """The record as it was written; a full disk does not take the figures with it."""
    try:
        return record.keep(host, document)
    except OSError:
        show(found, agenda, None, console)
        raise


def _running(host: Host, wish: Request, wanted: Wanted, console: Console) -> tuple[str, Agenda, Comparison]:
    from orin_deploy.parts import service

    name = choose(host, wish.name)
    spec = spec_of(latest(host, name, "done"))
    if service.status(host, name).pid is None:
        raise OrinError(f"{name} does not run, so there is nothing to measure", f"orin-deploy up --name {name}")
    if spec is None:
        raise OrinError(f"{name} runs, but no record that can be read says as what", f"orin-deploy up --name {name}")
    search = profile_folders(host, wish.profiles_folder)
    agenda = _agenda(search, wanted, 1, _preset(search, spec.weights.reference))
    with _Told(console, f"measure {name}", agenda) as progress:
        return name, agenda, measure_running(host, spec, agenda, progress)


def _compared(
    host: Host, wish: Request, arms: tuple[Arm, ...], wanted: Wanted, console: Console
) -> tuple[str, Agenda, Comparison]:
    wish = _as_deployed(host, wish)
    now = situation(host, wish, elsewhere=False)
    agenda = _agenda(now.search, wanted, len(arms), _preset(now.search, _model(wish, now)))
    with _Told(console, f"compare {', '.join(arm.name for arm in arms)}", agenda) as progress:
        found = race(host, wish, now, arms, agenda, progress)
    if len(found.arms) < 2:
        first, why = next(iter(found.left_out.items()))
        raise OrinError(f"there is nothing to compare: {first}: {why}", _instead(arms, found, first))
    return now.name, agenda, found


def _instead(arms: tuple[Arm, ...], found: Comparison, first: str) -> str:
    """What to type instead: without a draft model a comparison that needs none, and how to come by one."""
    if not any(arm.draft == naming.DRAFT and arm.name in found.left_out for arm in arms):
        return f"name another arm in place of {first}"
    whole = f"{_as_typed()} --compare {naming.NONE},{_DRAFTLESS}"
    return f"{whole}; a draft model is named with --draft hf:OWNER/REPO, and scripts/make-draft trains one"


def _as_typed() -> str:
    """The command as it was typed, without its arms."""
    words, kept = iter(sys.argv[1:]), ["orin-deploy"]
    for word in words:
        if word == "--compare":
            next(words, None)
        elif word not in ("--json", "--debug") and not word.startswith("--compare="):
            kept.append(word)
    return shlex.join(kept)


def _model(wish: Request, now: Situation) -> str:
    return wish.model or str(layer(now.profile, wish.sets)["model"].value or now.profile.model)


def _as_deployed(host: Host, wish: Request) -> Request:
    """The wish; where it names no profile, model or setting, that of the deployment that is up, as its `up` had it."""
    if wish.model or wish.sets or wish.draft or wish.profile != "auto":
        return wish
    if wish.name is None and not deployments(host):
        return wish
    done = latest(host, choose(host, wish.name), "done")
    words = shlex.split(str((done or {}).get("command", "")))
    if words[1:2] != ["up"]:
        return wish
    from orin_deploy.cli import up

    given = _parsed(words[2:])
    spec = spec_of(done)
    if spec is not None and spec.weights.reference.startswith("file:") and given["model"]:
        given["model"] = spec.weights.reference  # a path as typed may have been relative to another folder
    return up.request(**given)


def _parsed(words: list[str]) -> dict[str, Any]:
    """The options of `up`, read by its own parser."""
    import typer

    from orin_deploy.cli.main import app

    command: Any = typer.main.get_command(app)
    values = dict(command.commands["up"].make_context("up", list(words)).params)
    values["sets"] = values.pop("set_")
    return {key: value for key, value in values.items() if key not in ("json", "debug")}


def _agenda(search: tuple[Path, ...], wanted: Wanted, arms: int, preset: tuple[str, Mapping[str, Any]]) -> Agenda:
    """What is measured: quickly unless `full`, each dimension as wanted."""
    chosen = workload.choose(workload.shipped(search), _words(wanted.workloads))
    if wanted.prompts is not None:
        own = workload.own(Path(wanted.prompts).expanduser())
        chosen = (*(chosen if wanted.workloads else ()), own)
    full = wanted.full
    languages = _among("--language", wanted.languages, workload.LANGUAGES, workload.LANGUAGES if full else ("en",))
    samplings = _among(
        "--sampling", wanted.samplings, (GREEDY, OWN_SAMPLING), (GREEDY, OWN_SAMPLING) if full else (GREEDY,)
    )
    contexts = _among("--context", wanted.contexts, (SHORT, LONG), (SHORT, LONG) if full else (SHORT,))
    clients = tuple(map(_count, _words(wanted.clients))) or ((1, 2, 4) if full else (1,))
    seconds = wanted.seconds if wanted.seconds is not None else (FULL_S if full else QUICK_S) * arms
    return Agenda(
        chosen, cases(chosen, languages, samplings, contexts, clients), seconds, sampling=preset[1], preset=preset[0]
    )


def _words(text: str | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, map(str.strip, (text or "").split(",")))))


def _among(option: str, text: str | None, known: tuple[str, ...], usual: tuple[str, ...]) -> tuple[str, ...]:
    words = _words(text)
    if strangers := [word for word in words if word not in known]:
        raise UsageError(f"{option} {strangers[0]} is unknown", f"there are {', '.join(known)}")
    return words or usual


def _count(word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= 64:
        raise UsageError(f'--clients "{word}" is no number from 1 to 64', "as in --clients 1,2,4")
    return int(word)


def _preset(search: tuple[Path, ...], wanted: str) -> tuple[str, Mapping[str, Any]]:
    """The model's own sampling as a request says it: the first preset of its catalogue entry, else the server's."""
    for name in catalog.names(search):
        entry = catalog.find(name, search)
        if entry is None or not entry.sampling:
            continue
        if wanted == name or any(wanted.startswith(str(base)) for base in entry.references):
            preset, values = next(iter(entry.sampling.items()))
            return f"{preset} of the catalogue's {name}", {_FIELDS.get(key, key): v for key, v in values.items()}
    return "the server's default", {}


class _Told:
    """Tells what is measured and how long it may take, and how it goes."""

    def __init__(self, console: Console, what: str, agenda: Agenda) -> None:
        self.events = console.events()
        why = f"{len(agenda.cases)} cases, at most {roughly(agenda.seconds)}, less where the figures are steady sooner"
        self.step = Step("bench", what, why)

    def __enter__(self) -> Any:
        self.began = time.monotonic()
        self.events.begin(self.step)
        return self.events.progress

    def __exit__(self, kind: object, error: object, at: object) -> None:
        if kind is None:
            self.events.end(self.step, time.monotonic() - self.began)
        else:
            self.events.fail(self.step)
