"""The second opinion on a training step: docs/numerics.md sections 13 to 18 and 32 to 36.

A `Net` keeps everything a step made: wires, errors, gradients, parameters, state and the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from typing import Any, TypeAlias

import numpy as np
import oracle as o
import oracle_adamw as adamw
import oracle_batch_norm as bn
import oracle_join as join
import oracle_rules_norms  # noqa: F401 - registers its rules
import oracle_rules_pools  # noqa: F401
from oracle_accumulate import added, mean_loss, micro_seed, share
from oracle_graph import Graph, Layer, Pass, Sources
from oracle_hindsight import Gains, dynamic, is_hindsight
from oracle_loss import cross_entropy, float_mse, mse
from oracle_order import Place, Shape, ordered, reordered, shown, shown_parameter
from oracle_product import bias_gradient, float_product
from oracle_rules import RULES, Flow, Run
from oracle_tensor import Acc, Array, Format, Source, Tensor, draws, encode, stream
from oracle_update import Streams, updated

Policy: TypeAlias = Any


def initial(key: o.Key, shape: Sequence[int], inputs: int) -> Array:
    """U(-b, b) with b = 1 / sqrt(inputs), in PyTorch's order."""
    n = int(np.prod(shape))
    i = np.arange(n)
    unit = (2.0 * draws(key, i).astype(np.float64) + 1.0) / 2.0**32 - 1.0
    return (unit / sqrt(inputs)).astype(np.float32).reshape(shape)


class Sym16:
    """The logits' format: Sym(16)."""

    bits, asymmetric, axis, group = 16, False, None, None
    scale, pow2, range, rounding, container = "float", False, "dynamic", "half_away", "packed"


