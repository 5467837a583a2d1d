"""Rules about drafts: vocabularies that differ, drafts that are slower than none, and what makes them so."""

from __future__ import annotations

import re
import shlex

from orin_deploy.doctor.evidence import Evidence
from orin_deploy.doctor.finding import Finding
from orin_deploy.errors import OrinError
from orin_deploy.facts import gguf, vocabulary
from orin_deploy.facts.vocabulary import Vocabulary
from orin_deploy.intent.speculation_choice import NONE, Trial, choose
from orin_deploy.intent.translate import translate

_ACCEPTANCE = re.compile(r"draft acceptance(?: rate)? = [\d.]+ \(\s*(\d{1,12}) accepted /\s*(\d{1,12}) generated\)")
_LOW = 0.3  # below it a draft costs more than it saves on every machine that was reported
_DEPTH = "depth "


def vocab_mismatch(evidence: Evidence) -> Finding | None:
    """Two vocabularies of which one cannot draft for the other, and that differ in more than their type."""
    pair = _pair(evidence)
    return None if pair is None or _differ_by_type_alone(*pair) else _differing("spec.vocab-mismatch", *pair)


def vocab_type_mismatch(evidence: Evidence) -> Finding | None:
    """Two vocabularies of one size and two types: older builds let such a pair draft."""
    pair = _pair(evidence)
    return _differing("spec.vocab-type-mismatch", *pair) if pair and _differ_by_type_alone(*pair) else None


def _pair(evidence: Evidence) -> tuple[Vocabulary, Vocabulary] | None:
    """The two vocabularies that headers tell of; or those of the target and the draft that a command line names."""
    if len(evidence.vocabularies) == 2:
        return evidence.vocabularies[0], evidence.vocabularies[1]
    files = {path.name: path for path in evidence.models}
    for command in evidence.commands:
        found = translate(shlex.join(command))
        named = (
            str(each).removeprefix("file:").rpartition("/")[2] for each in (found.model, found.values.get("draft"))
        )
        paths = [files.get(name) for name in named]
        if None in paths:
            continue
        try:
            target, draft = (vocabulary.read(gguf.read_file(path)) for path in paths if path is not None)
        except OrinError:  # which the rules about model files speak of
            return None
        return None if target is None or draft is None else (target, draft)
    return None


def _differ_by_type_alone(one: Vocabulary, other: Vocabulary) -> bool:
    return one.type != other.type and abs(one.n_tokens - other.n_tokens) <= vocabulary.MAX_SIZE_DIFFERENCE


def _differing(rule: str, one: Vocabulary, other: Vocabulary) -> Finding | None:
    told = vocabulary.difference(one, other)
    if told is None:
        return None
    # Which of two headers is the target's, evidence does not say.
    what = told.replace("the draft", "one").replace("the target", "the other")
    return Finding(
        rule,
        "refuse",
        f"the two cannot speculate together: {what}",
        "a draft of the target's own family and tokenizer; or a kind without a draft model: draft=ngram-map-k4v",
        why_not="older builds let such a pair draft: nothing was accepted, or it went wrong without a word",
        values={"tokens": [one.n_tokens, other.n_tokens]},
    )


def disable_when_slower(evidence: Evidence) -> Finding | None:
    """A draft that was measured to be slower than none, or no faster."""
    trials = [trial for trial in evidence.arms if not trial.workload]
    choice = choose(trials)
    if choice.arm != NONE or not choice.rejected:
        return None
    base = next(trial for trial in trials if trial.arm == NONE)
    arm, why = next(iter(choice.rejected.items()))
    return Finding(
        "spec.disable-when-slower",
        "plan",
        f"{arm} off: {why}",
        "--set draft=none; a shorter draft (spec_draft_n_max) or a smaller draft model may pay, measured anew",
        why_not="tokens that are accepted are no gain by themselves: drafting and verifying them takes time too",
        values={"speculative": "off", "baseline_tps": base.speed},
    )


def per_workload(evidence: Evidence) -> Finding | None:
    """A draft that wins on one workload and loses on another: what is served decides."""
    trials = [trial for trial in evidence.arms if trial.workload and not trial.workload.startswith(_DEPTH)]
    workloads = dict.fromkeys(trial.workload for trial in trials)
    gains = {name: _gain(trials, name) for name in workloads}
    if len(workloads) < 2 or not min(gains.values()) < 1 < max(gains.values()):
        return None
    served = [name for name in workloads if evidence.workload and name.lower().startswith(evidence.workload.lower())]
    choice = choose(trials, dict.fromkeys(served, 1.0) or None)
    told = ", ".join(f"{gain:.2f} times on {name}" for name, gain in gains.items())
    use = evidence.workload or "all of them"
    speculative = "off" if choice.arm == NONE else choice.arm
    return Finding(
        "spec.per-workload",
        "plan",
        f"with a draft it is {told} of the speed without: for {use} {choice.why}",
        "--set draft=none" if choice.arm == NONE else f"leave {choice.arm} on for it, and measure what else is served",
        why_not="neither is the draft broken nor is it a gain for everything: free text and heat are hard to guess",
        values={"speculative": speculative, "gains": {name: round(gain, 3) for name, gain in gains.items()}},
    )


