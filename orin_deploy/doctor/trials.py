"""Rules about measurements: which power mode they favour, and whether the telemetry beside them is whole."""

from __future__ import annotations

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.observe.telemetry.sample import TRUSTED_MISSING, missing_ratio

# Page caches that differ by this much, both ways counted, are another state of the machine.
_CACHE_MIB, _CACHE_TIMES = 1024, 2


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


def cache_state_differs(evidence: Evidence) -> Finding | None:
    """Trials between which the page cache has grown or shrunk: what differs may be the cache and not the setting."""
    trials = sorted(evidence.cached_trials, key=lambda trial: trial.cached_mib)
    if len(trials) < 2:
        return None
    least, most = trials[0], trials[-1]
    if most.cached_mib - least.cached_mib < _CACHE_MIB or most.cached_mib < _CACHE_TIMES * least.cached_mib:
        return None
    return Finding(
        "tune.cache-state-differs",
        "warn",
        f"{least.name} ran with {least.cached_mib:g} MiB cached and {most.name} with {most.cached_mib:g} MiB: "
        f"{least.tps:g} and {most.tps:g} tokens/s are not to be compared",
        "bring the page cache to the same state before each (as root: sync; sysctl -w vm.drop_caches=3), measure again",
        why_not="MemAvailable does not show it: it counts the page cache as free",
        values={"cached_mib": {trial.name: trial.cached_mib for trial in trials}, "comparable": False},
    )


def rollback(evidence: Evidence) -> Finding | None:
    """A revision whose smoke test failed, after one that passed: the older one stays in use."""
    good = [revision.name for revision in evidence.revisions if revision.passed]
    if not evidence.revisions or evidence.revisions[-1].passed or not good:
        return None
    failed = evidence.revisions[-1].name
    return Finding(
        "upgrade.rollback-to-last-good",
        "plan",
        f"{failed} failed its smoke test: {good[-1]} is the last that passed, and stays",
        f"--set build.source=git:URL@{good[-1]}; its build folder is still there, nothing is compiled again",
        why_not=f"nothing on the board changed between {good[-1]} and {failed}",
        values={"active_rev": good[-1], "failed_rev": failed},
    )
