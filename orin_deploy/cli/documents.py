"""The JSON documents of the verbs. Their keys are a contract: add, never rename."""

from __future__ import annotations

from typing import Any

from orin_deploy import actions
from orin_deploy.deploy.plan import Plan
from orin_deploy.deploy.record import plain
from orin_deploy.facts.model import Model
from orin_deploy.intent.budget import Budget
from orin_deploy.intent.spec import Power, Spec


def plan_document(plan: Plan) -> dict[str, Any]:
    """What `plan --json` prints; `up --json` holds it under "plan"."""
    return {
        "name": plan.spec.name,
        "profile": plan.spec.profile,
        "changes": plan.changes,
        "proof_due": plan.proof_due,
        "device": {
            "assumed": plan.spec.device.assumed,
            "machine": plan.spec.device.machine,
            "module": plan.spec.device.jetson.module if plan.spec.device.jetson else None,
            "tenants": plain(plan.spec.device.tenants),
            "tenants_unread": plan.spec.device.tenants_unread,
        },
        "spec": _spec(plan.spec),
        "budget": budget_document(plan.spec.budget),
        "steps": [
            {
                "part": step.part,
                "name": step.name,
                "why": step.why,
                "estimate_s": step.seconds,
                "actions": [actions.to_json(action) for action in step.actions],
            }
            for step in plan.in_order
        ],
        "warnings": list(plan.spec.warnings),
        "needs": list(plan.spec.build.needs),
    }


def _spec(spec: Spec) -> dict[str, Any]:
    from orin_deploy.cli.show_speculation import draft_document

    source = spec.build.source
    return {
        "build": {
            "key": spec.build.key,
            "source": {
                "kind": source.kind,
                "location": source.location,
                "version": source.version,
                "sha256": source.sha256,
                "commit": source.commit,
            },
            "cmake": list(spec.build.cmake),
            "targets": list(spec.build.targets),
            "cuda": spec.build.cuda,
            "cuda_architectures": list(spec.build.cuda_architectures),
            "jobs": spec.build.jobs,
            "bin": spec.build.bin,
        },
        "server": {
            "argv": list(spec.service.argv),
            "endpoint": spec.service.endpoint,
            "manager": spec.service.manager,
            "settings": {key: setting.value for key, setting in spec.settings.items()},
        },
        "placement": {
            "target": {
                "cpus": list(spec.placement.cpus),
                "threads": spec.placement.threads,
                "threads_batch": spec.placement.threads_batch,
                "why": spec.placement.why,
            },
            **_draft(spec),
        },
        "draft": draft_document(spec.draft),
        "decision": plain(spec.decision),
        "to_measure": plain(spec.to_measure),
        "power": _power(spec.power),
        "model": model_document(spec.model) | {"files": plain(spec.weights.files)},
        "sources": spec.sources,
    }


def _power(power: Power | None) -> dict[str, Any] | None:
    """The power settings; a mode of null is left alone. Warnings are with the plan's."""
    document: dict[str, Any] | None = plain(power)
    return None if document is None else {key: value for key, value in document.items() if key != "warnings"}


def _draft(spec: Spec) -> dict[str, Any]:
    """The draft's own process, where there is one."""
    draft = spec.draft_process
    if draft is None:
        return {}
    placement = spec.placement
    return {
        "draft": {
            "cpus": list(placement.draft_cpus),
            "threads": placement.draft_threads,
            "device": draft.device,
            "argv": list(draft.argv),
        }
    }


def budget_document(budget: Budget) -> dict[str, Any]:
    return {
        "rows": [{"name": row.name, "bytes": row.bytes, "source": row.source} for row in budget.rows],
        "total_bytes": budget.total_bytes,
        "limit_bytes": budget.limit_bytes,
        "limit_source": budget.limit_source,
        "fits": budget.fits,
    }


def model_document(model: Model) -> dict[str, Any]:
    """A model's facts, without the list of its layers."""
    document: dict[str, Any] = plain(model)
    layers = document.pop("layers")
    document["n_layer"] = len(layers)
    document["n_head_kv"] = sorted({layer["n_head_kv"] for layer in layers}, reverse=True)
    return document
