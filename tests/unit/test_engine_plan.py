"""The engine's steps as a function of what there is already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.actions import Fetch, Link, Remove, Run, Unpack
from orin_deploy.cli.console import roughly
from orin_deploy.facts.device import CudaToolkit, Tool
from orin_deploy.intent.build import resolve
from orin_deploy.intent.spec import Setting, Spec
from orin_deploy.parts import engine
from orin_deploy.parts.engine import EngineState, layout, probe
from tests.specs import make_spec
from tests.unit.test_engine_words import AGX, CUDA_12, HOST

NOTHING = EngineState(
    cache="/cache",
    python="/venv/bin/python",
    python_version="3.10",
    archives=frozenset(),
    source=False,
    tools=False,
    published=False,
    fingerprint=None,
    built_from=None,
    help=False,
    version=False,
    binding=False,
    libraries=False,
    info=None,
)
SAYS = {
    "python": "3.10",
    "features": {"CPU": {"NEON": "1", "ARM_FMA": "1", "DOTPROD": "1", "FP16_VA": "1"}, "CUDA": {"ARCHS": "870"}},
    "devices": [{"name": "CPU"}, {"name": "CUDA0"}],
    "binding": "0.3.36",
}
DONE = replace(NOTHING, source=True, published=True, help=True, version=True, binding=True, libraries=True, info=SAYS)


def spec(source: str | None = None, tools: bool = True, toolkit: CudaToolkit | None = CUDA_12) -> Spec:
    device = replace(AGX, toolchain=replace(AGX.toolchain, git=Tool("/usr/bin/git", (2, 34))))
    if not tools:
        device = replace(device, toolchain=replace(device.toolchain, cmakes=(), ninja=None))
    values = {"build.source": Setting(source, "--set")} if source else {}
    build = resolve(device, values, data="/data", arch="87" if toolkit else None, toolkit=toolkit)
    return replace(make_spec(Path("/data"), Path("/bin"), Path("/m.gguf"), 8080), device=device, build=build)


def names(steps: tuple[object, ...]) -> list[str]:
    return [step.name for step in engine.plan(*steps) if step.actions]  # type: ignore[arg-type]


def test_from_nothing_every_step_has_something_to_do() -> None:
    steps = engine.plan(spec(tools=False), NOTHING)
    assert [step.name for step in steps] == ["source", "build tools", "build", "Python binding", "check"]
    assert all(step.actions and step.part == "engine" for step in steps)


def test_when_all_is_there_nothing_is_done() -> None:
    for tools in (True, False):
        assert not any(step.actions for step in engine.plan(spec(tools=tools), DONE))
    check = engine.plan(spec(), DONE)[-1]
    assert "DOTPROD" in check.why
    assert "CUDA 87" in check.why


@given(
    st.builds(
        replace,
        st.just(NOTHING),
        archives=st.sampled_from([frozenset(), frozenset({"/cache/downloads/llama_cpp_python-0.3.36.tar.gz"})]),
        source=st.booleans(),
        tools=st.booleans(),
        published=st.booleans(),
        help=st.booleans(),
        version=st.booleans(),
        binding=st.booleans(),
        info=st.sampled_from([None, {}, {"features": {}}, SAYS]),
    )
)
def test_whatever_there_is_the_rest_is_planned_once(state: EngineState) -> None:
    wanted = spec(tools=False)
    steps = {step.name: step.actions for step in engine.plan(wanted, state)}
    actions = [action for step in steps.values() for action in step]
    fetched = [action for action in actions if isinstance(action, Fetch)]
    assert len(fetched) == (not state.archives and ((not state.published and not state.source) or not state.binding))
    assert any(isinstance(action, Unpack) for action in actions) == (not state.published and not state.source)
    assert bool(steps["build tools"]) == (not state.published and not state.tools)
    assert any(isinstance(action, Link) for action in steps["build"]) == (not state.published)
    assert bool(steps["Python binding"]) == (not state.binding)
    assert bool(steps["check"]) == (not state.published or state.info != SAYS)
    captured = {action.output for action in steps["build"] if isinstance(action, Run) and "--" in str(action)}
    assert (f"{wanted.build.folder}/help.txt" in captured) == (not state.published or not state.help)
    paths = [action.path for action in actions if isinstance(action, (Fetch, Unpack, Link, Remove))]
    assert all(path.startswith(("/data/engines/", "/cache/")) for path in paths)


def test_the_programs_are_visible_only_after_the_build() -> None:
    build = next(step for step in engine.plan(spec(), NOTHING) if step.name == "build")
    kinds = [
        Path(action.argv[0]).name if isinstance(action, Run) else type(action).__name__ for action in build.actions
    ]
    assert kinds == ["cmake", "python", "ninja", "Link", "llama-server", "llama-server"]


def test_a_ccache_serves_every_engine_folder() -> None:
    wanted = spec()
    device = replace(wanted.device, toolchain=replace(wanted.device.toolchain, ccache=Tool("/usr/bin/ccache", (4, 5))))
    for given_spec, expected in ((wanted, False), (replace(wanted, device=device), True)):
        ninja = next(
            action
            for step in engine.plan(given_spec, NOTHING)
            for action in step.actions
            if isinstance(action, Run) and action.progress == "ninja"
        )
        assert (("CCACHE_BASEDIR", "/data/engines") in ninja.env) == expected


def test_a_cpu_result_of_a_cuda_build_is_checked_again_and_fails() -> None:
    info = {**SAYS, "features": {"CPU": SAYS["features"]["CPU"]}}  # type: ignore[index]
    assert names((spec(), replace(DONE, info=info))) == ["check"]
    said = probe.mismatches(info, spec().build.cpu_features, ["87"], False, True)
    assert said == probe.mismatches(info, spec().build.cpu_features, [], False, True)
    assert len(said) == 1
    assert "libggml-cuda" in said[0]


def test_each_thing_that_is_missing_is_named() -> None:
    assert probe.mismatches(SAYS, ["NEON"], ["87"], False, True) == ()
    assert probe.mismatches(SAYS, [], [], False, False) == ()
    for asked, name in (
        ((["NEON", "SVE"], None, False, False), "SVE"),
        (([], ["110"], False, False), "110"),
        (([], None, True, False), "BLAS"),
        (([], None, False, True), "binding"),
    ):
        (said,) = probe.mismatches({**SAYS, "binding": None}, *asked)
        assert name in said


def test_what_the_library_says_is_read_by_backend() -> None:
    text = "CPU : NEON = 1 | ARM_FMA = 1 | CUDA : ARCHS = 720,870,1100 | NO_VMM = 1 | "
    features = probe.features(text)
    assert features == {"CPU": {"NEON": "1", "ARM_FMA": "1"}, "CUDA": {"ARCHS": "720,870,1100", "NO_VMM": "1"}}
    assert probe.cuda_architectures(features["CUDA"]) == ("72", "87", "110")
    assert probe.features("") == {}


def test_another_python_installs_the_binding_again() -> None:
    assert names((spec(), replace(DONE, python_version="3.12", binding=False))) == ["Python binding", "check"]


def test_a_source_that_changed_in_place_is_built_again() -> None:
    tree = spec("file:/src/llama.cpp")
    state = replace(DONE, fingerprint="new", built_from="old")
    assert "build" in names((tree, state))
    assert "build" not in names((tree, replace(state, built_from="new")))
    binding = next(step for step in engine.plan(tree, state) if step.name == "Python binding")
    assert not binding.actions
    assert "left out" in binding.why


def test_a_ready_engine_is_read_and_checked_but_not_built() -> None:
    device = HOST
    build = resolve(device, {"build.engine": Setting("/opt/llama", "--set")}, data="/data", arch=None, toolkit=None)
    ready = replace(spec(), device=device, build=build)
    state = replace(NOTHING, published=True, libraries=True, fingerprint="now")
    steps = engine.plan(ready, state)
    runs = [action for step in steps for action in step.actions if isinstance(action, Run)]
    assert [run.output for run in runs] == [
        f"{build.folder}/{name}" for name in (layout.HELP, layout.VERSION, layout.INFO)
    ]
    assert all(run.argv[0] in ("/opt/llama/llama-server", "/venv/bin/python") for run in runs)
    done = replace(DONE, fingerprint="now", built_from="now")
    assert not any(step.actions for step in engine.plan(ready, done))


def test_the_step_says_how_long_it_takes() -> None:
    wanted = spec()
    build = next(step for step in engine.plan(wanted, NOTHING) if step.name == "build")
    assert build.seconds == wanted.build.estimate_s > 60
    assert roughly(build.seconds).endswith(" min")
