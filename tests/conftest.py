"""Fixtures: the real engine and a real model, built and fetched once through the product's own parts and cache."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

# The same examples every time, however slow the machine: a change is judged by what it changes.
# ORIN_TEST_EXPLORE=1 looks for new ones.
settings.register_profile(
    "orin",
    deadline=None,
    derandomize=not os.environ.get("ORIN_TEST_EXPLORE"),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("orin")

if TYPE_CHECKING:
    from orin_deploy.deploy.plan import Plan


@pytest.fixture(scope="session", autouse=True)
def signals_reach_children() -> None:
    """A shell that starts us in the background, or nohup, has signals ignored, and every child inherits that; but
    these tests interrupt commands as a person does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def shared_home() -> Path:
    """The data folder whose engine and model every engine test shares; ORIN_TEST_HOME moves it."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ORIN_TEST_HOME") or Path(cache) / "orin-deploy-tests")


@pytest.fixture(scope="session")
def prepared(shared_home: Path, pytestconfig: pytest.Config) -> Plan:
    """The plan of the host profile, its engine built and its model fetched; the first time takes minutes."""
    from orin_deploy.deploy.draft import draft, situation
    from orin_deploy.host import Host
    from orin_deploy.intent.request import Request

    host = Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(shared_home)})
    wish = Request(profile="host", sets=(("build.extra_targets", "test-llama-archs"),))
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with host.lock("pytest"):
        now = situation(host, wish, elsewhere=False)
        say = _say(capture)
        for part in ("engine", "weights"):
            plan = draft(host, wish, now, say)
            for step in plan.steps_of(part):
                for action in step.actions:
                    host.do(action, say)
        plan = draft(host, wish, now, say)
    left = [step.name for step in (*plan.steps_of("engine"), *plan.steps_of("weights")) if step.actions]
    assert not left, f"did not take effect: {left}"
    return plan


def _say(capture: object) -> Callable[[float | None, str], None]:
    """Progress that is seen although pytest captures output: a line for every tenth of what takes long."""
    seen: set[int] = set()

    def say(fraction: float | None, text: str) -> None:
        tenth = int((fraction or 0) * 10)
        if fraction is not None and tenth not in seen:
            seen.add(tenth)
            with capture.global_and_fixture_disabled():  # type: ignore[attr-defined]
                print(f"\npreparing the engine: {fraction:.0%} {text}", file=sys.stderr, flush=True)

    return say


@pytest.fixture(scope="session")
def engine_bin(request: pytest.FixtureRequest) -> Path:
    """The folder of the real llama.cpp's programs; ORIN_TEST_ENGINE names a ready one."""
    if ready := os.environ.get("ORIN_TEST_ENGINE"):
        return Path(ready)
    plan: Plan = request.getfixturevalue("prepared")
    return Path(plan.spec.build.bin)


@pytest.fixture(scope="session")
def smollm2(request: pytest.FixtureRequest) -> Path:
    """The real SmolLM2-135M-Instruct GGUF; ORIN_TEST_MODEL names a ready one."""
    if ready := os.environ.get("ORIN_TEST_MODEL"):
        return Path(ready)
    plan: Plan = request.getfixturevalue("prepared")
    return Path(plan.spec.weights.files[0].path)
