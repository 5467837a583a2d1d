"""Actions survive the disk, and say what they do."""

from __future__ import annotations

import json

import pytest

from orin_deploy import actions
from orin_deploy.actions import Action, Fetch, Link, Reboot, Remove, Run, Start, Stop, Unpack, Write

EXAMPLES: tuple[Action, ...] = (
    Run(("cmake", "-S", "a b"), cwd="/x", env=(("A", "1 2"),), log="/l", output="/o", progress="ninja"),
    Write("/etc/x", "text\n", 0o600),
    Fetch("hf:a/b/c.gguf", "/m/c.gguf", 5, "ab"),
    Unpack("/a.tar.gz", "/d", "top"),
    Link("/a", "b"),
    Remove("/a"),
    Start("host", "/l.json"),
    Stop("host", "/l.json"),
    Reboot(("nvpmodel", "-m", "0"), "REBOOT NOW"),
)


@pytest.mark.parametrize("action", EXAMPLES, ids=lambda action: type(action).__name__)
def test_an_action_written_as_json_reads_back_equal(action: Action) -> None:
    assert actions.from_json(json.loads(json.dumps(actions.to_json(action)))) == action


def test_every_kind_has_an_example() -> None:
    assert {type(action) for action in EXAMPLES} == set(actions.KINDS.values())


def test_a_command_prints_as_it_can_be_typed() -> None:
    assert str(EXAMPLES[0]) == "A='1 2' cmake -S 'a b' > /o"


def test_a_secret_text_is_not_in_the_repr() -> None:
    assert "text" not in repr(EXAMPLES[1])


@pytest.mark.parametrize(
    "data", [3, [], {}, {"do": "remove"}, {"do": "remove", "path": 3}, {"do": "of another version"}]
)
def test_what_is_no_action_is_told(data: object) -> None:
    with pytest.raises((KeyError, TypeError, AttributeError)):
        actions.from_json(data)  # type: ignore[arg-type]
