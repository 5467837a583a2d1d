"""The basis: all that is decided before the context is; a plan and the table of what fits go by the same. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace

from orin_deploy.errors import Refused, UsageError
from orin_deploy.facts.device import Device
from orin_deploy.facts.model import Model
from orin_deploy.intent import power, speculation
from orin_deploy.intent.engine_rows import Row
from orin_deploy.intent.fit import Fitted, room_of, serving_of
from orin_deploy.intent.placement import place
from orin_deploy.intent.profile import Profile
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import Serving
from orin_deploy.intent.spec import Build, Draft, Placement, Power, Setting, Weights
from orin_deploy.intent.speculation import Asked, Decided, Decision


@dataclass(frozen=True)
class Around:
    """What else a decision needs to know.

    `data` is our data folder; `help_text` the built server's own --help, None before the first build. `fitted` is the
    context that was fitted for the server that runs now; `own_bytes` is the memory that this server would give back.
    `learned` is what earlier starts took beyond their plans. `asked` is the speculation wished for with the draft that
    was found, `decision` what was measured to be the best of it. `reboot` is the user's --reboot.
    """

    data: str
    is_root: bool
    help_text: str | None = None
    fitted: Fitted | None = None
    own_bytes: int = 0
    learned: tuple[Row, ...] = ()
    asked: Asked | None = None
    decision: Decision | None = None
    reboot: bool = False


@dataclass(frozen=True)
class Basis:
    """Every option's value as decided, the context as it was asked for; what memory depends on, and what there is."""

    values: dict[str, Setting]
    placement: Placement
    power: Power | None
    draft: Draft | None
    drafted: Decided
    serving: Serving
    room: Room


def basis(
    profile: Profile,
    device: Device,
    values: Mapping[str, Setting],
    engine: Build,
    model: Model,
    weights: Weights,
    alias: str,
    around: Around,
) -> Basis:
    """The basis for one deployment. Raises Refused or UsageError with what to change."""
    values, drafted = _speculation(values, model, weights, engine, around)
    draft = drafted.draft
    powered = power.resolve(device, values, is_root=around.is_root, reboot=around.reboot)
    cpu = power.in_mode(device.cpu, powered, profile.board.clusters if profile.board else ())
    placement = place(cpu, values, draft=drafted.apart)
    decided = {**values, **_decided(values, placement, engine), **_named(values, weights, alias), **drafted.options}
    if draft is not None and drafted.apart:
        draft = speculation.in_process(draft, values, engine, placement)
        decided |= speculation.server_options(values, draft, engine)
    _check_exposure(decided)
    _check_cache(decided)
    serving = serving_of(decided, engine, speculation.drafting(draft, values, engine))
    room = room_of(device, decided, model, serving, own_bytes=around.own_bytes, learned=around.learned)
    return Basis(decided, placement, powered, draft, drafted, serving, room)


def _speculation(
    values: Mapping[str, Setting], model: Model, weights: Weights, engine: Build, around: Around
) -> tuple[Mapping[str, Setting], Decided]:
    """The values with what a measured decision says of speculation, and the speculation."""
    asked = around.asked or Asked(speculation.wish(values, decision=around.decision), decision=around.decision)
    if around.decision is not None and asked.wish.auto:
        values = {**values, **speculation.by_decision(around.decision, values)}
    return values, speculation.decide(asked, model, weights, values, engine, around.help_text)


def _decided(values: Mapping[str, Setting], placement: Placement, engine: Build) -> dict[str, Setting]:
    """The server options that follow from other decisions; what the user or the profile set stands."""
    source = f"placement: {placement.why}"
    decided = {"threads": Setting(placement.threads, source), "threads_batch": Setting(placement.threads_batch, source)}
    if values["gpu_layers"].value == "auto":
        # On a Jetson a layer left to the CPU frees no memory: it is the same DRAM.
        decided["gpu_layers"] = Setting("all" if engine.cuda else None, "build.cuda")
    return {
        key: new if _is_auto(values[key]) else replace(values[key], value=new.value) for key, new in decided.items()
    }


def _named(values: Mapping[str, Setting], weights: Weights, alias: str) -> dict[str, Setting]:
    """The file to serve, and the name clients see unless somebody chose one."""
    named = {"model": replace(values["model"], value=weights.files[0].path)}
    return named if values["alias"].value else {**named, "alias": Setting(alias, "the model's name")}


def _is_auto(setting: Setting) -> bool:
    return setting.value in (None, "auto", -1)


def is_local(host: str) -> bool:
    """Whether an address to listen on is reached from this machine alone."""
    try:
        return host.endswith(".sock") or host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_exposure(values: Mapping[str, Setting]) -> None:
    """An endpoint that others can reach needs an API key."""
    host = str(values["host"].value)
    if not is_local(host) and values["api_key_file"].value is None:
        raise UsageError(
            f"host {host} can be reached from other machines, so it needs an API key",
            "--set api_key_file=/path/to/key (one key a line), or leave host at 127.0.0.1",
        )


def _check_cache(values: Mapping[str, Setting]) -> None:
    """The engine quantises the cache's values only with flash attention (llama-context.cpp)."""
    kind = values["cache_type_v"].value
    if values["flash_attn"].value == "off" and kind not in (None, "f32", "f16", "bf16"):
        raise Refused(
            f"cache_type_v={kind} ({values['cache_type_v'].source}) needs flash attention, which is off "
            f"({values['flash_attn'].source})",
            "--set flash_attn=on, or --set cache_type_v=f16",
        )
