"""What a model is, as far as serving it needs to know: from its GGUF header or from a catalogue entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from orin_deploy.facts.blocks import Block, read_blocks
from orin_deploy.facts.gguf import Header, check_set, read_file, read_set
from orin_deploy.facts.gguf_types import FILE_TYPES
from orin_deploy.facts.layers import Layer, read_layers
from orin_deploy.facts.not_a_model import NotAModel
from orin_deploy.facts.tensors import Tensors, repackable_bytes

# They load, but answer no chat: encoders, and what rides along with a model.
_ENCODERS = ("bert", "t5encoder", "gemma-embedding", "wavtokenizer")
_COMPANIONS = ("clip", "adapter", "mmproj")
_PROJECTOR = frozenset({"clip", "mmproj"})

# Elements: a hundred times what the largest models have, except for the context, which upstream keeps in 32 bits.
_MOST = {
    "context_length": (1 << 31) - 1,
    "embedding_length": 1 << 22,
    "feed_forward_length": 1 << 24,
    "expert_feed_forward_length": 1 << 24,
    "attention.head_count": 1 << 16,
    "attention.head_count_kv": 1 << 16,
    "attention.key_length": 1 << 16,
    "attention.value_length": 1 << 16,
    "attention.sliding_window": (1 << 32) - 1,
}


@dataclass(frozen=True)
class Projected:
    """What the built engine itself says of a model whose architecture no rule here knows, in bytes: the weights, what
    a sequence keeps, a cell of an f16 cache, and the compute buffer."""

    weights: int
    sequence: int
    cell: float
    compute: int


@dataclass(frozen=True)
class Model:
    """Sizes are elements unless the name says bytes. `layers` has one entry a block that the model
    itself runs, in order.

    `known_from` is "header" or "catalogue"; from the catalogue only, `tensor_bytes` is the file's size and
    `vocab_fingerprint` is None.
    """

    reference: str
    known_from: str
    architecture: str
    name: str | None
    n_params: int | None
    file_type: str | None  # "Q4_K_M", "F16" … by the header's file type, None when it does not say
    file_bytes: int  # all parts together
    tensor_bytes: int
    n_embd: int
    n_ff: int
    n_head: int
    layers: tuple[Layer, ...]
    n_vocab: int
    n_ctx_train: int
    tokenizer: str | None  # tokenizer.ggml.model
    pre_tokenizer: str | None  # tokenizer.ggml.pre
    chat_template: bool
    vocab_fingerprint: str | None
    rope_base: float | None = None
    n_expert: int = 0
    n_expert_used: int = 0
    sliding_window: int = 0
    token_embd_bytes: int = 0  # 0 when unknown
    output_bytes: int = 0  # 0 when tied to the token embedding or unknown
    largest_tensor_bytes: int = 0
    repackable_bytes: int = 0  # tensors that the CPU backend may copy into its own layout
    tensor_types: tuple[tuple[str, int], ...] = ()  # (type name, bytes), largest first
    parts: int = 1
    n_embd_out: int = 0  # width of what the last layer gives to a draft; 0: n_embd
    target_layers: tuple[int, ...] = ()  # of a draft: the target's layers whose input it reads
    nextn: tuple[Layer, ...] = ()  # blocks behind the layers that only predict further tokens
    blocks: tuple[Block, ...] = ()  # what layers and nextn are made of, in the file's order; empty when unknown
    projected: Projected | None = None  # only of an architecture that is not known here, once its engine is built
    tensors: Tensors | None = field(default=None, compare=False, repr=False)  # None when unknown

    @property
    def n_layer(self) -> int:
        return len(self.layers)

    @property
    def sliding_layers(self) -> bool:
        """Some layers keep only the sliding window."""
        return any(layer.sliding for layer in self.layers)

    @property
    def tied(self) -> bool:
        """The token embedding serves as the output matrix too."""
        return self.token_embd_bytes > 0 and self.output_bytes == 0


def from_file(path: Path) -> Model:
    """The model in a local file, or in a split set by its first part; raises NotAModel."""
    first, *rest = read_set(path)
    return from_header(first, f"file:{path}", rest=rest)


def projector_bytes(path: str | None) -> int:
    """Bytes of the tensors of a multimodal projector (--mmproj), 0 without one.

    Raises NotAModel for a file that is not there, is no GGUF, or is another model: nothing fetches a projector.
    """
    if path is None:
        return 0
    header = read_file(Path(path), fingerprint=False)
    if _PROJECTOR.isdisjoint((header.text("general.architecture"), header.text("general.type"))):
        raise NotAModel(
            "gguf.not-a-projector",
            f"{header.label} is no multimodal projector but a GGUF of {header.text('general.architecture')}",
            "set mmproj to the mmproj file of the model's publisher",
        )
    return sum(tensor.bytes for tensor in header.tensors)


def from_header(header: Header, reference: str, *, rest: Sequence[Header] = ()) -> Model:
    """The model a header describes; `rest` are the headers of parts 2 to N of a split set. Raises NotAModel."""
    architecture = _architecture(header)
    _check_sizes(header, architecture)
    parts = (header, *rest)
    check_set(parts)
    tensors = [tensor for part in parts for tensor in part.tensors]
    if not tensors:
        raise NotAModel(
            "gguf.no-weights", f"{header.label} holds a vocabulary but no weights", "fetch the model itself"
        )
    sizes = {tensor.name: tensor for tensor in tensors}
    embedding, output = sizes.get("token_embd.weight"), sizes.get("output.weight")
    blocks = read_layers(header, architecture, _needed(header, f"{architecture}.block_count"))
    table = Tensors(tuple(part.tensors for part in parts), architecture, len(blocks.layers))
    types = Counter[str]()
    for tensor in tensors:
        types[tensor.type] += tensor.bytes
    expert_ff = _largest(header, f"{architecture}.expert_feed_forward_length")
    return Model(
        reference=reference,
        known_from="header",
        architecture=architecture,
        name=header.text("general.name"),
        n_params=sum(prod(tensor.dims) for tensor in tensors),
        file_type=FILE_TYPES.get(header.number("general.file_type", -1) & ~1024),  # 1024: guessed by the loader
        file_bytes=sum(part.promised_bytes if part.file_bytes is None else part.file_bytes for part in parts),
        tensor_bytes=types.total(),
        n_embd=_needed(header, f"{architecture}.embedding_length"),
        n_ff=_largest(header, f"{architecture}.feed_forward_length") or expert_ff,
        n_head=_largest(header, f"{architecture}.attention.head_count"),
        layers=blocks.layers,
        n_vocab=header.n_vocab or (embedding.dims[-1] if embedding else 0),
        n_ctx_train=_needed(header, f"{architecture}.context_length"),
        tokenizer=header.text("tokenizer.ggml.model"),
        pre_tokenizer=header.text("tokenizer.ggml.pre"),
        chat_template="tokenizer.chat_template" in header.metadata,
        vocab_fingerprint=header.vocab_fingerprint,
        rope_base=_float(header, f"{architecture}.rope.freq_base"),
        n_expert=_largest(header, f"{architecture}.expert_count"),
        n_expert_used=_largest(header, f"{architecture}.expert_used_count"),
        sliding_window=blocks.window,
        token_embd_bytes=embedding.bytes if embedding else 0,
        output_bytes=output.bytes if output else 0,
        largest_tensor_bytes=max(tensor.bytes for tensor in tensors),
        repackable_bytes=repackable_bytes(table),
        tensor_types=tuple(types.most_common()),
        parts=len(parts),
        n_embd_out=_width_out(header, architecture),
        target_layers=_integers(header, f"{architecture}.target_layers"),
        nextn=blocks.nextn,
        blocks=read_blocks(header, architecture, tensors, _needed(header, f"{architecture}.block_count")),
        tensors=table,
    )


def _architecture(header: Header) -> str:
    architecture = header.text("general.architecture")
    kind = header.text("general.type")
    if not architecture or architecture in _COMPANIONS or kind in _COMPANIONS:
        what = f"of the kind '{kind or architecture}'" if architecture else "with an empty architecture"
        raise NotAModel(
            "gguf.arch-empty",
            f"{header.label} is a GGUF {what}: not a language model file (projector/adapter?)",
            "give the language model's own file; a projector or adapter goes beside it",
        )
    if any(word in architecture for word in _ENCODERS):
        raise NotAModel(
            "gguf.encoder",
            f"{header.label} is an encoder ({architecture}): it makes embeddings and cannot chat",
            "give a language model",
        )
    return architecture


def _check_sizes(header: Header, architecture: str) -> None:
    """Raise NotAModel for sizes that no model has: damage, for which memory must not be reckoned."""
    for name, most in _MOST.items():
        claimed = _largest(header, f"{architecture}.{name}")
        if claimed > most:
            raise NotAModel(
                "gguf.corrupt", f"{header.label} claims a {architecture}.{name} of {claimed}", "fetch the model again"
            )


def _needed(header: Header, key: str) -> int:
    value = _largest(header, key)
    if value <= 0:
        raise NotAModel("gguf.corrupt", f"{header.label} does not say {key}", "convert or fetch the model again")
    return value


def _largest(header: Header, key: str) -> int:
    """A number that some architectures give per layer: the largest; 0 when absent."""
    value = header.metadata.get(key)
    if isinstance(value, tuple):
        return max((item for item in value if isinstance(item, int) and item > 0), default=0)
    return max(0, header.number(key, 0))


def _float(header: Header, key: str) -> float | None:
    value = header.metadata.get(key)
    return float(value) if isinstance(value, (int, float)) else None


def _integers(header: Header, key: str) -> tuple[int, ...]:
    value = header.metadata.get(key)
    return tuple(item for item in value if isinstance(item, int)) if isinstance(value, tuple) else ()


def _width_out(header: Header, architecture: str) -> int:
    """llama_hparams::n_embd_out, 0 where it is n_embd: two architectures keep several streams side by side."""
    if architecture in ("deepseek4", "qwen4exp"):
        return _largest(header, f"{architecture}.hyper_connection.count") * _largest(
            header, f"{architecture}.embedding_length"
        )
    return _largest(header, f"{architecture}.embedding_length_out")
