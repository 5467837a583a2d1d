"""The package as people get it: it resolves on JetPack's Pythons from wheels, and the wheel carries the profiles."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]


def pip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "pip", "--disable-pip-version-check", *words),
        capture_output=True,
        text=True,
        cwd=PROJECT,
    )


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    done = pip("wheel", "--no-deps", "--quiet", "-w", str(folder), ".")
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.mark.network
@pytest.mark.parametrize("version", ["3.10", "3.12"], ids=["JetPack 6", "JetPack 7"])
def test_dependencies_resolve_on_a_jetson_from_wheels_alone(wheel: Path, version: str, tmp_path: Path) -> None:
    abis = (f"cp{version.replace('.', '')}", "abi3", "none")
    platforms = ("manylinux_2_17_aarch64", "manylinux2014_aarch64", "manylinux_2_28_aarch64")
    done = pip(
        "install", "--dry-run", "--ignore-installed", "--quiet", "--only-binary=:all:",
        "--python-version", version, "--implementation", "cp", "--target", str(tmp_path / "none"),
        *(word for abi in abis for word in ("--abi", abi)),
        *(word for platform in platforms for word in ("--platform", platform)),
        "--report", str(tmp_path / "report.json"), str(wheel),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    names = {item["metadata"]["name"].lower() for item in json.loads((tmp_path / "report.json").read_text())["install"]}
    assert {"orin-deploy", "typer", "psutil", "plumbum", "huggingface-hub", "jsonschema"} <= {
        name.replace("_", "-") for name in names
    }


def test_the_wheel_carries_profiles_catalogue_schema_and_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for name in ("host.yaml", "agx32.yaml", "agx64.yaml", "schema.json", "models/minicpm5-2b.yaml"):
        assert f"orin_deploy/_profiles/{name}" in names
    assert "orin_deploy/py.typed" in names


@pytest.mark.network
def test_the_installed_wheel_plans_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    subprocess.run((sys.executable, "-m", "venv", str(tmp_path / "venv")), check=True)
    python = tmp_path / "venv/bin/python"
    subprocess.run(
        (str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", str(wheel)), check=True
    )
    done = subprocess.run(
        (str(tmp_path / "venv/bin/orin-deploy"), "plan", "--profile", "agx32", "--json"),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "ORIN_DEPLOY_HOME": str(tmp_path / "home")},
    )
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert "-DCMAKE_CUDA_ARCHITECTURES=87" in plan["spec"]["build"]["cmake"]
    assert not (tmp_path / "home").exists(), "plan must change nothing"
