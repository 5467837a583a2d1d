"""Resolve: where every value comes from, what follows from what, and that equal questions get equal answers."""

from __future__ import annotations

import copy
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orin_deploy.errors import OrinError, UsageError
from orin_deploy.intent import options
from orin_deploy.intent.option_table import OWN, SERVER, Option
from orin_deploy.intent.profile import Profile
from orin_deploy.intent.resolve import deployment_name, layer
from orin_deploy.intent.spec import Spec, Value
from tests.planning import WORKSTATION, planned

SETTABLE = [row for row in (*SERVER, *OWN) if row.owned is None and row.kind != "map"]
_TEXTS = (
    "a",
    "b",
    "1",
    "2",
    "0-1",
    "2-3",
    "87",
    "72",
    "armv8.2-a",
    "armv9-a",
    "q8_0-q8_0",
    "f16-f16",
    "/x",
    "/y",
    "1,2",
    "CPU",
    "aarch64-linux-gnu",
    "x86_64-linux-gnu",
)


def examples(option: Option) -> list[str]:
    """A few texts that the option takes, for values that differ from one another and from its default."""
    numbers = [str(int(option.low or 0) + step) for step in (0, 1, 2)] + ["0.25", "0.5"]
    found: dict[Value, str] = {}
    for text in (*option.choices, "on", "off", *numbers, *_TEXTS):
        with suppress(UsageError):
            found.setdefault(options.parse(option, text), text)
    return [text for value, text in found.items() if value != option.default]


def profile(**values: Value) -> Profile:
    return Profile("p", Path("p.yaml"), None, None, "m", values, dict.fromkeys(values, "profile p"))


def test_there_is_an_example_for_every_option() -> None:
    assert [row.key for row in SETTABLE if not examples(row)] == []


@pytest.mark.parametrize("option", SETTABLE, ids=lambda row: row.key)
def test_set_beats_profile_beats_default_and_the_source_says_so(option: Option) -> None:
    texts = examples(option)
    first, last = texts[0], texts[-1]
    default = layer(profile(), ())[option.key]
    assert (default.value, default.source) == (option.default, "default")
    from_profile = layer(profile(**{option.key: options.parse(option, first)}), ())[option.key]
    assert (from_profile.value, from_profile.source) == (options.parse(option, first), "profile p")
    for name in options.names(option):
        chosen = layer(profile(**{option.key: options.parse(option, first)}), ((name, last),))[option.key]
        assert (chosen.value, chosen.source) == (options.parse(option, last), "--set")
    twice = layer(profile(), ((option.key, first), (option.key, last)))[option.key]
    assert twice.value == options.parse(option, last), "the last word counts"


@pytest.mark.parametrize("row", [row for row in SERVER if row.owned is not None], ids=lambda row: row.key)
def test_what_is_decided_here_cannot_be_set(row: Option) -> None:
    with pytest.raises(UsageError, match="cannot be set"):
        layer(profile(), ((row.key, "something else"),))


WORDS = st.lists(
    st.sampled_from(
        ["ctx_size=4096", "parallel=2", "cache_type_k=q8_0", "build.blas=on", "threads=3", "placement.cpus=2-5",
         "memory.limit_mib=6000", "service.manager=process", "build.cmake.GGML_LTO=on", "port=9000", "flash_attn=on"]
    ),
    max_size=5,
)  # fmt: skip


def answer(profile: str, words: list[str]) -> Spec | str:
    try:
        return planned(profile, *words, device=WORKSTATION if profile == "host" else None).spec
    except OrinError as error:
        return f"{error.message} {error.hint}"


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(["host", "agx32", "agx64"]), WORDS)
def test_equal_questions_get_equal_answers(profile: str, words: list[str]) -> None:
    machine = copy.deepcopy(WORKSTATION)
    first = answer(profile, words)
    assert answer(profile, words) == first
    assert machine == WORKSTATION
    if isinstance(first, Spec):
        assert answer(profile, list(dict.fromkeys(words))) == first, "said twice is said once"
        assert {key for key, source in first.sources.items() if source == "--set"} == {
            word.partition("=")[0] for word in words
        }


