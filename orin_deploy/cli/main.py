"""The command line: verbs, their options, exit codes. What a verb does is in its own module, imported when it runs."""

# No `from __future__ import annotations`: typer evaluates each annotation of each verb, twice where it is a text.
import sys
from typing import Annotated, Any

import typer

from orin_deploy.cli.arguments import Debug, Draft, Force, Json, Model, Name, NoPower, Profile, Profiles, Reboot, Sets
from orin_deploy.cli.ending import run

app = typer.Typer(
    name="orin-deploy",
    help="Deploy and tune llama.cpp on NVIDIA Jetson boards: inspect, plan, build, serve, verify, undo.",
    no_args_is_help=True,
    # Rich help would double the time of --help.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def up(
    profile: Profile = "auto",
    model: Model = None,
    draft: Draft = None,
    name: Name = None,
    set_: Sets = None,
    profiles: Profiles = None,
    force: Force = False,
    reboot: Reboot = False,
    no_power: NoPower = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Build, fetch, start and prove a server; does only what is not yet so.

    Exit codes: 0 done, 1 failed, 3 needs a reboot, 4 refused."""
    from orin_deploy.cli import up as verb

    verb.up(verb.request(profile, model, name, set_, profiles, force, reboot, no_power, draft), _console(json))


@app.command()
def plan(
    profile: Profile = "auto",
    model: Model = None,
    draft: Draft = None,
    name: Name = None,
    set_: Sets = None,
    profiles: Profiles = None,
    force: Force = False,
    reboot: Reboot = False,
    no_power: NoPower = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show exactly what `up` would do and why, and where each value comes from. Changes nothing."""
    from orin_deploy.cli import up as verb

    verb.plan(verb.request(profile, model, name, set_, profiles, force, reboot, no_power, draft), _console(json))


@app.command()
def build(
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Pack it, as engine.tar.gz.")
    ] = None,
    profile: Profile = "auto",
    set_: Sets = None,
    profiles: Profiles = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Build the engine alone, here or, with --set build.toolchain=TRIPLET, for a board that is not at hand."""
    from orin_deploy.cli import build as verb
    from orin_deploy.cli.up import request

    verb.build(request(profile, None, None, set_, profiles, force=False), output, _console(json))


@app.command()
def down(
    name: Name = None,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also remove engines, models and records nothing else uses.")
    ] = False,
    reboot: Reboot = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Stop the server and restore what was there before. Engines and models stay unless --purge."""
    from orin_deploy.cli import up as verb

    verb.down(name, purge, reboot, _console(json))


@app.command()
def status(name: Name = None, json: Json = False, debug: Debug = False) -> None:
    """Show what runs: state, endpoint, model, memory planned and taken, the last record."""
    from orin_deploy.cli import status as verb

    verb.status(name, _console(json))


@app.command()
def logs(
    name: Name = None,
    lines: Annotated[int, typer.Option("--lines", "-l", min=1, help="How many of the last lines.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come, until Ctrl-C.")] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the server's log."""
    from orin_deploy.cli import status as verb

    verb.logs(name, lines, follow, _console(json))


@app.command()
def facts(json: Json = False, debug: Debug = False) -> None:
    """Show what is known about this machine: CPUs and clusters, memory, compilers, CUDA, board."""
    from orin_deploy.cli import look as verb

    verb.facts(_console(json))


@app.command()
def gguf(
    model: Annotated[str, typer.Argument(metavar="FILE-or-REF", help="A .gguf file or a model reference.")],
    ctx_size: Annotated[
        int | None, typer.Option("--ctx-size", "-c", min=1, max=2**31 - 1, help="Memory at this context.")
    ] = None,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    profiles: Profiles = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what a model's header says and the memory it needs. Reads no more than the header, but of package: all."""
    from orin_deploy.cli import look as verb

    verb.gguf(model, ctx_size, tensors, profiles, _console(json))


@app.command()
def fit(
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="As --model of `up`; without it, the profile's model.")
    ] = None,
    profile: Profile = "auto",
    draft: Draft = None,
    set_: Sets = None,
    profiles: Profiles = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the most a board can run: memory by context, KV type and slots. Neither board nor model need be at hand."""
    from orin_deploy.cli import fit as verb

    verb.fit(verb.request(profile, model, draft, set_, profiles), _console(json))


@app.command()
def bench(
    compare: Annotated[
        list[str] | None,
        typer.Option("--compare", metavar="ARMS", help="Compare, as none,ngram-map-k4v,draft or NAME:KEY=VALUE."),
    ] = None,
    workload: Annotated[str | None, typer.Option("--workload", "-w", help="Only these, as chat,code.")] = None,
    prompts: Annotated[str | None, typer.Option("--prompts", metavar="FILE", help="Your own prompts.")] = None,
    language: Annotated[str | None, typer.Option("--language", help="en, zh, or en,zh.")] = None,
    sampling: Annotated[str | None, typer.Option("--sampling", help="greedy, own, or greedy,own.")] = None,
    context: Annotated[str | None, typer.Option("--context", help="short, long, or short,long.")] = None,
    clients: Annotated[str | None, typer.Option("--clients", help="Who ask at once, as 1,2,4.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Every language, sampling, context, and 1, 2, 4 clients.")
    ] = False,
    seconds: Annotated[float | None, typer.Option("--seconds", min=1, help="How long it may take.")] = None,
    profile: Profile = "auto",
    model: Model = None,
    draft: Draft = None,
    name: Name = None,
    set_: Sets = None,
    profiles: Profiles = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure what runs over workloads, or compare ways to serve it, each on a server of its own.

    --profile, --model, --draft and --set are for --compare; without them it compares what the deployment's `up` had."""
    from orin_deploy.cli import bench as verb
    from orin_deploy.cli.up import request

    wanted = verb.Wanted(workload, prompts, language, sampling, context, clients, full, seconds)
    wish = request(profile, model, name, set_, profiles, force=False, draft=draft)
    verb.bench(wish, compare, wanted, _console(json))


@app.command()
def top(
    name: Name = None,
    interval: Annotated[float, typer.Option("--interval", "-i", help="Seconds from one look to the next.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document a line, one line a look.")] = False,
    debug: Debug = False,
) -> None:
    """Watch power, temperatures, clocks, memory and the server's speed, until Ctrl-C."""
    from orin_deploy.cli import top as verb

    verb.top(name, interval, once, _console(json))


@app.command()
def doctor(
    evidence: Annotated[
        str | None,
        typer.Argument(metavar="[PATH]", help="A log, a model or a folder of evidence; without it, this machine."),
    ] = None,
    name: Name = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Name the cause of what went wrong, from this machine or from evidence. Exit code 1 when something is found."""
    from orin_deploy.cli import doctor as verb

    verb.doctor(evidence, name, _console(json))


@app.command("import", context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]})
def import_(
    context: typer.Context,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="An old command line or profile, quoted; - reads it.")
    ] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="FILE", help="A file with it, as run.sh.")] = None,
    profile: Annotated[
        str, typer.Option("--profile", help="The profile to start from, or auto: the one for this board.")
    ] = "auto",
    profiles: Profiles = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Turn an old command line, script or profile into a profile of today; says what in it never worked.

    Prints the profile; what there is to say goes to standard error. Exit code 2 when nothing could be read."""
    if text == ["-h"]:  # which is a word of the text beside others
        typer.echo(context.get_help())
        return
    from orin_deploy.cli import import_ as verb

    verb.import_(text or [], file, profile, profiles, _console(json))


@app.command()
def version(json: Json = False, debug: Debug = False) -> None:
    """Show the versions of orin-deploy, Python and the engines in the cache."""
    from orin_deploy.cli import look as verb

    verb.version(_console(json))


profiles_app = typer.Typer(help="List, show and check profiles.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(profiles_app, name="profiles")


@profiles_app.command("list")
def profiles_list(profiles: Profiles = None, json: Json = False, debug: Debug = False) -> None:
    """List the profiles found, and the model catalogue."""
    from orin_deploy.cli import profiles as verb

    verb.list_profiles(profiles, _console(json))


@profiles_app.command("show")
def profiles_show(name: str, profiles: Profiles = None, json: Json = False, debug: Debug = False) -> None:
    """Show one profile resolved, each value with where it comes from."""
    from orin_deploy.cli import profiles as verb

    verb.show(name, profiles, _console(json))


@profiles_app.command("check")
def profiles_check(files: list[str], json: Json = False, debug: Debug = False) -> None:
    """Check profile files: all errors at once. Exit code 2 when there are any."""
    from orin_deploy.cli import profiles as verb

    verb.check(files, _console(json))


def _console(as_json: bool) -> Any:
    from orin_deploy.cli.console import Console

    return Console(as_json)


def main(argv: list[str] | None = None) -> None:
    """The entry point."""
    run(app, sys.argv[1:] if argv is None else argv)
