"""Gradients, where they are kept, and how parameters move."""

from __future__ import annotations

from dataclasses import dataclass, field

from .. import optim
from ..errors import QfwError
from ..formats import ROUNDINGS, Float32, Format
from .headroom import INT32_MAX, largest, prove
from .ir import ACCUMULATOR, Op, Tensor, stream_of
from .operands import BY_ROW, by_matrix_row, convert, folded_extra, per_tensor, signed_bits
from .tape import Tape
from .trace import Node

FOLDED_X = 4
NESTEROV, ROUNDING_AT = 1, 3
TILE_BYTES = {False: 16 * 1024, True: 128 * 1024}  # of accumulators, for short and long batches
LONG = 8


@dataclass(frozen=True)
class Sums:
    """A gradient's matrix: `out` rows of `inner` sums over the rows of the step, each of which has
    so many positions."""

    out: int
    inner: int
    positions: int


@dataclass(eq=False)
class Gradients:
    """Lowers the gradients of a layer's parameters, and collects what an update needs."""

    batch: int
    optimizer: optim.SGD | None
    micro_batches: int = 1
    gradients: dict[str, Tensor] = field(default_factory=dict)
    states: dict[str, Tensor] = field(default_factory=dict)
    updates: list[Op] = field(default_factory=list)

    def lower(
        self,
        tape: Tape,
        ops: list[Op],
        node: Node,
        p: Tensor,
        error: Tensor,
        x: Tensor | None,
        sums: Sums,
    ) -> None:
        """The gradient of p, sums of error * x; without x, of the error itself."""
        policy, fused = node.policy, node.policy.grads == "fused"
        state = self._state(p, policy.state)
        arithmetic = policy.bias_grad if x is None else policy.weight_grad
        grad = None
        if not fused:
            assert isinstance(policy.grads, Format)
            grad = Tensor(f"{p.name}:grad", p.shape, "gradient", policy.grads)
            grad.stream = stream_of(p.name, "grad")
            self.gradients[p.name] = grad
        if arithmetic == "float32":
            grad_at_hand = self._float(tape, ops, node, p, error, x, grad, sums)
            if fused:
                ops.append(self._update(node.path, p, grad_at_hand, state))
        else:
            ops.append(self._sym(tape, node, p, error, x, grad, state, sums))
        if grad is not None and self.optimizer is not None:
            self.updates.append(self._update(node.path, p, grad, state))

    def _state(self, p: Tensor, fmt: Format) -> Tensor | None:
        if self.optimizer is None or not self.optimizer.has_state:
            return None
        stream = stream_of(p.name, "momentum")
        state = Tensor(f"{p.name}:momentum", p.shape, "state", fmt, stream=stream)
        self.states[p.name] = state
        return state

    def _float(
        self,
        tape: Tape,
        ops: list[Op],
        node: Node,
        p: Tensor,
        error: Tensor,
        x: Tensor | None,
        grad: Tensor | None,
        sums: Sums,
    ) -> Tensor:
        """In float32: into the gradient itself where that is Float32."""
        path = node.path
        direct = grad is not None and isinstance(grad.fmt, Float32)
        made = grad if direct else Tensor(f"{p.name}:sums", p.shape, "scratch", Float32())
        assert made is not None
        e = tape.operands.floats(error, path)
        wire = None if x is None else tape.operands.floats(x, path)
        op = Op("gradient_f32", path, (made, e, wire), {11: sums.positions})
        op.macs = p.size * sums.positions if x is not None else 0
        ops.append(op)
        adds = grad is not None and self.micro_batches > 1
        if direct and adds:
            tile = _tile(p, [], self.batch * sums.positions)
            op.places += (Tensor(f"{p.name}:sums", tile, "scratch", Float32()),)
            op.writes = (0, 3)
        elif adds:
            ops.append(Op("accumulate", path, (grad, made), writes=(0, 1)))
        elif grad is not None and not direct:
            ops.append(convert(made, grad, path))
        return made

    def _sym(
        self,
        tape: Tape,
        node: Node,
        p: Tensor,
        error: Tensor,
        x: Tensor | None,
        grad: Tensor | None,
        state: Tensor | None,
        sums: Sums,
    ) -> Op:
        """In integers, a tile of outputs at a time, into the gradient or the parameter itself."""
        path, positions = node.path, sums.positions
        terms = self.batch * positions
        e, wire, flags = self._factors(tape, path, error, x, sums)
        assert e.fmt is not None
        b = 1 if wire is None or wire.fmt is None else largest(signed_bits(wire.fmt))
        proof = prove(terms, largest(signed_bits(e.fmt)), b)
        if wire is None and proof.split:
            raise QfwError(
                f"layer '{path}': {terms} errors of {signed_bits(e.fmt)} bits can leave int32 when "
                f"summed for the bias; a batch of at most {INT32_MAX // largest(e.fmt.bits)} fits"
            )
        whole = [t.fmt for t in (grad, *([p, state] if grad is None else [])) if t is not None]
        tile = _tile(p, [f for f in whole if f is not None], terms)
        acc = Tensor(f"{p.name}:sums", tile, "scratch", ACCUMULATOR, spread="tensor")
        params: dict[int, int | float] = {9: proof.chunk, 10: proof.shift, 11: positions}
        macs = p.size * positions if wire is not None else 0
        if grad is not None:
            joint = self._joint(p, grad, tile[0])
            places = (grad, e, wire, acc, *([] if joint is None else [joint]))
            writes = (0, 3) if joint is None else (0, 3, 4)
            op = Op("gradient_s32", path, places, params, flags, writes)
        else:
            op = self._update(path, p, None, state)
            op.kernel = "gradient_update_s32"
            op.places = (p, e, wire, acc, state, op.places[3])
            op.params |= params
            op.flags |= flags
            op.writes = (0, 3, 4, 5)
        op.macs, op.note = macs, str(proof)
        return op

    def _joint(self, p: Tensor, grad: Tensor, rows: int) -> Tensor | None:
        """Room for the scales of sums over micro-batches, in a tile of the gradient."""
        assert grad.fmt is not None
        found_anew = not isinstance(grad.fmt, Float32) and isinstance(grad.fmt.range, str)
        if self.micro_batches == 1 or not found_anew:
            return None
        count = -(-_scales(grad) * rows // p.shape[0])
        return Tensor(f"{p.name}:sums' scales", (4 * count,), "scratch")

    def _factors(
        self, tape: Tape, path: str, error: Tensor, x: Tensor | None, sums: Sums
    ) -> tuple[Tensor, Tensor | None, int]:
        """Operands of dW: scales that lie along the rows are folded into the error."""
        make, terms = tape.operands, self.batch * sums.positions
        out, several = sums.out, not per_tensor(error.fmt)
        if x is None:
            e = make.source(error, path) if several else make.codes(error, path)
            if several:
                e = make.widened(e, path, extra=folded_extra(terms, e, None), columns=out)
            return e, None, 0
        by_row = by_matrix_row(x, sums.inner)
        folds = by_row and not per_tensor(x.fmt)
        e = make.source(error, path) if folds or several else make.codes(error, path)
        wire = make.codes(x, path) if by_row else make.source(x, path)
        extra = folded_extra(terms, e, wire)
        if folds:
            e = make.widened(e, path, by=wire, mode=BY_ROW, extra=extra, columns=out)
            return e, wire, FOLDED_X
        if several:
            e = make.widened(e, path, extra=extra, columns=out)
        if not by_row:
            extra = folded_extra(terms, wire, e)
            wire = make.widened(wire, path, extra=extra, columns=sums.inner)
        return e, wire, 0

    def _update(self, path: str, p: Tensor, grad: Tensor | None, state: Tensor | None) -> Op:
        sgd = self.optimizer
        assert sgd is not None
        c = sgd.coefficients()
        factors = [sgd.momentum, 1.0 - sgd.dampening, sgd.weight_decay]
        factors += map(float, (c.step_v, c.step_g, c.step_w, c.state_w, c.step_g1, c.step_w1))
        flags = ROUNDINGS.index(sgd.rounding) << ROUNDING_AT | (NESTEROV if sgd.nesterov else 0)
        scales = sum(_scales(t) for t in (p, state) if t is not None)
        scratch = Tensor(f"{p.name} flags", (scales,), "scratch") if scales else None
        params: dict[int, int | float] = dict(enumerate(factors))
        return Op("update", path, (p, grad, state, scratch), params, flags, (0, 2, 3))


def _scales(t: Tensor) -> int:
    assert t.fmt is not None
    return 0 if isinstance(t.fmt, Float32) else t.layout(1).n_scales


def _tile(p: Tensor, formats: list[Format], terms: int) -> tuple[int, int]:
    """Outputs that are accumulated at a time: as many as fit, in eights, or all where a scale
    spans them."""
    out, inner = p.shape[0], p.size // p.shape[0]
    if any(_spans(f, p.shape) for f in formats):
        return out, inner
    rows = TILE_BYTES[terms >= LONG] // (4 * inner) // 8 * 8
    return min(out, max(8, rows)), inner


def _spans(fmt: Format, shape: tuple[int, ...]) -> bool:
    """Whether a scale belongs to several outputs."""
    if isinstance(fmt, Float32):
        return False
    if fmt.group is not None:
        return len(shape) < 2
    return not (fmt.axis in (0, -len(shape)) or (fmt.axis == "row" and len(shape) == 2))
