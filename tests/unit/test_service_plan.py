"""From a service's state to its step: what changes what, and the two forms a launch is written in. Pure."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.actions import Link, Remove, Run, Start, Stop, Write, from_json, to_json
from orin_deploy.deploy import verify
from orin_deploy.errors import OrinError
from orin_deploy.host.processes import BACKING_OFF, FAILED, RUNNING, START_MARK
from orin_deploy.intent.spec import Spec
from orin_deploy.parts import service
from orin_deploy.parts.service.state import Endpoint, Holder, Server, ServiceState
from orin_deploy.parts.service.steps import differences, wanted_text
from orin_deploy.parts.service.unit import argv, command_line, quote
from orin_deploy.parts.service.where import Where
from tests.specs import make_spec

WHERE = Where(
    name="test",
    launch="/data/deployments/test/launch.json",
    unit="orin-deploy-test.service",
    unit_file="/etc/systemd/system/orin-deploy-test.service",
    enabled="/etc/systemd/system/multi-user.target.wants/orin-deploy-test.service",
    config="/data/deployments/test/no-config",
    systemctl=("systemctl",),
    journalctl=("journalctl",),
)
MANAGERS = ("process", "systemd")


def spec(manager: str = "process", **changes: Any) -> Spec:
    user = "orin-deploy" if manager == "systemd" else None
    return make_spec(
        Path("/data"), Path("/engine/bin"), Path("/models/m.gguf"), 8080, manager=manager, user=user, **changes
    )


def nothing() -> ServiceState:
    return ServiceState(where=WHERE, taskset="/usr/bin/taskset", groups=("video", "render"))


def as_planned(wanted: Spec) -> ServiceState:
    """The state of a service that runs as the spec says."""
    return replace(
        nothing(),
        manager=wanted.service.manager,
        text=wanted_text(wanted, nothing()),
        enabled=wanted.service.manager == "systemd",
        status=service.Status(RUNNING, 4711, 1_700_000_000.0),
        server=Server(argv(wanted), (), False, ((4711, wanted.placement.cpus), (4712, wanted.placement.cpus))),
        endpoint=Endpoint("ok", 1024, 1, "/models/m.gguf", "b6402-0c1e570"),
    )


def step(wanted: Spec, state: ServiceState) -> Any:
    (only,) = service.plan(wanted, state)
    return only


@pytest.mark.parametrize("manager", MANAGERS)
def test_nothing_is_done_where_all_is_as_planned(manager: str) -> None:
    assert step(spec(manager), as_planned(spec(manager))).actions == ()
    assert "4711" in step(spec(manager), as_planned(spec(manager))).why


def test_a_first_start_writes_and_starts() -> None:
    first = step(spec(), nothing())
    assert first.why == "not running"
    assert [type(action) for action in first.actions] == [Write, Start]
    assert first.undo == (Stop("test", WHERE.launch), Remove(WHERE.launch))
    unit = step(spec("systemd"), nothing())
    assert [type(action) for action in unit.actions] == [Write, Link, Run, Run, Run]
    assert unit.actions[-1] == Run(("systemctl", "restart", "--no-block", "orin-deploy-test.service"))
    assert Remove(WHERE.unit_file) in unit.undo


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"ctx_size": 8192}}, "argv changed: --ctx-size 1024 -> 8192"),
        ({"options": {"metrics": None, "parallel": None}}, "- --parallel 1"),
        ({"cpus": (1,)}, "threads run on CPUs 0-1, planned 1"),
        ({"restart_delay_s": 9}, "the way it is launched changed"),
        ({"env": (("GGML_CUDA_DISABLE_GRAPHS", "1"),)}, "the way it is launched changed"),
    ],
)
@pytest.mark.parametrize("manager", MANAGERS)
def test_each_difference_is_named(manager: str, changes: dict[str, Any], words: str) -> None:
    changed = step(spec(manager, **changes), as_planned(spec(manager)))
    assert words in changed.why
    kinds = [type(action) for action in changed.actions]
    assert kinds == ([Stop, Write, Start] if manager == "process" else [Write, Link, Run, Run, Run])


def test_what_drifted_is_named_and_the_file_is_not_rewritten() -> None:
    state = as_planned(spec())
    server = state.server
    assert server is not None
    for drifted, words in (
        (replace(server, replaced=True), "replaced on disk"),
        (replace(server, options_from_env=("LLAMA_ARG_ALIAS",)), "LLAMA_ARG_ALIAS"),
        (replace(server, threads=((4711, (0, 1)), (4712, (0,)))), "threads run on CPUs 0, planned 0-1"),
    ):
        found = step(spec(), replace(state, server=drifted))
        assert words in found.why
        assert [type(action) for action in found.actions] == [Stop, Start]
    assert "does not answer" in step(spec(), replace(state, endpoint=Endpoint(), overdue=True)).why


def test_a_server_that_still_loads_is_left_alone() -> None:
    state = as_planned(spec())
    for endpoint in (Endpoint("loading"), Endpoint()):
        assert step(spec(), replace(state, endpoint=endpoint)).actions == ()


def test_failed_and_backing_off_are_told_apart() -> None:
    state = replace(as_planned(spec()), server=None)
    failed = replace(state, status=service.Status(FAILED, failures=5, exit="exit code 1"))
    assert step(spec(), failed).why == "given up after 5 failed starts (exit code 1)"
    first = replace(state, status=service.Status(BACKING_OFF))
    assert step(spec(), first).why == "its server does not run yet"
    waiting = replace(state, status=service.Status(BACKING_OFF, failures=1, exit="signal 9 (SIGKILL)"))
    assert step(spec(), waiting).why == "backing off after signal 9 (SIGKILL)"


def test_a_change_of_managers_takes_the_other_away_first() -> None:
    to_unit = step(spec("systemd"), as_planned(spec()))
    assert to_unit.actions[:2] == (Stop("test", WHERE.launch), Remove(WHERE.launch))
    assert "kept running by process" in to_unit.why
    to_process = step(spec(), as_planned(spec("systemd")))
    assert Remove(WHERE.unit_file) in to_process.actions
    assert to_process.actions[-1] == Start("test", WHERE.launch)


def test_a_unit_that_would_not_start_at_boot_is_enabled_without_a_restart() -> None:
    found = step(spec("systemd"), replace(as_planned(spec("systemd")), enabled=False))
    assert found.actions == (Link(WHERE.enabled, WHERE.unit_file), Run(("systemctl", "daemon-reload")))


@pytest.mark.parametrize("state", [nothing(), as_planned(spec())], ids=["nothing runs", "the old one runs"])
def test_a_port_taken_is_refused_with_who_has_it(state: ServiceState) -> None:
    wanted = spec(options={"ctx_size": 2048})
    with pytest.raises(OrinError, match=r"process 99: python3 -m http\.server") as caught:
        service.plan(wanted, replace(state, holder=Holder(99, "python3 -m http.server")))
    assert "--set port=" in (caught.value.hint or "")
    with pytest.raises(OrinError, match="deployment other"):
        service.plan(wanted, replace(state, holder=Holder(99, "llama-server", "other")))
    with pytest.raises(OrinError, match="cannot be looked into"):
        service.plan(wanted, replace(state, holder=Holder(None, "a program that cannot be looked into from here")))


def test_no_taskset_is_an_error_here_but_not_for_a_board_elsewhere() -> None:
    bare = replace(nothing(), taskset=None)
    with pytest.raises(OrinError, match="taskset"):
        service.plan(spec(), bare)
    elsewhere = spec()
    elsewhere = replace(elsewhere, device=replace(elsewhere.device, assumed="agx32"))
    assert step(elsewhere, bare).actions


def test_the_system_wide_config_is_warned_of() -> None:
    assert "/etc/llama.cpp/config.ini" in step(spec(), replace(nothing(), system_config=True)).hint


@pytest.mark.parametrize("manager", MANAGERS)
def test_what_is_planned_survives_being_written_to_disk(manager: str) -> None:
    found = step(spec(manager), nothing())
    for action in (*found.actions, *found.undo):
        assert from_json(json.loads(json.dumps(to_json(action)))) == action


def test_the_launch_file() -> None:
    launch = json.loads(wanted_text(spec(env=(("A", "b"),)), nothing()))
    assert launch["argv"][:4] == ["/usr/bin/taskset", "-c", "0-1", "/engine/bin/llama-server"]
    assert launch["env"] == {"XDG_CONFIG_HOME": WHERE.config, "A": "b"}


# The unit.


def unit_words(text: str, key: str) -> list[str]:
    return [line.split("=", 1)[1] for line in text.splitlines() if line.startswith(f"{key}=")]


def test_the_unit_of_root_has_a_user_of_its_own() -> None:
    text = wanted_text(spec("systemd", start_timeout_s=250, restart_delay_s=7), nothing())
    assert unit_words(text, "User") == ["orin-deploy"]
    assert unit_words(text, "DynamicUser") == ["yes"]
    assert unit_words(text, "NoNewPrivileges") == ["yes"]
    assert unit_words(text, "TimeoutStartSec") == ["250"]
    assert unit_words(text, "RestartSec") == ["7"]
    assert unit_words(text, "Restart") == ["always"]
    assert unit_words(text, "ExecStart")[0].startswith("/usr/bin/taskset -c 0-1 /engine/bin/llama-server --model")
    assert START_MARK in unit_words(text, "ExecStartPre")[0]
    assert unit_words(text, "WantedBy") == ["multi-user.target"]
    # Five starts that each take all their time still count as one failure in a row.
    assert int(unit_words(text, "StartLimitIntervalSec")[0]) >= 5 * 257


def test_the_unit_of_a_user() -> None:
    where = replace(WHERE, systemctl=("systemctl", "--user"))
    text = wanted_text(replace(spec("systemd")), replace(nothing(), where=where))
    assert not unit_words(text, "User")
    assert not unit_words(text, "DynamicUser")
    assert unit_words(text, "WantedBy") == ["default.target"]
    assert "linger" in step(spec("systemd"), replace(nothing(), where=where, lingers=False)).hint


def test_groups_memlock_and_hidden_folders_only_where_needed() -> None:
    plain = wanted_text(spec("systemd"), nothing())
    assert not unit_words(plain, "SupplementaryGroups")
    assert not unit_words(plain, "LimitMEMLOCK")
    assert not unit_words(plain, "BindReadOnlyPaths")
    cuda = wanted_text(spec("systemd", cuda=True), nothing())
    assert unit_words(cuda, "SupplementaryGroups") == ["video render"]
    assert not unit_words(wanted_text(spec("systemd", cuda=True), replace(nothing(), groups=())), "SupplementaryGroups")
    for mode, expected in (("mlock", ["infinity"]), ("mmap+mlock", ["infinity"]), ("mmap", [])):
        locked = spec("systemd", options={"load_mode": mode})
        assert unit_words(wanted_text(locked, nothing()), "LimitMEMLOCK") == expected
    at_home = spec("systemd", options={"chat_template_file": "/home/u/t.jinja"})
    assert unit_words(wanted_text(at_home, nothing()), "BindReadOnlyPaths") == ["/home/u/t.jinja"]


def test_a_key_only_root_can_read_comes_as_a_credential() -> None:
    keyed = spec("systemd", options={"api_key_file": "/root/key"}, api_key_file="/root/key")
    text = wanted_text(keyed, nothing())
    assert unit_words(text, "LoadCredential") == ["api_key:/root/key"]
    assert "--api-key-file /run/credentials/orin-deploy-test.service/api_key" in unit_words(text, "ExecStart")[0]
    assert "/root/key" not in unit_words(text, "ExecStart")[0]
    assert argv(replace(keyed, service=replace(keyed.service, manager="process"))) == keyed.service.argv


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20)


@given(WORDS)
def test_a_quoted_word_is_one_word_and_itself_again(word: str) -> None:
    quoted = quote(word)
    assert "\n" not in quoted
    # systemd's quoting is the shell's here, but for the doubled percent signs: both undo \\ and \" inside "…".
    undone = shlex.split(quoted) if quoted.startswith('"') else [quoted]
    assert [text.replace("%%", "%") for text in undone] == [word]


@given(st.lists(WORDS, min_size=1))
def test_no_word_of_a_command_names_a_variable_or_ends_it(words: list[str]) -> None:
    line = command_line(tuple(words))
    assert line.count("$") == 2 * sum(word.count("$") for word in words)
    assert ";" not in line.split(" ")


VARIANTS = {
    "plain": {},
    "cuda": {"cuda": True},
    "locked": {"options": {"load_mode": "mlock"}},
    "odd words": {"options": {"alias": 'a "b" 100% $HOME \\ ;', "chat_template_kwargs": '{"a": "it\'s"}'}},
    "keyed": {"options": {"api_key_file": "/root/a key"}, "api_key_file": "/root/a key"},
    "no user": {"user": None},
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_systemd_has_nothing_to_say_against_the_unit(tmp_path: Path, changes: dict[str, Any]) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    wanted = make_spec(Path("/data"), Path("/bin"), Path("/models/m.gguf"), 8080, **{"manager": "systemd", **changes})
    file = tmp_path / WHERE.unit
    file.write_text(wanted_text(wanted, replace(nothing(), taskset=shutil.which("true"))))
    done = subprocess.run(["systemd-analyze", "verify", str(file)], text=True, capture_output=True)
    said = [line for line in done.stderr.splitlines() if WHERE.unit in line]
    assert (done.returncode, said) == (0, [])


# How two launches differ.


@given(st.dictionaries(st.sampled_from(["--a", "-b", "--c-d"]), st.sampled_from(["", "1", "-2", "x y"])))
def test_a_launch_differs_from_itself_in_nothing(options: dict[str, str]) -> None:
    words = ("p", *(word for pair in options.items() for word in pair if word))
    assert differences(words, words) == "the order of its options"


def test_differences_by_option() -> None:
    old = ("/a/llama-server", "--ctx-size", "4096", "--metrics", "--temp", "-1")
    new = ("/b/llama-server", "--ctx-size", "8192", "--temp", "-1", "--slots")
    assert (
        differences(old, new) == "/a/llama-server -> /b/llama-server, --ctx-size 4096 -> 8192, - --metrics, + --slots"
    )


# The read-back.


def found(wanted: Spec, state: ServiceState, slots: list[int] | None = None, lines: tuple[str, ...] = ()) -> str:
    return "; ".join(verify.differences(wanted, state, slots, lines))


def test_a_server_as_planned_has_no_differences() -> None:
    assert found(spec(), as_planned(spec()), [1024]) == ""


@pytest.mark.parametrize(
    ("endpoint", "slots", "words"),
    [
        ({"ctx_per_slot": 512}, None, "context per slot: 512, planned 1024"),
        ({"slots": 4}, None, "slots: 4, planned 1"),
        ({}, [1024, 1024], "the slots' contexts"),
        ({"model_path": "/models/other.gguf"}, None, "the model served is /models/other.gguf"),
    ],
)
def test_each_other_answer_is_a_difference(endpoint: dict[str, Any], slots: list[int] | None, words: str) -> None:
    state = as_planned(spec())
    assert words in found(spec(), replace(state, endpoint=replace(state.endpoint, **endpoint)), slots)


def test_a_stray_thread_is_a_difference() -> None:
    state = as_planned(spec())
    assert state.server is not None
    state = replace(state, server=replace(state.server, threads=((4711, (0, 1)), (4712, (0, 1, 2)))))
    assert "0-2, planned 0-1" in found(spec(), state)


def test_another_build_is_a_difference() -> None:
    built = spec(engine=None)
    source = replace(built.build.source, commit="0c1e57098bba43ac29e6e3b677cdceebdd22334f", build_number=6402)
    built = replace(built, build=replace(built.build, source=source))
    state = replace(as_planned(built), server=Server(argv(built), (), False, ()))
    assert found(built, state, [1024]) == ""
    other = replace(state, endpoint=replace(state.endpoint, build="b6000-abcdef0"))
    assert "commit abcdef0, planned 0c1e570" in found(built, other)
    assert "build 6000, planned 6402" in found(built, other)


def test_layers_left_to_the_cpu_are_a_difference_on_cuda() -> None:
    wanted, state = spec(cuda=True), as_planned(spec(cuda=True))
    buffer = "load_tensors:        CUDA0 model buffer size =  1402.10 MiB"
    assert found(wanted, state, None, ("load_tensors: offloaded 43/43 layers to GPU", buffer)) == ""
    assert "43 of 44" in found(wanted, state, None, ("load_tensors: offloaded 43/44 layers to GPU", buffer))
    # A build for the CPU alone prints the line too.
    assert "no model buffer" in found(wanted, state, None, ("load_tensors: offloaded 43/43 layers to GPU",))
    assert "unknown" in found(wanted, state)
    asked = spec(cuda=True, options={"gpu_layers": 10})
    assert found(asked, as_planned(asked)) == ""


@given(st.integers(1, 200_000), st.integers(1, 16), st.booleans())
def test_context_per_slot_is_llama_cpps(total: int, slots: int, unified: bool) -> None:
    wanted = spec(options={"ctx_size": total, "parallel": slots, "kv_unified": unified})
    each = verify.context_per_slot(wanted)
    assert each is not None
    assert each % 256 == 0
    assert each <= 8192, "the training context of the model"
    enough = total if unified else total / slots
    assert each >= min(enough, 8192)
    assert each < enough + 512


def test_why_a_server_ended() -> None:
    assert "memory" in verify.failure((), "signal 9 (SIGKILL)", "x").message
    assert "another processor" in verify.failure((), "signal 4 (SIGILL)", "x").message
    unknown = verify.failure(("nothing of use",), "exit code 7", "x")
    assert "exit code 7" in unknown.message
    assert unknown.hint == "orin-deploy logs --lines 500 --name x"
    # The start that failed told why; the one after it was cut off.
    lines = (f"{START_MARK}, start 1", "error: invalid argument: --nope", f"{START_MARK}, start 2")
    assert "--nope" in verify.failure(lines, "exit code 1", "x").message
    # What an earlier run of another day died of is not why this one did.
    later = (*lines[:2], f"{START_MARK}, start 1", "fine so far")
    assert "memory" in verify.failure(later, "signal 9 (SIGKILL)", "x").message
