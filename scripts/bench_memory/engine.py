"""The engine and the real model, built and fetched by the product itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from orin_deploy.deploy.draft import draft, situation
from orin_deploy.host import Host
from orin_deploy.intent.request import Request

EXTRA = "test-llama-archs"


def prepare(home: str | None) -> tuple[Path, Path]:
    """The folder of the engine's programs, those for tests included, and the embedded default model.

    `home` is where the product keeps its data; the usual place where it is None. The first time takes minutes.
    """
    host = Host(environ={**os.environ, **({"ORIN_DEPLOY_HOME": home} if home else {})})
    wish = Request(profile="host", sets=(("build.extra_targets", EXTRA),))
    with host.lock("bench-memory"):
        now = situation(host, wish, elsewhere=False)
        for part in ("engine", "weights"):
            for step in draft(host, wish, now, _say).steps_of(part):
                for action in step.actions:
                    host.do(action, _say)
        plan = draft(host, wish, now, _say)
    return Path(plan.spec.build.bin), Path(plan.spec.weights.files[0].path)


def _say(fraction: float | None, text: str) -> None:
    if fraction is None or not sys.stderr.isatty():
        return
    print(f"\r{fraction:4.0%} {text[:70]:<70}", end="", file=sys.stderr, flush=True)
