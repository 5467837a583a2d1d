"""What a bench found, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from orin_deploy.cli.console import Console, duration
from orin_deploy.observe.bench.agenda import Agenda
from orin_deploy.observe.bench.comparison import SAME, UNKNOWN, Comparison, Ratio, Score
from orin_deploy.observe.bench.intervals import Interval
from orin_deploy.observe.bench.sample import Case

_SHOWN_DIFFERENCES = 3
_LEGEND = (
    "1.20x ±5%: 1.20 times as fast as the first arm, give or take 5%; one run of twenty has a ratio outside of that",
    "same: no difference that matters; unsure: more turns are needed to tell",
)
_CHECKS = "tokens per check: what the model yields each time it checks a draft, one token of its own included"
_TOO_FEW, _NOT_YET = "too few turns to tell", "cannot be told yet"


def show(found: Comparison, agenda: Agenda, number: int | None, console: Console) -> None:
    """The tables of a comparison, and what must be known to read them; `number` is its record's, None without one."""
    console.say()
    if len(found.arms) > 1:
        _ratios(found, console)
        console.say()
    for arm in found.arms:
        if len(found.arms) > 1:
            console.say(arm)
        _measures(found, arm, console)
    kept = "no record" if number is None else f"record {number}"
    for line in (*_remarks(found, agenda), f"{kept}, measured in {duration(found.seconds)}"):
        console.say(line)


def _ratios(found: Comparison, console: Console) -> None:
    """Speed by case and arm, and who wins."""
    rows: list[Sequence[str]] = [("tokens/s", *found.arms, "winner")]
    for case in found.cases:
        cells = []
        for arm in found.arms:
            ratio = found.ratios.get((case, arm))
            cells.append(_speed(found.scores[case, arm].speed, ratio))
        rows.append((_label(case, found.cases), *cells, _winner(found, case)))
    if found.means:
        cells = [_speed(found.means[arm], found.mean_ratios.get(arm)) for arm in found.arms]
        rows.append(("geometric mean", *cells, ""))
    console.table(rows)


def _speed(speed: Interval | None, ratio: Ratio | None) -> str:
    if speed is None:
        return "-"
    if ratio is None or ratio.value is None:
        return f"{speed.value:.1f} {_spread(speed)}"
    doubt = {SAME: ", same", UNKNOWN: ", unsure"}.get(ratio.verdict, "")
    if ratio.value.spread >= 1:
        return f"{speed.value:.1f} ({ratio.value.value:.2f}x, too few turns)"
    return f"{speed.value:.1f} ({ratio.value.value:.2f}x {_spread(ratio.value)}{doubt})"


def _spread(value: Interval) -> str:
    return f"±{value.spread:.0%}" if value.spread < 1 else "(spread unknown)"


def _winner(found: Comparison, case: Case) -> str:
    """The winner's name, those of all that may be it, or that there is no difference."""
    best = found.best[case]
    if not best:
        return _TOO_FEW
    if len(best) < len(found.arms):
        return " or ".join(best)
    verdicts = [found.ratios[case, arm].verdict for arm in found.arms[1:]]
    return "no difference" if all(verdict == SAME for verdict in verdicts) else _NOT_YET


def _measures(found: Comparison, arm: str, console: Console) -> None:
    head = (
        "generation/s",
        "prompt/s",
        "first token",
        "between tokens p50 p95",
        "accepted",
        "tokens per check",
        "turns",
    )
    rows: list[Sequence[str]] = [("", *head)]
    for case in found.cases:
        score = found.scores[case, arm]
        rows.append((_label(case, found.cases), *_cells(score)))
    console.table(rows, right=range(1, len(head) + 1))


def _cells(score: Score) -> tuple[str, ...]:
    if score.speed is None:
        return ("-",) * 6 + (f"0 ({score.rejected} rejected)" if score.rejected else "0",)
    drafted = score.acceptance is not None
    return (
        f"{score.speed.value:.1f} {_spread(score.speed)}",
        f"{score.prompt_per_s:.0f}",
        _ms(score.first_token_s),
        f"{_ms(score.gap_p50_s)} {_ms(score.gap_p95_s)}",
        f"{score.acceptance:.0%}" if drafted else "-",
        f"{score.accepted_length:.2f}" if score.accepted_length is not None else "-",
        f"{score.turns}" + (f" ({score.rejected} rejected)" if score.rejected else ""),
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.{1 if seconds < 0.1 else 0}f} ms"


def _label(case: Case, cases: Sequence[Case]) -> str:
    """A case's name: its workload, and of the rest what tells it from the other cases."""
    words = [case.workload]
    if len({each.language for each in cases}) > 1:
        words.append(case.language)
    if len({each.sampling for each in cases}) > 1:
        words.append(f"{case.sampling} sampling")
    if len({each.context for each in cases}) > 1:
        words.append(case.context)
    if len({each.clients for each in cases}) > 1:
        words.append(f"{case.clients} clients" if case.clients > 1 else "1 client")
    return ", ".join(words)


def _remarks(found: Comparison, agenda: Agenda) -> list[str]:
    """What to know beside the figures."""
    lines = [f"left out: {arm}: {why}" for arm, why in found.left_out.items()]
    lines += found.notes
    if len(found.arms) > 1:
        lines += _LEGEND
        lines += _outputs(found)
        if not found.together:
            lines.append("there was room for one server at a time: arms changed by blocks of turns, not by request")
    if any(score.accepted_length is not None for score in found.scores.values()):
        lines.append(_CHECKS)
    if found.rejected:
        reasons = list(found.rejected.values())
        kinds = dict.fromkeys(reason.partition(":")[0].partition(" on ")[0] for reason in reasons)
        lines.append(f"{len(reasons)} of {len(found.samples)} samples rejected ({'; '.join(kinds)})")
    unsure = [case for case in found.cases if len(found.arms) > 1 and _winner(found, case) in (_TOO_FEW, _NOT_YET)]
    if unsure:
        lines.append(f"--seconds {round(2 * agenda.seconds)} gives {len(unsure)} cases more turns")
    return lines


def _outputs(found: Comparison) -> list[str]:
    if not found.compared_outputs:
        return []
    base, different = found.arms[0], found.outputs
    lines = [f"greedy answers: {found.compared_outputs} compared with those of {base}, {len(different)} differ"]
    for each in different[:_SHOWN_DIFFERENCES]:
        lines.append(
            f"  {each.arm}, {_label(each.case, found.cases)}, turn {each.turn + 1}: token {each.token + 1} is "
            f"{each.found!r}, {base} has {each.expected!r}"
        )
    return lines
