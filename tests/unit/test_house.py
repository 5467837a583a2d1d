"""The house rules that a machine can check: which way imports point, where effects may be, who prints."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "orin_deploy"
ROOMS = ("cli", "doctor", "tune", "observe", "deploy", "parts", "intent", "facts", "host", "actions", "errors")
EFFECTS = {
    "subprocess",
    "plumbum",
    "socket",
    "urllib3",
    "requests",
    "httpx",
    "http",
    "urllib",
    "huggingface_hub",
    "psutil",
}
PURE_PARTS = {"urllib.parse", "http.client"}  # parsing an address is no effect; exceptions are caught by name
WRITES = {"write_text", "write_bytes", "mkdir", "unlink", "rename", "touch", "rmdir", "symlink_to", "chmod"}

MODULES = sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    here = room(path)
    if here not in ROOMS:
        return
    for name in imports(ast.parse(path.read_text())):
        parts = name.split(".")
        if parts[0] == "orin_deploy" and len(parts) > 1 and parts[1] in ROOMS:
            assert ROOMS.index(parts[1]) >= ROOMS.index(here), f"{here} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_effects_are_only_in_the_host(path: Path) -> None:
    if room(path) == "host":
        return
    tree = ast.parse(path.read_text())
    for name in imports(tree):
        if any(name == pure or name.startswith(pure + ".") for pure in PURE_PARTS):
            continue
        assert name.split(".")[0] not in EFFECTS or name in {"http", "urllib"}, f"{name} is an effect"
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Attribute):
            assert node.func.attr not in WRITES, f"line {node.lineno} writes"
        opens = isinstance(node.func, ast.Name) and node.func.id == "open"
        opens |= isinstance(node.func, ast.Attribute) and node.func.attr == "open"
        if opens:
            modes = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            assert not any(set(mode) & set("wax+") for mode in modes if len(mode) <= 3), (
                f"line {node.lineno} opens to write"
            )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_cli_prints_or_exits(path: Path) -> None:
    # The supervisor is a program of its own: it exits, but it does not print.
    if room(path) in ("cli", "__main__"):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"line {node.lineno} prints"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_modules_and_functions_stay_readable(path: Path) -> None:
    text = path.read_text()
    # A table of data is as long as what it lists.
    assert len(text.splitlines()) <= 300 or path.stem.endswith(("_table", "_types"))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{node.name} is too long"


def test_the_rules_can_fail() -> None:
    assert list(imports(ast.parse("import subprocess\nfrom orin_deploy.cli import up"))) == [
        "subprocess",
        "orin_deploy.cli",
        "orin_deploy.cli.up",
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_json_that_is_damaged_in_any_way_is_caught_in_every_way(path: Path) -> None:
    """Brackets alone are a RecursionError, which is no ValueError: where the one is caught, so is the other."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Try) or "json.loads" not in "".join(map(ast.unparse, node.body)):
            continue
        caught = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type is not None)
        assert "ValueError" not in caught or "RecursionError" in caught, f"{path.name}:{node.lineno}"
