"""How speculation looks: in a plan, at the end of `up`, and in `status`."""

from __future__ import annotations

from typing import Any

from orin_deploy.deploy.drafting import Look, look
from orin_deploy.deploy.record import plain
from orin_deploy.host import Host
from orin_deploy.intent.spec import Draft, Spec

_WHERE = {"inline": "in the server", "process": "in a process of its own", "draftless": "without a draft model"}


def draft_text(draft: Draft) -> str:
    """A planned draft in one line: kind, model, how many tokens at once, where, why."""
    model = draft.weights.reference.rpartition("/")[2] if draft.weights else None
    parts = (
        ",".join(draft.kinds),
        model,
        f"up to {draft.n_max} tokens at once",
        f"{_WHERE[draft.where]} ({draft.why})",
    )
    return " · ".join(filter(None, parts))


def draft_document(draft: Draft | None) -> dict[str, Any] | None:
    """A planned draft for `plan --json`; null where nothing is speculated."""
    if draft is None:
        return None
    return {
        "kind": draft.kind,
        "kinds": list(draft.kinds),
        "model": draft.weights.reference if draft.weights else None,
        "files": plain(draft.weights.files) if draft.weights else [],
        "where": draft.where,
        "why": draft.why,
        "optional": draft.optional,
        "source": draft.source,
        "n_max": draft.n_max,
        "n_min": draft.n_min,
    }


def decision_document(record: dict[str, Any]) -> dict[str, Any] | None:
    """What `draft: auto` was decided by, as a record's spec holds it; null where it was not asked."""
    decision: dict[str, Any] | None = (record.get("spec") or {}).get("decision")
    return decision


def decision_text(decision: dict[str, Any]) -> str:
    """A decision in one line: the kind, its length where that was measured too, its source, when it is asked again."""
    length = f", up to {decision['n_max']} tokens at once" if decision.get("n_max") is not None else ""
    again = f"; {decision['again']}" if decision.get("again") else ""
    return f"{decision['kind']}{length} ({decision['source']}){again}"


def proved_document(record: dict[str, Any]) -> dict[str, Any] | None:
    """Speculation as a record proves and measures it; null where none was planned. Tokens are those of the requests
    that measured."""
    spec, proof, measured = (record.get(key) or {} for key in ("spec", "proof", "measurement"))
    if left_out := spec.get("left_out"):
        return {"kind": left_out["kind"], "active": False, "left_out": left_out["why"]}
    if not spec.get("draft"):
        return None
    drafted, accepted = measured.get("drafted"), measured.get("accepted")
    return {
        "kind": spec["draft"]["kind"],
        "active": bool((proof.get("drafted") or {}).get("drafted")),
        "left_out": None,
        "drafted": drafted,
        "accepted": accepted,
        "acceptance": _rate(drafted, accepted),
        "proved_by": proof.get("drafted"),
    }


def live_document(host: Host, spec: Spec | None, runs: bool) -> dict[str, Any] | None:
    """Speculation as it is now, for `status --json`; null where none is planned."""
    if spec is None or (spec.draft is None and spec.left_out is None):
        return None
    if spec.draft is None:
        assert spec.left_out is not None
        return {"kind": spec.left_out.kind, "active": False, "left_out": spec.left_out.why}
    now = look(host, spec, spec.draft) if runs else Look(False, "the server does not run", None, None)
    return {
        "kind": spec.draft.kind,
        "active": now.active,
        "left_out": None,
        "where": spec.draft.where,
        "reason": now.reason,
        "drafted": now.drafted,
        "accepted": now.accepted,
        "acceptance": _rate(now.drafted, now.accepted),
    }


def speculation_text(document: dict[str, Any]) -> str:
    """One of the two documents above in one line."""
    kind = document["kind"]
    if document["left_out"] is not None:
        return f"LEFT OUT, {kind} did not work: {document['left_out']}"
    if document["active"] is False:
        return f"{kind}, planned and NOT ACTIVE" + (f": {document['reason']}" if document.get("reason") else "")
    state = "active" if document["active"] else "the server does not say now whether it is active"
    if document["acceptance"] is None:
        return f"{kind}, {state}, {_proved_text(document.get('proved_by'))}"
    tokens = f"{document['accepted']} of {document['drafted']} drafted tokens accepted ({document['acceptance']:.0%})"
    return f"{kind}, {state}, {tokens}"


def _proved_text(proof: dict[str, Any] | None) -> str:
    """What the proof at `up` saw, where no other request has drafted yet."""
    if not (proof and proof.get("drafted")):
        return "nothing drafted"
    if proof.get("request") == "forced":  # its words were ours: what was accepted tells nothing
        return f"{proof['drafted']} tokens drafted when it was proved"
    return f"{proof['accepted']} of {proof['drafted']} drafted tokens accepted when it was proved"


def _rate(drafted: int | None, accepted: int | None) -> float | None:
    return accepted / drafted if drafted and accepted is not None else None
