"""A model's vocabulary as llama.cpp sees it, and whether a draft's is near enough to the target's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orin_deploy.facts.gguf import Header

# What llama.cpp makes of tokenizer.ggml.model (src/llama-vocab.cpp): its type, bos, eos, add_bos, add_eos.
_KINDS: dict[str, tuple[str, int, int, bool, bool]] = {
    "llama": ("SPM", 1, 2, True, False),
    "bert": ("WPM", 101, -1, True, False),
    "gpt2": ("BPE", 11, 11, False, False),
    "hybriddna": ("BPE", 11, 11, False, False),
    "whitespace": ("BPE", 11, 11, False, False),
    "gemma4": ("BPE", -1, -1, True, False),
    "t5": ("UGM", -1, 1, False, True),
    "rwkv": ("RWKV", -1, -1, False, False),
    "plamo2": ("PLAMO2", 1, 2, False, False),
}
# Pre-tokenizers of a BPE vocabulary that begin a text with its bos token, and those that have none by default.
_ADD_BOS = frozenset(
    {
        *("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"),
        *("tekken", "chameleon"),
    }
)
_NO_BOS = frozenset(("chatglm-bpe", "glm4", "glm5"))

MAX_SIZE_DIFFERENCE = 128  # SPEC_VOCAB_MAX_SIZE_DIFFERENCE of common/speculative.cpp
FIRST_COMPARED = 5  # SPEC_VOCAB_CHECK_START_TOKEN_ID


@dataclass(frozen=True)
class Vocabulary:
    """What decides whether two models can speculate together; `texts` is asked only where it must be.

    `bos` and `eos` are -1 where there is none. `texts` is None where only a description is at hand.
    """

    model: str  # tokenizer.ggml.model
    type: str  # llama.cpp's name for it: "BPE", "SPM" …
    n_tokens: int
    bos: int
    eos: int
    add_bos: bool
    add_eos: bool
    fingerprint: str | None = None
    texts: Callable[[], Sequence[bytes]] | None = None


def read(header: Header) -> Vocabulary | None:
    """The vocabulary a header carries; None for a file that carries none."""
    texts = header.tokens.texts if header.tokens else None
    return describe(header.metadata, header.n_vocab, header.vocab_fingerprint, texts)


def describe(
    metadata: Mapping[str, Any],
    n_tokens: int,
    fingerprint: str | None = None,
    texts: Callable[[], Sequence[bytes]] | None = None,
) -> Vocabulary | None:
    """The vocabulary that metadata by GGUF's keys tell of, by the defaults of src/llama-vocab.cpp."""
    model = metadata.get("tokenizer.ggml.model")
    if not isinstance(model, str) or model in ("none", "no_vocab") or not n_tokens:
        return None
    kind, bos, eos, add_bos, add_eos = _KINDS.get(model, (model, -1, -1, False, False))
    pre = metadata.get("tokenizer.ggml.pre")
    if kind == "BPE":
        add_bos = add_bos or pre in _ADD_BOS
        bos = -1 if pre in _NO_BOS else bos
    add_bos, add_eos = (
        said if isinstance(said := metadata.get(f"tokenizer.ggml.add_{which}_token"), bool) else usual
        for which, usual in (("bos", add_bos), ("eos", add_eos))
    )
    return Vocabulary(
        model,
        kind,
        n_tokens,
        _special(metadata, "bos", bos, n_tokens),
        _special(metadata, "eos", eos, n_tokens),
        add_bos or model == "gemma4",
        add_eos,
        fingerprint,
        texts,
    )


def _special(metadata: Mapping[str, Any], which: str, usual: int, n_tokens: int) -> int:
    """A special token's number; one beyond the vocabulary is passed over as llama.cpp does."""
    usual = usual if usual < n_tokens else -1
    said = metadata.get(f"tokenizer.ggml.{which}_token_id")
    return said if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < n_tokens else usual


def difference(target: Vocabulary, draft: Vocabulary) -> str | None:
    """The first thing in which llama.cpp finds a draft's vocabulary another one than the target's, or None.

    The rules are those of common_speculative_are_compatible (common/speculative.cpp), which since 2023 refuses pairs
    that older builds let draft in vain.
    """
    if target.type != draft.type:
        models = f"{draft.model} ({draft.type}) in the draft and {target.model} ({target.type}) in the target"
        return f"tokenizer.ggml.model is {models}, with {draft.n_tokens} and {target.n_tokens} tokens"
    for which in ("bos", "eos"):
        adds = [getattr(each, f"add_{which}") for each in (target, draft)]
        ids = [getattr(each, which) for each in (target, draft)]
        if adds[0] != adds[1]:
            said = ["adds" if each else "does not add" for each in adds]
            return f"the draft {said[1]} the {which} token to a text, the target {said[0]} it"
        if adds[0] and ids[0] != ids[1]:
            return f"the {which} token is {ids[1]} in the draft and {ids[0]} in the target"
    if abs(target.n_tokens - draft.n_tokens) > MAX_SIZE_DIFFERENCE:
        return (
            f"the draft has {draft.n_tokens} tokens and the target {target.n_tokens}: more than "
            f"{MAX_SIZE_DIFFERENCE} apart"
        )
    return _first_text(target, draft)


def _first_text(target: Vocabulary, draft: Vocabulary) -> str | None:
    known = None not in (target.fingerprint, draft.fingerprint)
    if (known and target.fingerprint == draft.fingerprint) or target.texts is None or draft.texts is None:
        return None
    ours, theirs = target.texts(), draft.texts()
    for number in range(FIRST_COMPARED, min(len(ours), len(theirs))):
        if ours[number] != theirs[number]:
            return f"token {number} is {_shown(theirs[number])} in the draft and {_shown(ours[number])} in the target"
    return None


def _shown(text: bytes) -> str:
    words = text.decode("utf-8", "replace")
    return f'"{words}"' if words.isprintable() else ascii(words)
