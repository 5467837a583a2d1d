"""The engine: llama.cpp, from its source to programs and libraries that are proved to be what was asked for."""

from __future__ import annotations

from orin_deploy.intent.spec import Spec
from orin_deploy.parts.engine.binding import binding_step, check_step
from orin_deploy.parts.engine.configure import build_step, ready_step
from orin_deploy.parts.engine.explain import explain
from orin_deploy.parts.engine.sources import source_step, tools_step
from orin_deploy.parts.engine.state import EngineState, help_text, inspect
from orin_deploy.parts.step import Step

__all__ = ["NAME", "EngineState", "explain", "help_text", "inspect", "plan"]

NAME = "engine"


def plan(spec: Spec, state: EngineState) -> tuple[Step, ...]:
    """The steps from the state to the engine that the spec asks for."""
    build = spec.build
    if build.engine:
        return ready_step(build, state), check_step(build, state)
    steps = (
        source_step(build, state),
        tools_step(build, state),
        build_step(spec, state),
        binding_step(build, state),
        check_step(build, state),
    )
    return tuple(step for step in steps if step is not None)