class Net:
    """Layers under a policy for each (or one for all), trained with SGD or AdamW.

    Tensors are in the order of memory; `shown` has them as a session shows them.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        policies: Policy | Mapping[str, Policy],
        sgd: Any,
        *,
        shape: Shape,
        sources: Sources | None = None,
        seed: int = 0,
        batch: int = 1,
        frozen: Sequence[str] = (),
        micro_batches: int = 1,
        loss: Any = None,
    ) -> None:
        """`shape`: of a sample; `batch`: rows of a micro-batch."""
        self.layers = list(layers)
        self.graph = Graph(layers, shape, sources)
        self.frozen = frozenset(frozen)
        self.policies = policies
        self.sgd = sgd
        self.lr = float(sgd.lr)
        self.seed, self.batch, self.steps = seed % o.WORD, batch, 0
        self.micro_batches, self.micro = micro_batches, 0
        self.params: dict[str, Tensor] = {}
        self.state: dict[str, Tensor] = {}
        self.moments: dict[str, tuple[Tensor, Tensor]] = {}
        self.errors: dict[str, Source] = {}
        self.raw_errors: dict[str, Source] = {}
        self.grads: dict[str, Source] = {}
        self.gains = Gains()
        self.running = {p: bn.fresh(rest[0]) for kind, p, *rest in layers if kind == "batch"}
        self.loss = np.float32(0)
        self.criterion = loss
        self.last = Pass()
        self.x = np.zeros(0, np.float32)
        self.sizes = self.graph.parameters()
        names = {name.rsplit(".", 1)[0] for name in self.sizes}
        self.learning = names - self.frozen
        self.wanted = self.graph.wanted(self.learning)
        self.load({name: self._initial(name, *sizes) for name, sizes in self.sizes.items()})

    # ---- parameters ------------------------------------------------------------------------------

    def policy(self, path: str) -> Policy:
        """The policy of a layer: its own, or that of "", the network."""
        if not isinstance(self.policies, Mapping):
            return self.policies
        return self.policies[path if path in self.policies else ""]

    def _initial(self, name: str, place: Place, inputs: int) -> Array:
        """Those without inputs are LayerNorm's: 1, or 0 for beta."""
        if inputs == 0:
            return np.full(place.shape, float(name.endswith("weight")), np.float32)
        return initial(o.key(self.seed, 0, stream(name, "init")), place.shape, inputs)

    def formats(self, name: str) -> dict[str, Format]:
        """Of a parameter, its gradient and its state, as the policy has them."""
        path, kind = name.rsplit(".", 1)
        policy = self.policy(path)
        own = policy.weights if kind == "weight" else policy.bias
        return {"": own, "grad": policy.grads, "state": policy.state}

    def load(self, values: Mapping[str, Array]) -> None:
        """Parameters from floats, encoded at their absmax, and a state of zeros."""
        for name, value in values.items():
            place, formats = self.sizes[name][0], self.formats(name)
            array = place.to_memory(np.asarray(value, np.float32))
            self.params[name] = _at_absmax(array, place.format(formats[""]))
            if name.rsplit(".", 1)[0] in self.frozen:
                continue
            own = self._own(name)
            zero = _at_absmax(np.zeros_like(array), place.format(formats["state"]))
            if hasattr(own, "betas"):
                self.moments[name] = (zero, zero)
            elif own.momentum:
                self.state[name] = zero

    def shown(self, name: str, t: Tensor, role: str = "") -> Tensor:
        """A parameter, or its gradient or state, as a session shows it."""
        return shown_parameter(t, self.sizes[name][0], self.formats(name)[role])

    def _own(self, name: str) -> Any:
        """The optimizer's numbers for a parameter."""
        return (
            self.sgd if getattr(self.sgd, "groups", None) is None else adamw.options(self.sgd, name)
        )

    def key(self, path: str, role: str) -> o.Key:
        seed = micro_seed(self.seed, self.micro)
        return o.key(seed, self.steps, stream(path, role))

    # ---- forward ---------------------------------------------------------------------------------

    def forward(self, x: Array) -> Array:
        """The output as float32, for rows that share scales."""
        self._watch(x, None)
        self.x, self.last = x, self._run(x, training=True)
        return self._output(self.last)

    def _run(self, x: Array, learns: bool = True, training: bool = False) -> Pass:
        return Run(self, learns, training).walk(x)

    def _output(self, done: Pass) -> Array:
        """Of the last layer, in PyTorch's order."""
        place = self.graph.places[self.layers[-1][1]]
        floats = done.cells[self.layers[-1][1]].source.floats()
        return place.from_memory(floats, floats.shape[:1])

    def _watch(self, x: Array, y: Array | None) -> None:
        """First gains, from a pass with dynamic ranges; without labels, those of a forward."""
        role = "wire" if y is None else "error"
        formats = [f for p in self._policies() for f in (p.wires, p.errors)]
        formats += [rest[0] for kind, _, *rest in self.layers if kind == "quant" and rest]
        known = any(name.endswith(role) for name in self.gains.now)
        if known or not any(is_hindsight(f) for f in formats if f is not None):
            return
        kept, grads, self.gains.watching = self.last, dict(self.grads), True
        self.last = self._run(x, training=True)
        if y is not None:
            self._back(y, len(y))
        self.last, self.grads, self.gains.watching = kept, grads, False

    def _policies(self) -> list[Policy]:
        several = isinstance(self.policies, Mapping)
        return list(self.policies.values()) if several else [self.policies]

    def predict(self, x: Array) -> Array:
        """The output of each row alone."""
        micro, self.micro = self.micro, 0
        rows = [self._run(x[i : i + 1], learns=False) for i in range(len(x))]
        self.micro = micro
        return np.concatenate([self._output(row) for row in rows])

    @property
    def wires(self) -> dict[str, Source]:
        """Each layer's output as the last forward pass kept it, and "input"."""
        return self.last.wires

    @property
    def rows(self) -> int:
        """Of the last forward pass."""
        return self.last.cells["input"].source.shape[0]

    def entered(self, path: str) -> Place:
        """What a layer reads."""
        return self.graph.places[self.graph.sources[path][0]]

    @staticmethod
    def last_channels(place: Place) -> int:
        """The order of an image: channels last."""
        return ordered(place.shape[0], place.size) if len(place.shape) > 1 else 0

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
        made, channels = self._loss(np.asarray(y))
        error = Flow(share(made, len(y), step_rows), channels, of_loss=True)
        places = self.graph.places
        arrived: dict[str, list[Flow]] = {path: [] for path in self.wanted}
        last = self.layers[-1][1]
        arrived[last] = [self._arranged(last, error, places[last].channels)]
        for layer in reversed(self.layers):
            kind, path, *_ = layer
            if path not in self.wanted:
                continue
            error = self._joined(path, arrived[path])
            shape = (self.rows, *places[path].memory)
            found = RULES[kind].backward(
                self, layer, error._replace(source=error.source.reshape(shape))
            )
            read = self.graph.sources[path]
            each = found if isinstance(found, list) else [found] * len(read)
            for source, flow in zip(read, each, strict=True):
                if source in self.wanted:
                    part = self._part(source, len(arrived[source]))
                    flow = self._arranged(source, flow, places[source].channels, part)
                    arrived[source].append(flow)
        return self.loss

    def leads(self, path: str) -> bool:
        """Whether something below a layer learns."""
        return bool(self.wanted & set(self.graph.sources[path]))

    def _part(self, path: str, number: int) -> str:
        """What an error that is one of several is called."""
        return f"+{number + 1}" if self.graph.readers[path] > 1 else ""

    def _joined(self, path: str, flows: list[Flow]) -> Flow:
        """The sum of the errors of those that read a layer's output."""
        if len(flows) == 1:
            return flows[0]
        stored = [self.stored(path, f, self._part(path, i)) for i, f in enumerate(flows)]
        floats = self.policy(path).prop == "float32"
        return Flow(join.added(stored, floats), flows[0].channels)

    def _arranged(self, path: str, flow: Flow, channels: int, part: str = "") -> Flow:
        """The error of a layer's output in the order that the output has."""
        if flow.channels == channels:
            return flow
        t = join.at_one_scale(self.stored(path, flow, part))
        turned = reordered(t, flow.channels, channels)
        return flow._replace(source=turned, channels=channels, held=path)

    def stored(self, path: str, error: Flow, part: str = "") -> Tensor:
        """The error of a layer's output in the policy's format."""
        place = self.graph.places[path]._replace(channels=error.channels)
        source = error.source.reshape((self.rows, *place.memory))
        fmt, name = self.policy(path).errors, f"{path}{part}"
        fmt = dynamic(fmt) if error.of_loss else fmt
        if isinstance(source, Tensor) and (error.held == path or source.format == fmt):
            return source
        self.raw_errors[name] = shown(source, place)
        t = self.gains.stored(source, fmt, f"{name}:error", self.key(name, "error"), True)
        self.errors[name] = shown(t, place)
        return t

    def _logits(self) -> Source:
        """The output for a cross-entropy: floats, or 16 bits with one scale; classes in order."""
        place, output = self.graph.places[self.layers[-1][1]], self._last_value()
        z = Acc(output.floats()) if self._makes_floats() else encode(output, Sym16())
        if isinstance(z, Acc):
            return Acc(place.from_memory(z.values, z.shape[:1]))
        return reordered(z, place.channels, 0).reshape((z.shape[0], *place.shape))

    def _last_value(self) -> Source:
        return self.last.cells[self.layers[-1][1]].in_memory()

    def _loss(self, y: Array) -> tuple[Acc, int]:
        """Sets the mean loss; the error of the output, and its order."""
        if type(self.criterion).__name__ == "MSELoss":
            return self._mse(y), self.graph.places[self.layers[-1][1]].channels
        error, self.loss = cross_entropy(self._logits(), y, self.criterion)
        return error, 0

    def _mse(self, y: Array) -> Acc:
        place = self.graph.places[self.layers[-1][1]]
        output, targets = self._last_value(), Acc(place.to_memory(y.astype(np.float32)))
        if self._makes_floats():
            error, self.loss = float_mse(output.floats(), targets.values)
        else:
            error, self.loss = mse(encode(output, Sym16()), encode(targets, Sym16()))
        return error

    def _makes_floats(self) -> bool:
        """Whether the last layer that makes sums makes floats."""
        return bool(self.policy(self.graph.last_maker).forward == "float32")

    def gradients(self, path: str, error: Tensor, of_weight: Callable[[int], Acc]) -> None:
        """Of a layer that learns, from the error of its output, a row for each position; that of
        its weight from the longest sum."""
        if path not in self.learning:
            return
        policy, found = self.policy(path), {}
        terms = self.batch * error.shape[0] // self.rows
        if f"{path}.weight" in self.params:
            found["weight"] = of_weight(terms)
        if f"{path}.bias" in self.params:
            if policy.bias_grad == "sym":
                found["bias"] = bias_gradient(error, terms)
            else:
                ones = np.ones((1, error.shape[0]), np.float32)
                found["bias"] = Acc(float_product(ones, error.floats())[0])
        for kind, acc in found.items():
            name = f"{path}.{kind}"
            acc = acc.reshape(self.params[name].shape)
            key, kept = self.key(name, "grad"), self.grads.get(name)
            if isinstance(policy.grads, str):
                self.grads[name] = acc
                continue
            fmt = self.sizes[name][0].format(policy.grads)
            new = isinstance(kept, Tensor)
            self.grads[name] = added(kept, acc, fmt, key) if new else encode(acc, fmt, key)

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


def _at_absmax(values: Array, fmt: Format) -> Tensor:
    """Initial and loaded values, half away."""
    return encode(Acc(values), fmt, rounding="half_away", dynamic=True)
