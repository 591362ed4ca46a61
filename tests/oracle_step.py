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
import oracle_adamw as adamw
import oracle_norm as norm
import oracle_softmax as softmax
from oracle_accumulate import added, mean_loss, micro_seed, share
from oracle_hindsight import Gains, dynamic, is_hindsight
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
"""("linear", path, inputs, outputs, bias), ("norm", path, shape, eps, gamma, beta),
("quant", path, fmt), ("relu", path), ("flatten", path) or ("flatten", path, first, last),
("leaky", path, slope), ("softmax", path, dim), ("dropout", path, p)
"""

MAKERS = ("linear", "norm", "softmax")  # of accumulators


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
    """A chain of layers under a policy for each (or one for all), trained with SGD or AdamW."""

    def __init__(
        self,
        layers: Sequence[Layer],
        policies: Policy | Mapping[str, Policy],
        sgd: Any,
        *,
        seed: int = 0,
        batch: int = 1,
        frozen: Sequence[str] = (),
        micro_batches: int = 1,
        loss: Any = None,
    ) -> None:
        """`batch`: rows of a micro-batch."""
        self.layers = list(layers)
        self.frozen = frozenset(frozen)
        self.policies = policies
        self.sgd = sgd
        self.lr = float(sgd.lr)
        self.seed, self.batch, self.steps = seed % o.WORD, batch, 0
        self.micro_batches, self.micro = micro_batches, 0
        self.params: dict[str, Tensor] = {}
        self.state: dict[str, Tensor] = {}
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}
        self.errors: dict[str, Tensor] = {}
        self.raw_errors: dict[str, Acc] = {}
        self.grads: dict[str, Source] = {}
        self.gains = Gains()
        self.loss = np.float32(0)
        self.criterion = loss
        self.of_loss = False  # whether the error is the loss's own
        self.last = Pass()
        self.x = np.zeros(0, np.float32)
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
            elif kind == "norm":
                shape, _, *affine = rest
                names = ("weight", "bias")
                sizes |= {
                    f"{path}.{p}": (shape, 0) for p, has in zip(names, affine, strict=True) if has
                }
        return sizes

    def _initial(self, name: str, shape: tuple[int, ...], inputs: int) -> Array:
        """Those without inputs are LayerNorm's: 1, or 0 for beta."""
        if inputs == 0:
            return np.full(shape, float(name.endswith("weight")), np.float32)
        return initial(o.key(self.seed, 0, stream(name, "init")), shape, inputs)

    def load(self, values: Mapping[str, Array]) -> None:
        """Parameters from floats, encoded at their absmax, and a state of zeros."""
        for name, value in values.items():
            path, kind = name.rsplit(".", 1)
            policy = self.policy(path)
            fmt = policy.weights if kind == "weight" else policy.bias
            array = np.asarray(value, np.float32)
            self.params[name] = _at_absmax(array, fmt)
            if path in self.frozen:
                continue
            own, zero = self._own(name), _at_absmax(np.zeros_like(array), policy.state)
            if hasattr(own, "betas"):
                self.moments[name] = (zero, zero)
            elif own.momentum:
                self.state[name] = zero

    def _own(self, name: str) -> Any:
        """The optimizer's numbers for a parameter."""
        return (
            self.sgd if getattr(self.sgd, "groups", None) is None else adamw.options(self.sgd, name)
        )

    def _key(self, path: str, role: str) -> o.Key:
        seed = micro_seed(self.seed, self.micro)
        return o.key(seed, self.steps, stream(path, role))

    # ---- forward ---------------------------------------------------------------------------------

    def forward(self, x: Array) -> Array:
        """The output as float32, for rows that share scales."""
        self._watch(x, None)
        self.x, self.last = x, self._run(x, training=True)
        return self.last.output.floats()

    def _watch(self, x: Array, y: Array | None) -> None:
        """First gains, from a pass with dynamic ranges; without labels, those of a forward."""
        role = "wire" if y is None else "error"
        formats = [f for p in self._policies() for f in (p.wires, p.errors)]
        formats += [rest[0] for kind, _, *rest in self.layers if kind == "quant" and rest]
        known = any(name.endswith(role) for name in self.gains.now)
        if known or not any(is_hindsight(f) for f in formats if f is not None):
            return
        kept, self.gains.watching = self.last, True
        self.last = self._run(x, training=True)
        if y is not None:
            self._back(y, len(y))
        self.last, self.gains.watching = kept, False

    def _policies(self) -> list[Policy]:
        several = isinstance(self.policies, Mapping)
        return list(self.policies.values()) if several else [self.policies]

    def predict(self, x: Array) -> Array:
        """The output of each row alone."""
        micro, self.micro = self.micro, 0
        rows = [self._run(x[i : i + 1], learns=False) for i in range(len(x))]
        self.micro = micro
        return np.concatenate([row.output.floats() for row in rows])

    @property
    def wires(self) -> dict[str, Source]:
        """Each layer's output as the last forward pass kept it, and "input"."""
        return self.last.wires

    @property
    def rows(self) -> int:
        """Of the last forward pass."""
        return self.last.wires["input"].shape[0]

    def _run(self, x: Array, learns: bool = True, training: bool = False) -> Pass:
        done = Pass()
        fmt = self.policy("").input
        value: Source = encode(Acc(np.asarray(x, np.float32)), fmt, self._key("input", "wire"))
        done.wires["input"] = value
        pending: list[str] = []  # layers whose output is this accumulator so far
        maker, needed = "", False  # of the accumulator; whether backward reads it as it was made
        for kind, path, *rest in self.layers:
            if kind in ("linear", "norm", "quant"):
                owner = path if kind == "quant" else maker
                fmt = (rest[0] if kind == "quant" else None) or self.policy(owner).wires
                if pending or kind == "quant":
                    key = self._key(owner, "wire")
                    value = self.gains.stored(value, fmt, f"{owner}:wire", key, learns)
                for p in pending:
                    done.wires[p] = value.reshape(done.wires[p].shape)
                pending = []
            if kind == "linear":
                assert isinstance(value, Tensor)
                done.operands[path] = matrix(value)
                out = self._product(path, done.operands[path])
                value = out.reshape((*value.shape[:-1], out.shape[-1]))
                maker, needed = path, False
            elif kind == "norm":
                assert isinstance(value, Tensor)
                done.operands[path] = value.reshape((-1, int(np.prod(rest[0]))))
                value = self._normalized(path, rest[1], done.operands[path]).reshape(value.shape)
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

    def _normalized(self, path: str, eps: float, wire: Tensor) -> Acc:
        gamma, beta = (self.params.get(f"{path}.{p}") for p in ("weight", "bias"))
        if self.policy(path).forward == "sym":
            return norm.normalized(wire, eps, gamma, beta)
        floats = (None if p is None else p.floats().reshape(1, -1) for p in (gamma, beta))
        return Acc(norm.float_normalized(wire.floats(), eps, *floats))

    # ---- backward --------------------------------------------------------------------------------

    def backward(self, y: Array, rows: int | None = None) -> np.float32:
        """Errors and gradients of the last forward pass; the mean loss. `rows`: of the step."""
        self._watch(self.x, y)
        loss = self._back(y, rows or len(y) * self.micro_batches)
        self.micro = (self.micro + 1) % self.micro_batches
        return loss

    def _back(self, y: Array, step_rows: int) -> np.float32:
        self.errors, self.raw_errors = {}, {}
        self.grads = self.grads if self.micro else {}
        error, self.of_loss = share(self._loss(np.asarray(y)), len(y), step_rows), True
        learning = {name.rsplit(".", 1)[0] for name in self.params} - self.frozen
        deepest = next(path for _, path, *_ in self.layers if path in learning)
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
            elif kind in ("linear", "norm"):
                stored = self._stored(path, error)
                rows = matrix(stored)
                if kind == "norm":
                    rows = stored.reshape(self.last.operands[path].shape)
                if path in learning:
                    self._gradients(path, rows, *rest[1:2] if kind == "norm" else ())
                if path == deepest:
                    break
                error = (
                    self._norm_back(path, rows, rest[1]) if kind == "norm" else self._dx(path, rows)
                )
        return self.loss

    def _stored(self, path: str, error: Acc) -> Tensor:
        """The error of a layer's output in the policy's format."""
        self.raw_errors[path] = error
        fmt, key = self.policy(path).errors, self._key(path, "error")
        fmt, self.of_loss = dynamic(fmt) if self.of_loss else fmt, False
        stored = self.gains.stored(error, fmt, f"{path}:error", key, True)
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

    def _weight_gradient(self, path: str, error: Tensor, eps: float | None, terms: int) -> Acc:
        wire, sym = self.last.operands[path], self.policy(path).weight_grad == "sym"
        if eps is None and sym:
            return weight_gradient(error, wire, terms)
        if eps is None:
            return Acc(float_product(error.floats().T, wire.floats()))
        if sym:
            return norm.gamma_gradient(error, wire, eps, terms)
        return Acc(norm.float_gamma_gradient(error.floats(), wire.floats(), eps))

    def _gradients(self, path: str, error: Tensor, eps: float | None = None) -> None:
        """With eps, of a LayerNorm."""
        policy = self.policy(path)
        terms = self.batch * error.shape[0] // self.rows
        found = {"weight": self._weight_gradient(path, error, eps, terms)}
        if f"{path}.bias" in self.params:
            if policy.bias_grad == "sym":
                found["bias"] = bias_gradient(error, terms)
            else:
                ones = np.ones((1, error.shape[0]), np.float32)
                found["bias"] = Acc(float_product(ones, error.floats())[0])
        for kind, acc in found.items():
            name = f"{path}.{kind}"
            acc = acc.reshape(self.params[name].shape)
            key, kept = self._key(name, "grad"), self.grads.get(name)
            if isinstance(policy.grads, str):
                self.grads[name] = acc
            elif isinstance(kept, Tensor):
                self.grads[name] = added(kept, acc, policy.grads, key)
            else:
                self.grads[name] = encode(acc, policy.grads, key)

    def _norm_back(self, path: str, error: Tensor, eps: float) -> Acc:
        wire, gamma = self.last.operands[path], self.params.get(f"{path}.weight")
        if self.policy(path).prop == "sym":
            return norm.back(error, wire, eps, gamma)
        weight = None if gamma is None else gamma.floats().reshape(1, -1)
        return Acc(norm.float_back(error.floats(), wire.floats(), eps, weight))

    def _dx(self, path: str, error: Tensor) -> Acc:
        weight = self.params[f"{path}.weight"]
        if self.policy(path).prop == "sym":
            return propagated(error, weight)
        return Acc(float_product(error.floats(), weight.floats()))

    # ---- update ----------------------------------------------------------------------------------

    def update(self) -> None:
        """Every parameter and its state, from the gradients of the last backward pass."""
        most = getattr(self.sgd, "max_grad_norm", None)
        k = np.float32(1) if most is None else adamw.clip_factor([*self.grads.values()], most)
        for name, grad in self.grads.items():
            streams = Streams(
                self.seed, self.steps, stream(name, "update"), stream(name, "momentum")
            )
            own, w, state = self._own(name), self.params[name], self.state.get(name)
            lr = np.float32(self.lr) if own is self.sgd else adamw.rate(self.sgd, name, self.lr)
            if name in self.moments:
                one, two = (stream(name, role) for role in adamw.ROLES)
                self.params[name], self.moments[name] = adamw.moved(
                    w, grad, self.moments[name], own, lr, streams, (one, two), k
                )
                continue
            self.params[name], state = updated(w, grad, state, own, float(lr), streams, k)
            if state is not None:
                self.state[name] = state
        self.gains.commit()
        self.steps += 1
        self.micro = 0

    def step(self, x: Array, y: Array) -> np.float32:
        """forward and backward of each micro-batch, update; the mean loss."""
        losses = []
        for at in range(0, len(x), self.batch):
            part = slice(at, at + self.batch)
            self.forward(x[part])
            losses.append((self.backward(y[part], len(x)), len(x[part])))
        self.update()
        return mean_loss(losses)


def matrix(t: Tensor) -> Tensor:
    """A row for each position of each row."""
    return t.reshape((-1, t.shape[-1]))


def in_range(t: Source) -> Array:
    """Where a Quant's output passes an error: everywhere, or inside the end codes of a range that
    can be left."""
    assert isinstance(t, Tensor)
    fmt: Format = t.format
    if is_float(fmt) or fmt.range == "dynamic":
        return np.ones(t.shape, bool)
    top = o.top_code(fmt.bits, fmt.asymmetric)
    return (t.codes > (0 if fmt.asymmetric else -top)) & (t.codes < top)


def _at_absmax(values: Array, fmt: Format) -> Tensor:
    """Initial and loaded values, half away."""
    return encode(Acc(values), fmt, rounding="half_away", dynamic=True)
