"""Networks to try: any graph of small layers, under any policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

from hypothesis import strategies as st
from oracle_graph import INPUT, Graph, Layer
from oracle_window import Conv
from step_helpers import Case
from step_strategies import FIELDS, MOVING, optimizers

import pyqfw as q
from pyqfw import nn

SHAPES = [(4,), (2, 6), (3, 5), (1, 4), (6, 1), (3, 4, 3), (2, 3, 3), (4, 1, 5), (1, 3, 4)]
MOST = 96  # elements of a sample


@st.composite
def convolutions(draw: Any, shape: tuple[int, ...]) -> Conv | None:
    """One that fits a sample, if the one that was drawn does."""
    dims, inputs = len(shape) - 1, shape[0]
    transposed = draw(st.integers(0, 3)) == 0
    groups = draw(st.sampled_from([g for g in (1, 1, 2, 3, 4, inputs) if inputs % g == 0]))
    outputs = groups * draw(st.sampled_from([1, 1, 2, 3]))

    def each(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw(st.integers(least, most)) for _ in range(dims))

    kernel, stride, dilation = each(1, 3), each(1, 2), each(1, 2)
    bias = draw(st.booleans())
    conv = Conv(inputs, outputs, kernel, stride, each(0, 2), dilation, groups, bias, transposed)
    if transposed:
        tops = [max(s, d) - 1 for s, d in zip(stride, dilation, strict=True)]
        more = tuple(draw(st.integers(0, top)) for top in tops)
        conv = Conv(**{**vars(conv), "output_padding": more})
    elif draw(st.integers(0, 5)) == 0:
        conv = Conv(**{**vars(conv), "same": True, "stride": (1,) * dims, "padding": ()})
    sizes = conv.out_sizes(shape[1:])
    return conv if min(sizes) >= 1 and outputs * prod(sizes) <= MOST else None


class Growing:
    """A graph to which layers are added."""

    def __init__(self, draw: Callable[..., Any], shape: tuple[int, ...]) -> None:
        self.draw, self.shape = draw, shape
        self.layers: list[Layer] = []
        self.sources: dict[str, tuple[str, ...]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {INPUT: shape}

    def add(self, kind: str, rest: tuple[Any, ...], *read: str) -> str:
        path = f"{kind[0]}{len(self.layers)}"
        self.layers.append((kind, path, *rest))
        self.sources[path] = read
        self.shapes[path] = Graph(self.layers, self.shape, self.sources).places[path].shape
        return path

    def unread(self) -> list[str]:
        """Values that nothing reads yet."""
        read = {s for all_of in self.sources.values() for s in all_of}
        return [path for path in self.shapes if path not in read and path != INPUT]

    def some(self) -> None:
        """One more layer, where what was drawn fits."""
        draw = self.draw
        x = draw(st.sampled_from(list(self.shapes)[-2:]))
        shape = self.shapes[x]
        kinds = ["conv", "conv", "conv", "relu", "relu", "quant", "leaky", "dropout", "norm"]
        kinds += ["linear", "add", "add", "concat", "concat", "flatten", "softmax"]
        kind = draw(st.sampled_from(kinds))
        if kind == "conv" and len(shape) > 1:
            conv = draw(convolutions(shape))
            if conv is not None:
                self.add("conv", (conv,), x)
        elif kind == "linear":
            self.add(
                "linear", (shape[-1], draw(st.sampled_from([1, 2, 4])), draw(st.booleans())), x
            )
        elif kind == "norm":
            last = draw(st.integers(0, len(shape) - 1))
            self.add("norm", (shape[last:], 1e-5, *draw(st.sampled_from(AFFINE))), x)
        elif kind in ("add", "concat"):
            self._join(kind, x)
        elif kind == "flatten" and len(shape) > 2:
            first = draw(st.integers(1, len(shape) - 1))
            self.add("flatten", (first, draw(st.integers(first, len(shape)))), x)
        elif kind in SIMPLE:
            self.add(kind, draw(SIMPLE[kind]), x)

    def _join(self, kind: str, x: str) -> None:
        shape, dim = self.shapes[x], self.draw(st.integers(1, len(self.shapes[x])))
        axis = dim - 1 if kind == "concat" else len(shape)

        def fits(other: tuple[int, ...]) -> bool:
            pairs = enumerate(zip(other, shape, strict=False))
            return len(other) == len(shape) and all(a == b or i == axis for i, (a, b) in pairs)

        others = [path for path, other in self.shapes.items() if fits(other)]
        read = [x, *self.draw(st.lists(st.sampled_from(others), min_size=1, max_size=3))]
        readers = Counter([*read, *(s for all_of in self.sources.values() for s in all_of)])
        few = max(readers.values()) <= 4  # at most seven errors meet
        if few and sum(prod(self.shapes[path]) for path in read) <= 2 * MOST:
            self.add(kind, (dim,) if kind == "concat" else (), *read)

    def end(self, flat: bool) -> None:
        """What nothing reads comes together; to classes, or to numbers of any shape."""
        left = self.unread() or [self.add("relu", (), INPUT)]
        if len(left) > 1 or flat:
            left = [self.add("flatten", (), p) if len(self.shapes[p]) > 1 else p for p in left]
        x = left[0] if len(left) == 1 else self.add("concat", (1,), *left)
        learns = any(layer[0] in ("linear", "conv") for layer in self.layers)
        if not learns or (flat and (self.shapes[x][0] > 6 or self.draw(st.booleans()))):
            self.add("linear", (self.shapes[x][-1], 3, True), x)


AFFINE = [(True, True), (True, False), (False, False)]
SIMPLE: dict[str, Any] = {
    "relu": st.just(()),
    "quant": st.tuples(st.one_of(st.none(), MOVING)),
    "leaky": st.tuples(st.sampled_from([0.1, 0.0])),
    "dropout": st.tuples(st.sampled_from([0.3, 0.5, 0.0, 1.0])),
    "softmax": st.just((-1,)),
}


@st.composite
def graphs(draw: Any, flat: bool) -> Growing:
    made = Growing(draw, draw(st.sampled_from(SHAPES)))
    for _ in range(draw(st.integers(2, 8))):
        made.some()
    made.end(flat)
    return made


@st.composite
def graph_cases(draw: Any, policies: Any = None) -> Case:
    """A graph, a policy for it and for some of its layers, an optimizer, batches."""
    loss = draw(st.sampled_from([nn.CrossEntropyLoss(), nn.CrossEntropyLoss(), nn.MSELoss()]))
    graph = draw(graphs(isinstance(loss, nn.CrossEntropyLoss)))
    own = [path for kind, path, *_ in graph.layers if kind in ("linear", "conv")]
    some = st.sampled_from(sorted(FIELDS)).flatmap(
        lambda name: st.tuples(st.just(name), FIELDS[name])
    )
    changes = st.dictionaries(st.sampled_from(own), st.lists(some, max_size=3).map(dict))
    batch = draw(st.sampled_from([1, 2, 3, 9]))
    parts = draw(st.sampled_from([1, 1, 2])) if batch > 1 else 1
    mixture = st.fixed_dictionaries(FIELDS | {"input": MOVING}).map(lambda f: q.Policy(**f))
    policy = draw(mixture if policies is None else policies)
    case = Case(
        graph.layers,
        policy,
        draw(optimizers()),
        draw(changes) if policies is None else {},
        draw(st.lists(st.sampled_from(own), max_size=len(own) - 1)),
        graph.shape,
        batch,
        rows=draw(st.lists(st.integers(1, batch), min_size=1, max_size=2)),
        seed=draw(st.integers(0, 2**32 - 1)),
        size=draw(st.sampled_from([1.0, 1.0, 1e-3, 1e3, 1e-20, 0.0])),
        loss=loss,
        sources=graph.sources,
    )
    fused = [case.policy, *(case.policy.override(c) for c in case.own.values())]
    if any(p.grads == "fused" for p in fused):
        parts = 1
    case.micro_batches = parts
    return case
