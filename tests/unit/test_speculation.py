"""A draft in a process of its own: when there is one, its words, the server's, and the unit that keeps it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orin_deploy.actions import Remove, Run, Write
from orin_deploy.errors import OrinError, Refused, UsageError
from orin_deploy.intent import speculation
from orin_deploy.intent.options import OPTIONS, render
from orin_deploy.intent.spec import Placement, Setting, Spec, Value
from orin_deploy.parts import service
from orin_deploy.parts.service.state import Holder, ServiceState
from orin_deploy.parts.service.unit import draft_unit_text, launch_text, unit_text
from orin_deploy.parts.service.where import Where
from tests.planning import planned
from tests.specs import make_build, make_spec

BUILD = make_build(Path("/engine/bin"))
WHERE = Where(
    name="test",
    launch="/data/launch.json",
    unit="orin-deploy-test.service",
    unit_file="/etc/systemd/system/orin-deploy-test.service",
    enabled="/etc/systemd/system/multi-user.target.wants/orin-deploy-test.service",
    config="/data/no-config",
    systemctl=("systemctl",),
    journalctl=("journalctl",),
)
PLACED = Placement((0, 1), 2, 2, "test", (2, 3), 2)


def values(**changes: Value) -> dict[str, Setting]:
    found = {key: Setting(option.default, "default") for key, option in OPTIONS.items()}
    for key, value in changes.items():
        found[key.replace("__", ".")] = Setting(value, "--set")
    return found


WISH = {"spec_draft_model": "/models/d.gguf", "placement__draft_cpus": "auto"}


def test_a_draft_model_alone_stays_in_the_server() -> None:
    assert not speculation.has_process(values())
    assert not speculation.has_process(values(spec_draft_model="/models/d.gguf", spec_type="draft-dspark"))
    assert speculation.has_process(values(**WISH))
    assert speculation.has_process(values(**WISH, spec_type="draft-simple,ngram-mod"))


@pytest.mark.parametrize(
    ("wish", "kind", "words"),
    [
        ({"placement__draft_cpus": "auto"}, UsageError, "no draft model"),
        ({**WISH, "spec_type": "draft-dspark"}, Refused, "draft-dspark cannot have a process"),
        ({**WISH, "spec_type": "draft-simple,draft-mtp"}, Refused, "draft-mtp cannot"),
        ({**WISH, "spec_type": "ngram-mod"}, Refused, "ngram-mod cannot"),
        ({**WISH, "rpc": "127.0.0.1:1"}, UsageError, "rpc .* is decided"),
        ({**WISH, "spec_draft_device": "CUDA0"}, UsageError, "spec_draft_device"),
    ],
)
def test_where_there_can_be_no_process_the_reason_is_told(
    wish: dict[str, Value], kind: type[OrinError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        speculation.has_process(values(**wish))
    assert caught.value.hint


@pytest.mark.parametrize(("cuda", "device", "target"), [(False, "CPU", "none"), (True, "CUDA0", "CUDA0")])
def test_the_words_of_both_processes(cuda: bool, device: str, target: str) -> None:
    build = replace(BUILD, cuda=cuda)
    wish = values(**WISH)
    draft = speculation.draft_process(wish, build, PLACED)
    assert draft.argv == (
        "/engine/bin/ggml-rpc-server", "-d", device, "-H", "127.0.0.1", "-p", "50052", "-t", "2",
    )  # fmt: skip
    options = {key: setting.value for key, setting in speculation.server_options(wish, draft, build).items()}
    words = render(options, None)
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    assert pairs == {
        "--rpc": "127.0.0.1:50052", "--device": target, "--spec-draft-device": "RPC0", "--spec-draft-ngl": "all",
        "--spec-type": "draft-simple",
    }  # fmt: skip
    # A device's name must be known when it is read (facts: common/arg.cpp).
    assert words.index("--rpc") < words.index("--device") < words.index("--spec-draft-device")
    on_cpu = speculation.draft_process(values(**WISH, placement__draft_device="CPU"), build, PLACED)
    assert on_cpu.device == "CPU"


def test_a_whole_plan_for_a_board_that_is_not_at_hand() -> None:
    plan = planned("agx64", "spec_draft_model=/models/d.gguf", "placement.draft_cpus=auto")
    placement, draft = plan.spec.placement, plan.spec.draft
    assert draft is not None
    assert not set(placement.cpus) & set(placement.draft_cpus)
    assert placement.draft_cpus
    assert any("d.gguf" in warning for warning in plan.spec.warnings), "its memory is not in the budget"
    (step,) = plan.steps_of("service")
    written = [action.path for action in step.actions if isinstance(action, Write)]
    names = ["orin-deploy-agx64@draft.service", "orin-deploy-agx64.service"]
    assert [Path(path).name for path in written] == (names if plan.spec.service.manager == "systemd" else written)


def spec(manager: str) -> Spec:
    draft = speculation.draft_process(values(**WISH), BUILD, PLACED)
    user = "orin-deploy" if manager == "systemd" else None
    made = make_spec(Path("/data"), Path("/engine/bin"), Path("/models/m.gguf"), 8080, manager=manager, user=user)
    return replace(made, draft=draft, placement=PLACED)


def test_the_two_units_hold_each_other() -> None:
    own = draft_unit_text(spec("systemd"), WHERE, "/usr/bin/taskset", ("video",))
    assert own is not None
    words = "ExecStart=/usr/bin/taskset -c 2-3 /engine/bin/ggml-rpc-server -d CPU -H 127.0.0.1 -p 50052 -t 2"
    for line in (words, f"PartOf={WHERE.unit}", f"Wants={WHERE.unit}", "Restart=always", "DynamicUser=yes"):
        assert line in own.splitlines()
    assert "LoadCredential" not in own
    server = unit_text(spec("systemd"), WHERE, "/usr/bin/taskset", ()).splitlines()
    assert f"BindsTo={WHERE.draft_unit}" in server
    assert f"After={WHERE.draft_unit}" in server
    assert WHERE.draft_file == "/etc/systemd/system/orin-deploy-test@draft.service"


def test_without_a_draft_process_nothing_speaks_of_one() -> None:
    for manager in ("systemd", "process"):
        plain = replace(spec(manager), draft=None, placement=Placement((0, 1), 2, 2, "test"))
        assert draft_unit_text(plain, WHERE, "/usr/bin/taskset", ()) is None
        assert "draft" not in unit_text(plain, WHERE, "/usr/bin/taskset", ())
        assert "companions" not in launch_text(plain, WHERE, "/usr/bin/taskset")


def test_a_draft_that_is_given_up_takes_its_unit_along() -> None:
    plain = replace(spec("systemd"), draft=None, placement=Placement((0, 1), 2, 2, "test"))
    state = ServiceState(where=WHERE, taskset="/usr/bin/taskset", manager="systemd", draft_text="old", text="old")
    (step,) = service.plan(plain, state)
    assert Remove(WHERE.draft_file) in step.actions
    stop = Run(("systemctl", "stop", "orin-deploy-test@draft.servic[e]"))
    assert step.actions.index(stop) < step.actions.index(Remove(WHERE.draft_file))


def test_a_taken_draft_port_is_refused() -> None:
    state = ServiceState(where=WHERE, taskset="/usr/bin/taskset", draft_holder=Holder(7, "nc -l 50052"))
    with pytest.raises(OrinError, match="port 50052 is taken by process 7") as caught:
        service.plan(spec("process"), state)
    assert "placement.draft_port=50053" in (caught.value.hint or "")
