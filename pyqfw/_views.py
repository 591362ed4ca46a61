"""Looking into a session: tensors as they stand in memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from . import counters as counting
from . import initial
from ._arrays import Array
from ._spaces import Spaces
from .counters import Counters
from .errors import QfwError
from .formats import Float32, SymInt32
from .lower import Op, Tensor
from .modules import Buffer
from .plan import Plan
from .tensor import QTensor


class Views:
    """What a session shows. It owns what is named here."""

    _plan: Plan
    _spaces: Spaces
    _rows: int  # of the last forward
    _last: int  # the operation that ran last; what it and those before wrote is there
    _has_gradients: bool
    _counters: Array | None

    def tensor(self, name: str) -> QTensor:
        """A parameter ("0.weight"), running statistic ("1.running_mean"), optimizer state
        ("0.weight:momentum") or gain of a hindsight range ("0:wire gain": the one in force, and the
        next one) as it is stored."""
        program = self._plan.program
        known = {**program.kept, **program.states, **program.gains}
        return self._shown(_known(known, name, "tensor"), self._rows)

    def grad(self, name: str) -> QTensor:
        """A parameter's gradient as it is stored."""
        program = self._plan.program
        self._needs_loss(f"grad('{name}')")
        parameter = _known(program.parameters, name, "grad")
        grad = program.gradients.get(name)
        if grad is None:
            frozen = parameter.space == "const"
            why = "it is frozen" if frozen else 'grads="fused" updates at once and stores none'
            raise QfwError(f"grad('{name}'): there is no gradient: {why}")
        if not self._has_gradients:
            raise QfwError(f"grad('{name}'): no backward has run yet")
        return self._shown(grad, self._rows)

    def wire(self, layer: str) -> QTensor:
        """A layer's output, of the last forward. Layers that are one operation share a wire, and
        sums that a MaxPool takes the largest of are none.

        Where it has several scales, its shape is that of what reads it.
        """
        t = _known(self._plan.program.wires, layer, "wire")
        pool = next((op for op in self._plan.ops if _selects(op, t)), None)
        if pool is not None:
            raise QfwError(
                f"wire('{layer}'): it is not stored: layer '{pool.layer}' takes the largest of its "
                f"sums at once. Look at wire('{pool.layer}'), or use trace(), which shows the sums "
                f"as they are made"
            )
        written = [i for i, op in enumerate(self._plan.ops) if t in op.written]
        if self._last < 0 or self._last < min(written):
            raise QfwError(f"wire('{layer}'): there is none before a forward, or after a predict")
        if self._spaces.overwritten(t, max(i for i in written if i <= self._last), self._last):
            raise QfwError(
                f"wire('{layer}'): its memory has been used again since; look right after "
                f"forward(), or use trace(), which shows it as it is made"
            )
        found = self._shown(t, self._rows)
        node = next((n for n in self._plan.nodes if n.path == layer), None)
        if node is None or found.format.axis is not None or found.format.group is not None:
            return found
        return QTensor(found._stored._replace(shape=(self._rows, *node.out_shape)))

    def _shown(self, t: Tensor, rows: int) -> QTensor:
        """A tensor in PyTorch's order; where scales go along the order of memory, in that."""
        stored = self._spaces.read(t, rows)
        whole = stored.format.group is None and stored.format.axis != "row"
        if not t.channels or not whole or t.spread == "grid":
            return stored
        codes = t.from_storage(stored.codes.reshape(-1, *t.storage_shape))
        codes = codes if t.rows else codes[0]
        by_element = t.spread == "columns" and t.positions == 1  # of a whole sample
        own = stored.format if by_element else SymInt32(32, axis=1)
        fmt = own if t.spread == "columns" else t.fmt
        fmt = SymInt32(32, axis=0) if t.spread == "rows" else fmt
        assert fmt is not None
        if isinstance(fmt, Float32):
            flat = codes.reshape(-1).view(np.uint8)
            return QTensor(stored._stored._replace(shape=codes.shape, codes=flat))
        points = [stored.scale, stored.zero_point]
        codes = codes.reshape(stored.shape) if by_element else codes
        if by_element or (t.spread == "format" and t.scales_move):
            points = [None if p is None else p.reshape(-1, t.channels).T for p in points]
            points = [None if p is None else p.reshape(-1) for p in points]
        return QTensor.from_codes(codes, fmt, scale=points[0], zero_point=points[1])

    def counters(self, reset: bool = False) -> Counters:
        """What rounding and clamping did to each tensor since `count()`; reset: begin again."""
        if self._counters is None:
            raise QfwError(
                "counters: nothing is counted; call count() first, or open the net with "
                "Session(plan, counters=True)"
            )
        found = counting.read(self._plan.program, self._counters)
        if reset:
            self._counters[:] = 0
        return found

    def state_dict(self) -> dict[str, Array]:
        """Values of parameters and running statistics by PyTorch's names: float32, counts int64."""
        kept, found = self._plan.program.kept, {}
        for name, entry in initial.entries(self._plan).items():
            values = kept[name].from_storage(_values(self._spaces.read(kept[name], 1)))
            whole = isinstance(entry, Buffer) and entry.integer
            found[name] = values.astype(np.int64) if whole else values
        return found

    def _needs_loss(self, what: str) -> None:
        if self._plan.request.loss is None:
            raise QfwError(f"{what}: this plan was compiled without a loss")


def _selects(op: Op, t: Tensor) -> bool:
    """Whether an operation pools these sums, which nothing stores."""
    return t.raw and op.kernel == "max_pool" and op.places[1] is t


def _values(t: QTensor) -> Array:
    """Values as float32; those of Float32 as they are, finite or not."""
    return t.codes.copy() if isinstance(t.format, Float32) else t.numpy()


def _known(items: Mapping[str, Tensor], name: str, what: str) -> Tensor:
    if not isinstance(name, str) or name not in items:
        legal = ", ".join(map(repr, items)) or "none"
        raise QfwError(f"{what}({name!r}): no such name; there are {legal}")
    return items[name]
