"""The bench's parts: arms, workloads, the order of turns, what rejects a sample, what may be compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.cli.bench import _instead, _kept, _model
from orin_deploy.cli.console import Console
from orin_deploy.cli.show_bench import show
from orin_deploy.deploy.draft import Situation
from orin_deploy.errors import UsageError
from orin_deploy.host import Host
from orin_deploy.intent import profile
from orin_deploy.intent.request import Request
from orin_deploy.observe.bench import arms, record, workload
from orin_deploy.observe.bench.agenda import Agenda, answer_tokens, cases, schedule, within_slots
from orin_deploy.observe.bench.arms import Arm
from orin_deploy.observe.bench.comparison import compare
from orin_deploy.observe.bench.conditions import COMPARED, comparable
from orin_deploy.observe.bench.intervals import FEWEST_TURNS, MOST_TURNS
from orin_deploy.observe.bench.outputs import first_difference
from orin_deploy.observe.bench.sample import GREEDY, LONG, OWN_SAMPLING, SHORT, Case, Counts, rejected
from orin_deploy.observe.bench.server import parse_counts
from orin_deploy.observe.bench.verification import Cost, lengths, pass_ms
from orin_deploy.observe.bench.watch import Busy, Moment, busy, others_cpus, slowed
from orin_deploy.observe.telemetry import Sample as Telemetry
from tests.specs import make_device
from tests.unit.bench_samples import answer, sample

CHAT = Case("chat", "en")
INSTALLED = profile.search_path(None, {}, site=Path("/nowhere"))
SHIPPED = workload.shipped(INSTALLED)


# Arms.


def test_arms_as_they_are_typed() -> None:
    found = arms.parse(["none,ngram-map-k4v", "long:spec_draft_n_max=8,spec_draft_p_min=0.5,draft"])
    assert found == (
        Arm("none", "none"),
        Arm("ngram-map-k4v", "ngram-map-k4v"),
        Arm("long", "deployed", (("spec_draft_n_max", "8"), ("spec_draft_p_min", "0.5"))),
        Arm("draft", "draft"),
    )
    assert arms.parse(["none,ngram-mod:spec_ngram_mod_n_max=32"])[1].name == "ngram-mod:spec_ngram_mod_n_max=32"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("none,ngram-map-k4w", "did you mean ngram-map-k4v?"),
        ("none,mtp", "did you mean draft-mtp?"),
        ("none", "at least two"),
        ("none,none", "twice"),
        ("none,long:spec_draft_n_mx=8", "spec_draft_n_max"),
        ("none,long:spec_draft_n_max=many", "spec_draft_n_max"),
        ("none,long:", "KEY=VALUE"),
        ("none,spec_draft_n_max=8", "is no arm"),
        ("", "at least two"),
    ],
)
def test_arms_that_are_misspelt(words: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        arms.parse([words])
    assert says in f"{caught.value.message} {caught.value.hint}"


def test_a_named_kind_outdoes_what_the_deployment_speculates_with() -> None:
    wish = Request(sets=(("spec_draft_model", "/d.gguf"), ("ctx_size", "4096")), draft="file:/d.gguf")
    assert arms.request(wish, Arm("none", "none")) == Request(sets=(("ctx_size", "4096"),), draft="none")
    assert arms.request(wish, Arm("ngram-mod", "ngram-mod")).draft == "ngram-mod"
    assert arms.request(wish, Arm("draft", "draft")) == wish
    assert arms.request(Request(draft="none"), Arm("draft", "draft")).draft == "optional"
    longer = arms.request(wish, Arm("long", "deployed", (("spec_draft_n_max", "8"),)))
    assert longer.sets == (*wish.sets, ("spec_draft_n_max", "8"))
    assert longer.draft == wish.draft


# Workloads.


def test_what_we_ship_covers_the_work_people_do_in_both_languages() -> None:
    assert {each.name for each in SHIPPED} == {"chat", "code", "copy", "json", "story", "summary"}
    assert all(each.languages == ("en", "zh") for each in SHIPPED)


@pytest.mark.parametrize("each", SHIPPED, ids=lambda each: each.name)
def test_no_prompt_comes_twice_in_a_run(each: workload.Workload) -> None:
    for language in each.languages:
        prompts = [each.prompt(language, number) for number in range(MOST_TURNS)]
        assert len(set(prompts)) == MOST_TURNS
        assert prompts == [each.prompt(language, number) for number in range(MOST_TURNS)]
        assert all("{" not in prompt.replace('{"', "") or each.name == "code" for prompt in prompts)


@pytest.mark.parametrize("each", SHIPPED, ids=lambda each: each.name)
def test_it_is_what_its_schema_says(each: workload.Workload) -> None:
    import jsonschema
    import yaml

    folder = INSTALLED[-1] / "workloads"
    schema = json.loads((folder / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    data = yaml.safe_load((folder / f"{each.name}.yaml").read_text())
    check = jsonschema.Draft202012Validator(schema)
    check.validate(data)
    for wrong in ({**data, "token": 9}, {**data, "tokens": "many"}, {**data, "en": {"prompt": "x", "a": "b"}}):
        assert not check.is_valid(wrong)


@given(st.integers(0, 30000))
def test_a_filler_is_as_long_as_wanted_and_never_repeats_a_line(characters: int) -> None:
    for language in ("en", "zh"):
        text = workload.filler(language, 0, characters)
        lines = text.splitlines()
        assert characters <= len(text) + 1 <= characters + 200 or characters == 0
        assert len(set(lines)) == len(lines)


@pytest.mark.parametrize(
    ("name", "text", "prompts"),
    [
        ("p.txt", "one\n\ntwo\n", ("one", "two")),
        ("p.jsonl", '{"prompt": "one"}\n"two"\n\n', ("one", "two")),
        ("p.yaml", "- one\n- |\n  two\n  lines\n", ("one", "two\nlines\n")),
    ],
)
def test_prompts_of_ones_own(name: str, text: str, prompts: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    own = workload.own(path)
    assert own.prompts == prompts
    assert own.prompt("own", len(prompts)) == prompts[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("p.txt", "\n \n"),
        ("p.jsonl", '{"text": "one"}'),
        ("p.jsonl", '{"prompt": 1}'),
        ("p.jsonl", "{"),
        ("p.yaml", "chat: one"),
        ("p.yaml", "- {a: b}"),
        ("p.yaml", "- [unclosed"),
        ("p.txt", b"\xff\xfe\x00"),
        ("absent.txt", None),
    ],
)
def test_prompts_that_are_none(name: str, text: str | bytes | None, tmp_path: Path) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError) as caught:
        workload.own(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_faulty_workload_names_its_fault(tmp_path: Path) -> None:
    folder = tmp_path / "workloads"
    folder.mkdir()
    (folder / "mine.yaml").write_text("description: x\ntokens: 9\nen:\n  prompt: '{word*3}'\n  word: [a, b]\n")
    with pytest.raises(UsageError, match="word has 2 texts, the prompt wants 3"):
        workload.shipped((tmp_path,))
    with pytest.raises(UsageError) as caught:
        workload.choose(SHIPPED, ["chta"])
    assert "did you mean chat?" in (caught.value.hint or "")


# The agenda.


def test_the_whole_matrix() -> None:
    found = cases(SHIPPED, ("en", "zh"), (GREEDY, OWN_SAMPLING), (SHORT, LONG), (1, 2, 4))
    assert len(found) == len(set(found)) == 6 * 2 * 2 * 2 * 3


def test_more_clients_than_slots_are_left_out_and_said() -> None:
    wanted = Agenda(SHIPPED, cases(SHIPPED, clients=(1, 2, 4)), 60)
    left, notes = within_slots(wanted, 2)
    assert {case.clients for case in left.cases} == {1, 2}
    assert "--set parallel=4" in notes[0]
    with pytest.raises(UsageError, match="4 clients"):
        within_slots(Agenda(SHIPPED, cases(SHIPPED, clients=(4,)), 60), 2)


@given(st.integers(2, 5), st.booleans())
def test_every_arm_has_every_turn_and_stands_as_early_as_late(count: int, together: bool) -> None:
    names = tuple("abcde"[:count])
    order = list(schedule(names, lambda: ["x", "y"], together))
    assert sorted(order) == sorted((arm, case, turn) for arm in names for case in "xy" for turn in range(MOST_TURNS))
    places = {arm: [at for at, each in enumerate(order) if each[0] == arm] for arm in names}
    means = {round(sum(at) / len(at), 6) for at in places.values()}
    assert len(means) == 1  # a steady drift costs every arm the same
    changes = sum(one[0] != other[0] for one, other in pairwise(order))
    assert together or changes == (count - 1) * MOST_TURNS // 2  # each a start of a server


def test_the_order_ends_with_the_last_open_case() -> None:
    left = [["x", "y"], ["y"], []]
    assert list(schedule(("a", "b"), lambda: left.pop(0), True)) == [
        ("a", "x", 0), ("b", "x", 0), ("a", "y", 0), ("b", "y", 0), ("b", "y", 1), ("a", "y", 1),
    ]  # fmt: skip


@given(st.floats(1, 3000), st.floats(0.5, 500), st.integers(1, 4), st.floats(0, 20))
def test_answers_are_as_long_as_the_time_allows(left_s: float, speed: float, count: int, prompt_s: float) -> None:
    wanted = Agenda(SHIPPED, cases(SHIPPED), left_s)
    found = answer_tokens(wanted, count, left_s, dict.fromkeys(wanted.cases, prompt_s), speed)
    needed = count * FEWEST_TURNS * (sum(found.values()) / speed + prompt_s * len(found))
    assert all(48 <= tokens <= wanted.workload(case).tokens for case, tokens in found.items())
    assert needed <= left_s or all(tokens == 48 for tokens in found.values())


# Samples.


def test_what_rejects_a_sample() -> None:
    samples = [sample("a", CHAT, turn, 50.0, others_cpus=1.0) for turn in range(5)]
    samples.append(sample("a", CHAT, 5, 50.0, others_cpus=1.9))
    samples.append(sample("a", CHAT, 6, 50.0, slowed=("cpu-throttle",)))
    samples.append(sample("a", CHAT, 7, 50.0, pieces=("a", "b")))
    found = rejected(samples, cpus=2)
    assert list(found) == [5, 6, 7]
    assert "other programs" in found[5]
    assert "cpu-throttle" in found[6]
    assert "too short" in found[7]


def test_a_throttled_sample_moves_no_figure() -> None:
    good = [sample(arm, CHAT, turn, 50.0) for turn in range(6) for arm in "ab"]
    bad = [sample("b", CHAT, 6, 5.0, slowed=("over-current oc1",)), sample("a", CHAT, 6, 50.0)]
    found = compare([*good, *bad], ("a", "b"), {CHAT: 1.0}, cpus=2)
    assert found.ratios[CHAT, "b"].turns == 6
    assert found.ratios[CHAT, "b"].verdict == "no difference"
    assert found.scores[CHAT, "b"].rejected == 1


def test_what_an_arm_did_is_told_in_the_terms_of_speculation() -> None:
    counts = Counts(drafts=20, by_position=(16, 8, 4))
    samples = [sample("a", CHAT, turn, 64.0, drafted=60, accepted=28, counts=counts) for turn in range(4)]
    score = compare(samples, ("a",), {CHAT: 1.0}, cpus=2).scores[CHAT, "a"]
    assert score.acceptance == pytest.approx(28 / 60)
    assert score.accepted_length == pytest.approx(1 + 28 / 20)
    assert score.by_position == pytest.approx((0.8, 0.4, 0.2))
    assert score.speed is not None
    assert score.speed.value == pytest.approx(64.0)
    assert score.gap_p50_s == pytest.approx(1 / 64)


def test_two_clients_count_together() -> None:
    both = sample("a", Case("chat", "en", clients=2), 0, 50.0)
    assert both.speed == pytest.approx(100.0)


def test_what_slowed_the_machine_down() -> None:
    def at(time: float, events: int, by: tuple[str, ...] = ()) -> Moment:
        return Moment(time, Telemetry(time, "test", over_current={"oc1": events}, throttled_by=by))

    moments = [at(0, 3), at(1, 3), at(2, 4), at(3, 4, ("cpu",)), at(4, 4)]
    assert slowed(moments, 0.2, 0.8) == ()
    assert slowed(moments, 0.5, 1.5) == ("over-current oc1",)
    assert slowed(moments, 2.2, 2.8) == ("cpu",)
    assert slowed([], 0, 1) == ()


def test_what_others_computed() -> None:
    tick = os.sysconf("SC_CLK_TCK")

    def at(time: float, total: int, own: int) -> Busy | None:
        stat = f"cpu  {total * tick} 0 0 77 88 0 0 0 5 5\ncpu0 1 2 3\n"
        return busy(time, stat, [f"9 (a b) c) S 1 {'0 ' * 9}{own * tick} 0 0", None])

    assert others_cpus(at(0, 10, 4), at(10, 25, 14)) == pytest.approx(0.5)
    assert others_cpus(at(0, 10, 4), at(10, 12, 14)) == 0.0
    assert others_cpus(at(5, 1, 1), at(5, 1, 1)) is None
    assert busy(0, None, []) is None


# Outputs.


def test_the_first_token_that_differs_is_reported() -> None:
    samples = [
        sample("none", CHAT, 0, 50.0, pieces=(*"the cat", " sat", "!")),
        sample("ngram", CHAT, 0, 50.0, pieces=(*"the cat", " lay", "!")),
        sample("none", CHAT, 1, 50.0, pieces=tuple("abcdefghij")),
        sample("ngram", CHAT, 1, 50.0, pieces=tuple("abcdefghij")),
        sample("none", Case("chat", "en", sampling="own"), 0, 50.0, pieces=tuple("abcdefghij")),
        sample("ngram", Case("chat", "en", sampling="own"), 0, 50.0, pieces=tuple("kbcdefghij")),
    ]
    found = compare(samples, ("none", "ngram"), {CHAT: 1.0}, cpus=2)
    assert found.compared_outputs == 2
    (difference,) = found.outputs
    assert (difference.arm, difference.turn, difference.token) == ("ngram", 0, 7)
    assert (difference.expected, difference.found) == (" sat!", " lay!")


@given(st.text("ab", max_size=6), st.text("ab", max_size=6))
def test_first_difference(one: str, other: str) -> None:
    at = first_difference(one, other)
    assert (at is None) == (one == other)
    if at is not None:
        assert one[:at] == other[:at]
        assert one[at : at + 1] != other[at : at + 1]


# Records.

ALIKE = {key: f"a {key}" for key, _ in COMPARED}


def test_a_record_can_be_compared_with_one_of_its_kind() -> None:
    assert comparable({"conditions": ALIKE}, {"conditions": dict(ALIKE), "record": 2}) == ()


@pytest.mark.parametrize(("key", "name"), COMPARED)
def test_each_condition_that_is_unlike_forbids_it(key: str, name: str) -> None:
    assert comparable({"conditions": ALIKE}, {"conditions": {**ALIKE, key: "another"}})[0].startswith(f"{name}: ")
    assert comparable(ALIKE, {**ALIKE, key: None}) == (f"{name}: a {key} and unknown",)


def test_a_record_is_json_without_infinity_and_is_kept_under_its_number(tmp_path: Path) -> None:
    host = Host(environ={"ORIN_DEPLOY_HOME": str(tmp_path)})
    found = compare([sample(arm, CHAT, 0, 50.0) for arm in "ab"], ("a", "b"), {CHAT: 1.0}, cpus=2)
    document = record.document(host, "host", "orin-deploy bench", Agenda(SHIPPED, (CHAT,), 60), found)
    for number in (1, 2):
        kept = record.keep(host, document)
        assert kept["record"] == number
        json.dumps(kept, allow_nan=False)
        assert record.read(host, number) == json.loads(json.dumps(kept))
    assert record.numbers(host) == (1, 2)
    assert record.read(host, 3) is None
    assert document["cases"][0]["arms"]["b"]["ratio"]["verdict"] == "unknown"


def test_a_full_disk_does_not_take_the_figures_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bench").touch()  # nothing can be written there
    host, agenda = Host(environ={"ORIN_DEPLOY_HOME": str(tmp_path)}), Agenda(SHIPPED, (CHAT,), 60)
    found = compare([sample(arm, CHAT, 0, 50.0) for arm in "ab"], ("a", "b"), {CHAT: 1.0}, cpus=2)
    with pytest.raises(OSError, match="bench"):
        _kept(host, record.document(host, "host", "orin-deploy bench", agenda, found), found, agenda, Console(False))
    assert "50.0" in (said := capsys.readouterr().out)
    assert "no record, measured in" in said


def test_the_models_own_sampling_is_that_of_the_model_that_is_set() -> None:
    chosen = profile.load("host", INSTALLED)
    now = Situation("host", make_device(), chosen, INSTALLED, 0)
    assert _model(Request(), now) == chosen.model
    assert _model(Request(sets=(("model", "hf:some/other"),)), now) == "hf:some/other"
    assert _model(Request(model="hf:typed", sets=(("model", "hf:some/other"),)), now) == "hf:typed"


# What verifying costs.


def test_metrics_by_position() -> None:
    text = (
        "llamacpp:spec_decode_num_drafts_total 12\n"
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 9\n'
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 4\n'
    )
    now = parse_counts(text)
    assert now == Counts(12, (9, 4))
    assert now.since(Counts(10, (8,))) == Counts(2, (1, 4))
    assert parse_counts("nothing") == Counts()


@given(st.floats(5, 50), st.integers(1, 16), st.floats(1.0, 4.0), st.integers(1, 8))
def test_the_cost_of_a_pass_is_found_again(plain_ms: float, k: int, factor: float, passes: int) -> None:
    alone, cost = 3, plain_ms * factor
    tokens = passes * (k + 1) + alone
    one = answer(["a"] * tokens, (passes * cost + alone * plain_ms) / 1000, k * passes, k * passes)
    assert pass_ms(one, k, plain_ms) == pytest.approx(cost)


@given(st.dictionaries(st.integers(1, 16), st.floats(1, 100), min_size=1), st.floats(1, 100))
def test_the_cost_never_falls_with_more_tokens(measured: dict[int, float], plain: float) -> None:
    cost = Cost({0: plain, **measured})
    values = [cost(k) for k in range(20)]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(values))
    assert min(cost.measured.values()) - 1e-9 <= values[0]


@pytest.mark.parametrize("longest", [1, 2, 7, 16])
def test_every_stop_leaves_a_curve_that_reaches_to_the_end(longest: int) -> None:
    order = lengths(longest)
    assert order[:2] == (0, longest)
    assert len(set(order)) == len(order)
    assert set(order) >= set(range(min(longest, 8) + 1))


# The verb, without a server.


def bench(home: Path, *words: str) -> tuple[int, dict[str, str]]:
    done = subprocess.run(
        (sys.executable, "-m", "orin_deploy", "bench", "--json", *words),
        env={**os.environ, "ORIN_DEPLOY_HOME": str(home)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    error: dict[str, str] = json.loads(done.stdout)["error"]
    return done.returncode, error


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 2, "nothing was ever deployed"),
        (("--name", "other"), 2, "there is no deployment named other"),
        (("--compare", "none,ngram-mad"), 2, "ngram-mad"),
        (("--set", "ctx_size=512"), 2, "--compare"),
        (("--compare", "none,ngram-mod", "--profile", "host", "--workload", "chat,poem"), 2, "poem"),
        (("--compare", "none,ngram-mod", "--profile", "host", "--prompts", "/absent"), 2, "/absent"),
        (("--compare", "none,ngram-mod", "--profile", "host", "--clients", "0"), 2, "--clients"),
        (("--compare", "none,ngram-mod", "--profile", "host", "--language", "fr"), 2, "--language"),
        (("--compare", "none,ngram-mod", "--profile", "host"), 1, "not done yet"),
    ],
)
def test_an_error_is_one_sentence_and_a_way_on(words: tuple[str, ...], code: int, says: str, tmp_path: Path) -> None:
    returned, error = bench(tmp_path, *words)
    assert returned == code
    assert says in f"{error['message']} {error['hint']}"
    assert error["hint"]
    assert not (tmp_path / "bench").exists()


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("bench --compare none,draft", "orin-deploy bench --compare none,ngram-map-k4v"),
        (
            "bench --workload chat --compare=none,draft --json",
            "orin-deploy bench --workload chat --compare none,ngram-map-k4v",
        ),
    ],
)
def test_without_a_draft_the_hint_is_a_comparison_that_needs_none(
    typed: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["orin-deploy", *typed.split()])
    found = compare([], ("none",), {CHAT: 1.0}, cpus=2, left_out={"draft": "there is no draft for this model"})
    hint = _instead(arms.parse(["none,draft"]), found, "draft")
    assert hint.partition(";")[0] == wanted
    assert "--draft hf:OWNER/REPO" in hint
    assert "scripts/make-draft" in hint
    other = compare([], ("none",), {CHAT: 1.0}, cpus=2, left_out={"ngram-map-k4v": "it crashed"})
    assert "--compare" not in _instead(arms.parse(["none,ngram-map-k4v"]), other, "ngram-map-k4v")


def test_the_tables_say_in_words_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    found = compare([sample(arm, CHAT, 0, 50.0) for arm in "ab"], ("a", "b"), {CHAT: 1.0}, cpus=2)
    show(found, Agenda(SHIPPED, (CHAT,), 60), 1, Console(False))
    said = capsys.readouterr().out
    assert "(1.00x, too few turns)" in said
    assert "±?" not in said
    assert " ?" not in said
