"""What a model is, as far as serving it needs to know: from its GGUF header or from a catalogue entry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import takewhile
from math import prod
from pathlib import Path

from orin_deploy.facts.gguf import Header, read_set
from orin_deploy.facts.gguf_types import FILE_TYPES, Tensor
from orin_deploy.facts.layers import Layer, read_layers
from orin_deploy.facts.not_a_model import NotAModel
from orin_deploy.facts.repack import KEPT, Matrices, can_repack

# They load, but answer no chat: encoders, and what rides along with a model.
_ENCODERS = ("bert", "t5encoder", "gemma-embedding", "wavtokenizer")
_COMPANIONS = ("clip", "adapter", "mmproj")


@dataclass(frozen=True)
class Model:
    """Sizes are elements unless the name says bytes. `layers` has one entry a block, in order.

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
    matrices: tuple[Matrices, ...] = ()  # weights the engine multiplies by; empty when unknown

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


def from_header(header: Header, reference: str, *, rest: Sequence[Header] = ()) -> Model:
    """The model a header describes; `rest` are the headers of parts 2 to N of a split set. Raises NotAModel."""
    architecture = _architecture(header)
    parts = (header, *rest)
    if len(parts) < header.split_count:
        raise NotAModel(
            "gguf.split-name",
            f"{header.label} is one of {header.split_count} parts; {len(parts)} were read",
            "fetch the missing parts too",
        )
    tensors = [tensor for part in parts for tensor in part.tensors]
    if not tensors:
        raise NotAModel(
            "gguf.no-weights", f"{header.label} holds a vocabulary but no weights", "fetch the model itself"
        )
    sizes = {tensor.name: tensor for tensor in tensors}
    embedding, output = sizes.get("token_embd.weight"), sizes.get("output.weight")
    types = Counter[str]()
    for tensor in tensors:
        types[tensor.type] += tensor.bytes
    matrices = _matrices(tensors)
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
        layers=read_layers(header, architecture, _needed(header, f"{architecture}.block_count")),
        n_vocab=header.n_vocab or (embedding.dims[-1] if embedding else 0),
        n_ctx_train=_needed(header, f"{architecture}.context_length"),
        tokenizer=header.text("tokenizer.ggml.model"),
        pre_tokenizer=header.text("tokenizer.ggml.pre"),
        chat_template="tokenizer.chat_template" in header.metadata,
        vocab_fingerprint=header.vocab_fingerprint,
        rope_base=_float(header, f"{architecture}.rope.freq_base"),
        n_expert=_largest(header, f"{architecture}.expert_count"),
        n_expert_used=_largest(header, f"{architecture}.expert_used_count"),
        sliding_window=_largest(header, f"{architecture}.attention.sliding_window"),
        token_embd_bytes=embedding.bytes if embedding else 0,
        output_bytes=output.bytes if output else 0,
        largest_tensor_bytes=max(tensor.bytes for tensor in tensors),
        repackable_bytes=sum(group.bytes for group in matrices if can_repack(group, None)),
        tensor_types=tuple(types.most_common()),
        parts=len(parts),
        matrices=matrices,
    )


def repacked_bytes(model: Model, cpu_features: Set[str], kept: Sequence[str] = KEPT) -> int:
    """Bytes of weights that the CPU backend copies into a layout of its own, given the CPU's features (ggml's names).

    `kept` picks by what becomes of the file's copy, see `Matrices`.
    """
    return sum(group.bytes for group in model.matrices if group.kept in kept and can_repack(group, cpu_features))


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


def _matrices(tensors: Sequence[Tensor]) -> tuple[Matrices, ...]:
    """Weights grouped by what decides whether the CPU backend repacks them, and what becomes of the file's copy then.

    A token embedding is only looked up, not multiplied by, unless it is the output matrix as well.
    """
    tied = not any(tensor.name == "output.weight" for tensor in tensors)
    edges = {*_edge(tensors), *_edge(tensors[::-1])}
    groups = Counter[tuple[str, int, str]]()
    for tensor in tensors:
        if _is_matrix(tensor) and (tied or not _is_embedding(tensor)):
            rows = next(multiple for multiple in (8, 4, 1) if tensor.dims[1] % multiple == 0)
            kept = "looked up" if _is_embedding(tensor) else "dropped" if tensor.name in edges else "mapped"
            groups[tensor.type, rows, kept] += tensor.bytes
    return tuple(Matrices(*group, size) for group, size in groups.most_common())


def _edge(tensors: Sequence[Tensor]) -> list[str]:
    """The names of the first tensors, as far as they are matrices of one type."""
    first = tensors[0].type
    alike = takewhile(lambda each: _is_matrix(each) and not _is_embedding(each) and each.type == first, tensors)
    return [tensor.name for tensor in alike]


def _is_matrix(tensor: Tensor) -> bool:
    return len(tensor.dims) >= 2 and tensor.name.endswith(".weight")


def _is_embedding(tensor: Tensor) -> bool:
    return tensor.name == "token_embd.weight"
