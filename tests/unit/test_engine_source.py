"""Where llama.cpp comes from: the forms of build.source, and where each source lies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import UsageError
from orin_deploy.intent.source import DEFAULT, has_binding, parse_source, source_folder
from orin_deploy.intent.spec import Source

PINNED = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
SHA = "0c1e57098bba43ac29e6e3b677cdceebdd22334f"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (DEFAULT, Source("package", "llama-cpp-python", "0.3.36", PINNED, "0c1e570", 11312)),
        ("package:llama_cpp_python==0.3.35", Source("package", "llama-cpp-python", "0.3.35")),
        (
            "git:https://example.org/l.cpp@b11434",
            Source("git", "https://example.org/l.cpp", "b11434", build_number=11434),
        ),
        ("git:git@example.org:a/b.git@main", Source("git", "git@example.org:a/b.git", "main")),
        (f"git:/srv/l.cpp@{SHA}", Source("git", "/srv/l.cpp", SHA, commit="0c1e570")),
        ("file:/srv/llama.cpp/", Source("tree", "/srv/llama.cpp")),
        ("file:///srv/llama.cpp", Source("tree", "/srv/llama.cpp")),
        ("file:/srv/l.tar.gz", Source("archive", "/srv/l.tar.gz")),
        ("https://example.org/b1.tar.gz", Source("archive", "https://example.org/b1.tar.gz")),
    ],
)
def test_a_form_is_understood(text: str, source: Source) -> None:
    assert parse_source(text) == source


@pytest.mark.parametrize(
    "text",
    [
        "",
        "llama-cpp-python",
        "package:llama-cpp-python",
        "package:llama-cpp-python==",
        "package:numpy==2.0",
        "git:https://example.org/l.cpp",
        "git:git@example.org:a/b.git",
        "git:@b1",
        "git:--upload-pack=x@b1",
        "git:https://example.org/x@--detach",
        "git:https://example.org/x@a..b",
        "file:llama.cpp",
        "https://example.org/llama.cpp",
        "ftp://example.org/l.tar.gz",
    ],
)
def test_what_is_no_source_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_source(text)
    assert caught.value.hint


@given(st.text())
def test_any_text_is_a_source_or_a_usage_error(text: str) -> None:
    try:
        source = parse_source(text)
    except UsageError:
        return
    assert source_folder(source, "/engines").startswith("/")


def test_sources_that_differ_lie_apart() -> None:
    texts = [
        DEFAULT,
        "git:https://a/x@b1",
        "git:https://b/x@b1",
        "git:https://a/x@b2",
        "https://a/x.tar.gz",
        "file:/x.tar.gz",
    ]
    folders = [source_folder(parse_source(text), "/e") for text in texts]
    assert len(set(folders)) == len(folders)
    assert folders[0] == "/e/sources/llama.cpp-0c1e570"
    assert all(folder.rpartition("/")[0] == "/e/sources" for folder in folders)


def test_the_binding_fits_its_own_source_and_the_revisions_compared() -> None:
    assert has_binding(parse_source("package:llama-cpp-python==0.3.35"))
    assert has_binding(parse_source(f"git:/srv/l.cpp@{SHA}"))
    assert has_binding(parse_source("git:/srv/l.cpp@b11434"))
    assert not has_binding(parse_source("git:/srv/l.cpp@b9000"))
    assert not has_binding(parse_source("file:/srv/llama.cpp"))
