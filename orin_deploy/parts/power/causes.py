"""When nvpmodel asks for a reboot: how that is told, and what may answer it."""

from __future__ import annotations

from orin_deploy.actions import Action, Reboot, Run
from orin_deploy.errors import CommandFailed, OrinError, RebootNeeded
from orin_deploy.facts.power import CONF
from orin_deploy.host import Host
from orin_deploy.intent.power import reboot_text
from orin_deploy.intent.spec import Spec
from orin_deploy.parts.power.where import where

QUESTION = "DO YOU WANT TO REBOOT NOW"


def said(host: Host, spec: Spec) -> str:
    """What nvpmodel printed when it was last told to switch."""
    return (host.read(where(host, spec.name, CONF).log) or "").rpartition("$ nvpmodel -m ")[2]


def asks(error: OrinError, words: str = "") -> bool:
    """Whether a switch failed because nvpmodel wants to reboot: told by its words, its exit code does not tell."""
    return QUESTION in words or (isinstance(error, CommandFailed) and any(QUESTION in line for line in error.tail))


def reboot_needed(spec: Spec, outcome: str) -> RebootNeeded:
    """The error of a switch that only a reboot can make, with the ways on."""
    current = spec.device.power.current if spec.device.power else None
    message, _, hint = reboot_text(current, str(spec.power.mode if spec.power else None)).partition(": ")
    return RebootNeeded(f"{message}; {outcome}", hint)


def with_consent(action: Action) -> Action:
    """An undo action of ours as it is once the user agreed to a reboot; any other as it is."""
    if isinstance(action, Run) and len(action.argv) == 4 and action.argv[1].endswith("/power/power.sh"):
        return Reboot(action.argv, QUESTION) if action.argv[2] == "back" else action
    return action
