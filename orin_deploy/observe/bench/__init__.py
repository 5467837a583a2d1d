"""The bench: servers measured over workloads, compared turn by turn, with what the figures prove.

`race` compares arms on servers of their own, `measure_running` looks at the deployment that runs, `verify_cost` tells
what verifying drafted tokens costs.
"""

from orin_deploy.observe.bench.agenda import Agenda, cases
from orin_deploy.observe.bench.arms import Arm
from orin_deploy.observe.bench.comparison import Comparison
from orin_deploy.observe.bench.race import measure_running, race
from orin_deploy.observe.bench.verification import verify_cost

__all__ = [
    "Agenda",
    "Arm",
    "Comparison",
    "cases",
    "measure_running",
    "race",
    "verify_cost",
]
