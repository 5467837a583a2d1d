"""Speculation: who drafts the tokens that the target verifies, decided in one place."""

from orin_deploy.facts.draft import BY_MODEL
from orin_deploy.intent.measured import Candidate, Decision, ToMeasure
from orin_deploy.intent.speculation.candidates import candidates, shortlist
from orin_deploy.intent.speculation.decide import Asked, Decided, by_decision, decide, drafting
from orin_deploy.intent.speculation.kinds import DRAFTLESS, KINDS, in_help
from orin_deploy.intent.speculation.pair import DraftModel, obstacles
from orin_deploy.intent.speculation.process import in_process, server_options
from orin_deploy.intent.speculation.wish import CHOOSING, Wish, mix, wish

__all__ = [
    "BY_MODEL",
    "CHOOSING",
    "DRAFTLESS",
    "KINDS",
    "Asked",
    "Candidate",
    "Decided",
    "Decision",
    "DraftModel",
    "ToMeasure",
    "Wish",
    "by_decision",
    "candidates",
    "decide",
    "drafting",
    "in_help",
    "in_process",
    "mix",
    "obstacles",
    "server_options",
    "shortlist",
    "wish",
]
