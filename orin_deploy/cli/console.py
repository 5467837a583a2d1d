"""How things look: text and tables on standard output, progress and errors on standard error, or one JSON document."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from orin_deploy.cli import ways
from orin_deploy.errors import CommandFailed, OrinError

if TYPE_CHECKING:
    from orin_deploy.deploy.apply import Events


class Console:
    """Where a verb prints. With `as_json`, text is dropped and exactly one document goes to standard output."""

    def __init__(self, as_json: bool = False, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.as_json = as_json
        self.out = Output(out or sys.stdout)
        self.err = Output(err or sys.stderr)

    def say(self, text: str = "") -> None:
        if not self.as_json:
            self.out.print(text)

    def tell(self, text: str) -> None:
        """A remark beside the result: always on standard error."""
        self.err.print(text)

    def document(self, value: Any) -> None:
        if self.as_json:
            self.out.print(json.dumps(value, indent=2))

    def table(self, rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> None:
        for line in columns(rows, right):
            self.say(line)

    def events(self) -> Events:
        """Live progress: a bar on a terminal, plain lines elsewhere; with JSON, on standard error."""
        from orin_deploy.cli.progress import LiveEvents, PlainEvents

        output = self.err if self.as_json else self.out
        live = output.is_terminal and os.environ.get("TERM") != "dumb"
        return LiveEvents(output) if live else PlainEvents(output)


class Output:
    """A stream that may be closed, or lose its reader: what is printed is lost then, what is being done goes on."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character must not end a deployment

    @property
    def is_terminal(self) -> bool:
        return self.stream is not None and self.stream.isatty()

    def print(self, text: str, end: str = "\n") -> None:
        if self.stream is None:
            return
        try:
            print(text, end=end, file=self.stream, flush=True)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):  # its reader has gone, or its terminal
                raise OSError(error.errno, error.strerror, self.stream.name) from error
            # Python flushes again at its end, and would fail there.
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
            self.stream = None


def columns(rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    """Rows as aligned and indented lines; column numbers in `right` are aligned to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in cells if i < len(row)) for i in range(max(map(len, cells), default=0))]
    return [
        (
            "  "
            + "  ".join(
                cell.rjust(width) if i in right else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=False))
            )
        ).rstrip()
        for row in cells
    ]


def duration(seconds: float) -> str:
    """Seconds as a person says them: 0.4 s, 12 s, 6 min 12 s, 1 h 03 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60:02d} min"


def roughly(seconds: float) -> str:
    """An estimate, no finer than it is: seconds up to two minutes, then minutes."""
    return f"{max(round(seconds / 5) * 5, 5)} s" if seconds < 120 else f"{round(seconds / 60)} min"


def mib(count: int) -> str:
    """Bytes in MiB, as the memory tables show them."""
    return f"{count / 1048576:,.1f} MiB"


def show_error(error: OrinError) -> None:
    """The error's sentence, the last words of a failed command and its log, and the next thing to type."""
    output = Output(sys.stderr)
    output.print(f"error: {error.message}")
    if isinstance(error, CommandFailed):
        import shlex

        output.print(f"  command: {shlex.join(error.argv)} (exit code {error.returncode})")
        for line in error.tail:
            output.print(f"  | {line}")
        if error.log is not None:
            output.print(f"  whole log: {error.log}")
    lacking = ways.of_lack_of_memory(error)
    if lacking is not None:
        for line in ways.lines(lacking):
            output.print(line)
    elif error.hint:
        output.print(f"hint: {error.hint}")


def error_document(error: OrinError) -> dict[str, Any]:
    """The JSON form of an error."""
    document: dict[str, Any] = {"message": error.message, "hint": error.hint, "code": int(error.code)}
    if isinstance(error, CommandFailed):
        document |= {
            "argv": list(error.argv),
            "exit_code": error.returncode,
            "tail": list(error.tail),
            "log": None if error.log is None else str(error.log),
        }
    if (lacking := ways.of_lack_of_memory(error)) is not None:
        document |= ways.document(lacking)
    return {"error": document}
