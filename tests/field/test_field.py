"""Real people's failures as small inputs, each through the doctor's own path, and varied ones that nobody reported."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from orin_deploy.doctor.diagnose import RULES, diagnose
from orin_deploy.doctor.finding import Finding
from orin_deploy.doctor.reading import read_evidence
from orin_deploy.parts.engine.causes import RULES as CAUSES

HERE = Path(__file__).parent
CASES = sorted(HERE.glob("*/expect.yaml"))
VARIED: list[dict[str, Any]] = yaml.safe_load((HERE / "varied.yaml").read_text())
ALL_RULES = {name for name, _ in RULES} | {cause.name for cause in CAUSES} | {"service.not-ready"}


def spoken(finding: Finding) -> str:
    return " ".join(filter(None, (finding.what, finding.why_not, finding.next)))


def check(found: Sequence[Finding], expected: Mapping[str, Any]) -> None:
    """The expected finding comes first, says what it must, and no other speaks but those named in `also`."""
    rules = [finding.rule for finding in found]
    assert rules[:1] == [expected["rule"]]
    assert set(rules[1:]) == set(expected.get("also", ()))
    first = found[0]
    assert first.verdict == expected["verdict"]
    for word in expected.get("must_say", ()):
        assert word in spoken(first)
    for word in expected.get("must_not_say", ()):
        assert all(word.lower() not in spoken(finding).lower() for finding in found)
    for name, value in expected.get("values", {}).items():
        assert first.values[name] == value, name
    for name, rule in expected.get("models", {}).items():
        of_file = [finding.rule for finding in found if finding.values.get("file") == name]
        assert of_file == ([] if rule == "accept" else [rule])


@pytest.mark.parametrize("expect", CASES, ids=lambda path: path.parent.name)
def test_a_reported_failure_gets_the_right_answer(expect: Path, tmp_path: Path) -> None:
    for file in expect.parent.iterdir():
        if file != expect:
            shutil.copyfile(file, tmp_path / file.name)
    check(diagnose(read_evidence(tmp_path)), yaml.safe_load(expect.read_text()))


@pytest.mark.parametrize("case", VARIED, ids=lambda case: case["case"])
def test_a_rule_is_not_fitted_to_one_text(case: dict[str, Any], tmp_path: Path) -> None:
    for name, text in case["files"].items():
        (tmp_path / name).write_bytes(text.encode())
    found = diagnose(read_evidence(tmp_path))
    if "never" in case:
        assert case["never"] not in [finding.rule for finding in found]
    elif "healthy" in case:
        assert found == ()
    else:
        check(found, case)


def test_the_answer_does_not_hang_on_file_names(tmp_path: Path) -> None:
    """Files under other names, kinds kept, get the same findings: nothing is known by a case's id or a file's stem."""
    for expect in CASES:
        plain, renamed = tmp_path / expect.parent.name / "plain", tmp_path / expect.parent.name / "renamed"
        plain.mkdir(parents=True)
        renamed.mkdir()
        for number, file in enumerate(sorted(expect.parent.iterdir())):
            if file != expect:
                shutil.copyfile(file, plain / file.name)
                shutil.copyfile(file, renamed / f"x{number}{file.suffix}")
        before, after = (diagnose(read_evidence(folder)) for folder in (plain, renamed))
        assert [finding.rule for finding in before] == [finding.rule for finding in after]


def test_every_rule_has_a_case_of_its_own_and_one_in_which_it_keeps_still() -> None:
    reported = {yaml.safe_load(expect.read_text())["rule"] for expect in CASES}
    varied = {case["rule"] for case in VARIED if "rule" in case}
    assert varied >= ALL_RULES, "a rule without a varied input"
    assert {rule for rule in reported if not rule.startswith("gguf.")} <= varied
    still = {case["never"] for case in VARIED if "never" in case}
    assert still >= {name for name, _ in RULES}, "a rule without a near miss"
    assert any("healthy" in case and case["files"] for case in VARIED)


def test_there_are_as_many_cases_as_were_copied() -> None:
    assert len(CASES) == 84
