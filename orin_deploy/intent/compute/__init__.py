"""The compute buffer: llama.cpp's prompt graph, tensor by tensor, laid out by ggml's own allocator."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from orin_deploy.facts.model import Model
from orin_deploy.facts.tensors import CPU_ALIGNMENT, CUDA_ALIGNMENT, Tensors
from orin_deploy.intent.compute.arena import reserve
from orin_deploy.intent.compute.batch import Batch, ComputeBytes
from orin_deploy.intent.compute.decoder import build_decoder
from orin_deploy.intent.compute.drafts import build_dflash, build_eagle3, build_predictor, replays
from orin_deploy.intent.compute.graph import F16, F32
from orin_deploy.intent.compute.inputs import Context
from orin_deploy.intent.compute.replayed import REPLAYED

__all__ = ["Batch", "ComputeBytes", "compute_bytes"]

# The indexers of sparse attention are not replayed. In the models of test-llama-archs they take so many times
# cells x tokens x 4 bytes, with flash attention and without.
_INDEXERS, _INDEXER = {"qwen4exp": (38, 38), "minimax-m3": (4, 0)}, (7, 14)
_BUILDERS = {"dflash": build_dflash, "eagle3": build_eagle3}
_SOME_CELLS = 4096


def compute_bytes(model: Model, batch: Batch, *, gpu: bool, cuda: bool = True) -> ComputeBytes:
    """The worst-case prompt graph's buffers, as the server reserves them at start (llama_context::sched_reserve).

    `gpu` stands for any device apart from the host; without `cuda` it is a CPU behind ggml-rpc-server. CPU and RPC are
    measured, CUDA follows the same walk by upstream's source.
    """
    if not any(layer.n_head_kv for layer in (*model.layers, *model.nextn)):
        batch = replace(batch, cells=batch.tokens)  # without a cache, tokens attend to each other
    sizes = _sizes(model, batch, gpu, cuda and gpu)
    if not any(layer.index_k for layer in model.layers):
        return sizes
    times = _INDEXERS.get(model.architecture, _INDEXER)[not batch.flash_attn]
    if model.architecture == "minimax-m3" and batch.streams < batch.sequences:
        times = 0
    return replace(sizes, device=sizes.device + times * batch.cells * batch.tokens * F32, exact=False)


def _sizes(model: Model, batch: Batch, gpu: bool, cuda: bool) -> ComputeBytes:
    exactly = replays(model) if model.architecture in _BUILDERS else model.architecture in REPLAYED
    if not _masks_alone_know_the_context(model, batch, cuda):
        return ComputeBytes(*_walked(model, batch, gpu, cuda, _read(model))[:2], exactly)
    some = replace(batch, cells=_SOME_CELLS, cells_swa=_SOME_CELLS)
    device, host, full, sliding = _walked(model, some, gpu, cuda, _read(model))
    for cells in (batch.cells,) * full + (batch.cells_swa,) * sliding:
        device += _mask(batch, cells, cuda) - _mask(batch, _SOME_CELLS, cuda)
        if gpu:
            host += _mask(batch, cells, False) - _mask(batch, _SOME_CELLS, False)
    return ComputeBytes(device, host, exactly)


def _masks_alone_know_the_context(model: Model, batch: Batch, cuda: bool) -> bool:
    """With flash attention the masks have places of their own while the layers of all kinds go by, and nothing else
    grows with the context, so that one walk serves them all. CUDA's copies of a quantised cache do grow; and the buffer
    may still grow when a mask has been freed: in a hybrid, in a handful of layers, or for more logits than go into the
    places of the layers."""
    copied = cuda and {batch.type_k, batch.type_v} != {"f16"}
    hybrid = any(block.mixer for block in model.blocks)
    own = batch.predicts or model.architecture in _BUILDERS or len(model.layers) < 8
    few = batch.outputs * model.n_vocab <= batch.tokens * model.n_embd
    return batch.flash_attn and few and not (copied or hybrid or own)


def _read(model: Model) -> Tensors | None:
    """The tensors where a graph depends on them by name, which models are not told apart by."""
    return model.tensors if model.architecture in _BUILDERS else None


@lru_cache(maxsize=256)
def _walked(model: Model, batch: Batch, gpu: bool, cuda: bool, tensors: Tensors | None) -> tuple[int, int, bool, bool]:
    """Bytes of both buffers, and which masks there are: over all cells, and over the sliding window's."""
    at = Context(replace(model, tensors=tensors), batch)
    build = build_predictor if batch.predicts else _BUILDERS.get(model.architecture, build_decoder)
    build(at)
    return *reserve(at.graph, gpu=gpu, cuda=cuda), at.masks(False), at.masks(True)


def _mask(batch: Batch, cells: int, cuda: bool) -> int:
    alignment = CUDA_ALIGNMENT if cuda else CPU_ALIGNMENT
    return -(-cells * batch.tokens * F16 // alignment) * alignment
