"""Speculation: the wish that all words make, the kind that goes with the target, its place, the draft's own unit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orin_deploy.actions import Remove, Run, Write
from orin_deploy.deploy import draft as planning
from orin_deploy.errors import OrinError, Refused, UsageError
from orin_deploy.facts.draft import DFLASH, DSPARK, EAGLE3, MTP, SIMPLE, Drafter
from orin_deploy.facts.model import Model
from orin_deploy.host import Host
from orin_deploy.intent import speculation
from orin_deploy.intent.options import OPTIONS, render
from orin_deploy.intent.request import Request
from orin_deploy.intent.spec import Build, Draft, LeftOut, Placement, Setting, Spec, Value, WeightFile, Weights
from orin_deploy.intent.speculation import DRAFTLESS, Asked, Candidate, Decided, Decision, DraftModel, Wish
from orin_deploy.parts import service
from orin_deploy.parts.service.state import Holder, ServiceState
from orin_deploy.parts.service.unit import draft_unit_text, launch_text, unit_text
from orin_deploy.parts.service.where import Where
from tests.ggufs import Shape
from tests.planning import PROFILES, planned
from tests.specs import make_build, make_model, make_spec

BUILD = make_build(Path("/engine/bin"))
WHERE = Where(
    name="test",
    launch="/data/launch.json",
    unit="orin-deploy-test.service",
    unit_file="/etc/systemd/system/orin-deploy-test.service",
    enabled="/etc/systemd/system/multi-user.target.wants/orin-deploy-test.service",
    config="/data/no-config",
    systemctl=("systemctl",),
    journalctl=("journalctl",),
)
PLACED = Placement((0, 1), 2, 2, "test", (2, 3), 2)


def values(**changes: Value) -> dict[str, Setting]:
    found = {key: Setting(option.default, "default") for key, option in OPTIONS.items()}
    for key, value in changes.items():
        found[key.replace("__", ".")] = Setting(value, "--set")
    return found


WISH: dict[str, Value] = {"draft": "/models/d.gguf", "placement__draft": "process"}
TARGET = make_model(Path("/models/t.gguf"))
WEIGHTS = Weights("file:/models/t.gguf", (WeightFile("file:/models/t.gguf", "/models/t.gguf"),))
PLAIN = Drafter(SIMPLE)
SMALLER = replace(TARGET, tensor_bytes=1, tensor_types=(("F16", 1),))
TARGET = replace(TARGET, tensor_bytes=100)


def found(drafter: Drafter = PLAIN, path: str = "/models/d.gguf", **changes: Any) -> DraftModel:
    """A draft model that goes with TARGET, unless changed."""
    made = DraftModel(SMALLER, Weights(f"file:{path}", (WeightFile(f"file:{path}", path),)), drafter)
    return replace(made, **changes)


def decided(
    wish: dict[str, Value],
    draft: DraftModel | OrinError | None = None,
    *,
    target: Model = TARGET,
    help_text: str | None = None,
    left_out: LeftOut | None = None,
    drafts: tuple[str, ...] = (),
    build: Build = BUILD,
) -> Decided:
    """What is decided for a command line's words."""
    words = values(**wish)
    asked = Asked(speculation.wish(words, drafts), draft, drafts, left_out)
    return speculation.decide(asked, target, WEIGHTS, words, build, help_text)


READER = Drafter(DSPARK, 7, True, (1, 10, 20), 576, False)
KINDS_FOUND = {
    SIMPLE: found(),
    EAGLE3: found(Drafter(EAGLE3, target_layers=(2, 15, 27), target_embd=576)),
    DFLASH: found(Drafter(DFLASH, 8, True, (1, 10, 20), 576)),
    DSPARK: found(READER),
}


# The wish.


