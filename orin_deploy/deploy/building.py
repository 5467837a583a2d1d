"""Building the engine alone: for this machine, or with another toolchain for a board that is not at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from orin_deploy.actions import Remove, Run
from orin_deploy.deploy.apply import Events, translate
from orin_deploy.deploy.lookup import profile_folders
from orin_deploy.errors import CommandFailed, OrinError, Refused, UsageError
from orin_deploy.facts import toolchain
from orin_deploy.facts.device import Device
from orin_deploy.facts.inspect import inspect
from orin_deploy.host import Host
from orin_deploy.intent import board, cross, profile
from orin_deploy.intent import build as builds
from orin_deploy.intent.profile import Profile
from orin_deploy.intent.request import Request
from orin_deploy.intent.resolve import choose_build, layer
from orin_deploy.intent.spec import Build
from orin_deploy.parts import engine
from orin_deploy.parts.step import Step

_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.zst")


@dataclass(frozen=True)
class Building:
    """An engine and the steps to it."""

    profile: str
    build: Build
    steps: tuple[Step, ...]


def wanted(host: Host, request: Request) -> Callable[[], Building]:
    """What the request asks to build; each call of the result looks at the machine's folders anew.

    Raises Refused for another machine without its toolchain, and what `cross` and `build.resolve` raise.
    """
    here = inspect(host)
    search = profile_folders(host, request.profiles_folder)
    name = board.choose(here, search)[0] if request.profile == "auto" else request.profile
    chosen = profile.load(name, search)
    values = layer(chosen, request.sets)
    triplet = cross.triplet(values)
    if triplet is None:
        if not board.is_at_hand(chosen, here):
            raise Refused(
                f"profile {chosen.name} is for another machine than this one",
                "--set build.toolchain=aarch64-linux-gnu builds for it, or build on the board itself",
            )
        build = choose_build(here, values, str(host.data))
    else:
        compiler = toolchain.read_cross(host, triplet)
        device = cross.target(_device(chosen, here), here, compiler, triplet)
        cpus = len(here.cpu.usable)
        build = builds.resolve(
            device, values, data=str(host.data), arch=None, toolkit=None, compiler=compiler, cpus=cpus
        )
    ccache = here.toolchain.ccache is not None

    def look() -> Building:
        return Building(chosen.name, build, engine.plan_build(build, engine.inspect_build(host, build), ccache))

    return look


def _device(chosen: Profile, here: Device) -> Device:
    """The profile's board, for which nothing but its facts is needed; a profile without one is for this machine."""
    return board.stand_in(chosen) if chosen.board is not None and chosen.board.modules else here


def carry_out(host: Host, look: Callable[[], Building], events: Events) -> Building:
    """Do what is left, then look again; raises OrinError for a step that fails or did not take effect."""
    for step in look().steps:
        if step.actions:
            _do(host, step, events)
    done = look()
    for step in done.steps:
        if step.actions:
            raise OrinError(f"{step.name}: done, but it did not take effect: {step.why}", step.hint)
    return done


def _do(host: Host, step: Step, events: Events) -> None:
    began = host.monotonic()
    events.begin(step)
    try:
        for action in step.actions:
            host.do(action, events.progress)
    except CommandFailed as error:
        events.fail(step)
        raise engine.explain(error) from error
    except OSError as error:
        events.fail(step)
        raise translate(error, step) from error
    events.end(step, host.monotonic() - began)


def packing(host: Host, build: Build, output: str) -> Step:
    """The step that packs the engine's programs and libraries into one archive, below a folder of its key's name.

    Raises UsageError for an archive's name that tar has no format for.
    """
    if not output.endswith(_SUFFIXES):
        raise UsageError(f'"{output}" is no name of an archive', f"it ends in {', '.join(_SUFFIXES)}")
    names = [PurePosixPath(path).name for path in host.glob(f"{build.bin}/*")]
    wanted = [name for name in names if name in build.targets or ".so" in name]
    partial = str(PurePosixPath(output).with_name(f"partial-{PurePosixPath(output).name}"))
    owner = ("--owner=0", "--group=0", "--sort=name", "--mtime=@0")  # the same engine is the same archive
    tar = ("tar", "--create", "--auto-compress", *owner, f"--transform=flags=rSh;s,^,{build.key}/,",
           f"--file={partial}", "-C", build.bin, *wanted)  # fmt: skip
    actions = (Remove(partial), Run(tar), Run(("mv", "-T", partial, output)))
    return Step("engine", "pack", f"{len(wanted)} programs and libraries into {output}", actions)


def pack(host: Host, build: Build, output: str, events: Events) -> None:
    _do(host, packing(host, build, output), events)
