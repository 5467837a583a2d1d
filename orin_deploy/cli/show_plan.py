"""How a plan looks: machine, model, engine, settings with their sources, the memory table, the steps with reasons."""

from __future__ import annotations

from orin_deploy.cli.console import Console, mib, roughly
from orin_deploy.cli.show_memory import holders, show_budget
from orin_deploy.cli.show_speculation import decision_text, draft_text
from orin_deploy.deploy.plan import Plan
from orin_deploy.deploy.record import plain
from orin_deploy.intent.placement import cpu_text
from orin_deploy.intent.spec import Power, Spec


def show_plan(plan: Plan, console: Console, actions: bool = True) -> None:
    """Print a plan; `up` leaves out the steps' actions, which `plan` shows word for word."""
    spec = plan.spec
    why = spec.sources.get("profile", "--profile")
    console.say(f"Plan for {spec.name} (profile {spec.profile}{'' if why == '--profile' else f': {why}'})")
    console.table(_heads(spec))
    for warning in spec.warnings:
        console.say(f"  warning: {warning}")
    for need in spec.build.needs:
        console.say(f"  to be there first: {need}")
    console.say()
    console.say("Settings")
    console.table(_settings(spec))
    console.say()
    show_budget(spec.budget, console, spec.device.memory.total)
    if others := holders(spec.device):
        console.say(f"  held by others: {others}")
    console.say()
    console.say("Steps")
    _steps(plan, console, actions)


def _heads(spec: Spec) -> list[tuple[str, str]]:
    device, model, build = spec.device, spec.model, spec.build
    module = device.jetson.module if device.jetson else None
    memory = mib(device.memory.total) if device.memory.total else "memory unknown"
    machine = [module or device.machine, f"{len(device.cpu.usable)} CPUs", memory]
    if device.assumed:
        machine.append(f"not at hand: {device.assumed} stands in")
    source = build.source
    commit = f" ({source.commit})" if source.commit else ""
    target = "CUDA " + ", ".join(build.cuda_architectures) if build.cuda else "CPU"
    return [
        ("machine", " · ".join(machine)),
        (
            "model",
            f"{_model_name(spec)} · {model.architecture} · {model.n_layer} layers · {mib(model.file_bytes)} "
            f"(from its {'header' if model.known_from == 'header' else 'catalogue entry'})",
        ),
        ("engine", f"llama.cpp{commit} from {source.location} {source.version or ''} · {target} · {build.key}"),
        ("serving", f"{spec.service.endpoint} · {spec.service.manager}"),
        ("CPUs", f"{cpu_text(spec.placement.cpus)} · {spec.placement.threads} threads ({spec.placement.why})"),
        *([("draft", draft_text(spec.draft))] if spec.draft else []),
        *([("draft", decision_text(plain(spec.decision)))] if spec.decision and not spec.draft else []),
        *([("decided", spec.decision.source)] if spec.decision and spec.draft else []),
        *([("power", _power_text(spec.power))] if spec.power else []),
    ]


def _power_text(power: Power) -> str:
    mode = f"{power.mode} ({power.source})" if power.mode else "mode left alone"
    clocks = "clocks pinned" if power.clocks else "clocks left alone"
    return " · ".join(filter(None, (mode, clocks, power.fan and f"fan {power.fan}")))


def _model_name(spec: Spec) -> str:
    return " ".join(filter(None, (spec.model.name, spec.model.file_type))) or spec.model.reference


def _settings(spec: Spec) -> list[tuple[str, str, str]]:
    """Server options that are passed, and the other keys that somebody set."""
    rows = [(key, str(setting.value), setting.source) for key, setting in sorted(spec.settings.items())]
    return [(key, value if len(value) <= 40 else "..." + value[-37:], source) for key, value, source in rows]


def _steps(plan: Plan, console: Console, actions: bool) -> None:
    for number, step in enumerate(plan.in_order, 1):
        due = bool(step.actions) or step is plan.measuring or (step is plan.proof_step and plan.proof_due)
        mark = "do" if due else "ok"
        # Build times were measured on x86; an Arm core takes longer.
        about = "about" if plan.spec.device.machine == "x86_64" else "at least"
        known = due and step is not plan.measuring  # which says itself how long it may take
        estimate = f" ({about} {roughly(step.seconds)})" if known and step.seconds else ""
        console.say(f"  {number}. [{mark}] {step.part}: {step.name}{estimate}: {step.why}")
        for action in step.actions if actions else ():
            console.say(f"       {action}")
    if plan.empty:
        console.say("  Nothing to do.")
