"""What a model file is as a draft: of which kind of speculation, and made for which target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from orin_deploy.facts.gguf import Header

SIMPLE, EAGLE3, MTP, DFLASH, DSPARK = "draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"
BY_MODEL = (SIMPLE, EAGLE3, MTP, DFLASH, DSPARK)
"""The kinds that draft with a model, by the names of llama-server's --spec-type."""

_USUAL_BLOCK = 16  # common/speculative.cpp, where the header does not say
DRAFTS_ONLY = {"eagle3": EAGLE3, "dflash": DFLASH}
"""Architectures that can do nothing but draft, by general.architecture."""


@dataclass(frozen=True)
class Drafter:
    """A draft model's own part in speculation.

    `block_size` is the most tokens it was trained to draft at once, 0 without such a limit. It reads the target's
    `target_layers` (numbers of layers whose input it takes) of a hidden size of `target_embd`; 0 where unknown.
    """

    kind: str
    block_size: int = 0
    from_anchor: bool = True  # the first of a block is drafted too
    target_layers: tuple[int, ...] = ()
    target_embd: int = 0
    confidence_head: bool = True

    @property
    def most(self) -> int | None:
        """The most tokens it can draft at once; None without a limit (common/speculative.cpp clamps to it)."""
        if not self.block_size:
            return None
        return self.block_size if self.kind == DSPARK and self.from_anchor else self.block_size - 1


def read(header: Header) -> Drafter:
    """What kind of draft a header describes, by the rules of common_speculative_types_from_gguf and the EAGLE3 loader.

    A plain language model is a draft-simple.
    """
    architecture = header.text("general.architecture") or ""
    names = {tensor.name for tensor in header.tensors}
    layers = header.metadata.get(f"{architecture}.target_layers")
    taps = tuple(layer for layer in layers if isinstance(layer, int)) if isinstance(layers, tuple) else ()
    n_embd = header.number(f"{architecture}.embedding_length", 0)
    if architecture == "eagle3":
        return Drafter(EAGLE3, target_layers=taps, target_embd=header.number("eagle3.target_hidden_size", 0))
    if architecture == "dflash":
        return Drafter(
            DSPARK if "markov_w1.weight" in names else DFLASH,
            header.number("dflash.block_size", _USUAL_BLOCK),
            header.metadata.get("dflash.sample_from_anchor") is not False,
            taps,
            n_embd,
            header.metadata.get("dflash.has_confidence_head") is not False,
        )
    last = header.number(f"{architecture}.block_count", 0) - 1
    if f"blk.{last}.nextn.eh_proj.weight" in names:
        return Drafter(MTP, target_embd=n_embd)
    return Drafter(SIMPLE)


def coarse_types(types: Iterable[str]) -> tuple[str, ...]:
    """Those of these tensor types that keep less than 16 bits of a weight."""
    return tuple(name for name in types if name not in ("F64", "F32", "F16", "BF16"))