@pytest.mark.parametrize(
    ("words", "wish"),
    [
        ({}, Wish((), None, True, True)),
        ({"draft": "none"}, Wish(source="--set")),
        ({"draft": "ngram-mod"}, Wish(("ngram-mod",), source="--set")),
        ({"draft": "draft-mtp"}, Wish(("draft-mtp",), source="--set")),
        ({"draft": "hf:a/b:F16"}, Wish((), "hf:a/b:F16", source="--set")),
        ({"draft": "hf:a/b:F16", "spec_type": "draft-eagle3"}, Wish(("draft-eagle3",), "hf:a/b:F16", source="--set")),
        ({"draft": "optional"}, Wish((), None, True, source="--set")),
        ({"draft": "auto"}, Wish((), None, True, True, "--set")),
        ({"draft": "optional", "spec_draft_model": "/d"}, Wish((), "/d", True, source="--set")),
        # llama-server's own options, as profiles of before the key `draft` have them.
        ({"spec_draft_model": "/d"}, Wish((), "/d", source="--set")),
        ({"spec_type": "ngram-mod,ngram-simple"}, Wish(("ngram-mod", "ngram-simple"), source="--set")),
        ({"spec_type": "draft-simple,ngram-mod", "spec_draft_model": "/d"},
         Wish(("draft-simple", "ngram-mod"), "/d", source="--set")),
        ({"spec_default": True}, Wish(("ngram-mod",), source="--set")),
        ({"spec_type": "none"}, Wish((), None, True, True)),
    ],
)  # fmt: skip
def test_all_words_make_one_wish(words: dict[str, Value], wish: Wish) -> None:
    assert speculation.wish(values(**words)) == wish


def test_the_catalogues_draft_is_what_auto_and_optional_take() -> None:
    for word in ("auto", "optional"):
        assert speculation.wish(values(draft=word), ("first", "second")).model == "first"
    assert speculation.wish(values(draft="none"), ("first",)).none


def test_the_command_line_outdoes_the_profile() -> None:
    profile = {"spec_type": Setting("ngram-mod", "profile x"), "spec_draft_model": Setting("/d", "profile x")}
    for word, wish in (("none", Wish(source="--draft")), ("ngram-simple", Wish(("ngram-simple",), source="--draft"))):
        assert speculation.wish({**values(), **profile, "draft": Setting(word, "--draft")}) == wish
    said = {**values(spec_type="ngram-mod"), "draft": Setting("hf:a/b", "profile x")}
    assert speculation.wish(said) == Wish(("ngram-mod",), source="--set")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"draft": "16"}, "spec_draft_n_max"),
        ({"draft": "ngram-mood"}, "no kind of speculation ngram-mood"),
        ({"draft": "draft"}, "no kind of speculation draft"),
        ({"draft": "hf:a/b", "spec_draft_model": "/d"}, "contradict"),
        ({"draft": "none", "spec_type": "ngram-mod"}, "contradict"),
        ({"draft": "ngram-mod", "spec_type": "ngram-simple"}, "contradict"),
        ({"draft": "none", "spec_default": True}, "contradict"),
        ({"spec_default": True, "spec_type": "ngram-mod"}, "both choose"),
        ({"spec_type": "ngram-mod,ngram-mod"}, "twice"),
        ({"spec_type": "none,ngram-mod"}, "contradicts itself"),
        ({"spec_type": "draft-simple,draft-mtp", "spec_draft_model": "/d"}, "one draft"),
        ({"spec_type": "ngram-mod", "spec_draft_model": "/d"}, "needs no draft model"),
    ],
)
def test_words_that_cannot_be_meant_are_refused(words: dict[str, Value], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        speculation.wish(values(**words))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("on", "auto"), ("yes", "auto"), ("True", "auto"), ("off", "none"), ("no", "none"), ("false", "none"),
        ("mtp", "draft-mtp"), ("eagle3", "draft-eagle3"), ("EAGLE-3", "draft-eagle3"), ("eagle", "draft-eagle3"),
        ("dspark", "draft-dspark"), ("dflash", "draft-dflash"), ("draft", "draft-simple"), ("Auto", "auto"),
        ("lookup", "ngram-simple"), ("prompt_lookup", "ngram-simple"), ("ngram_mod", "ngram-mod"),
        ("DRAFT-MTP", "draft-mtp"), ("ngram", "ngram-simple"), ("ngram-mapk4v", "ngram-map-k4v"),
        ("ngram-mood", "ngram-mod"), ("draft-eagel3", "draft-eagle3"),
    ],
)  # fmt: skip
def test_a_word_that_is_no_kind_is_answered_with_the_one_it_means(word: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"no kind of speculation {word}") as caught:
        speculation.wish(values(draft=word))
    assert caught.value.hint is not None
    proposed, there_are = caught.value.hint.split("? there are ")
    assert proposed == f"did you mean {near}"
    for each in there_are.split(", "):  # what is proposed is accepted
        speculation.wish(values(draft=each))
    assert near in there_are.split(", ")


