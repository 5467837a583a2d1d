"""Fitting a deployment into memory: the limit that can be had, the context that fits it, the refusal that explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from orin_deploy.errors import Refused
from orin_deploy.facts.cpu import ggml_features
from orin_deploy.facts.device import MIB, Device
from orin_deploy.facts.model import Model, projector_bytes
from orin_deploy.intent.budget import AVAILABLE, SET, Budget, estimate
from orin_deploy.intent.engine_rows import Row
from orin_deploy.intent.limit import SET_LIMIT, file_copy, limit
from orin_deploy.intent.refusal import refusal
from orin_deploy.intent.room import Room
from orin_deploy.intent.serving import STEP, Drafting, Serving
from orin_deploy.intent.spec import Build, Setting

_ROPE_KEYS = ("rope_scaling", "rope_scale", "rope_freq_scale", "rope_freq_base", "yarn_orig_ctx", "override_kv")
"""Options by which a user stretches a model beyond its training context on purpose."""

_FITTED = "fitted to memory"


@dataclass(frozen=True)
class Fitted:
    """A context that was fitted earlier: the record it stands in, and the budget it was fitted to."""

    ctx_size: int
    record: int
    total_bytes: int
    limit_bytes: int
    limit_kind: str = AVAILABLE


def fit(
    model: Model,
    values: Mapping[str, Setting],
    serving: Serving,
    room: Room,
    device: Device,
    fitted: Fitted | None = None,
) -> tuple[Setting, Budget]:
    """The context as it will be passed and the budget at it, for a model that is to be served in a room.

    A context fitted earlier stays while it still fits and nothing but the free memory has changed. Raises Refused
    (exit code 4) with need, limit and the largest context that fits.
    """
    asked = values["ctx_size"]
    if asked.value == "auto":
        most = room.most(model, serving) or STEP * serving.parallel
        if (
            fitted is not None
            and fitted.ctx_size <= most
            and _same(fitted, room.budget(model, serving, fitted.ctx_size))
        ):
            setting = Setting(fitted.ctx_size, f"{_FITTED}, record {fitted.record}")
        else:
            everything = most >= model.n_ctx_train * serving.slots
            setting = Setting(most, f"{_FITTED}: all the model was trained for" if everything else _FITTED)
    else:
        setting = asked
        _check_training(model, asked, values, serving)
    serving = replace(serving, ctx_size=int(str(setting.value)))
    planned = room.budget(model, serving)
    if not planned.fits:
        raise refusal(model, serving, room, device, fitted=asked.value == "auto")
    return setting, planned


def room_of(
    device: Device,
    values: Mapping[str, Setting],
    model: Model,
    serving: Serving,
    *,
    own_bytes: int = 0,
    learned: tuple[Row, ...] = (),
) -> Room:
    """The room on a device for a model served there; `own_bytes` is what this deployment's running server would give
    back, `learned` what earlier starts took beyond their plans."""
    bound = limit(device, values, own_bytes)
    reserve = int(str(values["memory.reserve_mib"].value)) * MIB
    beyond = 0
    if bound.kind == SET and device.memory.total:
        beyond = limit(device, {**values, SET_LIMIT: Setting("auto", "default")}, own_bytes).bytes
    return Room(bound.bytes, bound.source, reserve, (*file_copy(model, serving), *learned), bound.kind, beyond)


def _same(fitted: Fitted, now: Budget) -> bool:
    """It takes what it took, and nobody has set another limit: what is free moves by itself, a set limit does not."""
    before, after = (fitted.limit_kind, fitted.limit_bytes), (now.limit_kind, now.limit_bytes)
    set_by_hand = SET in (fitted.limit_kind, now.limit_kind)
    return fitted.total_bytes == now.total_bytes and (not set_by_hand or before == after)


def serving_of(values: Mapping[str, Setting], engine: Build, drafting: Drafting | None = None) -> Serving:
    """The options that decide how much memory llama-server takes, at a context still to be chosen."""

    def number(key: str, default: int) -> int:
        value = values[key].value
        return default if value in (None, "auto") else int(str(value))

    return Serving(
        parallel=number("parallel", 1),
        batch_size=number("batch_size", 2048),
        ubatch_size=number("ubatch_size", 512),
        cache_type_k=str(values["cache_type_k"].value or "f16"),
        cache_type_v=str(values["cache_type_v"].value or "f16"),
        flash_attn=values["flash_attn"].value != "off",
        cache_ram_mib=number("cache_ram", 0),
        kv_unified=values["kv_unified"].value is True,
        load_mode=str(values["load_mode"].value or "auto"),
        gpu=engine.cuda,
        cpu_features=engine.cpu_features,
        ctx_checkpoints=number("ctx_checkpoints", 32),
        swa_full=values["swa_full"].value is True,
        projector_bytes=projector_bytes(None if values["mmproj"].value is None else str(values["mmproj"].value)),
        drafting=drafting,
    )


def _check_training(model: Model, asked: Setting, values: Mapping[str, Setting], serving: Serving) -> None:
    trained, tokens = model.n_ctx_train * serving.slots, int(str(asked.value))
    if not trained or tokens <= trained or any(values[key].value is not None for key in _ROPE_KEYS):
        return
    slots = f" in each of {serving.slots} slots" if serving.slots > 1 else ""
    raise Refused(
        f"ctx_size={tokens} ({asked.source}) is beyond the {model.n_ctx_train} tokens{slots} the model was trained for",
        f"--set ctx_size={trained}, or set rope_scaling and yarn_orig_ctx to stretch it on purpose",
    )


def alone(model: Model, tokens: int, device: Device) -> Budget:
    """What a model takes at a context on this machine's CPU with default settings, against what can be had now."""
    features = ggml_features(device.cpu.features, device.machine)
    return estimate(
        model,
        Serving(ctx_size=tokens, cpu_features=features),
        limit_bytes=device.memory.available,
        limit_source="MemAvailable" if device.memory.total else "; ".join(device.memory.doubts),
    )
