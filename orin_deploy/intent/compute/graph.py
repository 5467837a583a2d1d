"""Tensors and the order in which ggml computes them: ggml.c's constructors and ggml_build_forward_expand, sizes only.

Weights and caches have memory of their own, so they do not appear; what reads or writes them does.
"""

from __future__ import annotations

from math import prod

F16, F32, I32, I64 = 2, 4, 4, 8

Shape = tuple[int, ...]


class Tensor:
    """A result, an input, or a view of another tensor's memory (`base`).

    `shape` counts elements, the row first, as ggml's ne does. `bytes` is 0 for what lies in a cache. `in_place` results
    take over a source of the same layout; `kept` ones are read after the graph and never freed; `on_host` ones are
    looked up in the token embedding, which stays with the CPU. `cuda_bytes` is what CUDA's kernel wants beside it.
    """

    __slots__ = ("base", "bytes", "cuda_bytes", "in_place", "kept", "on_host", "owned", "shape", "sources", "width")

    def __init__(self, shape: Shape, width: int, sources: tuple[Tensor, ...], base: Tensor | None, owned: bool) -> None:
        self.shape = shape
        self.width = width
        self.sources = sources
        self.base = base
        self.owned = owned
        self.bytes = prod(shape) * width
        self.in_place = self.kept = self.on_host = False
        self.cuda_bytes = 0


class Graph:
    """The order of computation, and the inputs in the order in which the graph first meets them."""

    def __init__(self) -> None:
        self.order: list[Tensor] = []
        self.inputs: list[Tensor] = []
        self.alive: dict[int, tuple[Tensor, ...]] = {}
        self._seen: set[int] = set()
        self._held: list[Tensor] = []  # whose ids _seen holds

    def input(self, *shape: int, width: int = F32) -> Tensor:
        return Tensor(shape, width, (), None, True)

    def new(self, shape: Shape, *sources: Tensor, width: int = F32) -> Tensor:
        """A result with memory of its own."""
        return Tensor(shape, width, sources, None, True)

    def like(self, first: Tensor, *others: Tensor) -> Tensor:
        """An element-wise result of the first source's shape, in place where ggml-alloc.c allows it."""
        result = Tensor(first.shape, first.width, (first, *others), None, True)
        result.in_place = True
        return result

    def matmul(self, rows: int, source: Tensor) -> Tensor:
        """A product with a weight of so many rows."""
        return Tensor((rows, *source.shape[1:]), F32, (source,), None, True)

    def view(self, source: Tensor, *shape: int) -> Tensor:
        """Another look at a tensor's memory: view, reshape, permute and transpose alike."""
        return Tensor(shape, source.width, (source,), source.base or source, False)

    def cache(self, *written: Tensor) -> Tensor:
        """A look into a cache, or a write into one."""
        return Tensor((), 0, written, None, False)

    def expand(self, tensor: Tensor) -> None:
        """ggml_build_forward_expand: sources first, from the first to the last."""
        if id(tensor) in self._seen:
            return
        self._seen.add(id(tensor))
        self._held.append(tensor)
        for source in tensor.sources:
            self.expand(source)
        if tensor.owned and not tensor.sources:
            self.inputs.append(tensor)
        else:
            self.order.append(tensor)

    def keep_on_cuda(self, index: int, *tensors: Tensor) -> None:
        """CUDA's fusions need these until the node at `index` is computed (ggml_backend_cuda_graph_optimize)."""
        self.alive[index] = (*self.alive.get(index, ()), *tensors)
