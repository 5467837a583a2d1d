"""Earlier: what the last record of a deployment says that its next plan goes by; nothing where it does not say."""

from __future__ import annotations

from typing import Any

from orin_deploy.deploy import residual
from orin_deploy.intent.budget import AVAILABLE
from orin_deploy.intent.engine_rows import Row
from orin_deploy.intent.fit import Fitted
from orin_deploy.intent.spec import LeftOut, WeightFile, Weights


def fitted(record: dict[str, Any] | None) -> Fitted | None:
    """The context that was fitted to memory for this deployment.

    Memory is never twice the same to the byte; without this a second `up` would fit another context and restart."""
    if record is None or not _went_well(record):
        return None
    try:
        spec = record["spec"]
        context, budget = spec["settings"]["ctx_size"]["value"], spec["budget"]
        total, kind = sum(row["bytes"] for row in budget["rows"]), budget.get("limit_kind", AVAILABLE)
        known = Fitted(context, record["record"], total, budget["limit_bytes"], kind)
        return known if spec.get("ctx_fitted") else None
    except (KeyError, TypeError, AttributeError):  # no spec yet, or a record of another version
        return None


def learned(record: dict[str, Any] | None) -> tuple[Row, ...]:
    """What that plan counted as learned."""
    budget = ((record or {}).get("spec") or {}).get("budget") or {"rows": ()}
    return tuple(
        Row(row["name"], row["bytes"], str(row.get("source")))
        for row in budget["rows"]
        if row.get("name") == residual.ROW
    )


def files(record: dict[str, Any] | None) -> Weights | None:
    """The files that the model's reference was resolved to: with them a plan needs no network a second time."""
    return _files((record or {}).get("spec"))


def draft_files(record: dict[str, Any] | None) -> Weights | None:
    """Those of the draft's reference."""
    return _files(((record or {}).get("spec") or {}).get("draft"))


def _files(holder: dict[str, Any] | None) -> Weights | None:
    told = (holder or {}).get("weights")
    try:
        return Weights(told["reference"], tuple(WeightFile(**file) for file in told["files"])) if told else None
    except (KeyError, TypeError):
        return None


def left_out(record: dict[str, Any] | None) -> LeftOut | None:
    """The speculation that it did without because it did not work, if it went well then."""
    if record is None or not _went_well(record):
        return None
    told = (record.get("spec") or {}).get("left_out")
    try:
        return LeftOut(**told) if told else None
    except TypeError:
        return None


def proved_pid(record: dict[str, Any] | None) -> int | None:
    """The process that was proved."""
    proof = (record or {}).get("proof") or {}
    return proof.get("pid")


def _went_well(record: dict[str, Any]) -> bool:
    return record.get("outcome") in ("done", "running")
