"""The weights of a model as llama.cpp places them: mapped from the file, copied, or copied into the CPU's own layout.

src/llama-model.cpp (load_tensors), src/llama-model-loader.cpp (create_tensor, get_mapping_range) and, for what a
buffer adds to its tensors, ggml/src/ggml-alloc.c and ggml-cuda.cu (ggml_backend_cuda_buffer_type_get_alloc_size).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from orin_deploy.facts.gguf_types import BY_NAME, Tensor
from orin_deploy.facts.repack import can_repack

CPU_ALIGNMENT, CUDA_ALIGNMENT = 32, 128
_CUDA_ROW = 512  # MATRIX_ROW_PADDING: quantised rows end on a multiple of it
_LAZY_BYTES = 4 << 30  # larger tables of this kind are read row by row (--lazy-mode auto)
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_LAZY = "per_layer_token_embd.weight"

# Stay on the CPU whatever else is offloaded (LLM_TENSOR_LAYER_INPUT).
_INPUT = frozenset({_EMBEDDING, _LAZY, "position_embd.weight", "token_types.weight"})
# Tables whose rows are looked up, and kernels of convolutions: never multiplied by (LLM_TENSOR_INFOS).
_LOOKED_UP = re.compile(
    r"(token_embd|position_embd|token_types|per_layer_token_embd|d2t|markov_w1|selector_(predecessor|successor)"
    r"|ssm_conv1d\w*|ple_conv1d|shortconv\.conv|ssm_a|attn_rel_b|nextn\.embed_tokens|\w*compressor_ape|ffn_gate_tid2eid"
    r"|time_mix_\w+lerp\w*|time_mix_first)\.weight$"
)
_BLOCK = re.compile(r"blk\.(\d+)\.")
# They leave the blocks for multi-token prediction in the file even where those are what is served.
_NEVER_LOADED = frozenset(("bailingmoe2", "dots3note", "exaone-moe", "exaone4", "glm4"))


@dataclass(frozen=True, eq=False)
class Tensors:
    """All weights, file by file, and how many blocks the model itself runs (those behind only predict further tokens).

    Equal only to itself, so that what is computed of it can be kept.
    """

    files: tuple[tuple[Tensor, ...], ...]
    architecture: str
    n_layer: int
    tied: bool = field(init=False)

    def __post_init__(self) -> None:
        names = {tensor.name for tensor in self.all()}
        object.__setattr__(self, "tied", _EMBEDDING in names and _OUTPUT not in names)

    def all(self) -> Iterable[Tensor]:
        return (tensor for tensors in self.files for tensor in tensors)

    def loaded(self, nextn: bool) -> list[list[Tensor]]:
        """The tensors the engine loads; `nextn`: to draft by multi-token prediction."""
        everything = nextn and self.architecture not in _NEVER_LOADED
        return [[each for each in tensors if everything or self._runs(each)] for tensors in self.files]

    def _runs(self, tensor: Tensor) -> bool:
        block = _BLOCK.match(tensor.name)
        return block is None or int(block[1]) < self.n_layer


@lru_cache(maxsize=64)
def cpu_bytes(tensors: Tensors, features: frozenset[str], *, mapped: bool, nextn: bool = False) -> tuple[int, int]:
    """Bytes on a CPU with these features (ggml's names): as the file has them, and in the CPU's own layout."""
    plain, repacked = [], 0
    for file in tensors.loaded(nextn):
        own = {each.name for each in file if multiplied(each) and can_repack(each, features)}
        plain.append([each for each in file if each.name not in own])
        # A token embedding that is the output matrix too is looked up in one layout and multiplied by in the other.
        both = [each for each in file if tensors.tied and each.name == _EMBEDDING and can_repack(each, features)]
        repacked += _buffer([*(each for each in file if each.name in own), *both])
    return sum(_range(file) for file in plain) if mapped else _buffer(each for file in plain for each in file), repacked


@lru_cache(maxsize=64)
def gpu_bytes(tensors: Tensors, *, mapped: bool, nextn: bool = False, cuda: bool = True) -> tuple[int, int]:
    """Bytes with all layers on a device of another backend, CUDA or RPC: on the device, and left on the CPU."""
    files = tensors.loaded(nextn)
    device = [each for file in files for each in file if each.name not in _INPUT]
    device += [each for file in files for each in file if tensors.tied and each.name == _EMBEDDING]
    host = [[each for each in file if each.name in _INPUT] for file in files]
    on_host = sum(_range(file) for file in host) if mapped else _buffer(each for file in host for each in file)
    return (_cuda_buffer(device) if cuda else _buffer(device)), on_host


def multiplied(tensor: Tensor) -> bool:
    """A matrix, or a stack of experts' matrices, that activations are multiplied by (MUL_MAT, MUL_MAT_ID)."""
    dims = [size for size in tensor.dims if size > 1] if len(tensor.dims) > 2 else list(tensor.dims)
    shape = 3 if "exps." in tensor.name else 2
    return len(dims) == shape and tensor.name.endswith(".weight") and not _LOOKED_UP.search(tensor.name)


def repackable_bytes(tensors: Tensors) -> int:
    """Bytes of the weights that some CPU copies into a layout of its own."""
    tied = {_EMBEDDING} if tensors.tied else set()
    return sum(
        each.bytes for each in tensors.all() if (multiplied(each) or each.name in tied) and can_repack(each, None)
    )


def _buffer(tensors: Iterable[Tensor]) -> int:
    return sum(-(-each.bytes // CPU_ALIGNMENT) * CPU_ALIGNMENT for each in tensors)


def _cuda_buffer(tensors: Iterable[Tensor]) -> int:
    total = 0
    for each in tensors:
        kind, rest = BY_NAME[each.type], -each.dims[0] % _CUDA_ROW
        size = each.bytes + (kind.row_bytes(rest) if kind.block > 1 and rest else 0)
        total += -(-size // CUDA_ALIGNMENT) * CUDA_ALIGNMENT
    return total


def _range(tensors: Sequence[Tensor]) -> int:
    """From the first to the last tensor in a file, with all that lies between; lazy tables are mapped by themselves."""
    lazy = [each for each in tensors if each.name == _LAZY and each.bytes > _LAZY_BYTES]
    rest = [each for each in tensors if not lazy or each.name != _LAZY]
    ranges = [max(t.offset + t.bytes for t in part) - min(t.offset for t in part) for part in (rest, lazy) if part]
    return sum(ranges)