def _gain(trials: list[Trial], workload: str) -> float:
    """The best arm's speed over that without speculation; 1 where there is nothing to compare."""
    of = {trial.arm: trial.speed for trial in trials if trial.workload == workload}
    return max((speed / of[NONE] for arm, speed in of.items() if arm != NONE), default=1.0) if NONE in of else 1.0


def draft_ctx_smaller(evidence: Evidence) -> Finding | None:
    """A context of the draft's own that a conversation outgrows long before the target's."""
    draft = next((int(word) for key, word in evidence.settings if _is_draft_context(key) and word.isdigit()), None)
    if draft is None or evidence.ctx_wanted is None or draft >= evidence.ctx_wanted:
        return None
    deep = [trial.workload for trial in evidence.arms if trial.workload.startswith(_DEPTH)]
    losing = [name for name in dict.fromkeys(deep) if _gain(list(evidence.arms), name) < 1]
    seen = f"; at {', '.join(losing)} it was slower than none" if losing else ""
    return Finding(
        "spec.draft-ctx-smaller",
        "warn",
        f"the draft's context of {draft} tokens is smaller than the target's {evidence.ctx_wanted}: past it the draft "
        f"is fed anew on every call{seen}",
        "leave the key out: today's llama-server gives a draft the target's context, and the budget counts it",
        why_not="a draft that helps at the start of a conversation may still lose at its depth: measure there too",
        values={"draft_ctx": draft, "ctx": evidence.ctx_wanted},
    )


def _is_draft_context(key: str) -> bool:
    return re.fullmatch(r"(?:\w+\.)?(?:draft_ctx|ctx_draft|ctx_size_draft|draft_ctx_size|n_ctx_draft)", key) is not None


def low_acceptance(evidence: Evidence) -> Finding | None:
    """A draft of which the target takes little, by the server's own count."""
    counts = [(int(match[1]), int(match[2])) for match in _ACCEPTANCE.finditer(evidence.text)]
    accepted, generated = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    if generated == 0 or accepted / generated >= _LOW:
        return None
    window = next((value for command in evidence.commands if (value := _n_max(command)) is not None), None)
    return Finding(
        "spec.low-acceptance",
        "diagnose",
        f"the target took {accepted} of {generated} drafted tokens, {accepted / generated:.2f} of them"
        + (f", with up to {window} drafted at once" if window else ""),
        "a shorter draft (--set spec_draft_n_max=3), a higher p-min so that it stops where it is unsure "
        "(--set spec_draft_p_min=0.6), or draft=none; measure each",
        why_not="the default of p-min has been 0.00 for some releases: the whole window is drafted each time",
        values={"accepted": accepted, "generated": generated},
    )


def _n_max(command: tuple[str, ...]) -> int | None:
    value = translate(shlex.join(command)).values.get("spec_draft_n_max")
    return value if isinstance(value, int) else None


def kind_missing(evidence: Evidence) -> Finding | None:
    """A draft model on a command line that names no kind of speculation."""
    for command in evidence.commands:
        found = translate(shlex.join(command))
        if "draft" in found.values and "spec_type" not in found.values:
            word = found.origin["draft"]
            return Finding(
                "spec.kind-missing",
                "warn",
                f"{word} alone loads a draft and drops it: llama-server speculates when --spec-type names the kind",
                "add --spec-type draft-simple; `orin-deploy import` makes a profile of the line, and `up` proves it",
                why_not="a draft that is loaded is no draft that is used: /slots says speculative, or nothing drafts",
                values={"words": word},
            )
    return None


def prompt_too_long(evidence: Evidence) -> Finding | None:
    """A prompt that the slot's context cannot hold."""
    old = evidence.find(r"n_ctx_slot = (\d{1,9}).*n_prompt_tokens = (\d{1,9})")
    new = evidence.find(r"request \((\d{1,9}) tokens\) exceeds the available context size \((\d{1,9}) tokens\)")
    if new is None and (old is None or int(old[2]) <= int(old[1])):
        return None
    prompt, context = (int(new[1]), int(new[2])) if new else (int(old[2]), int(old[1])) if old else (0, 0)
    died = evidence.find(r"[Ss]egmentation fault|signal 11|SIGSEGV") is not None
    end = ": this build cut it short and crashed on what was left" if died else ": the request is refused"
    return Finding(
        "ctx.prompt-too-long",
        "diagnose",
        f"a prompt of {prompt} tokens was sent to a slot of {context}{end}",
        f"--set ctx_size={_enough(prompt)} for one slot (slots share the context), or cut the prompt in the client"
        + ("; and a newer build.source, which answers with an error" if died else ""),
        why_not="neither the model nor the board's memory is at fault",
        values={"prompt_tokens": prompt, "ctx_slot": context},
    )


def _enough(prompt: int) -> int:
    """A context that holds the prompt and an answer, in the usual steps."""
    return -(-(prompt + 1024) // 1024) * 1024
