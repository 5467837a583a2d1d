"""Running commands: one way to capture a short answer, one way to follow a long one line by line."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orin_deploy.errors import CommandFailed, Rebooting

TAIL_LINES = 20
_ANSWERED_S = 60.0


@dataclass(frozen=True)
class Completed:
    """A command's end: exit code and what it said. `None` instead of this means that there is no such program."""

    returncode: int
    stdout: str
    stderr: str


def capture(
    argv: Sequence[str],
    environ: Mapping[str, str],
    timeout_s: float | None = None,
    answer: str | None = None,
) -> Completed | None:
    """Run a short command with `answer` on its standard input, else nothing.

    None when the program is absent or outlives `timeout_s`.
    """
    from plumbum import local
    from plumbum.commands.processes import CommandNotFound, ProcessTimedOut

    try:
        # An absolute word skips plumbum's own search, which knows the process's PATH but not `environ`'s.
        command = local[_resolve(argv[0], environ)][tuple(argv[1:])].with_env(**environ)
        command = command < os.devnull if answer is None else command << answer
        code, out, err = command.run(retcode=None, timeout=timeout_s)
    except (CommandNotFound, ProcessTimedOut, OSError):
        return None
    return Completed(code, out, err)


def follow(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    cwd: Path | None = None,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
) -> None:
    """Run a long command to its end, its words going line by line to `log` and `on_line`.

    Raises CommandFailed. The command leads a process group of its own, which ends with us: an interrupt or an
    exception terminates every process of a build, not just its leader.
    """
    import subprocess

    tail: deque[str] = deque(maxlen=TAIL_LINES)
    sink: IO[str] | None = None
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        sink = log.open("a", encoding="utf-8", buffering=1)
        sink.write("$ " + " ".join(argv) + "\n")
    try:
        process = subprocess.Popen(
            [_resolve(argv[0], environ), *argv[1:]],
            env=dict(environ),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                line = line.rstrip("\n")
                tail.append(line)
                if sink is not None:
                    sink.write(line + "\n")
                if on_line is not None:
                    on_line(line)
            returncode = process.wait()
        except BaseException:
            _end_group(process.pid)
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()
    except FileNotFoundError as error:
        raise CommandFailed(tuple(argv), 127, (), log, cause=f"{argv[0]} is not on this machine") from error
    finally:
        if sink is not None:
            sink.close()
    if returncode != 0:
        raise CommandFailed(tuple(argv), returncode, tuple(tail), log)


def reboot(argv: Sequence[str], question: str, environ: Mapping[str, str]) -> None:
    """Run a command with YES for an answer, and when it asked the question, reboot.

    Raises Rebooting once the reboot has begun, CommandFailed when the command or the reboot fails.
    """
    done = capture(argv, environ, _ANSWERED_S, answer="YES\n")
    said = "" if done is None else done.stdout + done.stderr
    if done is None or (done.returncode != 0 and "rebooting" not in said):
        code = 127 if done is None else done.returncode
        raise CommandFailed(tuple(argv), code, tuple(said.splitlines()[-TAIL_LINES:]))
    if question not in said:
        return
    # nvpmodel reboots by itself; where it only wrote down the mode, as below a root of its own, this does.
    restart = ("systemctl", "reboot")
    done = capture(restart, environ, _ANSWERED_S)
    if done is None or done.returncode != 0:
        raise CommandFailed(restart, 127 if done is None else done.returncode, hint="reboot the machine yourself")
    raise Rebooting("the machine reboots now", "run the same command again when it is back")


def _resolve(program: str, environ: Mapping[str, str]) -> str:
    import shutil

    return program if "/" in program else shutil.which(program, path=environ.get("PATH", os.defpath)) or program


def _end_group(pid: int) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            return
        if number == signal.SIGTERM and _gone(pid, seconds=3):
            return


def _gone(pid: int, seconds: float) -> bool:
    import time

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return True
        except ChildProcessError:
            return True
        time.sleep(0.05)
    return False
