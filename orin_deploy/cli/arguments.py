"""The options that several verbs take, as typer reads them."""

from __future__ import annotations

from typing import Annotated

import typer

Profile = Annotated[
    str, typer.Option("--profile", "-p", help="A profile's name or file, or auto: the one for this board.")
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model", "-m", help="A catalogue name, a .gguf file, or hf:, modelscope:, https:, package: and a reference."
    ),
]
Name = Annotated[str | None, typer.Option("--name", "-n", help="The deployment's name; by default the profile's.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", "-s", metavar="KEY=VALUE", help="Override any option, as in --set ctx_size=4096."),
]
Draft = Annotated[str | None, typer.Option("--draft", help="A draft model, auto, optional, none, or as ngram-mod.")]
Profiles = Annotated[str | None, typer.Option("--profiles", metavar="DIR", help="A folder of your own profiles.")]
Force = Annotated[bool, typer.Option("--force", help="Go on although the profile is for another machine.")]
Reboot = Annotated[bool, typer.Option("--reboot", help="Reboot now where the power mode needs it.")]
NoPower = Annotated[bool, typer.Option("--no-power", help="Leave power mode, clocks and fan alone.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output; progress on standard error.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