@pytest.mark.parametrize("name", ["eagle3-1b", "on-device", "mtp.gguf", "hf:on/mtp", "file:eagle3", "smollm2-135m"])
def test_what_may_be_a_models_name_is_left_to_the_catalogue(name: str) -> None:
    assert speculation.wish(values(draft=name)).model == name
    assert speculation.wish(values(draft="eagle3"), ("eagle3",)).model == "eagle3", "the catalogue's own draft"


# The kind.


@pytest.mark.parametrize("kind", KINDS_FOUND)
def test_the_header_tells_the_kind_and_it_is_passed(kind: str) -> None:
    made = decided({"draft": "/models/d.gguf"}, KINDS_FOUND[kind])
    assert made.draft is not None
    assert (made.draft.kind, made.draft.where) == (kind, "inline")
    words = {key: setting.value for key, setting in made.options.items() if setting.value is not None}
    assert words["spec_type"] == kind
    assert words["spec_draft_model"] == "/models/d.gguf"
    assert words["spec_draft_n_max"] == made.draft.n_max == {DSPARK: 7, DFLASH: 7}.get(kind, 3)


@pytest.mark.parametrize("kind", DRAFTLESS)
def test_a_kind_without_a_draft_model_needs_nothing(kind: str) -> None:
    made = decided({"draft": kind})
    assert made.draft is not None
    assert (made.draft.kind, made.draft.where, made.draft.weights) == (kind, "draftless", None)
    assert made.options["spec_type"].value == kind
    assert made.draft.n_max == {"ngram-mod": 64, "ngram-cache": 8}.get(kind, 48)


def test_kinds_beside_a_draft_are_kept_before_it() -> None:
    made = decided({"spec_draft_model": "/models/d.gguf", "spec_type": "draft-simple,ngram-mod"}, found())
    assert made.draft is not None
    assert made.draft.kinds == ("ngram-mod", SIMPLE)
    assert made.options["spec_type"].value == "ngram-mod,draft-simple"
    assert made.draft.n_max == 64, "memory is taken for the longest"


def changed(kind: str, **changes: Any) -> DraftModel:
    return replace(KINDS_FOUND[kind], drafter=replace(KINDS_FOUND[kind].drafter, **changes))


