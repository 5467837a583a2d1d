"""Finding the model: a header that stays the same is read once, and one that changed is read again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orin_deploy.deploy.lookup import Found, find_model
from orin_deploy.errors import OrinError
from orin_deploy.host import Host
from tests.ggufs import Shape


@pytest.fixture
def found(tmp_path: Path) -> Callable[[Path], Found]:
    host = Host(environ={"ORIN_DEPLOY_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)})
    return lambda path: find_model(host, str(path), (), None, lambda fraction, text: None)


def test_a_header_is_read_once(tmp_path: Path, found: Callable[[Path], Found]) -> None:
    path = Shape().write(tmp_path / "m.gguf")
    first = found(path)
    assert found(path).headers[0] is first.headers[0]


def test_a_file_that_changed_is_read_again(tmp_path: Path, found: Callable[[Path], Found]) -> None:
    path = Shape(n_layer=2).write(tmp_path / "m.gguf")
    before = found(path)
    Shape(n_layer=3).write(path)
    assert (len(before.model.layers), len(found(path).model.layers)) == (2, 3)


def test_another_file_in_its_place_is_read_though_it_is_as_large_and_as_old(
    tmp_path: Path, found: Callable[[Path], Found]
) -> None:
    path, other = tmp_path / "m.gguf", tmp_path / "other.gguf"
    raw = Shape().write(path).read_bytes()
    other.write_bytes(b"GGML" + raw[4:])
    status = path.stat()
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    found(path)
    other.rename(path)
    with pytest.raises(OrinError):
        found(path)


def test_a_file_that_is_gone_is_missed(tmp_path: Path, found: Callable[[Path], Found]) -> None:
    path = Shape().write(tmp_path / "m.gguf")
    found(path)
    path.unlink()
    with pytest.raises(OrinError, match="there is no file"):
        found(path)
