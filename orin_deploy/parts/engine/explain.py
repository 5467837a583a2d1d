"""A failed engine step told as a person would: the first real error, its likely cause, the log."""

from __future__ import annotations

from pathlib import Path

from orin_deploy.errors import CommandFailed, OrinError
from orin_deploy.parts.engine import causes, probe, readelf

_KILLED = (-9, 137)


def explain(error: CommandFailed) -> OrinError:
    """The same failure with its first error and its likely cause; the end of the log stays as it was."""
    lines = _log_of_last_command(error)
    first = causes.first_error(lines)
    message, hint = causes.cause("\n".join(lines)) or (None, None)
    if message is None and error.returncode in _KILLED:
        message, hint = causes.KILLED.message, causes.KILLED.hint
    program = Path(error.argv[0]).name
    askers = {f"{module.__name__.rpartition('.')[2]}.py" for module in (probe, readelf)}
    if askers & {Path(word).name for word in error.argv[:2]}:
        message = "the build is not what was asked for: " + "; ".join(error.tail[-4:])
    told = message or f"{program} failed with exit code {error.returncode}"
    if first and first not in told:
        told = f"{told}: {first}"
    where = f"the whole log is {error.log}" if error.log else None
    return CommandFailed(
        error.argv,
        error.returncode,
        error.tail,
        error.log,
        "; ".join(filter(None, (hint, where))) or error.hint,
        cause=told,
    )


def _log_of_last_command(error: CommandFailed) -> list[str]:
    """What the failed command said; its log also holds the commands before it, each after a line "$ …"."""
    try:
        lines = error.log.read_text(errors="replace").splitlines() if error.log else list(error.tail)
    except OSError:
        lines = list(error.tail)
    start = max((number for number, line in enumerate(lines) if line.startswith("$ ")), default=-1)
    return lines[start + 1 :]
