"""References: every form, what is refused, and that a reference written reads the same."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.errors import UsageError
from orin_deploy.intent.reference import Reference, parse

word = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,12}", fullmatch=True)
file = st.lists(
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._ -]{0,10}[A-Za-z0-9]", fullmatch=True), min_size=1, max_size=3
).map("/".join)
references = st.one_of(
    st.builds(Reference, st.just("hf"), owner=word, repo=word, file=st.none() | file),
    st.builds(Reference, st.just("hf"), owner=word, repo=word, quant=word),
    st.builds(Reference, st.just("modelscope"), owner=word, repo=word, file=file),
    st.builds(Reference, st.just("package"), package=word, version=st.none() | st.just("0.1.2"), file=st.none() | file),
    st.builds(Reference, st.just("file"), path=file.map("/{}".format)),
    st.builds(Reference, st.just("https"), url=word.map("https://host.example:8443/a%20b/{}.gguf?token=1".format)),
)


@given(references)
def test_what_is_written_reads_the_same(reference: Reference) -> None:
    assert parse(str(reference)) == reference


@given(
    st.text() | st.text().map("hf:{}".format) | st.text().map("package:{}".format) | st.text().map("https://{}".format)
)
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    with suppress(UsageError):
        reference = parse(text)
        assert parse(str(reference)) == reference
        name = reference.filename
        assert name is None or ("/" not in name and name not in (".", ".."))
        assert ".." not in (reference.file or "").split("/")


@pytest.mark.parametrize(
    ("text", "reference", "filename"),
    [
        ("hf:a/b", Reference("hf", owner="a", repo="b"), None),
        ("hf:a/b:Q4_K_M", Reference("hf", owner="a", repo="b", quant="Q4_K_M"), None),
        ("hf:a/b/sub/c.gguf", Reference("hf", owner="a", repo="b", file="sub/c.gguf"), "c.gguf"),
        ("modelscope:A/b/c.gguf", Reference("modelscope", owner="A", repo="b", file="c.gguf"), "c.gguf"),
        ("https://x.example/c%20d.gguf", Reference("https", url="https://x.example/c%20d.gguf"), "c d.gguf"),
        ("http://127.0.0.1:99/", Reference("http", url="http://127.0.0.1:99/"), None),
        ("file:/m/c.gguf", Reference("file", path="/m/c.gguf"), "c.gguf"),
        ("file:///m/c.gguf", Reference("file", path="/m/c.gguf"), "c.gguf"),
        ("/m/blob", Reference("file", path="/m/blob"), "blob"),
        ("./m", Reference("file", path="./m"), "m"),
        ("m.gguf", Reference("file", path="m.gguf"), "m.gguf"),
        ("models/m.gguf", Reference("file", path="models/m.gguf"), "m.gguf"),
        ("package:p", Reference("package", package="p"), None),
        ("package:p==1.0/f.gguf", Reference("package", package="p", version="1.0", file="f.gguf"), "f.gguf"),
    ],
)
def test_every_form(text: str, reference: Reference, filename: str | None) -> None:
    assert parse(text) == reference
    assert parse(text).filename == filename


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("smollm", "smollm2-135m"),
        ("minicpm", "minicpm5-2b"),
        ("", "hf:owner/repo"),
        ("hf:a", "hf:owner/repo"),
        ("hf:a/b/../c", "hf:owner/repo"),
        ("hf:a/b:Q4/c", "hf:owner/repo"),
        ("modelscope:a/b", "modelscope:owner/repo/file"),
        ("package:", "package:NAME"),
        ("package:a/../../b", "package:NAME"),
        ("https://", "https://host"),
        ("https://me:secret@host/a.gguf", "leave them out"),
        ("file:", "file:/path"),
        ("openbmb/MiniCPM5-2B-GGUF", "hf:openbmb/MiniCPM5-2B-GGUF"),
        ("s3://bucket/a.gguf", "hf:owner/repo"),
        ("/m/a\nb.gguf", "hf:owner/repo"),
    ],
)
def test_what_is_no_reference_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text, ("minicpm5-2b", "smollm2-135m"))
    assert says in (caught.value.hint or "")
    assert "secret" not in caught.value.message
