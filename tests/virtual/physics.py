"""How a virtual board's power, temperature, events and memory go with time: small, deterministic, documented.

- Power of a rail: its idle power, plus its CPU part times the mean load of all CPUs times (clock / maximum)², plus its
  GPU part times load times (active SM / SM of the module) times (clock / maximum)², plus its memory part times the
  larger of both loads times (memory clock / maximum). A rail that carries all others has its own idle power and 1.25
  of what the others take above theirs: the regulators' loss.
- Temperature: a first-order step toward 25 °C plus 70 K at the power limit, with a time constant of 60 s.
- Thermal throttling: from 99 °C on one clock step less a second, down to a fifth; below 95 °C one step back.
- Over-current: above the limit the third counter rises by 8 a second (27,390 in an hour were seen on an Orin NX) and
  the clocks are halved for as long as an event lasts, 1 ms each; 15 % above it the second one also rises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.virtual.boards_table import Board

AMBIENT_C, RISE_C, TIME_CONSTANT_S = 25.0, 70.0, 60.0
THROTTLE_C, RECOVER_C, LEAST = 99.0, 95.0, 0.2
EVENTS_PER_S, EVENT_S = 8.0, 0.001
LOSS = 1.25


@dataclass(frozen=True)
class Clocks:
    """What the board's clocks may be now, as fractions of its maxima; `width` is the part of the GPU that is on."""

    cpu: float
    gpu: float
    emc: float
    width: float
    cores: int


@dataclass
class Heat:
    """What changes with time. Powers in mW by rail, temperature in °C, `throttle` the factor left to the clocks."""

    power: dict[str, float] = field(default_factory=dict)
    celsius: float = 45.0
    throttle: float = 1.0
    events: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])


def power(board: Board, clocks: Clocks, cpu_load: float, gpu_load: float) -> dict[str, float]:
    """The power of every rail in mW; `cpu_load` is the mean of the online CPUs, both loads go from 0 to 1."""
    cpu = cpu_load * clocks.cores / len(board.cpus) * clocks.cpu**2
    gpu = gpu_load * clocks.width * clocks.gpu**2
    soc = max(cpu_load, gpu_load) * clocks.emc
    rails = {
        rail.label: rail.idle_mw + rail.cpu_mw * cpu + rail.gpu_mw * gpu + rail.soc_mw * soc for rail in board.rails
    }
    if board.sum_rail is not None:
        idle = {rail.label: rail.idle_mw for rail in board.rails}
        rails[board.sum_rail] += LOSS * sum(rails[label] - idle[label] for label in rails if label != board.sum_rail)
    return rails


def total(board: Board, rails: dict[str, float]) -> float:
    """The whole board's power in mW: the rail that carries all, else the sum."""
    return rails[board.sum_rail] if board.sum_rail is not None else sum(rails.values())


def step(board: Board, heat: Heat, clocks: Clocks, cpu_load: float, gpu_load: float, seconds: float) -> None:
    """Let at most a second or so pass."""
    slowed = Clocks(clocks.cpu * heat.throttle, clocks.gpu * heat.throttle, clocks.emc, clocks.width, clocks.cores)
    heat.power = power(board, slowed, cpu_load, gpu_load)
    taken = total(board, heat.power)
    goal = AMBIENT_C + RISE_C * taken / board.limit_mw
    heat.celsius += (goal - heat.celsius) * (1 - math.exp(-seconds / TIME_CONSTANT_S))
    if heat.celsius >= THROTTLE_C:
        heat.throttle = max(LEAST, heat.throttle - 0.05 * seconds)
    elif heat.celsius < RECOVER_C:
        heat.throttle = min(1.0, heat.throttle + 0.05 * seconds)
    over = taken / board.limit_mw
    if over > 1:
        heat.events[2] += EVENTS_PER_S * seconds
    if over > 1.15:
        heat.events[1] += EVENTS_PER_S / 4 * seconds


def settle(board: Board, heat: Heat, clocks: Clocks, cpu_load: float, gpu_load: float, seconds: float) -> None:
    """Let any time pass, a second at a time."""
    while seconds > 0:
        step(board, heat, clocks, cpu_load, gpu_load, min(1.0, seconds))
        seconds -= 1.0
