"""A virtual Jetson for people: `python -m tests.virtual BOARD [--l4t RELEASE] [-- COMMAND …]`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from orin_deploy.host import Host
from orin_deploy.intent.profile import names, search_path
from tests.virtual.boards_table import BOARDS
from tests.virtual.jetson import VirtualJetson, build

_PROMPT = "\\[\\e[32m\\]{board}\\[\\e[0m\\] (L4T {l4t}) \\w $ "


def main() -> int:
    words, command = _split(sys.argv[1:])
    parser = argparse.ArgumentParser(
        "virtual-jetson", usage="virtual-jetson BOARD [options] [-- COMMAND]", description=__doc__
    )
    parser.add_argument("board", choices=BOARDS, metavar="BOARD", help=", ".join(BOARDS))
    parser.add_argument("--l4t", help="the L4T release, by default the board's newest for JetPack 6, 5 or 7")
    parser.add_argument("--root", type=Path, help="keep the board in this folder; it goes on where it was left")
    parser.add_argument("--engine", type=Path, help="a folder with llama-server, by default one that was built here")
    parser.add_argument("--user", default="root", help="who the board's tools take you for")
    options = parser.parse_args(words)
    releases = BOARDS[options.board].releases
    l4t = options.l4t or next((one for one in reversed(releases) if one.startswith("36.")), releases[-1])
    if l4t not in releases:
        parser.error(f"{options.board} has no L4T {l4t}; it has {', '.join(releases)}")
    root = (options.root or Path(tempfile.mkdtemp(prefix="virtual-jetson-"))).absolute()
    board = VirtualJetson(root) if (root / ".board").is_dir() else build(root, options.board, l4t, live=True)
    try:
        _add_profile(board, options.board, options.engine or _engine())
        environ = board.environ(user=options.user)
        if command:
            return subprocess.run(command, env=environ).returncode
        print(f"{options.board}, L4T {l4t}, mode {board.mode}, in {root}. Leave with exit.", file=sys.stderr)
        prompt = _PROMPT.format(board=options.board, l4t=l4t)
        shell = ["bash", "--norc", *(["-i"] if sys.stdin.isatty() else [])]
        return subprocess.run(shell, env=environ | {"PS1": prompt}).returncode
    finally:
        board.shut_down()
        if options.root is None:
            shutil.rmtree(root, ignore_errors=True)


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    return (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])


def _engine() -> Path | None:
    """The engine that the tests were given, or the newest that `orin-deploy up` or the tests have built here."""
    if ready := os.environ.get("ORIN_TEST_ENGINE"):
        return Path(ready)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    homes = (Host().data, Path(os.environ.get("ORIN_TEST_HOME") or cache / "orin-deploy-tests"))
    found = [server.parent for home in homes for server in home.glob("engines/*/bin/llama-server")]
    return max(found, key=lambda folder: folder.stat().st_mtime, default=None)


def _add_profile(board: VirtualJetson, name: str, engine: Path | None) -> None:
    """With an engine of this machine `orin-deploy up` works on the board; without one it only plans."""
    if name not in dict(names(search_path(None, {}))):
        return
    if engine is None:
        print(
            "no engine is built here yet, so `orin-deploy up` would have to build: scripts/try first", file=sys.stderr
        )
    else:
        board.add_profile(engine.absolute(), name, model="smollm2-135m")
        print(
            "virtual: this machine's CPU engine and smollm2-135m stand in for CUDA and the profile's model;"
            f" `orin-deploy plan --profile {name}` outside shows the board's own plan",
            file=sys.stderr,
        )


if __name__ == "__main__":
    sys.exit(main())
