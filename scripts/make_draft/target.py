"""The target: what its header says, what is refused, and writing tensors into a file like it."""

from __future__ import annotations

import re
import shutil
from math import prod
from pathlib import Path
from typing import NamedTuple

from orin_deploy.errors import OrinError, Refused, UsageError
from orin_deploy.facts import gguf
from orin_deploy.facts.memory import available, meminfo
from orin_deploy.host import Host

LAYER = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
KNOWN = re.compile(rf"(token_embd|output_norm|output|rope_freqs|blk\.\d+\.({'|'.join(LAYER)}))\.weight")


class Shape(NamedTuple):
    """The dimensions of a model of architecture llama."""

    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    head: int
    epsilon: float
    rope_base: float


def shape_of(header: gguf.Header, layers: int) -> Shape:
    """What the target's header says; Refused where this script would train something else than the engine runs."""
    architecture = header.text("general.architecture")
    if architecture != "llama":
        raise Refused(
            f"{header.label} is of architecture {architecture}; a draft can be made for llama only",
            "look for a smaller model with its vocabulary, or serve it with a draftless kind: --draft ngram-map-k4v",
        )
    if header.split_count > 1:
        raise Refused(f"{header.label} is one part of a split model", "join it first: llama-gguf-split --merge")
    unknown = next((tensor.name for tensor in header.tensors if not KNOWN.fullmatch(tensor.name)), None)
    if unknown:
        raise Refused(
            f"{header.label} has the tensor {unknown}, which a plain llama model has not (experts, biases, adapters)",
            "serve it with a draftless kind: --draft ngram-map-k4v",
        )
    if (scaling := header.text("llama.rope.scaling.type")) not in (None, "none"):
        raise Refused(f"{header.label} scales its positions ({scaling}), which this script does not do", None)
    n_layer = header.number("llama.block_count", 0)
    if not 1 <= layers < n_layer:
        raise UsageError(
            f"a draft of {layers} layers is not smaller than {header.label}, which has {n_layer}",
            f"--layers {max(1, n_layer // 5)}",
        )
    n_embd, n_head = header.number("llama.embedding_length", 0), header.number("llama.attention.head_count", 1)
    return Shape(
        n_layer,
        n_embd,
        n_head,
        header.number("llama.attention.head_count_kv", n_head),
        header.number("llama.attention.key_length", n_embd // n_head),
        float(header.metadata.get("llama.attention.layer_norm_rms_epsilon", 1e-5)),  # type: ignore[arg-type]
        float(header.metadata.get("llama.rope.freq_base", 10000.0)),  # type: ignore[arg-type]
    )


def check_room(header: gguf.Header, host: Host) -> None:
    """Refuse what would run out of memory or disk after minutes: the target lies on disk as F16, in memory as F32 at
    worst, and the answers and the training take some GiB beside it."""
    parameters, beside = sum(prod(tensor.dims) for tensor in header.tensors), 3 * 2**30
    place = next(folder for folder in (host.cache, *host.cache.parents) if folder.exists())
    free, left = shutil.disk_usage(place).free, available(meminfo(host.read("/proc/meminfo") or ""))
    if free < (needs := 2 * parameters + beside):
        raise Refused(
            f"{place} has {free / 2**30:.1f} GiB free, making this draft needs {needs / 2**30:.1f}",
            "free some space, or set ORIN_DEPLOY_HOME to a folder on a larger disk",
        )
    if left and left < (needs := 4 * parameters + beside):
        raise Refused(
            f"{left / 2**30:.1f} GiB of memory are available, making this draft needs about {needs / 2**30:.1f}",
            "make it on a larger machine: the draft is a file like any other",
        )


def patch(path: Path, tensors: dict[str, bytes]) -> None:
    """Overwrite tensors of a GGUF in place; each must fill its place exactly."""
    header = gguf.read_file(path, fingerprint=False)
    places = {tensor.name: tensor for tensor in header.tensors}
    with path.open("r+b") as file:
        for name, data in tensors.items():
            if len(data) != places[name].bytes:
                raise OrinError(f"{name} takes {places[name].bytes} bytes in {path}, not {len(data)}")
            file.seek(header.data_offset + places[name].offset)
            file.write(data)
