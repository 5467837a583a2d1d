"""ggml's graph allocator, step by step: which tensor takes which place, and how far the buffer reaches in the end.

ggml frees a tensor after its last use and puts the next one into the hole that fits best, so a buffer's size is the
high-water mark of that walk and no sum (ggml/src/ggml-alloc.c). With a GPU the graph is cut into splits, and what one
backend needs of the other is copied at the start of a split (ggml/src/ggml-backend.cpp).
"""

from __future__ import annotations

from bisect import bisect, insort

from orin_deploy.facts.tensors import CPU_ALIGNMENT, CUDA_ALIGNMENT
from orin_deploy.intent.compute.graph import Graph, Tensor


class Arena:
    """ggml_dyn_tallocr with one chunk: best fit among the holes, else the end; neighbouring holes merge."""

    def __init__(self, alignment: int) -> None:
        self.alignment = alignment
        self.holes: list[tuple[int, int]] = []  # (offset, size), by offset
        self.end = 0
        self.high = 0

    def take(self, size: int) -> int:
        size = -(-size // self.alignment) * self.alignment
        best = -1
        for index, (_, hole) in enumerate(self.holes):
            if hole >= size and (best < 0 or hole <= self.holes[best][1]):
                best = index
        if best < 0:
            offset, self.end = self.end, self.end + size
            self.high = max(self.high, self.end)
            return offset
        offset, hole = self.holes[best]
        if hole == size:
            del self.holes[best]
        else:
            self.holes[best] = (offset + size, hole - size)
        return offset

    def give(self, offset: int, size: int) -> None:
        size = -(-size // self.alignment) * self.alignment
        if not size:
            return
        at = bisect(self.holes, (offset, size))
        if at < len(self.holes) and self.holes[at][0] == offset + size:
            size += self.holes.pop(at)[1]
        if at and sum(self.holes[at - 1]) == offset:
            start, before = self.holes.pop(at - 1)
            offset, size = start, size + before
        if offset + size == self.end:
            self.end = offset
        else:
            insort(self.holes, (offset, size))


def reserve(graph: Graph, *, gpu: bool, cuda: bool = True) -> tuple[int, int]:
    """Bytes of the buffer of the backend that computes, and of the host's beside a GPU's (0 on the CPU).

    `gpu` stands for any device apart from the host; without `cuda` it is a CPU behind ggml-rpc-server.
    """
    if not gpu:
        walk = _Walk(Arena(CPU_ALIGNMENT), Arena(CPU_ALIGNMENT), split=False, cuda=False)
        walk.run(graph.inputs, graph.order)
        return walk.device.high, 0
    device = Arena(CUDA_ALIGNMENT if cuda else CPU_ALIGNMENT)
    walk = _Walk(device, Arena(CPU_ALIGNMENT), split=True, cuda=cuda)
    for tensor in graph.inputs:
        tensor.on_host = True
    walk.run(graph.inputs, _split(graph, cuda))
    return device.high, walk.host.high


class _Walk:
    """ggml_gallocr_alloc_graph_impl over the arenas of one or two backends."""

    def __init__(self, device: Arena, host: Arena, *, split: bool, cuda: bool) -> None:
        self.device = device
        self.host = host
        self.split = split
        self.cuda = cuda
        self.children: dict[int, int] = {}
        self.views: dict[int, int] = {}
        self.places: dict[int, int] = {}

    def run(self, inputs: list[Tensor], steps: list[Tensor]) -> None:
        for tensor in inputs:
            self._allocate(tensor)
        children, views = self.children, self.views
        for step in steps:
            if step.base is not None:
                views[id(step.base)] = views.get(id(step.base), 0) + 1
            for source in step.sources:
                children[id(source)] = children.get(id(source), 0) + 1
        for step in steps:
            if step.owned:
                self._allocate(step)
            for source in step.sources:
                children[id(source)] -= 1
                if not children[id(source)] and not views.get(id(source)):
                    self._done(source)

    def _allocate(self, tensor: Tensor) -> None:
        if id(tensor) in self.places:
            return
        if tensor.in_place:
            for source in tensor.sources:
                if self._can_take(source, tensor):
                    self.places[id(tensor)] = self.places.pop(id(source))
                    return
        self.places[id(tensor)] = self._arena(tensor).take(self._bytes(tensor))

    def _can_take(self, source: Tensor, tensor: Tensor) -> bool:
        """A place is inherited of a source that nothing else needs; never of a view (ggml_gallocr_allocate_node)."""
        return (
            id(source) in self.places
            and not source.kept
            and source.shape == tensor.shape
            and source.width == tensor.width
            and self.children[id(source)] == 1
            and not self.views.get(id(source))
        )

    def _done(self, source: Tensor) -> None:
        if source.base is not None:
            source, base = source.base, id(source.base)
            self.views[base] -= 1
            if self.views[base] or self.children.get(base):
                return
        if not source.kept and id(source) in self.places:
            self._arena(source).give(self.places.pop(id(source)), self._bytes(source))

    def _arena(self, tensor: Tensor) -> Arena:
        return self.host if self.split and tensor.on_host else self.device

    def _bytes(self, tensor: Tensor) -> int:
        return tensor.bytes + (tensor.cuda_bytes if self.cuda else 0)


def _split(graph: Graph, cuda: bool) -> list[Tensor]:
    """The graph's nodes with the copies between the backends, and what CUDA's fusions keep alive, as nodes among them
    (ggml_backend_sched_split_graph, pass 5 and what follows)."""
    splits: list[list[Tensor]] = [[]]
    host = bool(graph.order) and graph.order[0].on_host
    for index, node in enumerate(graph.order):
        if node.owned and node.on_host != host:
            splits.append([])
            host = node.on_host
        splits[-1].append(node)
        if cuda and index in graph.alive:
            splits[-1].append(Tensor((), 0, graph.alive[index], None, False))
    copies: dict[tuple[int, bool], Tensor] = {}
    return [step for nodes in splits for step in _with_copies(nodes, copies)]


def _with_copies(split: list[Tensor], copies: dict[tuple[int, bool], Tensor]) -> list[Tensor]:
    """A split's nodes reading copies of what lies with the other backend, made at its start."""
    host = next((node.on_host for node in split if node.owned), False)
    made: list[Tensor] = []
    for node in split:
        for source in node.sources:
            root = source.base or source
            if root.owned and root.on_host != host and (id(source), host) not in copies:
                copy = Tensor(source.shape, source.width, (), None, True)
                copy.on_host = host
                copies[id(source), host] = copy
                made += [Tensor((), 0, (source,), None, False), copy]
        node.sources = tuple(copies.get((id(source), host), source) for source in node.sources)
    return made + split
