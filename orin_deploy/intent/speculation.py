"""Speculation: a draft model in a process of its own, and the server's options that hand the draft to it."""

from __future__ import annotations

from collections.abc import Mapping

from orin_deploy.errors import Refused, UsageError
from orin_deploy.intent.spec import Build, Draft, Placement, Setting, WeightFile, Weights

KIND = "draft-simple"
"""The one kind that can leave the server's process: the others share tensors with the target."""

_MODEL, _PROCESS = "spec_draft_model", "placement.draft_cpus"


def has_process(values: Mapping[str, Setting]) -> bool:
    """Whether a process of the draft's own is wanted; raises UsageError or Refused where there cannot be one."""
    wish = values[_PROCESS]
    if wish.value == "none":
        return False
    asked = f"{_PROCESS}={wish.value} ({wish.source})"
    if values[_MODEL].value is None:
        raise UsageError(f"{asked} has no draft model to place", f"--set {_MODEL}=PATH, or leave {_PROCESS} out")
    kinds = str(values["spec_type"].value or KIND).split(",")
    strangers = [kind for kind in kinds if kind.startswith("draft-") and kind != KIND]
    if strangers or KIND not in kinds:
        raise Refused(
            f"{asked}: a draft of {','.join(strangers or kinds)} cannot have a process of its own, {KIND} can",
            f"--set {_PROCESS}=none, or --set spec_type={KIND}",
        )
    for key in ("rpc", "spec_draft_device", "spec_draft_ngl"):
        if values[key].value not in (None, "auto"):
            raise UsageError(
                f"{key} ({values[key].source}) is decided by the draft's own process",
                f"leave {key} out, or --set {_PROCESS}=none",
            )
    return True


def draft_process(values: Mapping[str, Setting], engine: Build, placement: Placement) -> Draft:
    """The draft's process: ggml-rpc-server on the loopback address, which nobody else may reach (upstream's advice)."""
    device, port = str(values["placement.draft_device"].value), int(str(values["placement.draft_port"].value))
    device = ("CUDA0" if engine.cuda else "CPU") if device == "auto" else device
    path = str(values[_MODEL].value)
    words = ("-d", device, "-H", "127.0.0.1", "-p", str(port), "-t", str(placement.draft_threads))
    return Draft(
        weights=Weights(f"file:{path}", (WeightFile(f"file:{path}", path),)),
        kind=KIND,
        device=device,
        port=port,
        argv=(f"{engine.bin}/ggml-rpc-server", *words),
    )


def warnings(values: Mapping[str, Setting]) -> tuple[str, ...]:
    """What a plan with a draft model does not know."""
    if values[_MODEL].value is None:
        return ()
    return (f"the budget does not count the draft model {values[_MODEL].value}: leave memory for it",)


def server_options(values: Mapping[str, Setting], draft: Draft, engine: Build) -> dict[str, Setting]:
    """llama-server's options for a draft that computes elsewhere.

    A device of an RPC server comes first in the server's own list of devices, so the target's must be named; and a
    draft model alone does not speculate (common/speculative.cpp), so the kind must be too.
    """
    source = "the draft's own process"
    options = {
        "rpc": Setting(f"127.0.0.1:{draft.port}", source),
        "device": Setting("CUDA0" if engine.cuda else "none", source),
        "spec_draft_device": Setting("RPC0", source),
        "spec_draft_ngl": Setting("all", source),
        "spec_type": Setting(draft.kind, source),
    }
    return {key: new if values[key].value in (None, "auto") else values[key] for key, new in options.items()}
