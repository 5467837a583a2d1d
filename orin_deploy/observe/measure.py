"""A quick measurement of a server that runs: prompt and generation speed and time to first token, by real requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from orin_deploy.deploy.verify import Proof
from orin_deploy.host import Host
from orin_deploy.parts import service

REPEATS = 3
GENERATED_TOKENS = 64
ENOUGH_S = 30.0
_OPTIONS = {**service.GREEDY, "ignore_eos": True}

# Long enough for the prompt's speed to mean something, short enough for a 2 GiB-class board.
_PROMPT_TOKENS = 180  # about as many
PROMPT = (
    "An inspection robot drives along a pipeline at night. Its camera sees a valve, a puddle below the valve, and a "
    "thin stripe of rust that runs from the valve down to the puddle. The pressure upstream of the valve is 6.2 bar, "
    "downstream it is 5.8 bar; yesterday it was 6.2 and 6.1. The outside temperature fell from 14 to 3 degrees since "
    "the afternoon. The robot has 38 percent of its battery left, and the next station is 900 metres away. It may stop "
    "for one closer look, which costs 4 percent of the battery, or go on and report the valve by radio, or turn round. "
    "Say what the robot should do first, what it should do next, and why, in plain sentences for the engineer on duty."
)


@dataclass(frozen=True)
class Measurement:
    """Medians over `repeats` requests; speeds in tokens per second, time to first token in seconds.

    `spread` is the generation speed's range over its median (0.05: five percent). Greedy sampling, no prompt cache.
    """

    repeats: int
    prompt_tokens: int
    generated_tokens: int
    prompt_per_s: float
    generated_per_s: float
    first_token_s: float
    spread: float
    drafted: int = 0  # tokens speculated in all requests together, and how many of them were right
    accepted: int = 0


def measure(
    host: Host, endpoint: str, headers: dict[str, str], progress: Callable[[float | None, str], None], proof: Proof
) -> Measurement:
    """Send the same request a few times and take medians; stops early where one request alone takes long.

    Where the proof's speeds say that one would take longer than `ENOUGH_S`, its answer is all the measurement there
    is. Raises OrinError when the server does not answer.
    """
    slowest = 0.01  # tokens per second; nothing divides by less
    asking_s = _PROMPT_TOKENS / max(proof.prompt_per_s, slowest) + GENERATED_TOKENS / max(
        proof.generated_per_s, slowest
    )
    if asking_s > ENOUGH_S:
        return _of_proof(proof)
    runs: list[service.Answer] = []
    began = host.monotonic()
    for number in range(REPEATS):
        progress(number / REPEATS, f"request {number + 1} of {REPEATS}")
        runs.append(service.chat(host, endpoint, PROMPT, GENERATED_TOKENS, headers, _OPTIONS))
        if host.monotonic() - began > ENOUGH_S:
            break
    speeds = [run.timings.generated_per_s for run in runs]
    return Measurement(
        repeats=len(runs),
        prompt_tokens=runs[0].timings.prompt_tokens,
        generated_tokens=runs[0].timings.generated_tokens,
        prompt_per_s=median(run.timings.prompt_per_s for run in runs),
        generated_per_s=median(speeds),
        first_token_s=median(run.first_token_s for run in runs),
        spread=(max(speeds) - min(speeds)) / median(speeds) if median(speeds) else 0.0,
        drafted=sum(run.timings.drafted for run in runs),
        accepted=sum(run.timings.accepted for run in runs),
    )


def _of_proof(proof: Proof) -> Measurement:
    return Measurement(
        repeats=1,
        prompt_tokens=proof.prompt_tokens,
        generated_tokens=proof.generated_tokens,
        prompt_per_s=proof.prompt_per_s,
        generated_per_s=proof.generated_per_s,
        first_token_s=proof.first_token_s,
        spread=0.0,
    )
