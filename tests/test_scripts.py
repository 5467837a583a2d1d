"""What scripts/try and scripts/test say on a machine that lacks something: one clear line and what to type."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
BASICS = ("sh", "dirname", "cksum", "tr", "rm", "touch")

# JetPack 5's Python answers like this; a real one is not on every machine.
OLD_PYTHON = '#!/bin/sh\ncase "$2" in *version_info*) exit 1;; *) echo 3.8.10;; esac\n'
BARE_PYTHON = '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; *print*) echo 3.12;; esac\n'


def run(script: str, tmp_path: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    """A script with nothing on its PATH but the basics and these programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in BASICS:
        (folder / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    for name, text in programs.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    environ = {"PATH": str(folder), "HOME": str(tmp_path), "ORIN_TRY_VENV": str(tmp_path / "venv")}
    return subprocess.run(
        (f"{folder}/sh", str(PROJECT / "scripts" / script)), env=environ, capture_output=True, text=True
    )


@pytest.mark.parametrize("script", ["try", "test"])
@pytest.mark.parametrize(
    ("programs", "what", "hint"),
    [
        ({}, "no C++ compiler", "sudo apt install g++"),
        ({"g++": "#!/bin/sh\n"}, "Python 3 is not on this machine", "sudo apt install python3"),
        ({"g++": "#!/bin/sh\n", "python3": OLD_PYTHON}, "Python 3.8.10 is too old", "uv python install"),
        ({"g++": "#!/bin/sh\n", "python3": BARE_PYTHON}, "no venv module", "sudo apt install python3.12-venv"),
    ],
    ids=["no compiler", "no Python", "JetPack 5", "no venv"],
)
def test_what_is_missing_is_named(tmp_path: Path, script: str, programs: dict[str, str], what: str, hint: str) -> None:
    done = run(script, tmp_path, **programs)
    assert done.returncode == 1
    assert done.stderr.count("error:") == 1
    assert what in done.stderr
    assert hint in done.stderr
    assert not (tmp_path / "venv").exists()


def test_a_newer_python_beside_the_old_one_is_taken(tmp_path: Path) -> None:
    newer = '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; *print*) echo 3.11;; esac\n'
    done = run("try", tmp_path, **{"g++": "#!/bin/sh\n", "python3": OLD_PYTHON, "python3.11": newer})
    assert "python3.11-venv" in done.stderr
    assert os.access(PROJECT / ".ci/run", os.X_OK)
