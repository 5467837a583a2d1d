"""The engine: llama.cpp, from its source to programs and libraries that are proved to be what was asked for."""

from __future__ import annotations

from orin_deploy.intent.spec import Build, Spec
from orin_deploy.parts.engine.binding import binding_step, check_step
from orin_deploy.parts.engine.configure import build_step, ready_step
from orin_deploy.parts.engine.elf import elf_step
from orin_deploy.parts.engine.explain import explain
from orin_deploy.parts.engine.sources import source_step, tools_step
from orin_deploy.parts.engine.state import EngineState, help_text, inspect, inspect_build
from orin_deploy.parts.step import Step

__all__ = ["NAME", "EngineState", "explain", "help_text", "inspect", "inspect_build", "plan", "plan_build"]

NAME = "engine"


def plan(spec: Spec, state: EngineState) -> tuple[Step, ...]:
    """The steps from the state to the engine that the spec asks for."""
    return plan_build(spec.build, state, ccache=spec.device.toolchain.ccache is not None)


def plan_build(build: Build, state: EngineState, ccache: bool) -> tuple[Step, ...]:
    """The steps from the state to this build alone, with `ccache` where that is there."""
    if build.engine:
        return ready_step(build, state), check_step(build, state)
    last = (
        (elf_step(build, build.cross, state),)
        if build.cross is not None
        else (binding_step(build, state), check_step(build, state))
    )
    steps = (source_step(build, state), tools_step(build, state), build_step(build, state, ccache), *last)
    return tuple(step for step in steps if step is not None)
