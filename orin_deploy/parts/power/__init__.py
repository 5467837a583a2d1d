"""Power: the mode by name, pinned clocks, the fan's profile, and all three again at every boot."""

from orin_deploy.parts.power.causes import asks, reboot_needed, said, with_consent
from orin_deploy.parts.power.state import NAME, Current, inspect
from orin_deploy.parts.power.steps import leftovers, plan

__all__ = ["NAME", "Current", "asks", "inspect", "leftovers", "plan", "reboot_needed", "said", "with_consent"]
