"""How a verb ends: with its exit code, and for an error one sentence and the next thing to type."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

from orin_deploy.errors import Exit, OrinError

_INTERRUPTED = OrinError("interrupted", "run the same command again: it goes on from here", code=Exit.INTERRUPTED)


def run(app: Callable[..., Any], words: list[str]) -> NoReturn:
    """Run a verb; turn every error into its sentence, its hint and its exit code."""
    as_json, debug = "--json" in words, "--debug" in words
    try:
        _end_like_interrupted()
        code = app(args=words, prog_name="orin-deploy", standalone_mode=False)
        if code == Exit.INTERRUPTED:  # what newer typers make of Ctrl-C
            raise KeyboardInterrupt
        sys.exit(code if isinstance(code, int) else Exit.DONE)
    except KeyboardInterrupt:
        _end(_INTERRUPTED, as_json)
    except Exception as error:
        if debug:
            import traceback

            traceback.print_exc()
        _end_failed(error, as_json)


def _end_like_interrupted() -> None:
    """SIGTERM and the end of the terminal stop a verb as Ctrl-C does: children ended, the record told. nohup holds."""
    import signal

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def _end_failed(error: Exception, as_json: bool) -> NoReturn:
    """Errors of ours, of the system, and of the command line itself as typer raises them (its exceptions come from
    click, bundled or not); anything else is a fault of the program, and still ends in one sentence."""
    if isinstance(error, OrinError):
        _end(error, as_json)
    if isinstance(error, OSError):
        from orin_deploy.deploy.apply import translate

        _end(translate(error), as_json)
    if type(error).__name__ == "Abort":
        _end(_INTERRUPTED, as_json)
    show = getattr(error, "show", None)
    if show is None:
        what = f"orin-deploy itself is at fault: {type(error).__name__}: {error}"
        _end(OrinError(what, "run the same command with --debug, and report what it shows"), as_json)
    if as_json:
        message = getattr(error, "format_message", lambda: str(error))()
        _end(OrinError(message, "orin-deploy --help", code=Exit.USAGE), as_json)
    show()
    sys.exit(Exit.USAGE)


def _end(error: OrinError, as_json: bool) -> NoReturn:
    import contextlib

    from orin_deploy.cli.console import Console, error_document, show_error

    with contextlib.suppress(OSError):  # a full disk behind a stream must not hide the exit code
        if as_json:
            Console(as_json).document(error_document(error))
        else:
            show_error(error)
    sys.exit(error.code)
