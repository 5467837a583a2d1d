"""Reading and following the supervised server's log file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from orin_deploy.host import Host
from orin_deploy.parts import service


class ScriptedHost(Host):
    """A host on which something happens whenever somebody sleeps."""

    def __init__(self, data: Path, happenings: list[Callable[[], None]]) -> None:
        super().__init__(environ={**os.environ, "ORIN_DEPLOY_HOME": str(data)})
        self.happenings = happenings

    def sleep(self, seconds: float) -> None:
        self.happenings.pop(0)()


def deployment(tmp_path: Path) -> Path:
    """The log of a deployment `test`; its launch file is there."""
    folder = tmp_path / "deployments" / "test"
    folder.mkdir(parents=True)
    log = folder / "server.log"
    (folder / "launch.json").write_text(json.dumps({"log": str(log)}))
    return log


def append(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_the_last_lines(tmp_path: Path) -> None:
    log = deployment(tmp_path)
    host = ScriptedHost(tmp_path, [])
    assert service.log_lines(host, "test") == ()
    log.write_bytes(b"one\ntwo\nthr\xffee\n")
    assert service.log_lines(host, "test", 2) == ("two", "thr\ufffdee")
    assert service.log_lines(host, "other") == ()


def test_only_what_is_new_is_followed_line_by_line_and_over_a_rotation(tmp_path: Path) -> None:
    log = deployment(tmp_path)
    append(log, "old\nha")

    def rotate() -> None:
        log.rename(log.with_name("server.log.1"))
        append(log, "after\n")

    host = ScriptedHost(
        tmp_path,
        [
            lambda: None,
            lambda: append(log, "lf\nsame\nsame\nin two "),
            lambda: append(log, "pieces\n"),
            rotate,
        ],
    )
    assert list(islice(service.follow_log(host, "test"), 5)) == ["lf", "same", "same", "in two pieces", "after"]


def test_a_log_that_comes_later_is_followed_too(tmp_path: Path) -> None:
    log = deployment(tmp_path)
    host = ScriptedHost(tmp_path, [lambda: None, lambda: append(log, "first\n")])
    assert next(service.follow_log(host, "test")) == "first"
