"""What a compute graph is built for, and the sizes that come of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Batch:
    """What the graph is built for. `cells` and `cells_swa` are one stream's cells, as the attention sees them.

    `rotate_k` and `rotate_v` are the sizes of the matrices that quantised keys and values are turned by; 0 for none.
    `sequences` share the tokens; `streams` of them have cells of their own (1 when unified). `snapshots` is how many
    states a recurrent layer keeps beside the last, so that drafted tokens can be taken back. `taps` are the layers
    whose input a draft reads, and `hidden` says that it reads the last layer's output of all tokens (mtp). `type_k`
    and `type_v` are the cache's types, in lower case. `predicts`: the blocks for multi-token prediction are what runs.
    """

    tokens: int
    outputs: int
    cells: int
    cells_swa: int
    flash_attn: bool
    rotate_k: int
    rotate_v: int
    sequences: int = 1
    streams: int = 1
    snapshots: int = 0
    taps: tuple[int, ...] = ()
    hidden: bool = False
    type_k: str = "f16"
    type_v: str = "f16"
    predicts: bool = False


@dataclass(frozen=True)
class ComputeBytes:
    """The buffer of the backend that computes, and what the host keeps beside a GPU's (0 on the CPU).

    `exact` is False where the architecture's graph is not replayed tensor by tensor but by its nearest relative's.
    """

    device: int
    host: int
    exact: bool = True
