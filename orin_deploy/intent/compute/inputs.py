"""What the builders of a graph share: model, batch, and the inputs, each made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable

from orin_deploy.facts.model import Model
from orin_deploy.intent.compute.batch import Batch
from orin_deploy.intent.compute.graph import F16, F32, I32, I64, Graph, Tensor

# Four positions a token: time, height, width and one more (llama_hparams::n_pos_per_embd, rope types M and I).
_FOUR_POSITIONS = frozenset(
    {"paddleocr", "qwen2vl", "qwen3tts", "qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe", "qwen4exp"}
)


class Context:
    """One graph in the making. Sizes of the inputs: src/llama-graph.cpp and llama-kv-cache.cpp, build_input_*."""

    def __init__(self, model: Model, batch: Batch) -> None:
        self.graph = Graph()
        self.model = model
        self.batch = batch
        self.architecture = model.architecture
        layers = (*model.layers, *model.nextn)
        self.windowed = any(layer.sliding for layer in layers)  # two caches: the sliding layers', and the others'
        self.widest_v = max((layer.n_head_kv * layer.head_v for layer in layers), default=0)
        self._inputs: dict[str, Tensor] = {}

    def positions(self) -> Tensor:
        count = 4 if self.architecture in _FOUR_POSITIONS else 1
        return self._once("positions", lambda: self.graph.input(self.batch.tokens * count, width=I32))

    def rows(self) -> Tensor:
        return self._once("rows", lambda: self.graph.input(self.batch.outputs, width=I32))

    def slots(self, part: str, sliding: bool) -> Tensor:
        """Where the new keys ("k") or values ("v") go: a number each, a value's element each when transposed."""
        count = self.batch.tokens * (self.widest_v if part == "v" and not self.batch.flash_attn else 1)
        return self._once(f"slots {part} {sliding}", lambda: self.graph.input(count, width=I64))

    def rotation(self, part: str, sliding: bool) -> Tensor:
        side = self.batch.rotate_k if part == "k" else self.batch.rotate_v
        return self._once(f"rotation {part} {sliding}", lambda: self.graph.input(side, side, width=F32))

    def mask(self, sliding: bool) -> Tensor:
        batch = self.batch
        shape = (batch.cells_swa if sliding else batch.cells, batch.tokens // batch.streams, 1, batch.streams)
        width = F16 if batch.flash_attn else F32
        return self._once(f"mask {sliding}", lambda: self.graph.input(*shape, width=width))

    def masks(self, sliding: bool) -> bool:
        """Some layer has asked for the mask."""
        return f"mask {sliding}" in self._inputs

    def states(self) -> Tensor:
        """Which recurrent state each sequence continues (rs_s_copy)."""
        return self._once("states", lambda: self.graph.input(self.batch.sequences, width=I32))

    def _once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        if name not in self._inputs:
            self._inputs[name] = make()
        return self._inputs[name]