REF: dict[str, Value] = {"draft": "/models/d.gguf"}
OTHER = replace(TARGET, architecture="minicpm")
TWO_STEPS: tuple[Any, ...] = (TARGET.layers[0],)
OBSTACLES: tuple[tuple[str, dict[str, Value], DraftModel | None, Model, type[OrinError], str], ...] = (
    ("a draft as target", {"draft": "ngram-mod"}, None, replace(TARGET, architecture="dflash"), Refused, "is a draft"),
    ("embeddings", {"draft": "ngram-mod", "embedding": True}, None, TARGET, UsageError, "generates no text"),
    ("no draft model", {"draft": "draft-eagle3"}, None, TARGET, UsageError, "needs a draft model"),
    ("no layers ahead", {"draft": "draft-mtp"}, None, TARGET, Refused, "no layers that predict"),
    ("no graph ahead", {"draft": "draft-mtp"}, None, replace(TARGET, nextn=TWO_STEPS), Refused, "does not go with"),
    ("the target's own file", REF, found(path="/models/t.gguf"), TARGET, UsageError, "target's own file"),
    ("another kind", {**REF, "spec_type": EAGLE3}, found(), TARGET, Refused, "is a draft-simple by its header"),
    ("another head", {**REF, "spec_type": DFLASH}, found(READER), TARGET, Refused, "not a draft-dflash"),
    ("vocabulary", REF, found(difference="token 17 is"), TARGET, Refused, "vocabulary .* token 17 is"),
    ("no taps", REF, KINDS_FOUND[DSPARK], OTHER, Refused, "does not go with a minicpm target: .* layer inputs"),
    ("no taps", REF, KINDS_FOUND[EAGLE3], OTHER, Refused, "does not go with a minicpm target"),
    ("two taps", REF, changed(EAGLE3, target_layers=(1, 2)), TARGET, Refused, "reads 2 layers"),
    ("deep tap", REF, changed(DSPARK, target_layers=(1, 30)), TARGET, Refused, "layer 30 .* has 30 layers"),
    ("hidden size", REF, changed(DFLASH, target_embd=2048), TARGET, Refused, "2048, this target's is 576"),
    ("no confidence", {**REF, "spec_draft_p_min": 0.5}, found(READER), TARGET, Refused, "confidence head"),
    ("quantised", REF, found(READER, model=replace(SMALLER, tensor_types=(("Q8_0", 9),))), TARGET, Refused, "Q8_0"),
    ("ahead, another size", REF, found(Drafter(MTP), model=replace(SMALLER, n_embd=64)),
     replace(TARGET, architecture="qwen35"), Refused, "hidden size of 64"),
    ("nothing at once", {**REF, "spec_draft_n_max": 0}, found(), TARGET, UsageError, "drafts nothing"),
    ("more than most", {**REF, "spec_draft_n_min": 4}, found(), TARGET, UsageError, "n_min=4 .* more than .*=3"),
    ("more than most", {"draft": "ngram-mod", "spec_ngram_mod_n_max": 8}, None, TARGET, UsageError, "n_min=48"),
    ("apart", {**REF, "placement__draft": "process"}, found(READER), TARGET, Refused, "shares tensors"),
    ("apart", {"draft": "ngram-mod", "placement__draft_cpus": "1"}, None, TARGET, UsageError, "no draft model to"),
    ("both places", {**REF, "placement__draft": "inline", "placement__draft_cpus": "1"}, found(), TARGET, UsageError,
     "contradict"),
    ("device", {**WISH, "spec_draft_device": "CUDA0"}, found(), TARGET, UsageError, "spec_draft_device"),
    ("rpc", {**WISH, "rpc": "127.0.0.1:1"}, found(), TARGET, UsageError, "rpc .* is decided"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("words", "draft", "target", "kind", "said"), [case[1:] for case in OBSTACLES], ids=[case[0] for case in OBSTACLES]
)
def test_what_cannot_go_together_is_refused_with_the_reason(
    words: dict[str, Value], draft: DraftModel | None, target: Model, kind: type[OrinError], said: str
) -> None:
    with pytest.raises(kind, match=said) as caught:
        decided(words, draft, target=target)
    assert caught.value.hint


@pytest.mark.parametrize("case", OBSTACLES, ids=[case[0] for case in OBSTACLES])
def test_what_is_optional_is_left_out_with_the_reason(case: tuple[Any, ...]) -> None:
    _, words, draft, target, *_ = case
    if draft is None:
        return
    wish = {**{key: value for key, value in words.items() if key != "draft"}, "draft": "optional"}
    made = decided(wish, draft, target=target, drafts=("d",))
    assert made.draft is None
    assert any("left out" in warning for warning in made.warnings)
    assert all(setting.value is None for setting in made.options.values()), "nothing of it reaches the server"


def test_the_gravest_limits_are_just_passed() -> None:
    eagle = changed(EAGLE3, target_layers=(1, 2, 30))
    assert decided(REF, eagle).draft is not None, "EAGLE3 may read what leaves the last layer"
    sure = changed(DSPARK, confidence_head=True)
    assert decided({**REF, "spec_draft_p_min": 0.5}, sure).draft is not None
    whole = found(Drafter(MTP))
    assert decided({**REF, "spec_type": SIMPLE}, whole).draft is not None, "a model with such layers is a whole model"


def test_a_draft_longer_than_its_block_is_held_to_it() -> None:
    made = decided({**REF, "spec_draft_n_max": 16}, found(READER))
    assert made.options["spec_draft_n_max"] == Setting(7, "--set, held to the draft's block")
    assert any("more than the draft's block" in warning for warning in made.warnings)


def test_the_binary_must_know_the_kind() -> None:
    old = "--spec-type none,draft-simple,ngram-mod\n                 kinds\n"
    assert decided({"draft": "ngram-mod"}, help_text=old).draft is not None
    with pytest.raises(Refused, match="does not know ngram-map-k4v") as caught:
        decided({"draft": "ngram-map-k4v"}, help_text=old)
    assert "draft-simple, ngram-mod" in (caught.value.hint or "")
    with pytest.raises(Refused, match="does not know ngram-mod"):
        decided({"draft": "ngram-mod"}, help_text="--ctx-size N   size\n")


# What is doubtful, optional, automatic.


def test_likely_mistakes_are_told() -> None:
    slow = found(model=replace(SMALLER, tensor_bytes=200))
    short = found(model=replace(SMALLER, n_ctx_train=512))
    assert any("not smaller" in warning for warning in decided(REF, slow).warnings)
    assert any("trained for 512 tokens" in warning for warning in decided(REF, short).warnings)
    assert any("catalogue's draft for this model is d" in w for w in decided(REF, found(), drafts=("d",)).warnings)
    assert decided(REF, found()).warnings == ()


def test_nothing_found_is_an_error_or_a_warning() -> None:
    missing = UsageError("there is no file")
    with pytest.raises(UsageError, match="there is no file"):
        decided(REF, missing)
    assert "there is no file" in decided({"draft": "optional"}, missing, drafts=("d",)).warnings[0]
    assert "no draft for this model" in decided({"draft": "optional"}).warnings[0]


def test_auto_tells_what_is_to_be_measured_and_serves_without_until_then() -> None:
    made = decided({"draft": "auto"}, found(catalogued=True), drafts=("d",))
    assert made.draft is None
    assert made.to_measure is not None
    assert made.to_measure.text == "none, draft-simple, ngram-simple, ngram-mod; at most 180 s"
    few = decided({"draft": "auto", "speculation.measure_s": 30}, drafts=("d",)).to_measure
    assert few is not None
    assert few.text == "none, ngram-simple; at most 30 s"
    many = decided({"draft": "auto", "speculation.measure_s": 9000}, found(), drafts=("d",)).to_measure
    assert many is not None
    assert many.candidates[-3:] == (Candidate(SIMPLE, "process"), Candidate("ngram-map-k4v"), Candidate("ngram-map-k"))


def test_auto_without_time_to_measure_serves_without_and_says_so() -> None:
    made = decided({"draft": "auto", "speculation.measure_s": 0})
    assert (made.draft, made.to_measure) == (None, None)
    assert "measures nothing: served without" in made.warnings[0]


def test_auto_says_why_a_draft_is_not_measured() -> None:
    made = decided({"draft": "auto"}, found(difference="token 5 is x"), drafts=("d",))
    assert made.to_measure is not None
    assert SIMPLE not in made.to_measure.text
    assert made.warnings == ("the draft is not measured: the draft's vocabulary is not the target's: token 5 is x",)
    assert "no file" in decided({"draft": "auto"}, UsageError("there is no file"), drafts=("d",)).warnings[0]


def test_auto_with_kinds_named_measures_only_those() -> None:
    words: dict[str, Value] = {"draft": "auto", "spec_type": "ngram-mod"}
    made = decided(words)
    assert made.to_measure is not None
    assert made.to_measure.candidates == (Candidate("none"), Candidate("ngram-mod"))


def test_candidates_are_those_that_can_go_together() -> None:
    def ways(draft: DraftModel | None, target: Model = TARGET, help_text: str | None = None, **more: Value) -> set[Any]:
        listed = speculation.candidates(target, WEIGHTS, draft, help_text, values(**more))
        assert listed[0] == Candidate("none")
        return {(way.kind, way.where) for way in listed[1:]}

    ngrams = {(kind, "draftless") for kind in DRAFTLESS if kind != "ngram-cache"}
    assert ways(None) == ngrams
    assert ways(found()) == ngrams | {(SIMPLE, "inline"), (SIMPLE, "process")}
    assert ways(found(), placement__draft="inline") == ngrams | {(SIMPLE, "inline")}
    assert ways(found(), placement__draft="process") == ngrams | {(SIMPLE, "process")}
    assert ways(found(READER)) == ngrams | {(DSPARK, "inline")}
    assert ways(found(READER), OTHER) == ngrams
    assert ways(found(difference="x")) == ngrams
    assert ways(None, replace(TARGET, architecture="qwen35", nextn=TWO_STEPS)) == ngrams | {(MTP, "draftless")}
    assert ways(found(), help_text="--spec-type none,ngram-mod\n") == {("ngram-mod", "draftless")}


def test_a_measured_decision_is_taken_with_its_source() -> None:
    measured = Decision("draft-simple", "measured 2026-11-30 record 17", where="process", n_max=5, p_min=0.4)
    words = values(draft="auto", spec_draft_p_min=0.1)
    told = speculation.by_decision(measured, words)
    assert told == {
        "spec_draft_n_max": Setting(5, measured.source), "placement.draft": Setting("process", measured.source),
    }  # fmt: skip
    wish = speculation.wish(words, ("d",), measured)
    assert wish == Wish((SIMPLE,), "d", True, True, measured.source)
    assert speculation.wish(words, ("d",), replace(measured, kind="none")) == Wish(source=measured.source)
    assert speculation.wish(values(draft="ngram-mod"), ("d",), measured).kinds == ("ngram-mod",), "only auto asks"


def test_what_did_not_work_is_left_out_until_something_changes() -> None:
    failed = LeftOut(SIMPLE, "file:/models/d.gguf", BUILD.key, "it crashed")
    wish: dict[str, Value] = {"draft": "optional"}
    made = decided(wish, found(), left_out=failed, drafts=("d",))
    assert (made.draft, made.left_out) == (None, failed)
    assert "it crashed" in made.warnings[-1]
    for other in (replace(failed, build="newer"), replace(failed, reference="file:/models/e.gguf")):
        assert decided(wish, found(), left_out=other, drafts=("d",)).draft is not None
    assert decided(REF, found(), left_out=failed).draft is not None, "one that is required is tried again"


def test_options_of_a_draft_say_nothing_without_one() -> None:
    made = decided({"draft": "none", "spec_draft_n_max": 4})
    assert made.options["spec_draft_n_max"].value is None
    assert "spec_draft_n_max (--set) says nothing" in made.warnings[0]


# A process of the draft's own.


@pytest.mark.parametrize(("cuda", "device", "target"), [(False, "CPU", "none"), (True, "CUDA0", "CUDA0")])
def test_the_words_of_both_processes(cuda: bool, device: str, target: str) -> None:
    build = replace(BUILD, cuda=cuda)
    words_of = values(**WISH)
    made = decided(WISH, found(), build=build)
    assert made.draft is not None
    assert made.apart
    draft = speculation.in_process(made.draft, words_of, build, PLACED)
    assert (made.draft.where, draft.where) == ("inline", "process")
    assert draft.argv == (
        "/engine/bin/ggml-rpc-server", "-d", device, "-H", "127.0.0.1", "-p", "50052", "-t", "2",
    )  # fmt: skip
    options = {key: setting.value for key, setting in speculation.server_options(words_of, draft, build).items()}
    words = render(options, None)
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    assert pairs == {
        "--rpc": "127.0.0.1:50052", "--device": target, "--spec-draft-device": "RPC0", "--spec-draft-ngl": "all",
    }  # fmt: skip
    # A device's name must be known when it is read (facts: common/arg.cpp).
    assert words.index("--rpc") < words.index("--device") < words.index("--spec-draft-device")
    on_cpu = speculation.in_process(made.draft, values(**WISH, placement__draft_device="CPU"), build, PLACED)
    assert on_cpu.device == "CPU"
    drafting = speculation.drafting(draft, words_of, build)
    assert drafting is not None
    assert (drafting.kind, drafting.apart, drafting.gpu, drafting.model) == (SIMPLE, True, cuda, SMALLER)


def test_what_a_profile_says_of_a_process_is_not_meant_for_n_grams() -> None:
    words = {**values(draft="ngram-mod"), "placement.draft": Setting("process", "profile x")}
    made = speculation.decide(Asked(speculation.wish(words)), TARGET, WEIGHTS, words, BUILD, None)
    assert made.draft is not None
    assert made.draft.where == "draftless"


def test_a_draft_is_no_target_with_or_without_speculation() -> None:
    wishes: tuple[dict[str, Value], ...] = ({}, {"draft": "optional"})
    for wish in wishes:
        with pytest.raises(Refused, match="is a draft"):
            decided(wish, target=replace(TARGET, architecture="eagle3"))


def test_cpus_for_the_draft_mean_a_process_of_its_own() -> None:
    made = decided({**REF, "placement__draft_cpus": "auto"}, found())
    assert made.draft is not None
    assert made.apart
    inline = decided(REF, found()).draft
    assert inline is not None
    assert (inline.where, "round trip" in inline.why) == ("inline", True)


@pytest.mark.parametrize("words", [("draft={0}", "placement.draft=process"),
                                   ("spec_draft_model={0}", "placement.draft_cpus=auto")])  # fmt: skip
def test_a_whole_plan_for_a_board_that_is_not_at_hand(tmp_path: Path, words: tuple[str, ...]) -> None:
    model, draft_file = Shape(n_layer=6).write(tmp_path / "t.gguf"), Shape().write(tmp_path / "d.gguf")
    host = Host(environ={"HOME": str(tmp_path), "ORIN_DEPLOY_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    sets = tuple((key, value.format(draft_file)) for key, _, value in (word.partition("=") for word in words))
    wish = Request("agx64", str(model), sets=sets, profiles_folder=str(PROFILES))
    plan = planning.draft(host, wish, planning.situation(host, wish, elsewhere=True), lambda fraction, text: None)
    placement, draft = plan.spec.placement, plan.spec.draft
    assert draft is not None
    assert draft.model is not None
    assert not set(placement.cpus) & set(placement.draft_cpus)
    assert placement.draft_cpus
    assert {row.name for row in plan.spec.budget.rows} >= {"draft weights", "draft KV cache", "draft compute"}
    (step,) = plan.steps_of("service")
    written = [action.path for action in step.actions if isinstance(action, Write)]
    names = ["orin-deploy-agx64@draft.service", "orin-deploy-agx64.service"]
    assert [Path(path).name for path in written] == (names if plan.spec.service.manager == "systemd" else written)
    assert [step.name for step in plan.steps_of("weights")] == ["fetch t.gguf", "fetch d.gguf"]


def test_the_catalogues_pair_plans_without_the_network() -> None:
    plan = planned("agx64", draft="optional", model="minicpm5-2b")
    draft = plan.spec.draft
    assert draft is not None
    assert (draft.kind, draft.where, draft.n_max, draft.optional) == (DSPARK, "inline", 7, True)
    assert plan.spec.settings["spec_type"].value == DSPARK
    assert len(plan.steps_of("weights")) == 2
    with pytest.raises(Refused, match="is a draft"):
        planned("agx64", model="minicpm5-2b-dspark")


def spec(manager: str) -> Spec:
    draft = speculation.in_process(decided(WISH, found()).draft or Draft(SIMPLE), values(**WISH), BUILD, PLACED)
    user = "orin-deploy" if manager == "systemd" else None
    made = make_spec(Path("/data"), Path("/engine/bin"), Path("/models/m.gguf"), 8080, manager=manager, user=user)
    return replace(made, draft=draft, placement=PLACED)


def test_the_two_units_hold_each_other() -> None:
    own = draft_unit_text(spec("systemd"), WHERE, "/usr/bin/taskset", ("video",))
    assert own is not None
    words = "ExecStart=/usr/bin/taskset -c 2-3 /engine/bin/ggml-rpc-server -d CPU -H 127.0.0.1 -p 50052 -t 2"
    for line in (words, f"PartOf={WHERE.unit}", f"Wants={WHERE.unit}", "Restart=always", "DynamicUser=yes"):
        assert line in own.splitlines()
    assert "LoadCredential" not in own
    server = unit_text(spec("systemd"), WHERE, "/usr/bin/taskset", ()).splitlines()
    assert f"BindsTo={WHERE.draft_unit}" in server
    assert f"After={WHERE.draft_unit}" in server
    assert WHERE.draft_file == "/etc/systemd/system/orin-deploy-test@draft.service"


def test_without_a_draft_process_nothing_speaks_of_one() -> None:
    for manager in ("systemd", "process"):
        plain = replace(spec(manager), draft=None, placement=Placement((0, 1), 2, 2, "test"))
        assert draft_unit_text(plain, WHERE, "/usr/bin/taskset", ()) is None
        assert "draft" not in unit_text(plain, WHERE, "/usr/bin/taskset", ())
        assert "companions" not in launch_text(plain, WHERE, "/usr/bin/taskset")


def test_a_draft_that_is_given_up_takes_its_unit_along() -> None:
    plain = replace(spec("systemd"), draft=None, placement=Placement((0, 1), 2, 2, "test"))
    state = ServiceState(where=WHERE, taskset="/usr/bin/taskset", manager="systemd", draft_text="old", text="old")
    (step,) = service.plan(plain, state)
    assert Remove(WHERE.draft_file) in step.actions
    stop = Run(("systemctl", "stop", "orin-deploy-test@draft.servic[e]"))
    assert step.actions.index(stop) < step.actions.index(Remove(WHERE.draft_file))


def test_a_taken_draft_port_is_refused() -> None:
    state = ServiceState(where=WHERE, taskset="/usr/bin/taskset", draft_holder=Holder(7, "nc -l 50052"))
    with pytest.raises(OrinError, match="port 50052 is taken by process 7") as caught:
        service.plan(spec("process"), state)
    assert "placement.draft_port=50053" in (caught.value.hint or "")
