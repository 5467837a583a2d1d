"""`scripts/lab`: build, up, ssh, run, down, test. What each makes lies in ORIN_LAB_HOME (by default in the cache)."""

from __future__ import annotations

import argparse
import fcntl
import os
import subprocess
import sys

from tests.lab import build, report, run, where
from tests.lab.commands import LabError
from tests.lab.machine import Board
from tests.lab.snapshots import Snapshots

BOARDS = ("agx32", "agx64", "nx8", "nano8")


def main(words: list[str] | None = None) -> int:
    options = _options(words)
    try:
        return _do(options)
    except LabError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; scripts/lab down BOARD ends a board that still runs", file=sys.stderr)
        return 130


def _options(words: list[str] | None) -> argparse.Namespace:
    not_shown = "\n".join(f"  - {each}" for each in report.NOT_SHOWN)
    parser = argparse.ArgumentParser(
        "scripts/lab", description=__doc__, epilog=f"what the lab does not show:\n{not_shown}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("build", help="kernel, root file system, disk, wheels and the cross-built engine")
    making.add_argument("--again", action="store_true", help="also what is there already")
    for verb, told in (("up", "start a board with a clean disk"), ("ssh", "a shell on a board that runs"),
                       ("run", "a command on a board that runs"), ("down", "shut a board down"),
                       ("test", "run the checks on a board and write a report")):  # fmt: skip
        one = verbs.add_parser(verb, help=told)
        one.add_argument("board", choices=BOARDS, nargs="?" if verb == "test" else None, default="agx32")
        if verb == "up":
            how = one.add_mutually_exclusive_group()
            how.add_argument("--keep", action="store_true", help="go on with the disk as it was left")
            how.add_argument("--installed", action="store_true", help="with the product installed, from its snapshot")
        if verb == "down":
            one.add_argument("--cut", action="store_true", help="cut its power instead")
        if verb == "run":
            one.add_argument("command", nargs=argparse.REMAINDER)
        if verb == "test":
            one.add_argument("check", nargs="*", help=f"only these, of {', '.join(run.NAMES)}")
            one.add_argument("--again", action="store_true", help="install the product anew")
    return parser.parse_args(words)


def _do(options: argparse.Namespace) -> int:
    if options.verb == "build":
        taken = _prepare(options.again)
        print("".join(f"{seconds:8.1f} s  {name}\n" for name, seconds in taken.items()), end="")
        print(f"the lab is in {where.home()}")
        return 0
    board = Board(options.board)
    if options.verb == "up":
        _prepare()
        if options.installed:
            print(f"{board.name} with the product on it: {Snapshots(board).install(again=False)}")
        else:
            print(f"{board.name} answers {board.up(fresh=not options.keep):.0f} s after its start")
    elif options.verb == "down":
        for each in (board, Board(options.board, twin=True)):
            each.cut() if options.cut else each.down()
    elif options.verb == "ssh":
        os.execvp("ssh", board.shell(tty=True))
    elif options.verb == "run":
        return subprocess.run(board.shell(*options.command)).returncode
    else:
        if unknown := set(options.check) - set(run.NAMES):
            raise LabError(f"there is no check {', '.join(sorted(unknown))}", f"there are {', '.join(run.NAMES)}")
        return run.test(options.board, options.check, _prepare(), options.again)
    return 0


def _prepare(again: bool = False) -> dict[str, float]:
    """Make what is missing, one call at a time: boards can be started side by side."""
    where.home().mkdir(parents=True, exist_ok=True)
    with (where.home() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build.build(again)


if __name__ == "__main__":
    sys.exit(main())
