"""The request: what the user asked for, before anything is known about the machine or the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """One wish. `sets` are the --set words in order, as (key, text); `force` skips the check of board and profile;
    `reboot` agrees to a reboot where the power mode needs one. `draft` is a reference, "auto", "optional", "none" or
    the name of a kind that needs no draft model; None leaves it to the profile."""

    profile: str = "auto"
    model: str | None = None
    name: str | None = None
    sets: tuple[tuple[str, str], ...] = ()
    profiles_folder: str | None = None
    force: bool = False
    reboot: bool = False
    draft: str | None = None
