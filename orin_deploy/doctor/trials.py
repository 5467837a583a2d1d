"""Rules about measurements: which power mode they favour, and whether the telemetry beside them is whole."""

from __future__ import annotations

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.observe.telemetry.sample import TRUSTED_MISSING, missing_ratio


def objective(evidence: Evidence) -> Finding | None:
    """Trials whose fastest mode is not the one that does most for a joule."""
    trials = [trial for trial in evidence.trials if trial.tps > 0 and trial.watt > 0]
    if len(trials) < 2:
        return None
    fastest = max(trials, key=lambda trial: trial.tps)
    frugal = max(trials, key=lambda trial: trial.tps / trial.watt)
    if fastest.mode == frugal.mode:
        return None
    saved = 1 - frugal.watt / fastest.watt
    return Finding(
        "tune.objective",
        "plan",
        f"{fastest.mode} is the fastest ({fastest.tps:g} tokens/s at {fastest.watt:g} W), {frugal.mode} gives most "
        f"tokens for a joule ({frugal.tps / frugal.watt:.2f} against {fastest.tps / fastest.watt:.2f})",
        f"on mains power.mode={fastest.mode}; on a battery, or in heat, --set power.mode={frugal.mode}",
        why_not=f"the highest mode is not best at everything: {frugal.mode} takes {saved:.0%} less power",
        values={"best_tps": fastest.mode, "best_tokens_per_joule": frugal.mode},
    )


def telemetry_gap(evidence: Evidence) -> Finding | None:
    """A measurement during which the telemetry fell silent."""
    values = [sample.value for sample in sorted(evidence.samples, key=lambda sample: sample.at)]
    ratio = missing_ratio(values) if values else 0.0
    if ratio <= TRUSTED_MISSING:
        return None
    return Finding(
        "tune.telemetry-gap",
        "warn",
        f"{ratio:.0%} of the samples are missing: what was measured meanwhile is not valid",
        "measure again; orin-deploy marks gaps and takes the next source of telemetry when one goes quiet",
        why_not="a gap is not zero watts: samples that are missing must not be averaged in",
        values={"missing_ratio": round(ratio, 3), "trial_valid": False},
    )
