"""How deployments are spelt: every unit is told apart from every other, and its deployment is found again."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.intent import deployment
from orin_deploy.intent.resolve import deployment_name

PACKAGE = Path(__file__).parents[2] / "orin_deploy"
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True).map(deployment_name)


@given(NAMES, NAMES)
def test_a_unit_is_of_one_deployment(name: str, other: str) -> None:
    for unit in deployment.unit(name), deployment.draft_unit(name):
        assert deployment.of_unit(f"0::/system.slice/{unit}\n") == name
        assert deployment.of_unit(f"/etc/systemd/system/{unit}") == name
        assert Path(unit).match(deployment.UNITS)
        assert unit not in (deployment.draft_unit(other), deployment.unit(other)) or name == other
    assert deployment.unit(name) != deployment.draft_unit(other)


def test_what_is_no_unit_of_ours_is_of_no_deployment() -> None:
    for text in (
        "",
        "0::/user.slice/session-1.scope",
        "/system.slice/ssh.service",
        "/system.slice/xorin-deploy-a.service",
    ):
        assert deployment.of_unit(text) is None


def test_nobody_else_spells_them() -> None:
    spelt = re.compile(r"""["'/]deployments["'/]|["'/(]orin-deploy-\{""")
    for path in PACKAGE.rglob("*.py"):
        if path.name != "deployment.py":
            lines = [line for line in path.read_text().splitlines() if '{"deployments"' not in line]  # a key of JSON
            assert not spelt.search("\n".join(lines)), path
