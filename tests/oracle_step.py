"""The second opinion on a training step of a chain: docs/numerics.md sections 13 to 18.

A `Net` keeps everything a step made: wires, errors, gradients, parameters, state and the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any, TypeAlias

import numpy as np
import oracle as o
import oracle_softmax as softmax
from oracle_layers import (
    dropout,
    kept_by,
    leaked,
    leaky_relu,
    positive,
    slope_of,
    softmax_back,
)
from oracle_layers import softmax as softmax_layer
from oracle_loss import float_mse, float_weighted, mse, weighted
from oracle_product import (
    bias_gradient,
    float_product,
    forward,
    propagated,
    quot,
    weight_gradient,
)
from oracle_tensor import Acc, Array, Format, Source, Tensor, draws, encode, is_float, stream
from oracle_update import Streams, updated

Policy: TypeAlias = Any
Layer: TypeAlias = tuple[Any, ...]
"""("linear", path, inputs, outputs, bias), ("quant", path, fmt), ("relu", path), ("flatten", path)
or ("flatten", path, first, last), ("leaky", path, slope), ("softmax", path, dim),
("dropout", path, p)
"""

MAKERS = ("linear", "softmax")  # of accumulators


def initial(key: o.Key, shape: Sequence[int], inputs: int) -> Array:
    """U(-b, b) with b = 1 / sqrt(inputs)."""
    n = int(np.prod(shape))
    i = np.arange(n)
    unit = (2.0 * draws(key, i).astype(np.float64) + 1.0) / 2.0**32 - 1.0
    return (unit / sqrt(inputs)).astype(np.float32).reshape(shape)


class Sym16:
    """The logits' format: Sym(16)."""

    bits, asymmetric, axis, group = 16, False, None, None
    scale, pow2, range, rounding, container = "float", False, "dynamic", "half_away", "packed"


@dataclass
class Pass:
    """What a forward pass leaves: each layer's output as it is kept, the operands, the result."""

    wires: dict[str, Source] = field(default_factory=dict)
    operands: dict[str, Tensor] = field(default_factory=dict)
    output: Source = field(default_factory=lambda: Acc(np.zeros(0, np.float32)))


