"""A Session beside the oracle's Net: the same network, compared bit for bit after every part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from oracle_adamw import ROLES
from oracle_graph import INPUT, POOLS, Graph, Layer, Sources
from oracle_step import Net
from oracle_tensor import Acc, Array, Source, Tensor
from oracle_window import Conv

import pyqfw as q
from pyqfw import nn, optim
from pyqfw.tensor import QTensor

FLOAT = q.Float32()
ARITHMETICS = ("forward", "weight_grad", "bias_grad", "prop")
SYM = dict.fromkeys(ARITHMETICS, "sym")
KINDS: dict[str, Any] = {
    "quant": nn.Quant,
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "leaky": nn.LeakyReLU,
    "sigmoid": nn.Sigmoid,
    "softmax": nn.Softmax,
    "tanh": nn.Tanh,
    "dropout": nn.Dropout,
    "flatten": nn.Flatten,
    "add": nn.Add,
    "concat": nn.Concat,
}
CONVOLUTIONS: dict[tuple[bool, int], Any] = {
    (False, 1): nn.Conv1d,
    (False, 2): nn.Conv2d,
    (True, 1): nn.ConvTranspose1d,
    (True, 2): nn.ConvTranspose2d,
}


def policy(fmt: q.Format = FLOAT, arithmetic: str = "sym", **changes: Any) -> q.Policy:
    """One format for all that is stored, one arithmetic for all that is computed."""
    stored = ("input", "wires", "weights", "bias", "errors", "grads", "state")
    fields = dict.fromkeys(stored, fmt) | dict.fromkeys(ARITHMETICS, arithmetic) | changes
    return q.Policy(**fields)


def mlp(*sizes: int, bias: bool = True) -> list[Layer]:
    """Linear layers with a ReLU between them."""
    layers: list[Layer] = []
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        layers += [("relu", f"r{i}")] if i else []
        layers.append(("linear", f"l{i}", inputs, outputs, bias))
    return layers


def convolution(spec: Conv, **options: Any) -> nn.Layer:
    """The layer as a user writes it."""
    kind = CONVOLUTIONS[spec.transposed, len(spec.kernel)]
    given: dict[str, Any] = {
        name: value for name in ("stride", "dilation") if (value := getattr(spec, name))
    }
    given["padding"] = "same" if spec.same else spec.padding or 0
    if spec.transposed:
        given["output_padding"] = spec.output_padding or 0
    given |= {"groups": spec.groups, "bias": spec.bias}
    made: nn.Layer = kind(spec.inputs, spec.outputs, spec.kernel, **given, **options)
    return made


class Wired(nn.Module):
    """A forward that calls layers, each on what its sources say."""

    def __init__(self, layers: Mapping[str, nn.Module], sources: Sources) -> None:
        self._calls = [(path, sources[path]) for path in layers]
        for path, layer in layers.items():
            setattr(self, path, layer)

    def forward(self, x: Any) -> Any:
        values = {INPUT: x}
        for path, read in self._calls:
            x = values[path] = getattr(self, path)(*(values[s] for s in read))
        return x


@dataclass
class Case:
    """A network, how it is trained, and the data of its steps."""

    layers: Sequence[Layer]
    policy: q.Policy
    sgd: optim.Optimizer = field(default_factory=lambda: optim.SGD(0.1, momentum=0.9))
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What some layers want otherwise."""
    frozen: Sequence[str] = ()
    shape: tuple[int, ...] | None = None
    """The input's; None: as many as the first Linear takes."""
    batch: int = 4
    micro_batches: int = 1
    rows: Sequence[int] = (4, 3, 4)
    """Of each step."""
    seed: int = 1
    size: float = 1.0
    """Of the data."""
    loss: nn.Loss = field(default_factory=nn.CrossEntropyLoss)
    reach: float = 1.0
    """Of the targets, where they are numbers."""
    ignoring: bool = False
    """Whether some labels are the one that does not count."""
    sources: Sources = field(default_factory=dict)
    """What layers read that do not read the one before them."""

    def layer(self, kind: str, path: str, *rest: Any) -> nn.Layer:
        """One layer as a user writes it."""
        own = {"policy": self.own.get(path)}
        if kind == "linear":
            layer: nn.Layer = nn.Linear(*rest, **own)
        elif kind == "conv":
            layer = convolution(*rest, **own)
        elif kind == "norm":
            layer = nn.LayerNorm(*rest, **own)
        elif kind == "group":
            layer = nn.GroupNorm(*rest, **own)
        elif kind == "batch":
            norm = nn.BatchNorm1d if len(self._entering(path)) < 3 else nn.BatchNorm2d
            layer = norm(*rest, **own)
        elif kind in POOLS:
            return rest[0]
        else:
            made: nn.Layer = KINDS[kind](*rest)
            return made
        return layer.requires_grad_(path not in self.frozen)

    def _entering(self, path: str) -> tuple[int, ...]:
        """The shape of what a layer reads."""
        graph = Graph(self.layers, self.input_shape, self.sources)
        return graph.places[graph.sources[path][0]].shape

    def model(self) -> nn.Module:
        """The layers as a user writes them, "a.b" being b in the Sequential a."""
        if self.sources:
            layers = {path: self.layer(kind, path, *rest) for kind, path, *rest in self.layers}
            return Wired(layers, Graph(self.layers, self.input_shape, self.sources).sources)
        children: dict[str, dict[str, nn.Module]] = {}
        for kind, path, *rest in self.layers:
            outer, _, inner = path.partition(".")
            children.setdefault(outer, {})[inner] = self.layer(kind, path, *rest)
        return nn.Sequential(
            {k: v[""] if "" in v else nn.Sequential(v) for k, v in children.items()}
        )

    @property
    def input_shape(self) -> tuple[int, ...]:
        if self.shape is not None:
            return self.shape
        return (next(layer[2] for layer in self.layers if layer[0] == "linear"),)

    def plan(self) -> q.Plan:
        return q.compile(
            self.model(),
            input_shape=self.input_shape,
            loss=self.loss,
            optimizer=self.sgd,
            policy=self.policy,
            batch=self.batch,
            micro_batches=self.micro_batches,
            seed=self.seed,
        )

    def net(self) -> Net:
        policies = {path: self.policy.override(changes) for path, changes in self.own.items()}
        policies[""] = self.policy
        rows = -(-self.batch // self.micro_batches)
        options: dict[str, Any] = {
            "seed": self.seed,
            "batch": rows,
            "micro_batches": self.micro_batches,
        }
        options |= {"loss": self.loss, "shape": self.input_shape, "sources": self.sources}
        return Net(self.layers, policies, self.sgd, frozen=self.frozen, **options)

    def data(self) -> Iterator[tuple[Array, Array]]:
        """Rows that tell their class, one of them all zeros now and then."""
        rng = np.random.default_rng(self.seed)
        classes = self.model().out_shape(self.input_shape)[-1]
        for n in self.rows:
            y = rng.integers(0, classes, n)
            x = rng.normal(size=(n, *self.input_shape)) + y.reshape(n, *[1] * len(self.input_shape))
            x[0] *= rng.integers(0, 3) / 2
            yield (self.size * x).astype(np.float32), self._targets(rng, y)

    def _targets(self, rng: np.random.Generator, y: Array) -> Array:
        if isinstance(self.loss, nn.CrossEntropyLoss):
            return np.where((np.arange(len(y)) % 3 == 1) & self.ignoring, self.loss.ignore_index, y)
        shape = (len(y), *self.model().out_shape(self.input_shape))
        return (self.reach * rng.normal(size=shape)).astype(np.float32)

    def check(self) -> tuple[Net, q.Session]:
        """Every step, part by part, then predictions."""
        net, session = self.net(), q.Session(self.plan())
        same_kept(net, session)
        x = None
        for x, y in self.data():
            same_step(net, session, x, y)
        assert x is not None
        same_floats(session.predict(x), net.predict(x), "predict")
        alone = np.concatenate([session.predict(row[None]) for row in x])
        same_floats(alone, net.predict(x), "predict of a row")
        return net, session


# ---- comparisons, without tolerance --------------------------------------------------------------


def same_step(net: Net, session: q.Session, x: Array, y: Array) -> None:
    """forward, backward, update: output, wires, loss and gradients of each micro-batch, parameters
    and state."""
    for at in range(0, len(x), net.batch):
        part = slice(at, at + net.batch)
        same_micro_batch(net, session, x[part], y[part], len(x))
    before = gradients(session)
    session.update()
    assert gradients(session) == before
    net.update()
    same_kept(net, session)


def same_micro_batch(net: Net, session: q.Session, x: Array, y: Array, rows: int) -> None:
    same_floats(session.forward(x), net.forward(x), "output")
    for path, wire in net.wires.items():
        with suppress(GoneError):
            same_wire(read_wire(session, path), wire, f"wire {path}")
    same_floats(np.float32(session.backward(y, rows)), net.backward(y, rows), "loss")
    for name, grad in net.grads.items():
        if isinstance(grad, Tensor):
            same_tensor(session.grad(name), net.shown(name, grad, "grad"), f"gradient {name}")


class GoneError(Exception):
    """The memory of a wire has been used again."""


def read_wire(session: q.Session, path: str) -> QTensor:
    """A layer's output, or GoneError."""
    try:
        return session.wire(path)
    except q.QfwError as error:
        gone = "used again" in str(error) or "it is not stored" in str(error)
        raise (GoneError if gone else error) from error


def same_trace(net: Net, session: q.Session, x: Array, y: Array) -> None:
    """A step, operation by operation: what it stores, errors too, is the oracle's; a mask may have
    written to it before or after."""
    net.step(x, y)
    kept: dict[str, Source] = {f"{path}:error": e for path, e in net.errors.items()}
    kept |= {f"{path}:wire": wire for path, wire in net.wires.items() if isinstance(wire, Tensor)}
    found: dict[str, list[QTensor]] = {}
    for _, written in session.trace(x, y):
        for name, t in written.items():
            if name in kept and t.format == kept[name].format:  # type: ignore[union-attr]
                found.setdefault(name, []).append(t)
    for name, versions in found.items():
        if not any(bytes(t.data) == kept[name].data() for t in versions):  # type: ignore[union-attr]
            same_wire(versions[-1], kept[name], name)
    assert {"input:wire", *(name for name in kept if name.endswith(":error"))} <= found.keys()
    same_kept(net, session)


def gradients(session: q.Session) -> dict[str, bytes]:
    """The bytes of every gradient that is stored."""
    return {name: bytes(session.grad(name).data) for name in session.plan.program.gradients}


def same_kept(net: Net, session: q.Session) -> None:
    """Parameters and state."""
    assert session.steps == net.steps
    for name, t in net.params.items():
        same_tensor(session.tensor(name), net.shown(name, t), name)
    states = {f"{name}:momentum": (name, t) for name, t in net.state.items()}
    for name, moments in net.moments.items():
        states |= {f"{name}:{role}": (name, t) for role, t in zip(ROLES, moments, strict=True)}
    for stored, (name, t) in states.items():
        same_tensor(session.tensor(stored), net.shown(name, t, "state"), stored)
    for name in session.plan.program.gains:
        path = name.removesuffix(" gain")
        if path in net.gains.now:
            expected = np.array([net.gains.now[path], net.gains.next[path]], np.float32)
            same_floats(session.tensor(name).codes, expected, name)
        else:
            assert net.steps == 0  # none before the first batch


def same_tensor(found: QTensor, expected: Tensor, what: str) -> None:
    """Format, codes, scales, zero points: the stored bytes."""
    assert found.format == expected.format, what
    assert found.shape == expected.shape, what
    if bytes(found.data) != expected.data():  # which part it is
        np.testing.assert_array_equal(found.codes, expected.codes, what)
        np.testing.assert_array_equal(found.scale, expected.scale, what)
        np.testing.assert_array_equal(found.zero_point, expected.zero, what)
        raise AssertionError(what)


def same_wire(found: QTensor, expected: Source, what: str) -> None:
    """As stored, or as an accumulator: integers with the scale of each. Shapes may be flat."""
    if isinstance(expected, Tensor):
        assert found.format == expected.format, what
        if bytes(found.data) != expected.data():
            np.testing.assert_array_equal(found.codes.ravel(), expected.codes.ravel(), what)
            np.testing.assert_array_equal(found.scale, expected.scale, what)
            np.testing.assert_array_equal(found.zero_point, expected.zero, what)
            raise AssertionError(what)
        return
    assert isinstance(expected, Acc)
    expected = expected.reshape(found.shape)
    if found.scale is not None:
        values, scales = expected.pairs()
        values, scales = (np.reshape(v, found.shape) for v in (values, scales))
        scale, axis = np.asarray(found.scale), found.format.axis
        if axis == "row":
            scale = scale[..., None]
        elif axis is not None:
            axes = range(len(found.shape))
            scale = scale.reshape([-1 if k == axes[axis] else 1 for k in axes])
        np.testing.assert_array_equal(found.codes, values, what)
        np.testing.assert_array_equal(np.broadcast_to(scale, values.shape), scales, what)
    same_floats(found.numpy(), expected.floats().reshape(found.shape), what)


def same_floats(found: Array, expected: Array, what: str) -> None:
    """The bits of float32 numbers, the sign of zero too."""
    assert found.dtype == expected.dtype == np.float32, what
    assert found.shape == expected.shape, what
    np.testing.assert_array_equal(found, expected, what)
    assert found.tobytes() == expected.tobytes(), what
