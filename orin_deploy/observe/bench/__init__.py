"""The bench: servers measured over workloads, compared turn by turn, with what the figures prove.

`race` compares arms on servers of their own, `measure_running` looks at the deployment that runs, `verify_cost` tells
what verifying drafted tokens costs.
"""

from orin_deploy.observe.bench.agenda import Agenda, cases, everything
from orin_deploy.observe.bench.arms import Arm
from orin_deploy.observe.bench.comparison import Comparison, Ratio, Score
from orin_deploy.observe.bench.conditions import comparable
from orin_deploy.observe.bench.race import measure_running, race
from orin_deploy.observe.bench.verification import Cost, best_length, verify_cost

__all__ = [
    "Agenda",
    "Arm",
    "Comparison",
    "Cost",
    "Ratio",
    "Score",
    "best_length",
    "cases",
    "comparable",
    "everything",
    "measure_running",
    "race",
    "verify_cost",
]
