"""`build`: the engine alone, for this machine or packed for another one."""

from __future__ import annotations

import os
import shlex
import sys

from orin_deploy.cli.console import Console
from orin_deploy.deploy import building
from orin_deploy.deploy.record import plain
from orin_deploy.host import Host
from orin_deploy.intent.request import Request
from orin_deploy.intent.spec import Build


def build(wish: Request, output: str | None, console: Console) -> None:
    host, events = Host(), console.events()
    with host.lock(shlex.join(["orin-deploy", *sys.argv[1:]])):
        look = building.wanted(host, wish)
        archive = os.path.abspath(output) if output else None
        if archive is not None:
            building.packing(host, look().build, archive)  # its name is looked at before the minutes of a build
        changed = any(step.actions for step in look().steps)
        done = building.carry_out(host, look, events)
        if archive is not None:
            building.pack(host, done.build, archive, events)
    for step in done.steps:
        console.say(f"{step.name}: {step.why}")
    _say_where(done.build, archive, console)
    console.document(
        {
            "changed": changed,
            "profile": done.profile,
            "key": done.build.key,
            "folder": done.build.bin,
            "archive": archive,
            "toolchain": done.build.cross.triplet if done.build.cross else "native",
            "cmake": list(done.build.cmake),
            "steps": [plain({"name": step.name, "why": step.why}) for step in done.steps],
        }
    )


def _say_where(made: Build, archive: str | None, console: Console) -> None:
    console.say()
    console.say(f"The engine is in {made.bin}")
    if archive is None:
        return
    folder = f"/opt/{made.key}"
    console.say(f"and packed in {archive}. On the machine that is to run it:")
    console.say(f"  sudo tar -xf {os.path.basename(archive)} -C /opt")
    console.say(f"  orin-deploy up --set build.engine={folder}" + (" --set build.cuda=off" if not made.cuda else ""))
