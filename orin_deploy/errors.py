"""The errors people see: what is true, then the next thing to type."""

from __future__ import annotations

from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """Exit codes, part of the contract: other programs branch on them."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    REBOOT = 3
    REFUSED = 4
    INTERRUPTED = 130


class OrinError(Exception):
    """Something a person can act on.

    `message` is one sentence that says what is the case; `hint` is the next command or change to make.
    Only `cli/` turns it into text and an exit code.
    """

    code: Exit = Exit.FAILED

    def __init__(self, message: str, hint: str | None = None, *, code: Exit | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code


class UsageError(OrinError):
    """An unknown name or a value of the wrong type: nothing was tried."""

    code = Exit.USAGE


class Refused(OrinError):
    """What was asked can be understood but must not be done: it does not fit, is not a model, is for another board."""

    code = Exit.REFUSED


class RebootNeeded(OrinError):
    """A reboot stands between this machine and what was asked, and nobody has agreed to one."""

    code = Exit.REBOOT


class Rebooting(RebootNeeded):
    """The reboot that was agreed to has begun: nothing more can be done until the machine is back."""


class CommandFailed(OrinError):
    """A command ended with a failure: its words, its code, its last lines and where the whole log lies."""

    def __init__(
        self,
        argv: tuple[str, ...],
        returncode: int,
        tail: tuple[str, ...] = (),
        log: Path | None = None,
        hint: str | None = None,
        *,
        cause: str | None = None,
    ) -> None:
        name = argv[0].rsplit("/", 1)[-1]
        super().__init__(cause or f"{name} failed with exit code {returncode}", hint)
        self.argv = argv
        self.returncode = returncode
        self.tail = tail
        self.log = log
