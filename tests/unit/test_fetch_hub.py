"""The model hub, through the real huggingface_hub client against a local server that plays the hub."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.actions import Fetch
from orin_deploy.errors import Exit, OrinError, UsageError
from orin_deploy.host import fetch as fetching
from orin_deploy.host.fetch_hub import choose, split_set
from tests.faulty_server import COMMIT, Answer, Drop, FaultyServer, QuickHost

DATA = b"GGUF" + random.Random(3).randbytes(300_000)
REPO = "owner/Model-GGUF"
CHUNK = 64 * 1024


@pytest.fixture
def hub() -> Iterator[FaultyServer]:
    with FaultyServer() as running:
        yield running


@pytest.fixture
def host(tmp_path: Path, hub: FaultyServer) -> QuickHost:
    return QuickHost(tmp_path / "home", HF_ENDPOINT=hub.url)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "models" / "m.gguf"


def test_a_file_comes_from_the_commit_with_the_hub_s_hash(hub: FaultyServer, host: QuickHost, target: Path) -> None:
    hub.serve_repo(REPO, {"m.gguf": DATA, "README.md": b"hello"})
    host.do(Fetch(f"hf:{REPO}/m.gguf", str(target)))
    assert target.read_bytes() == DATA
    assert hub.seen[-1].path == f"/{REPO}/resolve/{COMMIT}/m.gguf"


def test_what_is_not_the_hub_s_hash_is_not_kept(hub: FaultyServer, host: QuickHost, target: Path) -> None:
    hub.serve_repo(REPO, {"m.gguf": DATA})
    hub.files[f"/{REPO}/resolve/{COMMIT}/m.gguf"].data = DATA[:-1] + b"!"
    with pytest.raises(OrinError, match="SHA-256"):
        host.do(Fetch(f"hf:{REPO}/m.gguf", str(target)))
    assert not target.exists()


def test_a_file_that_is_no_longer_the_one_planned_is_refused_before_it_is_fetched(
    hub: FaultyServer, host: QuickHost, target: Path
) -> None:
    hub.serve_repo(REPO, {"m.gguf": DATA})
    with pytest.raises(OrinError, match="another file now"):
        host.do(Fetch(f"hf:{REPO}/m.gguf", str(target), len(DATA), "0" * 64))
    assert not hub.got(f"/{REPO}/resolve/{COMMIT}/m.gguf")


def test_a_later_run_goes_on_even_at_another_mirror(
    hub: FaultyServer, host: QuickHost, target: Path, tmp_path: Path
) -> None:
    hub.serve_repo(REPO, {"m.gguf": DATA})
    hub.files[f"/{REPO}/resolve/{COMMIT}/m.gguf"].faults = deque([Drop(2 * CHUNK)])
    hub.files[f"/{REPO}/resolve/{COMMIT}/m.gguf"].always = Answer(503)
    with pytest.raises(OrinError, match="HTTP 503"):
        host.do(Fetch(f"hf:{REPO}/m.gguf", str(target)))
    with FaultyServer() as mirror:
        mirror.serve_repo(REPO, {"m.gguf": DATA})
        QuickHost(tmp_path / "home", HF_ENDPOINT=mirror.url).do(Fetch(f"hf:{REPO}/m.gguf", str(target)))
        assert mirror.seen[-1].sent == len(DATA) - 2 * CHUNK
    assert target.read_bytes() == DATA


def test_the_token_goes_to_the_hub_and_not_to_where_it_redirects(
    hub: FaultyServer, tmp_path: Path, target: Path
) -> None:
    host = QuickHost(tmp_path / "home", HF_ENDPOINT=hub.url, HF_TOKEN="hf_secret")
    with FaultyServer() as cdn:
        hub.serve_repo(REPO, {"m.gguf": DATA}, cdn=cdn, token="hf_secret")
        host.do(Fetch(f"hf:{REPO}/m.gguf", str(target)))
        assert target.read_bytes() == DATA
        assert {seen.headers.get("authorization") for seen in hub.seen} == {"Bearer hf_secret"}
        assert [seen.headers.get("authorization") for seen in cdn.seen] == [None]


def test_a_gated_model_names_its_page_and_the_token(hub: FaultyServer, host: QuickHost, target: Path) -> None:
    hub.serve_repo(REPO, {"m.gguf": DATA}, token="hf_other")
    with pytest.raises(OrinError, match="Access is restricted") as caught:
        host.do(Fetch(f"hf:{REPO}/m.gguf", str(target)))
    assert f"{hub.url}/{REPO}" in (caught.value.hint or "")
    assert "HF_TOKEN" in (caught.value.hint or "")


def test_no_such_repository_and_no_such_file_are_usage_errors(hub: FaultyServer, host: QuickHost, target: Path) -> None:
    with pytest.raises(UsageError, match="no model repository owner/absent"):
        host.do(Fetch("hf:owner/absent/m.gguf", str(target)))
    hub.serve_repo(REPO, {"m-Q8_0.gguf": DATA})
    with pytest.raises(UsageError, match=r"no file x\.gguf") as caught:
        fetching.locate(host, f"hf:{REPO}/x.gguf")
    assert f"hf:{REPO}/m-Q8_0.gguf" in (caught.value.hint or "")


def test_no_network_is_not_the_same_as_no_such_thing(tmp_path: Path) -> None:
    with FaultyServer() as gone:
        host = QuickHost(tmp_path / "home", HF_ENDPOINT=gone.url)
    with pytest.raises(OrinError, match="no network") as caught:
        fetching.locate(host, f"hf:{REPO}")
    assert caught.value.code == Exit.FAILED
    assert host.waits == [1, 2]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            Answer(200, (("Content-Type", "text/html"),), b"<html>please log in to the hotel"),
            "not answer like a model hub",
        ),
        (Answer(200, (("Content-Type", "application/json"),), b"[]"), "not answer like a model hub"),
        (Answer(418), "HTTP 418"),
    ],
)
def test_what_does_not_speak_as_the_hub_does_is_named(
    hub: FaultyServer, host: QuickHost, answer: Answer, said: str
) -> None:
    hub.api.append(answer)
    with pytest.raises(OrinError, match=said):
        fetching.locate(host, f"hf:{REPO}")


def test_a_busy_hub_is_asked_again(hub: FaultyServer, host: QuickHost) -> None:
    hub.serve_repo(REPO, {"m.gguf": DATA})
    hub.api += [Answer(503), Answer(429, (("Retry-After", "3"),))]
    (located,) = fetching.locate(host, f"hf:{REPO}")
    assert located == fetching.Located(f"hf:{REPO}/m.gguf", "m.gguf", len(DATA), hashlib.sha256(DATA).hexdigest())
    assert host.waits == [1, 3]


def test_a_split_model_is_located_whole_and_in_order(hub: FaultyServer, host: QuickHost) -> None:
    names = [f"Q8_0/big-Q8_0-0000{i}-of-00003.gguf" for i in (3, 1, 2)]
    hub.serve_repo(REPO, {**dict.fromkeys(names, DATA), "big-Q4_K_M.gguf": DATA, "mmproj-F16.gguf": DATA})
    for reference in (f"hf:{REPO}:q8_0", f"hf:{REPO}/{names[1]}"):
        found = fetching.locate(host, reference)
        assert [one.reference for one in found] == [f"hf:{REPO}/{name}" for name in sorted(names)]
    assert [one.filename for one in fetching.locate(host, f"hf:{REPO}")] == ["big-Q4_K_M.gguf"]


FILES = ("m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m.Q5_0.gguf", "m-BF16.gguf", "m-UD-Q6_K_XL.gguf", "mmproj-m-F16.gguf")


@pytest.mark.parametrize(
    ("quant", "chosen"),
    [
        (None, "m-Q4_K_M.gguf"),
        ("q4_k_m", "m-Q4_K_M.gguf"),
        ("Q4_K_S", "m-Q4_K_S.gguf"),
        ("q5_0", "m.Q5_0.gguf"),
        ("bf16", "m-BF16.gguf"),
        ("UD-Q6_K_XL", "m-UD-Q6_K_XL.gguf"),
    ],
)
def test_a_quantization_is_a_whole_word_of_the_name(quant: str | None, chosen: str) -> None:
    assert choose(REPO, FILES, quant) == (chosen,)


@pytest.mark.parametrize("quant", ["Q4_K", "F16", "Q6_K", "K_M.gguf", ".*"])
def test_part_of_a_quantization_s_name_is_not_it_and_the_choices_are_listed(quant: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose(REPO, FILES, quant)
    assert f"hf:{REPO}/m-Q4_K_S.gguf" in (caught.value.hint or "")
    assert "mmproj" not in (caught.value.hint or "")


def test_two_models_of_one_quantization_are_listed() -> None:
    with pytest.raises(UsageError, match="2 models of Q8_0") as caught:
        choose(REPO, ("a-Q8_0.gguf", "b-Q8_0.gguf", "c-Q4_0.gguf"), "Q8_0")
    assert "a-Q8_0" in (caught.value.hint or "")
    assert "c-Q4_0" not in (caught.value.hint or "")


def test_a_split_model_with_parts_missing_is_not_chosen() -> None:
    with pytest.raises(OrinError, match="lacks 1 of 2 parts: m-Q8_0-00002-of-00002"):
        choose(REPO, ("m-Q8_0-00001-of-00002.gguf",), "Q8_0")


def test_a_repository_without_gguf_files_says_where_to_look() -> None:
    with pytest.raises(UsageError, match="no GGUF model") as caught:
        choose("owner/Model", ("model.safetensors",), None)
    assert "owner/Model-GGUF" in (caught.value.hint or "")


@given(st.text(max_size=40), st.integers(1, 99999), st.integers(1, 99999))
def test_a_split_set_holds_the_name_it_was_asked_for(base: str, part: int, count: int) -> None:
    name = f"{base}-{part:05}-of-{count:05}.gguf"
    names = split_set(name)
    assert len(names) <= 1000
    assert len(set(names)) == len(names)
    if base and "\n" not in base and part <= count <= 999:
        assert names[part - 1] == name
