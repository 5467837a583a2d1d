"""What it costs to verify drafted tokens: the time of one pass of the target over k of them and the one before.

Measured with the engine's synthetic acceptance (--spec-synth-len, common/speculative.cpp), which takes drafted tokens
as accepted whatever the target thinks of them. ngram-mod with a lookup of one token and n_min = n_max = k always has
exactly k to draft, for every token of the prompt has come with a successor; accepting all of them keeps it in its own
text, so that every pass verifies k tokens and the draft itself costs nothing. The text is not valid, its time is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orin_deploy.deploy.draft import Situation
from orin_deploy.host import Host, Progress
from orin_deploy.intent.request import Request
from orin_deploy.observe.bench.agenda import Agenda, cases
from orin_deploy.observe.bench.arms import NONE, Arm
from orin_deploy.observe.bench.measure import ask
from orin_deploy.observe.bench.planning import plan_field
from orin_deploy.observe.bench.server import started
from orin_deploy.observe.bench.workload import Text, Workload, filler
from orin_deploy.parts.service import Answer

_KIND = "ngram-mod"
_TOKENS = 96
_REPEATS = 3
_CHARACTERS = 1200


@dataclass(frozen=True)
class Cost:
    """Milliseconds of a pass that verifies k drafted tokens; `measured` holds those measured, 0 is a plain token."""

    measured: Mapping[int, float]

    def __call__(self, k: int) -> float:
        """The time for k: between two measured ones in proportion, beyond the last as the last two rise. More tokens
        never take less time, so neighbours that say so share their mean."""
        known, times = sorted(self.measured), _rising([self.measured[at] for at in sorted(self.measured)])
        if len(known) == 1:
            return times[0]
        above = max(next((at for at, each in enumerate(known) if each >= k), len(known) - 1), 1)
        slope = (times[above] - times[above - 1]) / (known[above] - known[above - 1])
        return times[above - 1] + slope * (k - known[above - 1])


def _rising(values: Sequence[float]) -> list[float]:
    """The nearest sequence that never falls (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (one, many), (other, more) = pools[-2:]
            pools[-2:] = [((one * many + other * more) / (many + more), many + more)]
    return [value for value, count in pools for _ in range(count)]


def verify_cost(host: Host, request: Request, now: Situation, longest: int, seconds: float, progress: Progress) -> Cost:
    """Measure the cost of verifying up to `longest` tokens, as many lengths as the seconds allow, a server for each.

    Raises OrinError when not even a plain token can be measured.
    """
    deadline = host.monotonic() + seconds
    agenda = _agenda()
    measured: dict[int, float] = {}
    for done, k in enumerate(lengths(longest)):
        if len(measured) > 1 and host.monotonic() > deadline:
            break
        progress(done / (longest + 1), f"the cost of verifying {k} tokens")
        name = f"verify-{k}"
        field = plan_field(host, _plain(request), now, (_arm(name, k),), agenda, progress)
        with started(host, name, field.specs[name], progress) as server:
            prompt = filler("en", 0, _CHARACTERS)
            ask(server, prompt, _TOKENS, _OPTIONS)
            answers = [ask(server, prompt, _TOKENS, _OPTIONS) for _ in range(_REPEATS)]
        measured[k] = min(pass_ms(answer, k, measured.get(0)) for answer in answers)
    return Cost(measured)


_OPTIONS = {"temperature": 0, "cache_prompt": False, "ignore_eos": True}


def lengths(longest: int) -> tuple[int, ...]:
    """The order in which lengths are measured: a plain token, the ends, the middles, so that any stop leaves a curve;
    all up to 8, where kernels change, then every fourth."""
    wanted = [k for k in range(longest + 1) if k <= 8 or k % 4 == 0 or k == longest]
    order = [0, longest, *(k for k in (1, 4, 8, 2, 6, 3) if k < longest), *wanted]
    return tuple(dict.fromkeys(k for k in order if k <= longest))


def pass_ms(answer: Answer, k: int, plain_ms: float | None) -> float:
    """Milliseconds of a pass that verifies k tokens, from a whole answer: every pass yields one token of the target's
    own, and those without a draft cost what a plain token costs."""
    told = answer.timings
    total_ms = told.generated_tokens / told.generated_per_s * 1000
    passes = told.generated_tokens - told.accepted
    if k == 0:
        return total_ms / passes
    drafting = told.drafted / k
    return (total_ms - (passes - drafting) * (plain_ms or 0.0)) / max(drafting, 1.0)


def _arm(name: str, k: int) -> Arm:
    if k == 0:
        return Arm(name, NONE)
    return Arm(
        name,
        _KIND,
        (
            ("spec_ngram_mod_n_match", "1"),
            ("spec_ngram_mod_n_min", str(k)),
            ("spec_ngram_mod_n_max", str(k)),
            ("spec_synth_len", str(k + 1)),
        ),
    )


def _plain(request: Request) -> Request:
    return replace(request, draft=NONE)


def _agenda() -> Agenda:
    workload = Workload("verify", "", _TOKENS, {"en": Text("", {})})
    return Agenda((workload,), cases((workload,)), 0.0)
