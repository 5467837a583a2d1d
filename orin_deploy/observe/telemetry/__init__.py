"""Telemetry: one sample of the machine from the best source there is, and why what is missing is missing."""

from orin_deploy.observe.telemetry.sample import Sample
from orin_deploy.observe.telemetry.sampler import Sampler

__all__ = ["Sample", "Sampler"]