class Net:
    """A chain of layers under a policy for each (or one for all), trained with SGD."""

    def __init__(
        self,
        layers: Sequence[Layer],
        policies: Policy | Mapping[str, Policy],
        sgd: Any,
        *,
        seed: int = 0,
        batch: int = 1,
        frozen: Sequence[str] = (),
        loss: Any = None,
    ) -> None:
        self.layers = list(layers)
        self.frozen = frozenset(frozen)
        self.policies = policies
        self.sgd = sgd
        self.lr = float(sgd.lr)
        self.seed, self.batch, self.steps = seed % o.WORD, batch, 0
        self.params: dict[str, Tensor] = {}
        self.state: dict[str, Tensor] = {}
        self.errors: dict[str, Tensor] = {}
        self.raw_errors: dict[str, Acc] = {}
        self.grads: dict[str, Source] = {}
        self.loss = np.float32(0)
        self.criterion = loss
        self.last = Pass()
        self.load({name: self._initial(name, *sizes) for name, sizes in self._sizes().items()})

    # ---- parameters ------------------------------------------------------------------------------

    def policy(self, path: str) -> Policy:
        """The policy of a layer: its own, or that of "", the network."""
        if not isinstance(self.policies, Mapping):
            return self.policies
        return self.policies[path if path in self.policies else ""]

    def _sizes(self) -> dict[str, tuple[tuple[int, ...], int]]:
        """The shape and the number of inputs of each parameter."""
        sizes: dict[str, tuple[tuple[int, ...], int]] = {}
        for kind, path, *rest in self.layers:
            if kind == "linear":
                inputs, outputs, bias = rest
                sizes[f"{path}.weight"] = (outputs, inputs), inputs
                if bias:
                    sizes[f"{path}.bias"] = (outputs,), inputs
        return sizes

    def _initial(self, name: str, shape: tuple[int, ...], inputs: int) -> Array:
        return initial(o.key(self.seed, 0, stream(name, "init")), shape, inputs)

    def load(self, values: Mapping[str, Array]) -> None:
        """Parameters from floats, encoded at their absmax, and a state of zeros."""
        for name, value in values.items():
            path, kind = name.rsplit(".", 1)
            policy = self.policy(path)
            fmt = policy.weights if kind == "weight" else policy.bias
            array = np.asarray(value, np.float32)
            self.params[name] = _at_absmax(array, fmt)
            if self.sgd.momentum and path not in self.frozen:
                self.state[name] = _at_absmax(np.zeros_like(array), policy.state)

    def _key(self, path: str, role: str) -> o.Key:
        return o.key(self.seed, self.steps, stream(path, role))

    # ---- forward ---------------------------------------------------------------------------------

    def forward(self, x: Array) -> Array:
        """The output as float32, for rows that share scales."""
        self.last = self._run(x, training=True)
        return self.last.output.floats()

    def predict(self, x: Array) -> Array:
        """The output of each row alone."""
        return np.concatenate([self._run(x[i : i + 1]).output.floats() for i in range(len(x))])

    @property
    def wires(self) -> dict[str, Source]:
        """Each layer's output as the last forward pass kept it, and "input"."""
        return self.last.wires

    @property
    def rows(self) -> int:
        """Of the last forward pass."""
        return self.last.wires["input"].shape[0]

    def _run(self, x: Array, training: bool = False) -> Pass:
        done = Pass()
        fmt = self.policy("").input
        value: Source = encode(Acc(np.asarray(x, np.float32)), fmt, self._key("input", "wire"))
        done.wires["input"] = value
        pending: list[str] = []  # layers whose output is this accumulator so far
        maker, needed = "", False  # of the accumulator; whether backward reads it as it was made
        for kind, path, *rest in self.layers:
            if kind == "linear" or kind == "quant":
                owner = path if kind == "quant" else maker
                fmt = (rest[0] if kind == "quant" else None) or self.policy(owner).wires
                if pending or kind == "quant":
                    value = encode(value, fmt, self._key(owner, "wire"))
                for p in pending:
                    done.wires[p] = value.reshape(done.wires[p].shape)
                pending = []
            if kind == "linear":
                assert isinstance(value, Tensor)
                done.operands[path] = matrix(value)
                out = self._product(path, done.operands[path])
                value = out.reshape((*value.shape[:-1], out.shape[-1]))
                maker, needed = path, False
            elif kind == "relu":
                value = value.relu()
            elif kind == "softmax":
                for p in pending:  # never stored
                    done.wires[p] = value.reshape(done.wires[p].shape)
                pending = []
                value = softmax_layer(value, self.policy(path).forward == "float32")
                maker, needed = path, True
            elif kind == "dropout" and training and rest[0] != 0:
                if needed and isinstance(value, Acc):
                    for p in pending:
                        done.wires[p] = value.reshape(done.wires[p].shape)
                    pending, needed = [], False
                value = dropout(
                    value, kept_by(self._key(path, "dropout"), *rest, value.shape), *rest
                )
            elif kind == "leaky":
                value = leaky_relu(value, slope_of(*rest))
            elif kind == "flatten":
                first, last = rest or (1, len(value.shape) - 1)
                value = value.reshape((*value.shape[:first], -1, *value.shape[last + 1 :]))
            done.wires[path] = value
            if isinstance(value, Acc):
                pending.append(path)
        for p in pending:  # never stored: the accumulator as it is in the end
            done.wires[p] = value.reshape(done.wires[p].shape)
        done.output = value
        return done

    def _product(self, path: str, wire: Tensor) -> Acc:
        weight, bias = self.params[f"{path}.weight"], self.params.get(f"{path}.bias")
        if self.policy(path).forward == "sym":
            return forward(wire, weight, bias)
        beta = None if bias is None else bias.floats()
        return Acc(float_product(wire.floats(), weight.floats().T, beta))

    # ---- backward --------------------------------------------------------------------------------

    def backward(self, y: Array) -> np.float32:
        """Errors and gradients of the last forward pass; the mean loss."""
        self.errors, self.raw_errors, self.grads = {}, {}, {}
        error = self._loss(np.asarray(y))
        linear = [path for kind, path, *_ in self.layers if kind == "linear"]
        trained = [path for path in linear if path not in self.frozen]
        for kind, path, *rest in reversed(self.layers):
            kept = self.wires[path]
            error = error.reshape(kept.shape)
            if kind == "relu":
                error = error.masked(positive(kept))
            elif kind == "leaky":
                error = leaked(error, positive(kept), slope_of(*rest))
            elif kind == "softmax":
                stored = self._stored(path, error)
                error = softmax_back(stored, kept, self.policy(path).prop == "float32")
            elif kind == "dropout" and rest[0] != 0:
                keeps = kept_by(self._key(path, "dropout"), *rest, error.shape)
                dropped = dropout(error, keeps, *rest)
                assert isinstance(dropped, Acc)
                error = dropped
            elif kind == "quant":
                error = error.masked(in_range(kept))
            elif kind == "linear":
                stored = self._stored(path, error)
                if path in trained:
                    self._gradients(path, matrix(stored))
                if path == trained[0]:
                    break
                error = self._propagated(path, matrix(stored))
        return self.loss

    def _stored(self, path: str, error: Acc) -> Tensor:
        """The error of a layer's output in the policy's format."""
        self.raw_errors[path] = error
        stored = encode(error, self.policy(path).errors, self._key(path, "error"))
        self.errors[path] = stored
        return stored

    def _loss(self, y: Array) -> Acc:
        """Sets the mean loss; the error of the output."""
        if type(self.criterion).__name__ == "MSELoss":
            return self._mse(y)
        output, counts = self.last.output, y != -100
        if self.criterion is not None and not self.criterion.is_plain:
            floats = self._makes_floats()
            error, self.loss = (
                float_weighted(output.floats(), y, self.criterion)
                if floats
                else weighted(encode(output, Sym16()), y, self.criterion)
            )
            return error
        if not self._makes_floats():
            z = encode(output, Sym16())
            assert z.scale is not None
            codes = np.zeros(z.shape, np.int64)
            codes[counts], self.loss = softmax.cross_entropy(z.codes[counts], z.scale, y[counts])
            scale = quot(np.float32(2.0**-30), np.float32(counts.sum()))
            return Acc(codes, np.broadcast_to(scale, codes.shape))
        logits = output.floats()
        floats = np.zeros_like(logits)
        floats[counts], self.loss = softmax.float_cross_entropy(logits[counts], y[counts])
        return Acc(floats)

    def _mse(self, y: Array) -> Acc:
        output, targets = self.last.output, Acc(y.astype(np.float32))
        if self._makes_floats():
            error, self.loss = float_mse(output.floats(), targets.values)
        else:
            error, self.loss = mse(encode(output, Sym16()), encode(targets, Sym16()))
        return error

    def _makes_floats(self) -> bool:
        """Whether the last layer that makes sums makes floats."""
        last = [path for kind, path, *_ in self.layers if kind in MAKERS][-1]
        return self.policy(last).forward == "float32"

    def _gradients(self, path: str, error: Tensor) -> None:
        policy, wire = self.policy(path), self.last.operands[path]
        terms = self.batch * error.shape[0] // self.rows
        if policy.weight_grad == "sym":
            found = {"weight": weight_gradient(error, wire, terms)}
        else:
            found = {"weight": Acc(float_product(error.floats().T, wire.floats()))}
        if f"{path}.bias" in self.params:
            if policy.bias_grad == "sym":
                found["bias"] = bias_gradient(error, terms)
            else:
                ones = np.ones((1, error.shape[0]), np.float32)
                found["bias"] = Acc(float_product(ones, error.floats())[0])
        for kind, acc in found.items():
            name = f"{path}.{kind}"
            fused = isinstance(policy.grads, str)
            self.grads[name] = acc if fused else encode(acc, policy.grads, self._key(name, "grad"))

    def _propagated(self, path: str, error: Tensor) -> Acc:
        weight = self.params[f"{path}.weight"]
        if self.policy(path).prop == "sym":
            return propagated(error, weight)
        return Acc(float_product(error.floats(), weight.floats()))

    # ---- update ----------------------------------------------------------------------------------

    def update(self) -> None:
        """Every parameter and its state, from the gradients of the last backward pass."""
        for name, grad in self.grads.items():
            streams = Streams(
                self.seed, self.steps, stream(name, "update"), stream(name, "momentum")
            )
            state = self.state.get(name)
            new, state = updated(self.params[name], grad, state, self.sgd, self.lr, streams)
            self.params[name] = new
            if state is not None:
                self.state[name] = state
        self.steps += 1

    def step(self, x: Array, y: Array) -> np.float32:
        """forward, backward, update; the mean loss."""
        self.forward(x)
        loss = self.backward(y)
        self.update()
        return loss


def matrix(t: Tensor) -> Tensor:
    """A row for each position of each row."""
    return t.reshape((-1, t.shape[-1]))


def in_range(t: Source) -> Array:
    """Where a Quant's output passes an error: everywhere, or inside a fixed range's end codes."""
    assert isinstance(t, Tensor)
    fmt: Format = t.format
    if is_float(fmt) or isinstance(fmt.range, str):
        return np.ones(t.shape, bool)
    top = o.top_code(fmt.bits, fmt.asymmetric)
    return (t.codes > (0 if fmt.asymmetric else -top)) & (t.codes < top)


def _at_absmax(values: Array, fmt: Format) -> Tensor:
    """Initial and loaded values, half away."""
    return encode(Acc(values), fmt, rounding="half_away", dynamic=True)
