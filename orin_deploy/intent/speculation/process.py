"""A draft in a process of its own: when there can be one, its words, and the server's options that hand it over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orin_deploy.errors import Refused, UsageError
from orin_deploy.facts.draft import BY_MODEL, SIMPLE
from orin_deploy.intent.spec import Build, Draft, Placement, Setting

_WHERE, _CPUS = "placement.draft", "placement.draft_cpus"


def wants_process(values: Mapping[str, Setting], kind: str) -> bool:
    """Whether a process of the draft's own is asked for; what a profile says of one is not meant for n-grams."""
    asked = [
        values[key] for key, none in ((_WHERE, ("inline", "auto")), (_CPUS, ("none",))) if values[key].value not in none
    ]
    return any(kind in BY_MODEL or setting.source.startswith("--") for setting in asked)


def check_process(values: Mapping[str, Setting], kind: str) -> None:
    """Raise Refused or UsageError where the draft cannot have the process of its own that is asked for."""
    where = values[_WHERE]
    key = _WHERE if where.value == "process" else _CPUS
    asked = f"{key}={values[key].value} ({values[key].source})"
    if where.value == "inline":
        raise UsageError(f"{asked} and {_WHERE}=inline ({where.source}) contradict one another", f"leave {_CPUS} out")
    if kind not in BY_MODEL:
        raise UsageError(f"{asked}: {kind} has no draft model to place", f"leave {key} out")
    if kind != SIMPLE:
        raise Refused(
            f"{asked}: a {kind} draft cannot have a process of its own, for it shares tensors with its target",
            f"--set {_WHERE}=inline" if key == _WHERE else f"--set {_CPUS}=none",
        )
    for option in ("rpc", "spec_draft_device", "spec_draft_ngl"):
        if values[option].value not in (None, "auto"):
            raise UsageError(
                f"{option} ({values[option].source}) is decided by the draft's own process",
                f"leave {option} out, or --set {_WHERE}=inline",
            )


def in_process(draft: Draft, values: Mapping[str, Setting], engine: Build, placement: Placement) -> Draft:
    """The draft with its process: ggml-rpc-server on the loopback address, which nobody else may reach (upstream's
    advice)."""
    device, port = str(values["placement.draft_device"].value), int(str(values["placement.draft_port"].value))
    device = ("CUDA0" if engine.cuda else "CPU") if device == "auto" else device
    words = ("-d", device, "-H", "127.0.0.1", "-p", str(port), "-t", str(placement.draft_threads))
    return replace(draft, device=device, port=port, argv=(f"{engine.bin}/ggml-rpc-server", *words))


def server_options(values: Mapping[str, Setting], draft: Draft, engine: Build) -> dict[str, Setting]:
    """llama-server's options for a draft that computes elsewhere.

    A device of an RPC server comes first in the server's own list of devices, so the target's must be named.
    """
    source = "the draft's own process"
    options = {
        "rpc": Setting(f"127.0.0.1:{draft.port}", source),
        "device": Setting("CUDA0" if engine.cuda else "none", source),
        "spec_draft_device": Setting("RPC0", source),
        "spec_draft_ngl": Setting("all", source),
    }
    return {key: new if values[key].value in (None, "auto") else values[key] for key, new in options.items()}
