"""A translation on the board it is for: thread counts that a plan for that board would refuse. Pure."""

from __future__ import annotations

from dataclasses import replace

from orin_deploy.errors import OrinError
from orin_deploy.facts.device import Device
from orin_deploy.intent import board, power, resolve
from orin_deploy.intent.placement import place
from orin_deploy.intent.profile import Profile
from orin_deploy.intent.spec import Setting
from orin_deploy.intent.translate import Note, Translation

_COUNTS = ("threads", "threads_batch")


def on_board(found: Translation, chosen: Profile, here: Device) -> Translation:
    """The translation less thread counts beyond the CPUs that the server gets on the profile's board, or here."""
    most = _cpus(found, chosen, here)
    beyond = [key for key in _COUNTS if most is not None and _number(found, key) > most]
    notes = [
        Note(
            found.origin[key],
            "owned",
            f"{found.values[key]} threads are more than the {most} CPUs that the server gets with profile "
            f"{chosen.name}: the placement chooses the number",
            f"left out; a number of your own is {key}: 1 to {most}",
        )
        for key in beyond
    ]
    return replace(
        found,
        values={key: value for key, value in found.values.items() if key not in beyond},
        origin={key: word for key, word in found.origin.items() if key not in beyond},
        notes=(*found.notes, *notes),
    )


def _number(found: Translation, key: str) -> int:
    value = found.values.get(key)
    return value if isinstance(value, int) else 0


def _cpus(found: Translation, chosen: Profile, here: Device) -> int | None:
    """How many CPUs a plan gives the server; None where it would be refused for another reason, which it says."""
    device = here if board.is_at_hand(chosen, here) else board.stand_in(chosen)
    device = board.complete_clusters(chosen, device)
    told = {key: Setting(value, "import") for key, value in found.values.items() if key not in _COUNTS}
    values = resolve.layer(chosen, ()) | told
    values |= {key: Setting("auto", "import") for key in _COUNTS}
    try:
        powered = power.resolve(device, values, is_root=True, reboot=True)
        cpu = power.in_mode(device.cpu, powered, chosen.board.clusters if chosen.board else ())
        return len(place(cpu, values, draft="placement.draft_cpus" in found.values).cpus)
    except OrinError:
        return None
