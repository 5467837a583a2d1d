"""Resolve: everything that is decided, from what the machine, the profile, the model and the user say. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from orin_deploy.errors import Refused, UsageError
from orin_deploy.facts import jetson
from orin_deploy.facts.device import MIB, CudaToolkit, Device
from orin_deploy.facts.model import Model
from orin_deploy.intent import board, build, cross, deployment, limit, options
from orin_deploy.intent.basis import Around, basis
from orin_deploy.intent.fit import fit
from orin_deploy.intent.option_table import OWN, SERVER
from orin_deploy.intent.profile import Profile
from orin_deploy.intent.spec import Build, Service, Setting, Spec, Value, Weights

_SERVER = frozenset(row.key for row in SERVER)

# A slow SD card reads about this much a second; an NVMe drive twenty times more. Used for the start timeout only.
_SLOWEST_READ_BYTES_PER_S = 20 * MIB

# At each barrier, hundreds a token, GCC's OpenMP spins 300,000 times before it sleeps: 8 ms with x86's pause, through
# whole time slices that the awaited thread needs when others compute too. Measured on 2 CPUs, SmolLM2-135M Q4_1, 2
# threads, tokens/s with 300,000 / 1000: alone 190 / 184, one busy process beside it 41 / 43, three of them 1.8 / 26.
# (100 costs half the speed alone.) On Arm a spin is another time, for there is no pause in it: left as it is.
_SHORT_SPIN = (("GOMP_SPINCOUNT", "1000"),)


def layer(profile: Profile, sets: tuple[tuple[str, str], ...]) -> dict[str, Setting]:
    """Every option's value with its source: defaults, then the profile, then the --set words. Raises UsageError."""
    values = {option.key: Setting(option.default, "default") for option in (*SERVER, *OWN)}
    values |= {key: Setting(value, profile.origin[key]) for key, value in profile.values.items()}
    for key, text in sets:
        option = options.find(key)
        values[option.key] = Setting(options.parse(option, text), "--set")
    return values


def choose_build(device: Device, values: Mapping[str, Setting], data: str) -> Build:
    """How the engine is built on this device: with the CUDA toolkit of its JetPack, for its own architecture."""
    if (triplet := cross.triplet(values)) is not None:
        raise Refused(
            f"build.toolchain {triplet} is for another machine, and a deployment builds where it runs",
            "orin-deploy build --output engine.tar.gz makes the engine; on its board: --set build.engine=FOLDER",
        )
    toolkit = _toolkit(device)[0]
    module = device.jetson.module if device.jetson else None
    arch = jetson.cuda_architecture(module, toolkit.version) if toolkit else None
    return build.resolve(device, values, data=data, arch=arch, toolkit=toolkit)


def _toolkit(device: Device) -> tuple[CudaToolkit | None, str | None]:
    if device.jetson is not None:
        return jetson.toolkit_for(device.jetson, device.toolchain.cuda)
    return (device.toolchain.cuda[0] if device.toolchain.cuda else None), None


def resolve(
    name: str,
    profile: Profile,
    device: Device,
    values: Mapping[str, Setting],
    engine: Build,
    model: Model,
    weights: Weights,
    alias: str,
    around: Around,
) -> Spec:
    """The spec for one deployment. Raises Refused or UsageError with what to change."""
    made = basis(profile, device, values, engine, model, weights, alias, around)
    decided, drafted, powered = dict(made.values), made.drafted, made.power
    decided["ctx_size"], budget = fit(model, decided, made.serving, made.room, device, around.fitted)
    settings = {key: setting for key, setting in decided.items() if key in _SERVER and setting.value is not None}
    return Spec(
        name=name,
        profile=profile.name,
        device=device,
        model=model,
        weights=weights,
        build=engine,
        settings=settings,
        placement=made.placement,
        service=_service(name, decided, settings, engine, weights, device, around),
        budget=budget,
        sources={key: setting.source for key, setting in decided.items()},
        warnings=(
            *_warnings(profile, device, _toolkit(device)[1]),
            *engine.warnings,
            *limit.warnings(device, budget, cuda=engine.cuda),
            *drafted.warnings,
            *(powered.warnings if powered else ()),
        ),
        draft=made.draft,
        left_out=drafted.left_out,
        no_draft=drafted.no_draft,
        decision=around.decision,
        to_measure=drafted.to_measure,
        power=powered,
        ctx_fitted=made.values["ctx_size"].value == "auto",
    )


def deployment_name(name: str) -> str:
    """A deployment's name, fit for a folder and a systemd unit; raises UsageError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", name):
        raise UsageError(
            f'"{name}" cannot name a deployment',
            "use letters, digits, dots, dashes and underscores, as in --name my-model-2",
        )
    return name


def _service(
    name: str,
    values: Mapping[str, Setting],
    settings: Mapping[str, Setting],
    engine: Build,
    weights: Weights,
    device: Device,
    around: Around,
) -> Service:
    passed: dict[str, Value] = {key: setting.value for key, setting in settings.items()}
    words = options.render(passed, around.help_text)
    folder = deployment.folder(Path(around.data), name)
    manager = str(values["service.manager"].value)
    if manager == "systemd" and not device.systemd:
        raise Refused(
            f"service.manager=systemd ({values['service.manager'].source}), and systemd does not run on this machine",
            "--set service.manager=process",
        )
    user = values["service.user"].value
    timeout = values["service.start_timeout_s"].value
    if timeout == "auto":
        size = sum(file.size or 0 for file in weights.files)
        timeout = start_timeout_s(size)
    key_file = values["api_key_file"].value
    return Service(
        manager=("systemd" if device.systemd else "process") if manager == "auto" else manager,
        unit=deployment.unit(name),
        user=("orin-deploy" if around.is_root else None) if user == "auto" else _text(user),
        start_timeout_s=int(str(timeout)),
        restart_delay_s=int(str(values["service.restart_delay_s"].value)),
        host=str(values["host"].value),
        port=int(str(values["port"].value)),
        argv=(f"{engine.bin}/llama-server", *words),
        env=_SHORT_SPIN if device.machine == "x86_64" else (),
        log=f"{folder}/server.log",
        api_key_file=_text(key_file),
    )


def start_timeout_s(size: int) -> int:
    """Seconds that a start may take with model files of so many bytes, on the slowest storage."""
    return 60 + size // _SLOWEST_READ_BYTES_PER_S


def _text(value: Value) -> str | None:
    return None if value is None else str(value)


def _warnings(profile: Profile, device: Device, toolkit_warning: str | None) -> tuple[str, ...]:
    found = []
    if device.assumed is not None:
        jetpack = f" with JetPack {device.jetson.jetpack}" if device.jetson else ""
        found.append(f"no {profile.name} board is at hand: the board's facts stand in{jetpack}, nothing running")
    if toolkit_warning is not None:
        found.append(toolkit_warning)
    found += jetson.notes(device.jetson) if device.jetson else ()
    return (*found, *board.disagreements(profile, device))
