"""draft=auto, decided: the verdict of a race, the draft's length, what is kept on disk and by what it is found."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orin_deploy.cli.console import Console
from orin_deploy.cli.show_plan import show_plan
from orin_deploy.deploy import decisions
from orin_deploy.deploy.decisions import Kept, Key
from orin_deploy.deploy.draft import draft, situation
from orin_deploy.deploy.plan import Plan
from orin_deploy.errors import OrinError, UsageError
from orin_deploy.facts.device import MIB
from orin_deploy.facts.draft import SIMPLE
from orin_deploy.host import Host
from orin_deploy.intent.measured import Candidate, Decision
from orin_deploy.intent.refusal import DoesNotFit
from orin_deploy.intent.request import Request
from orin_deploy.intent.resolve import layer
from orin_deploy.intent.spec import Setting, WeightFile, Weights
from orin_deploy.intent.speculation import Wish
from orin_deploy.observe.bench.comparison import Comparison, compare
from orin_deploy.observe.bench.sample import Case, Counts, Sample
from orin_deploy.tune.again import again, enough_bytes
from orin_deploy.tune.length import Drafts, drafts, numbers
from orin_deploy.tune.speculation import _with_time, check_workloads
from orin_deploy.tune.verdict import judge
from orin_deploy.tune.work import arm
from tests.planning import PROFILES, Untouched, planned
from tests.unit.bench_samples import sample

COPY, STORY = Case("copy", "en"), Case("story", "en")
NOISE = (1.0, 1.004, 0.997, 1.002)


def raced(
    speeds: Mapping[str, tuple[float, float]],
    *,
    noise: tuple[float, ...] = NOISE,
    weights: Mapping[Case, float] | None = None,
    left_out: Mapping[str, str] | None = None,
    **more: Any,
) -> Comparison:
    """A race of arms with speeds on copying and on a story; the noise differs from arm to arm."""
    samples = [
        sample(name, case, turn, speed * noise[(turn + at) % len(noise)], **more)
        for at, (name, both) in enumerate(speeds.items())
        for case, speed in zip((COPY, STORY), both, strict=True)
        for turn in range(len(noise))
    ]
    shares = weights or {COPY: 1.0, STORY: 1.0}
    return compare(samples, tuple(speeds), shares, cpus=4, left_out=left_out or {})


# The verdict.


def test_the_best_mean_wins_where_nothing_is_slower() -> None:
    verdict = judge(raced({"none": (50, 50), "a": (90, 50), "b": (70, 50)}))
    assert verdict.arm == "a"
    assert verdict.gain == pytest.approx((90 / 50) ** 0.5, rel=0.02)
    assert verdict.against == {"b": "a is faster"}
    assert verdict.why == f"{verdict.gain:.2f} times none"
    assert verdict.sure


def test_an_arm_that_loses_on_one_workload_is_out_however_much_it_wins_elsewhere() -> None:
    verdict = judge(raced({"none": (50, 50), "a": (150, 44), "b": (60, 50)}))
    assert verdict.arm == "b"
    assert verdict.against["a"].startswith("slower on story: 0.88 times none")
    alone = judge(raced({"none": (50, 50), "a": (150, 44)}))
    assert (alone.arm, alone.sure) == ("none", True)


def test_a_gain_that_is_none_is_none() -> None:
    verdict = judge(raced({"none": (50, 50), "a": (51, 50.5)}))
    assert (verdict.arm, verdict.sure) == ("none", True)
    assert verdict.why.startswith("a 1.0")
    slower = judge(raced({"none": (50, 50), "a": (46.5, 46.5)}))
    assert (slower.arm, slower.why) == ("none", "a 0.93 times none")


def test_the_mix_decides() -> None:
    speeds = {"none": (50.0, 50.0), "a": (80.0, 50.0), "b": (55.0, 65.0)}
    assert judge(raced(speeds, weights={COPY: 9.0, STORY: 1.0})).arm == "a"
    assert judge(raced(speeds, weights={COPY: 1.0, STORY: 9.0})).arm == "b"


def test_a_disturbed_machine_cannot_tell_and_serves_without() -> None:
    wild = judge(raced({"none": (50, 50), "a": (70, 60)}, noise=(1.0, 3.0, 0.4, 2.0)))
    assert (wild.arm, wild.sure) == ("none", False)
    assert wild.why.startswith("could not tell: a: ")
    throttled = judge(raced({"none": (50, 50), "a": (99, 99)}, slowed=("gpu",)))
    assert (throttled.arm, throttled.sure) == ("none", False)
    assert throttled.why == "could not tell: a: too few samples that count"


def test_why_it_could_not_tell_is_told_in_few_words() -> None:
    quiet, unsteady = {"cpus": [0, 1, 2, 3], "load_average": ["14.06", "9", "7"]}, (1.0, 3.0, 0.4, 2.0)
    speeds = {"none": (50.0, 50.0), "a": (70.0, 60.0)}
    loud = judge(replace(raced(speeds, noise=unsteady, others_cpus=2.0), conditions=quiet))
    assert (loud.short, loud.undecided) == ("could not tell, the machine was busy", True)
    assert loud.busy == "the machine was busy (load 14.06; other programs computed on 2.0 CPUs)"
    few = judge(replace(raced(speeds, noise=unsteady, others_cpus=0.1), conditions=quiet))
    assert (few.short, few.busy, few.undecided) == ("could not tell, too few turns", None, True)
    lacking = {"a": "not enough memory: 900 MiB needed, 800 MiB can be had"}
    small = judge(raced({"none": (50, 50)}, left_out=lacking))
    assert (small.short, small.undecided) == ("not enough memory to measure another way", False)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("orin-deploy up", "orin-deploy up --set speculation.measure_s=360"),
        (
            "orin-deploy up --set=speculation.measure_s=9 -s port=1 --model 'a b' --set speculation.measure_s=180",
            "orin-deploy up -s port=1 --model 'a b' --set speculation.measure_s=360",
        ),
    ],
)
def test_the_whole_command_that_measures_longer(typed: str, wanted: str) -> None:
    assert _with_time(typed, 360) == wanted


def test_candidates_that_failed_are_told_and_the_others_go_on() -> None:
    some = judge(raced({"none": (50, 50), "a": (90, 50)}, left_out={"b": "it crashed"}))
    assert (some.arm, some.against) == ("a", {"b": "it crashed"})
    nothing = judge(raced({"none": (50, 50)}, left_out={"a": "it crashed"}))
    assert (nothing.arm, nothing.sure) == ("none", False)
    assert nothing.why == "nothing else could be measured: a: it crashed"
    base = judge(raced({"a": (90, 50)}, left_out={"none": "it crashed"}))
    assert (base.arm, base.sure) == ("none", False)
    assert "none: it crashed" in base.why


@given(st.lists(st.tuples(st.floats(20, 200), st.floats(20, 200)), min_size=1, max_size=3))
def test_whatever_is_chosen_is_consistent_with_the_figures(ratios: list[tuple[float, float]]) -> None:
    found = raced({"none": (50.0, 50.0), **{f"arm{at}": both for at, both in enumerate(ratios)}})
    verdict = judge(found)
    if verdict.arm == "none":
        assert all(arm_ in verdict.against for arm_ in found.arms[1:])
        return
    assert verdict.gain is not None
    assert verdict.gain >= 1.05
    for case in found.cases:
        value = found.ratios[case, verdict.arm].value
        assert value is not None
        assert value.value > 0.97
    rivals = [verdict.gains[other] for other in found.arms[1:] if not verdict.against.get(other, "").startswith("slow")]
    assert verdict.gain == max(rivals)


# The draft's length.


def test_drafts_are_summed_by_the_mix() -> None:
    def one(name: str, case: Case, by_position: tuple[int, ...]) -> Sample:
        return sample(name, case, 0, 50.0, drafted=40, accepted=25, counts=Counts(10, by_position))

    both = [one("a", COPY, (10, 10)), one("a", STORY, (5, 0)), one("b", COPY, (1, 1))]
    made = drafts(both, "a", {COPY: 1.0, STORY: 1.0})
    assert made is not None
    assert made.shares == (0.75, 0.5)
    assert made.drafted_per_pass == pytest.approx(80 / (2 * (65 - 25)))
    copying = drafts(both, "a", {COPY: 1.0, STORY: 0.0})
    assert copying is not None
    assert copying.shares == (1.0, 1.0)
    assert drafts(both, "c", {COPY: 1.0}) is None
    assert drafts([replace(each, counts=None) for each in both], "a", {COPY: 1.0}) is None


SHARES = tuple(0.8**at for at in range(1, 17))


def test_what_is_cheap_to_verify_is_drafted_long_and_what_is_dear_short() -> None:
    made = Drafts(SHARES, 0.02, 5.0)

    def at(slope: float) -> int:
        found = numbers("ngram-mod", made, lambda k: 10 + slope * k, by_model=False, longest=16)
        return 0 if found is None else found.n_max

    assert at(0) == 16
    assert at(0) > at(1) > at(3)
    assert at(30) == 0, "as dear as generating: no draft pays"


def test_more_clients_make_drafts_shorter_or_none() -> None:
    """Up to 8 tokens cost what one costs, further ones a third of it each: clients fill that by themselves."""
    made = Drafts(SHARES, 0.02, 5.0)

    def cost(k: int) -> float:
        return 10 + max(k - 7, 0) * 10 / 3

    found = [numbers("ngram-mod", made, cost, by_model=False, longest=16, clients=n) for n in (1, 2, 4, 8)]
    lengths = [0 if each is None else each.n_max for each in found]
    assert lengths[0] >= 7
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < lengths[0]


def test_a_draft_that_does_not_pay_when_short_has_a_minimum() -> None:
    """The first token of a draft costs much, further ones little: one alone is slower than none."""
    made = Drafts((0.6, 0.55, 0.5, 0.45), 0.02, 4.0)
    found = numbers("ngram-mod", made, lambda k: 10 if k == 0 else 17 + 0.1 * k, by_model=False, longest=4)
    assert found is not None
    assert (found.n_max, found.n_min) == (4, 2)
    flat = numbers(SIMPLE, made, lambda k: 10, by_model=True, longest=4)
    assert flat is not None
    assert flat.n_min is None, "the default drafts any length"


def test_the_least_confidence_is_what_the_last_token_costs() -> None:
    """A pass took 4 ms beyond the verification of 4 tokens: a drafted token takes 1 ms."""
    made = Drafts((0.9, 0.8, 0.7, 0.6), 0.018, 4.0)
    found = numbers(SIMPLE, made, lambda k: 10 + k, by_model=True, longest=4)
    assert found is not None
    assert found.n_max == 4
    rate = (1 + 0.9 + 0.8 + 0.7 + 0.6) / 18
    assert found.p_min == pytest.approx(rate * 2 / 0.7, abs=0.01)
    other = numbers("draft-dspark", made, lambda k: 10 + k, by_model=True, longest=4)
    assert other is not None
    assert other.p_min is None, "its threshold needs a confidence head"


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12),
    st.lists(st.floats(0, 5), min_size=80, max_size=80),
    st.integers(1, 4),
)
def test_numbers_keep_their_bounds(shares: list[float], rises: list[float], clients: int) -> None:
    falling = tuple(sorted(shares, reverse=True))
    made = Drafts(falling, 0.02, 3.0)
    found = numbers(SIMPLE, made, lambda k: 5 + sum(rises[:k]), by_model=True, longest=len(falling), clients=clients)
    if found is None:
        return
    assert 1 <= found.n_max <= len(falling)
    assert found.gain > 1
    assert found.n_min is None or 1 < found.n_min <= found.n_max
    assert found.p_min is None or 0 < found.p_min <= 0.9


# What is kept.

KEY = Key("board", "MAXN, clocks pinned", "engine", "model:1", "none", "all", 1, "4096 or more", "")
WON = Decision("ngram-mod", "measured", n_max=12, gain=1.62, record=17, date="2026-11-30")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(environ={"ORIN_DEPLOY_HOME": str(tmp_path)})


def test_a_decision_is_found_by_all_that_it_depends_on(host: Host) -> None:
    decisions.keep(host, Kept(KEY, WON, 120))
    assert decisions.find(host, KEY, 120) == WON
    assert decisions.find(host, KEY, 0) == WON
    assert decisions.find(host, KEY, 121) is None, "who gives more time wants to know better"
    for name in ("board", "power", "engine", "model", "draft", "workload", "context", "settings"):
        other_key = Key(**{**asdict(KEY), name: "another"})
        assert decisions.find(host, other_key, 0) is None, name
    assert decisions.find(host, replace(KEY, concurrency=2), 0) is None
    other = replace(WON, kind="none", sure=False)
    decisions.keep(host, Kept(replace(KEY, board="b"), other, 10))
    decisions.keep(host, Kept(KEY, replace(WON, n_max=3), 300))
    assert decisions.find(host, KEY, 300) == replace(WON, n_max=3)
    assert decisions.find(host, replace(KEY, board="b"), 0) == other


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "null",
        "[]",
        '{"format": 2, "decisions": []}',
        '{"format": 1}',
        '{"format": 1, "decisions": 3}',
        "[" * 9999,
    ],
)
def test_a_file_that_is_damaged_is_no_decision_and_is_written_anew(host: Host, text: str) -> None:
    (host.data / "decisions.json").write_text(text)
    assert decisions.find(host, KEY, 0) is None
    decisions.keep(host, Kept(KEY, WON, 1))
    assert decisions.find(host, KEY, 1) == WON


@given(data=st.data())
def test_an_entry_with_a_wrong_value_is_passed_over(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    host = Host(environ={"ORIN_DEPLOY_HOME": str(tmp_path_factory.mktemp("damaged"))})
    decisions.keep(host, Kept(KEY, WON, 1))
    decisions.keep(host, Kept(replace(KEY, board="b"), WON, 1))
    path = host.data / "decisions.json"
    document = json.loads(path.read_text())
    entry = document["decisions"][0]
    where = data.draw(st.sampled_from([entry["key"], entry["decision"], entry]))
    where[data.draw(st.sampled_from(sorted(where)))] = data.draw(st.sampled_from([[], {}, [1], {"a": 1}]))
    path.write_text(json.dumps(document))
    assert decisions.find(host, KEY, 0) is None
    assert decisions.find(host, replace(KEY, board="b"), 0) == WON


# What makes it be asked again.


def lack(need: int, limit: int) -> DoesNotFit:
    return DoesNotFit(
        "too large", "smaller", need_bytes=need * MIB, limit_bytes=limit * MIB, limit_source="MemAvailable",
        largest=(), ways=(),
    )  # fmt: skip


def test_memory_asks_again_only_where_a_way_lacked_it(host: Host) -> None:
    uncertain = replace(WON, kind="none", sure=False)
    decisions.keep(host, Kept(KEY, uncertain, 120, 5000 * MIB))
    assert decisions.find(host, KEY, 120, 4999 * MIB) == uncertain
    assert decisions.find(host, KEY, 120, 5000 * MIB) is None, "what it lacked is there"
    assert decisions.find(host, KEY, 0, 5000 * MIB) == uncertain, "without time to measure the record counts"
    decisions.keep(host, Kept(KEY, uncertain, 120))
    assert decisions.find(host, KEY, 120, 1 << 60) == uncertain, "it did not hang on memory"


def test_what_is_enough_is_the_least_need_and_more_than_free_memory_moves_by_itself() -> None:
    assert enough_bytes([], 4000 * MIB) is None
    assert enough_bytes([OrinError("no file"), OrinError("not enough memory, said the server")], 4000 * MIB) is None
    assert enough_bytes([lack(6000, 4000), lack(5000, 4000), OrinError("no file")], 4000 * MIB) == 5000 * MIB
    assert enough_bytes([lack(4001, 4000)], 4000 * MIB) == 4256 * MIB


@given(st.lists(st.integers(1, 9000), min_size=1), st.integers(0, 8000))
def test_what_has_just_been_measured_is_not_measured_again(needs: list[int], limit: int) -> None:
    enough = enough_bytes([lack(need, limit) for need in needs], limit * MIB)
    assert enough is not None
    assert enough > limit * MIB


def test_a_plan_measures_again_when_the_memory_is_there_and_says_beforehand_when(tmp_path: Path) -> None:
    host = Host(environ={"ORIN_DEPLOY_HOME": str(tmp_path)})

    def plan(*sets: str) -> Plan:
        words = tuple((name, value) for name, _, value in (each.partition("=") for each in sets))
        wish = Request("agx32", sets=words, profiles_folder=str(PROFILES))
        return draft(host, wish, situation(Untouched(), wish, elsewhere=True), lambda share, text: None)

    few = plan("memory.limit_mib=6000", "ctx_size=8192")
    assert few.key is not None
    text = again(180, 6000 * MIB, 7000 * MIB)
    lacking = Decision("none", "measured 2026-11-30, bench record 1: not enough memory", sure=False, again=text)
    decisions.keep(host, Kept(few.key, lacking, 180, 7000 * MIB))
    still = plan("memory.limit_mib=6999", "ctx_size=8192")
    assert (still.measuring, still.spec.decision) == (None, lacking)
    out = io.StringIO()
    show_plan(still, Console(out=out), actions=False)
    assert "measured again with speculation.measure_s above 180, from 7,000 MiB to be had on" in out.getvalue()
    assert plan("memory.limit_mib=7000", "ctx_size=8192").measuring is not None
    assert plan("memory.limit_mib=6000", "ctx_size=8192", "speculation.measure_s=181").measuring is not None
    assert plan("memory.limit_mib=6000", "ctx_size=8192", "speculation.workload.chat=2").measuring is not None
    assert plan("memory.limit_mib=6000", "ctx_size=8192", "build.blas=on").measuring is not None


def key(*sets: str, wish: Wish | None = None, weights: Weights | None = None, **words: Any) -> Key:
    """The key of a deployment on the stand-in of a board."""
    plan = planned("agx32", *sets, **words)
    assert plan.key is not None
    return plan.key


def test_the_key_tells_apart_what_matters_and_nothing_else() -> None:
    plain = key()
    assert (plain.board, plain.power) == ("p3701-0004", "MAXN, clocks pinned")
    assert plain.draft == "minicpm5-2b-dspark"
    for same in ("port=9000", "placement.draft_port=9001", "alias=x", "ctx_size=8192", "speculation.measure_s=0"):
        assert key(same) == plain, same
    for other in (
        "parallel=2", "cache_type_k=q8_0", "threads=2", "spec_draft_n_max=4", "ctx_size=2048", "power.mode=keep",
        "speculation.concurrency=4", "speculation.workload.chat=2", "placement.cpus=0-3", "build.blas=on",
    ):  # fmt: skip
        assert key(other) != plain, other
    assert key(model="smollm2-135m").model != plain.model
    assert planned("agx32", draft="none").key is None, "who asks for none measures nothing"
    assert planned("agx32", draft="ngram-mod").key is None


def test_a_draft_on_this_machine_is_known_by_its_size(host: Host, tmp_path: Path) -> None:
    draft = tmp_path / "d.gguf"
    plan = planned("agx32")
    values = layer_of()
    weights = Weights("file:/m.gguf", (WeightFile("file:/m.gguf", "/m.gguf", 5),))

    def made() -> Key:
        wish = Wish((), f"file:{draft}", True, True)
        return decisions.key(host, plan.spec.device, plan.spec.build, weights, wish, values)

    draft.write_text("one")
    before = made()
    draft.write_text("another")
    assert made() != before
    assert before.model == "m.gguf:5"


def layer_of() -> dict[str, Setting]:
    from orin_deploy.intent import profile

    return layer(profile.load("host", profile.search_path(None, {}, site=Path("/nowhere"))), ())


# In the plan.


def test_a_plan_says_beforehand_what_is_to_be_measured_and_for_how_long() -> None:
    plan = planned("agx32")
    assert plan.measuring is not None
    said = "draft=auto: to be measured at up: none, draft-dspark, ngram-simple, ngram-mod; at most 180 s"
    assert plan.measuring.why == said
    assert plan.spec.draft is None
    order = [step.part for step in plan.in_order]
    assert order.index("weights") < order.index("speculation") < order.index("service")
    assert planned("agx32", draft="none").measuring is None
    records = planned("agx32", "speculation.measure_s=0")
    assert records.measuring is None
    assert any("served without" in text for text in records.spec.warnings)


def test_a_candidate_is_an_arm_of_the_bench() -> None:
    assert (arm(Candidate("none")).name, arm(Candidate("none")).draft) == ("none", "none")
    assert arm(Candidate("ngram-mod")).draft == "ngram-mod"
    process = arm(Candidate(SIMPLE, "process"))
    assert (process.draft, process.sets) == ("draft", (("placement.draft", "process"),))
    assert arm(Candidate(SIMPLE, "inline")).name != process.name


def test_a_workload_that_there_is_not_is_refused_before_anything_is_done() -> None:
    wish = Request("agx32", sets=(("speculation.workload.chta", "1"),), profiles_folder=str(PROFILES))
    now = situation(Untouched(), wish, elsewhere=True)
    with pytest.raises(UsageError, match="there is no workload chta"):
        check_workloads(wish, now)
    check_workloads(replace(wish, sets=(("speculation.workload.chat", "1"),)), now)
