"""A quick measurement of a server that runs: prompt and generation speed and time to first token, by real requests."""

from __future__ import annotations

import http.client
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from orin_deploy.errors import OrinError
from orin_deploy.host import Host

REPEATS = 3
GENERATED_TOKENS = 64
ENOUGH_S = 30.0

# About 180 tokens: long enough for the prompt's speed to mean something, short enough for a 2 GiB-class board.
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


def measure(
    host: Host, endpoint: str, headers: dict[str, str], progress: Callable[[float | None, str], None]
) -> Measurement:
    """Send the same request a few times and take medians; stops early where one request alone takes long.

    Raises OrinError when the server does not answer.
    """
    runs: list[tuple[float, dict[str, Any]]] = []
    began = host.monotonic()
    for number in range(REPEATS):
        progress(number / REPEATS, f"request {number + 1} of {REPEATS}")
        runs.append(_request(host, endpoint, headers))
        if host.monotonic() - began > ENOUGH_S:
            break
    timings = [timing for _, timing in runs]
    speeds = [float(timing["predicted_per_second"]) for timing in timings]
    return Measurement(
        repeats=len(runs),
        prompt_tokens=int(timings[0]["prompt_n"]),
        generated_tokens=int(timings[0]["predicted_n"]),
        prompt_per_s=median(float(timing["prompt_per_second"]) for timing in timings),
        generated_per_s=median(speeds),
        first_token_s=median(first for first, _ in runs),
        spread=(max(speeds) - min(speeds)) / median(speeds) if median(speeds) else 0.0,
    )


def _request(host: Host, endpoint: str, headers: dict[str, str]) -> tuple[float, dict[str, Any]]:
    payload = {
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": GENERATED_TOKENS,
        "temperature": 0,
        "stream": True,
        "cache_prompt": False,
        "ignore_eos": True,
    }
    began = host.monotonic()
    first: float | None = None
    timings: dict[str, Any] | None = None
    try:
        for event in host.events(f"{endpoint}/v1/chat/completions", payload, headers=headers):
            delta = (event.get("choices") or [{}])[0].get("delta", {})
            if first is None and (delta.get("content") or delta.get("reasoning_content")):
                first = host.monotonic() - began
            timings = event.get("timings") or timings
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise OrinError(
            f"the server at {endpoint} broke off while it was measured: {error}", "orin-deploy logs"
        ) from error
    if timings is None or first is None:
        raise OrinError(f"the server at {endpoint} answered without text or timings", "orin-deploy logs")
    return first, timings
