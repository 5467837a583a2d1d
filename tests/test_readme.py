"""The README claims what is so: its plan is what `plan` prints, its files and verbs exist, its profile is valid."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from orin_deploy.intent import profile

PROJECT = Path(__file__).parents[1]
README = (PROJECT / "README.md").read_text()


def test_the_transcript_is_what_plan_prints() -> None:
    words = (sys.executable, "scripts/readme-plan", "--check")
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_table_of_boards_is_what_the_profiles_say() -> None:
    words = (sys.executable, "scripts/board-table", "--check")
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(set(re.findall(r"(?:scripts|docs|profiles|ansible)/[a-z0-9_.-]+", README))))
def test_files_it_names_exist(name: str) -> None:
    assert (PROJECT / name).exists()


def test_verbs_it_shows_exist() -> None:
    verbs = set(re.findall(r"^    orin-deploy ([a-z]+)", README, re.MULTILINE))
    usage = subprocess.run((sys.executable, "-m", "orin_deploy", "--help"), capture_output=True, text=True).stdout
    assert verbs == set(re.findall(r"^  ([a-z]+)  ", usage, re.MULTILINE))


def test_its_profile_is_valid(tmp_path: Path) -> None:
    text = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert text is not None
    path = tmp_path / "gateway.yaml"
    path.write_text(text[1])
    assert profile.check(path) == []
