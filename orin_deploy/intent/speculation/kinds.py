"""The kinds of speculation: what each needs, which targets it goes with, how many tokens it drafts at once."""

from __future__ import annotations

import re
from collections.abc import Mapping

from orin_deploy.facts.draft import BY_MODEL, DFLASH, DSPARK, EAGLE3, MTP, SIMPLE
from orin_deploy.intent.help_flags import flags_in
from orin_deploy.intent.options import find
from orin_deploy.intent.spec import Setting

DRAFTLESS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
"""Kinds that find their drafts in the text so far."""
KINDS = (*BY_MODEL, *DRAFTLESS)

WORDS = ("auto", "optional", "none", *KINDS)
"""What the key `draft` may say besides naming a model."""

# What people write for those words: a switch's words, older names, other programs' names (prompt lookup is n-grams).
_MEANT = {
    **dict.fromkeys(("on", "yes", "true", "enable", "enabled", "default"), "auto"),
    **dict.fromkeys(("off", "no", "false", "disable", "disabled"), "none"),
    **dict.fromkeys(("lookup", "prompt-lookup", "ngram", "ngrams", "n-gram"), "ngram-simple"),
    **dict.fromkeys(("eagle", "eagle2"), EAGLE3),
    "simple": SIMPLE,
    "nextn": MTP,
    **dict(find("spec_type").synonyms),
}

READS_LAYERS = (EAGLE3, DFLASH, DSPARK)
"""Kinds whose draft reads the target's hidden states."""

# Architectures whose graph hands out the inputs of its layers: those with t_layer_inp in src/models of commit 0c1e570,
# aliases of their graphs included. With any other the server aborts at its first batch ("layer input tensor is null").
HANDS_OUT_LAYERS = frozenset(
    {
        *("bailingmoe3", "deepseek4", "gemma4", "gpt-oss", "hunyuan-dense", "hunyuan_vl", "lfm2", "lfm2moe", "llama"),
        *("mimo2", "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige", "nemotron_h", "nemotron_h_moe", "qwen3"),
        *("qwen35", "qwen35moe", "qwen3moe", "qwen3next", "qwen4exp"),
    }
)
# Those that hand out what leaves the last layer as well.
HANDS_OUT_LAST = frozenset(("deepseek4", "mimo2", "nemotron_h", "nemotron_h_moe"))
# Architectures with a graph for multi-token prediction (LLM_GRAPH_TYPE_DECODER_MTP).
PREDICTS_AHEAD = frozenset(
    {
        *("bailingmoe3", "cohere2moe", "deepseek2", "deepseek32", "deepseek4", "glm-dsa", "glm4moe", "glm5-next"),
        *("hy_v3", "mimo2", "nemotron_h_moe", "qwen35", "qwen35moe", "qwen3next", "step35"),
    }
)

# The option that holds the most tokens drafted at once, and llama.cpp's default (common/common.h).
_N_MAX: dict[str, tuple[str, int]] = {
    **dict.fromkeys(BY_MODEL, ("spec_draft_n_max", 3)),
    "ngram-simple": ("spec_ngram_simple_size_m", 48),
    "ngram-map-k": ("spec_ngram_map_k_size_m", 48),
    "ngram-map-k4v": ("spec_ngram_map_k4v_size_m", 48),
    "ngram-mod": ("spec_ngram_mod_n_max", 64),
}
_N_MIN: dict[str, tuple[str, int]] = {
    **dict.fromkeys(BY_MODEL, ("spec_draft_n_min", 0)),
    "ngram-mod": ("spec_ngram_mod_n_min", 48),
}


def meant(word: str) -> str | None:
    """The word of `draft` that a wrong one surely means, whatever models there are; None where that is none."""
    plain = re.sub(r"[\s_]+", "-", word.strip().lower())
    bare = plain.replace("-", "")
    known = {**_MEANT, **{each: each for each in WORDS}}
    return known.get(plain) or next((told for each, told in known.items() if each.replace("-", "") == bare), None)


def nearest(word: str) -> str | None:
    """The word of `draft` that a wrong one most likely means, or None."""
    from difflib import get_close_matches

    return meant(word) or next(iter(get_close_matches(word.lower(), WORDS, n=1)), None)


def n_max_key(kind: str) -> str | None:
    """The option that says how many tokens a kind drafts at most; None for ngram-cache, whose 8 nothing changes."""
    return _N_MAX.get(kind, (None, 0))[0]


def n_max(kind: str, values: Mapping[str, Setting]) -> int:
    """The most tokens a kind drafts at once."""
    return _number(values, *_N_MAX.get(kind, ("", 8)))


def n_min_key(kind: str) -> str | None:
    return _N_MIN.get(kind, (None, 0))[0]


def n_min(kind: str, values: Mapping[str, Setting]) -> int:
    """The fewest tokens that are worth a draft to a kind."""
    return _number(values, *_N_MIN.get(kind, ("", 0)))


def _number(values: Mapping[str, Setting], key: str, usual: int) -> int:
    value = values[key].value if key in values else None
    return usual if value is None else int(str(value))


def in_help(help_text: str | None) -> tuple[str, ...]:
    """The kinds that a binary's --help lists; all of them before there is a binary."""
    if help_text is None:
        return KINDS
    flag = flags_in(help_text).get("--spec-type")
    return tuple(kind for kind in flag.choices if kind != "none") if flag else ()