@settings(deadline=None, max_examples=40)
@given(WORDS)
def test_the_order_of_different_words_does_not_matter(words: list[str]) -> None:
    kinds = {word.partition("=")[0]: word for word in words}
    straight, back = answer("agx32", list(kinds.values())), answer("agx32", list(kinds.values())[::-1])
    # Further cmake variables are passed in the order given; there is one at most here.
    assert straight == back


def test_the_model_says_who_chose_it() -> None:
    assert planned("agx32").spec.sources["model"] == "profile agx32"
    assert planned("agx32", model="smollm2-135m").spec.sources["model"] == "--model"
    assert planned("agx32", "model=smollm2-135m").spec.sources["model"] == "--set"
    both = planned("agx32", "model=minicpm5-2b", model="smollm2-135m").spec
    assert (both.sources["model"], both.settings["alias"].value) == ("--model", "smollm2-135m")


def test_layers_go_to_the_gpu_where_there_is_one() -> None:
    board, host = planned("agx32").spec, planned("host", device=WORKSTATION).spec
    assert (board.settings["gpu_layers"].value, board.sources["gpu_layers"]) == ("all", "build.cuda")
    assert "gpu_layers" not in host.settings
    assert planned("agx32", "gpu_layers=10").spec.settings["gpu_layers"].value == 10
    assert "gpu_layers" not in planned("agx32", "build.cuda=off").spec.settings


def test_threads_follow_the_cpus_unless_they_are_set() -> None:
    spec = planned("agx32", "placement.cpus=2-5").spec
    assert (spec.settings["threads"].value, spec.sources["threads"]) == (4, "placement: placement.cpus (--set)")
    spec = planned("agx32", "placement.cpus=2-5", "threads=2").spec
    assert (spec.settings["threads"].value, spec.sources["threads"]) == (2, "--set")
    assert (spec.settings["threads_batch"].value, spec.placement.threads) == (2, 2)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1"])
def test_loopback_needs_no_key(host: str) -> None:
    assert planned("agx32", f"host={host}").spec.service.host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "board.local", "10.0.0.1"])
def test_any_other_address_needs_a_key(host: str) -> None:
    with pytest.raises(UsageError, match="so it needs an API key"):
        planned("agx32", f"host={host}")
    spec = planned("agx32", f"host={host}", "api_key_file=/etc/keys").spec
    assert spec.service.argv[spec.service.argv.index("--api-key-file") + 1] == "/etc/keys"


def test_the_service_follows_from_machine_and_model() -> None:
    board, host = planned("agx32").spec, planned("host", device=WORKSTATION).spec
    assert (board.service.manager, host.service.manager) == ("systemd", "process")
    assert board.service.user == "orin-deploy", "root's service does not run as root"
    assert planned("agx32", "service.user=nobody").spec.service.user == "nobody"
    assert board.service.start_timeout_s > host.service.start_timeout_s, "a larger file takes longer to read"
    assert planned("agx32", "service.start_timeout_s=7").spec.service.start_timeout_s == 7
    assert planned("agx32", name="chat").spec.service.unit == "orin-deploy-chat.service"
    assert planned("agx32", "alias=mine").spec.settings["alias"].value == "mine"


@pytest.mark.parametrize("name", ["a", "agx32", "A.b-c_9", "x" * 63])
def test_names_of_deployments(name: str) -> None:
    assert deployment_name(name) == name


@pytest.mark.parametrize("name", ["", ".", "-a", "a/b", "a b", "ä", "x" * 64, "a\n", "..", "a@b"])
def test_what_cannot_name_a_folder_and_a_unit(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a deployment"):
        deployment_name(name)
