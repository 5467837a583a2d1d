"""Records of the bench: all samples and what they prove, JSON, one file a run, readable for ever."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orin_deploy.actions import Write
from orin_deploy.deploy.record import plain
from orin_deploy.host import Host
from orin_deploy.observe.bench.agenda import Agenda
from orin_deploy.observe.bench.comparison import Comparison, Ratio, Score
from orin_deploy.observe.bench.intervals import RATE, Interval
from orin_deploy.observe.bench.sample import Case, Sample

FORMAT = 1


def folder(host: Host) -> Path:
    return host.data / "bench"


def numbers(host: Host) -> tuple[int, ...]:
    """The numbers of all records there are, oldest first."""
    found = (re.fullmatch(r"(\d+)\.json", path.name) for path in folder(host).glob("*.json"))
    return tuple(sorted(int(match[1]) for match in found if match))


def read(host: Host, number: int) -> dict[str, Any] | None:
    """A record; None for one that is not there, torn, or none of ours."""
    try:
        data = json.loads((folder(host) / f"{number:04d}.json").read_text())
    except (OSError, ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) and "conditions" in data else None


def keep(host: Host, document: Mapping[str, Any]) -> dict[str, Any]:
    """Write a document under the next number, and return it with that number."""
    number = max(numbers(host), default=0) + 1
    kept = {"format": FORMAT, "record": number, **document}
    host.do(Write(str(folder(host) / f"{number:04d}.json"), json.dumps(kept, indent=1) + "\n"))
    return kept


def document(host: Host, name: str, command: str, agenda: Agenda, found: Comparison) -> dict[str, Any]:
    """A comparison as JSON: what `bench --json` prints and the record holds."""
    return {
        "name": name,
        "command": command,
        "finished": host.now().isoformat(),
        "seconds": round(found.seconds, 1),
        "seconds_allowed": agenda.seconds,
        "arms": list(found.arms),
        "left_out": dict(found.left_out),
        "together": found.together,
        "wrong_rate": RATE,
        "conditions": plain(found.conditions),
        "weights": dict(agenda.weights),
        "cases": [_case(found, case) for case in found.cases],
        "means": {
            arm: {"speed": _interval(value), "ratio": _ratio(found.mean_ratios.get(arm))}
            for arm, value in found.means.items()
        },
        "outputs": {
            "compared": found.compared_outputs,
            "different": [{**plain(each), "case": plain(each.case)} for each in found.outputs],
        },
        "notes": list(found.notes),
        "samples": [_sample(sample, found.rejected.get(at)) for at, sample in enumerate(found.samples)],
    }


def _case(found: Comparison, case: Case) -> dict[str, Any]:
    return {
        **plain(case),
        "answer_tokens": found.tokens.get(case),
        "best": list(found.best[case]),
        "arms": {
            arm: {**_score(found.scores[case, arm]), "ratio": _ratio(found.ratios.get((case, arm)))}
            for arm in found.arms
        },
    }


def _score(score: Score) -> dict[str, Any]:
    told: dict[str, Any] = plain(score)
    return {**told, "speed": _interval(score.speed)}


def _interval(value: Interval | None) -> dict[str, Any] | None:
    """Without bounds where there are none: JSON has no infinity."""
    if value is None:
        return None
    known = 0 < value.low <= value.high < 1e100
    return {
        "value": value.value,
        "low": value.low if known else None,
        "high": value.high if known else None,
        "spread": value.spread if known else None,
    }


def _ratio(ratio: Ratio | None) -> dict[str, Any] | None:
    if ratio is None:
        return None
    return {"turns": ratio.turns, "verdict": ratio.verdict, "value": _interval(ratio.value)}


def _sample(sample: Sample, why_not: str | None) -> dict[str, Any]:
    """A sample's figures; texts are kept as a hash, for they are long and say nothing of speed."""
    text = "\0".join(answer.text for answer in sample.answers)
    return {
        "arm": sample.arm,
        **plain(sample.case),
        "turn": sample.turn,
        "began": round(sample.began, 3),
        "speed": round(sample.speed, 3),
        "tokens": sample.tokens,
        "drafted": sample.drafted,
        "accepted": sample.accepted,
        "counts": plain(sample.counts),
        "others_cpus": sample.others_cpus,
        "rejected": why_not,
        "text_sha256": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16],
        "answers": [
            {
                "seconds": round(answer.total_s, 4),
                "first_token_s": round(answer.first_token_s, 4),
                "finish": answer.finish,
                **plain(answer.timings),
                "arrivals_ms": [round(1000 * at, 1) for at in answer.arrivals_s],
            }
            for answer in sample.answers
        ],
    }
