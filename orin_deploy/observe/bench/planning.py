"""From arms to specs: what each arm's server shall be, and whether all of them have room at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orin_deploy.deploy.draft import Situation, draft
from orin_deploy.deploy.plan import Plan
from orin_deploy.deploy.verify import context_per_slot
from orin_deploy.errors import OrinError, Refused
from orin_deploy.host import Host, Progress
from orin_deploy.intent.measured import Decision
from orin_deploy.intent.refusal import DoesNotFit
from orin_deploy.intent.request import Request
from orin_deploy.intent.resolve import layer
from orin_deploy.intent.spec import Spec
from orin_deploy.observe.bench import arms as naming
from orin_deploy.observe.bench.agenda import LONG_TOKENS, SHORT_CTX, Agenda
from orin_deploy.observe.bench.arms import Arm
from orin_deploy.parts import engine, service, weights


@dataclass(frozen=True)
class Field:
    """The arms that can run, with their specs; `errors` says why others cannot. `together`: there is room for all
    servers at once."""

    specs: Mapping[str, Spec]
    together: bool
    errors: Mapping[str, OrinError]

    @property
    def left_out(self) -> Mapping[str, str]:
        """Why arms cannot run, in words."""
        return {name: reason(error) for name, error in self.errors.items()}

    @property
    def base(self) -> Spec:
        return next(iter(self.specs.values()))

    @property
    def slots(self) -> int:
        """The fewest slots of any arm: more clients than slots would only wait for one another."""
        return min(_slots(spec) for spec in self.specs.values())


def plan_field(
    host: Host, request: Request, now: Situation, arms: Sequence[Arm], agenda: Agenda, progress: Progress
) -> Field:
    """Plan every arm beside what runs now. Raises OrinError where the engine or the model is not here yet, and the
    first arm's error where no arm can be planned."""
    base = draft(host, naming.request(request, Arm(naming.NONE, naming.NONE)), now, progress)
    _require_built(base)
    beside = replace(now, own_bytes=0)  # the deployment's own server stays
    specs: dict[str, Spec] = {}
    errors: dict[str, OrinError] = {}
    for number, arm in enumerate(arms):
        try:
            wish = _as_trial(host, naming.request(_with_draft(request, now, arm), arm), base.spec, agenda)
            decision = _decided(host, request, now, progress) if naming.as_deployed(arm) else None
            planned = draft(host, wish, beside, progress, decision=decision)
            _require_built(planned)
            _require_as_named(arm, planned.spec)
            specs[arm.name] = _as_ours(host, planned.spec, number)
        except OrinError as error:
            errors[arm.name] = error
    if not specs:
        raise _no_room(host, now, next(iter(errors.values())))
    return Field(specs, _fit_together(tuple(specs.values())), errors)


def reason(error: OrinError) -> str:
    """An error in the words that lists of reasons have."""
    return error.short if isinstance(error, DoesNotFit) else error.message


def _require_built(plan: Plan) -> None:
    for step in (*plan.steps_of(engine.NAME), *plan.steps_of(weights.NAME)):
        if step.actions:
            raise OrinError(f"{step.name}: not done yet: {step.why}", "orin-deploy up, with the same options, first")


def _with_draft(request: Request, now: Situation, arm: Arm) -> Request:
    """The request, with the draft that --set or the profile names told to the arm that is to have it."""
    if arm.draft != naming.DRAFT or request.draft is not None:
        return request
    return replace(request, draft=str(layer(now.profile, request.sets)["draft"].value))


def _decided(host: Host, request: Request, now: Situation, progress: Progress) -> Decision | None:
    """What draft=auto goes by in the deployment as it is: one changed option, and no decision is on record for it."""
    return draft(host, request, now, progress).spec.decision


def _require_as_named(arm: Arm, spec: Spec) -> None:
    """Whatever drafts otherwise than its arm says would be measured under a wrong name."""
    if spec.to_measure is not None:
        label = arm.name.partition(":")[0]
        wanted = ",".join(("draft=ngram-map-k4v", *(f"{key}={value}" for key, value in arm.sets)))
        raise OrinError(
            f"draft is auto and nothing is decided yet: say which, as in {label}:{wanted}", "orin-deploy up decides"
        )
    if spec.draft is not None:
        return
    if arm.draft == naming.DRAFT or (spec.no_draft and arm.sets):
        why = spec.no_draft or "there is no draft for this model"
        raise OrinError(why, f"--draft REF, or leave the arm {arm.name} out")
    if vain := ", ".join(key for key, _ in arm.sets if key.startswith("spec_")):
        raise OrinError(f"nothing drafts in it, and {vain} says nothing then", f"{arm.name},draft=KIND")


def _as_trial(host: Host, wish: Request, base: Spec, agenda: Agenda) -> Request:
    """The wish, on loopback ports of its own, with metrics, and with no more context than is used: what runs already
    leaves less room, and what is not used changes no speed."""
    slot = context_per_slot(base) or SHORT_CTX
    slot = min(slot, 2 * LONG_TOKENS if agenda.has_long else SHORT_CTX)
    own = (
        ("host", "127.0.0.1"),
        ("port", str(host.free_port())),
        ("placement.draft_port", str(host.free_port())),
        ("metrics", "on"),
        ("ctx_size", str(slot * _slots(base))),
    )
    chosen = {key for key, _ in wish.sets}
    return replace(
        wish, sets=(*wish.sets, *(pair for pair in own if pair[0] != "ctx_size" or "ctx_size" not in chosen))
    )


def _slots(spec: Spec) -> int:
    return int(str(spec.settings["parallel"].value)) if "parallel" in spec.settings else 1


def _as_ours(host: Host, spec: Spec, number: int) -> Spec:
    """A spec whose server we run ourselves, its files in a folder of the bench."""
    log = str(host.data / "bench" / "arms" / str(number) / "server.log")
    return replace(spec, service=replace(spec.service, manager="process", log=log))


def _fit_together(specs: Sequence[Spec]) -> bool:
    """Whether all have room at once; the system's reserve is needed once."""
    rows = [{row.name: row.bytes for row in spec.budget.rows} for spec in specs]
    reserve = max(each.get("reserve", 0) for each in rows)
    limits = [spec.budget.limit_bytes for spec in specs]
    return sum(sum(each.values()) - each.get("reserve", 0) for each in rows) + reserve <= min(limits)


def _no_room(host: Host, now: Situation, error: OrinError) -> OrinError:
    if isinstance(error, Refused) and service.status(host, now.name).pid is not None:
        return Refused(
            f"no arm can run beside the deployment {now.name}: {error.message}",
            f"orin-deploy down --name {now.name}, then the same command",
        )
    return error
