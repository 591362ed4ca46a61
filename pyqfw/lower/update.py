"""Gradients, where they are kept, and how parameters move."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .. import optim
from ..errors import QfwError
from ..formats import ROUNDINGS, Float32, Format
from .headroom import INT32_MAX, largest, prove
from .ir import ACCUMULATOR, Op, Tensor, stream_of
from .operands import BY_ROW, by_matrix_row, convert, folded_extra, per_tensor, signed_bits
from .tape import Tape
from .trace import Node
from .windows import LONG, Window, patch_bytes

FOLDED_X, DIAGONAL = 4, 32
NESTEROV, ROUNDING_AT, LR_PARAM = 1, 3, 12
TILE_BYTES = {False: 16 * 1024, True: 128 * 1024}  # of accumulators, for few and for many terms
ROW_BYTES = {False: 4 * 1024, True: 256}  # of a window's, for a short batch; of one term


@dataclass(frozen=True)
class Sums:
    """A gradient's matrix: `out` rows of `inner` sums over the rows of the step, each of which has
    so many positions. Diagonal: element by element, so that `inner` is 1."""

    out: int
    inner: int
    positions: int
    window: Window | None = None  # x is an image that it goes over
    diagonal: bool = False

    @property
    def flags(self) -> int:
        return DIAGONAL if self.diagonal else 0


@dataclass(eq=False)
class Gradients:
    """Lowers the gradients of a layer's parameters, and collects what an update needs."""

    batch: int
    optimizer: optim.Optimizer | None
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
        states = self._states(p, policy.state)
        arithmetic = policy.bias_grad if x is None else policy.weight_grad
        grad = None
        if not fused:
            assert isinstance(policy.grads, Format)
            grad = replace(p, name=f"{p.name}:grad", role="gradient", fmt=policy.grads)
            grad.stream = stream_of(p.name, "grad")
            self.gradients[p.name] = grad
        if arithmetic == "float32":
            grad_at_hand = self._float(tape, ops, node, p, error, x, grad, sums)
            if fused:
                ops.append(self._update(node.path, p, grad_at_hand, states))
        else:
            ops.append(self._sym(tape, node, p, error, x, grad, states, sums))
        if grad is not None and self.optimizer is not None:
            self.updates.append(self._update(node.path, p, grad, states))

    def update_section(self) -> list[Op]:
        """The updates; before them, where gradients are clipped, the factor that they take."""
        if self.optimizer is None or self.optimizer.max_grad_norm is None or not self.updates:
            return self.updates
        ops: list[Op] = []
        total: Tensor | None = None
        for grad in self.gradients.values():
            so_far, total = total, Tensor(f"{grad.name} squares", (), "scratch", Float32())
            ops.append(Op("square_sum", "update", (total, grad, so_far)))
        factor = Tensor("clip factor", (), "scratch", Float32())
        ops.append(Op("clip_factor", "update", (factor, total), {0: self.optimizer.max_grad_norm}))
        for op in self.updates:
            op.places = (*op.places, factor)
        return [*ops, *self.updates]

    def _states(self, p: Tensor, fmt: Format) -> list[Tensor]:
        """What the optimizer keeps for a parameter."""
        roles = () if self.optimizer is None else self.optimizer.of(p.name).states
        made = []
        for role in roles:
            name = f"{p.name}:{role}"
            made.append(replace(p, name=name, role="state", fmt=fmt))
            made[-1].stream = stream_of(p.name, role)
            self.states[name] = made[-1]
        return made

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
        sum_of_p = replace(p, name=f"{p.name}:sums", role="scratch", fmt=Float32(), stream=0)
        made = grad if direct and grad is not None else sum_of_p
        e = tape.operands.floats(error, path)
        wire = None if x is None else tape.operands.floats(x, path)
        op = Op("gradient_f32", path, (made, e, wire), {11: sums.positions})
        op.flags = sums.flags if wire is not None else 0
        op.macs = p.size * sums.positions if x is not None else 0
        ops.append(op)
        adds = grad is not None and self.micro_batches > 1
        if direct and adds:
            tile = self._tile(p, [], sums)
            op.places += (Tensor(f"{p.name}:sums", tile, "scratch", Float32()),)
            op.writes = (0, 3)
        self._room(op, 4, sums, wire, 0)
        if direct:
            return made
        if adds:
            ops.append(Op("accumulate", path, (grad, made), writes=(0, 1)))
        elif grad is not None:
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
        states: list[Tensor],
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
        flags |= sums.flags if wire is not None else 0
        whole = [t.fmt for t in ([p, *states] if grad is None else [grad]) if t.fmt is not None]
        tile = self._tile(p, whole, sums, fused=grad is None)
        if len(p.shape) > 1 and (wire is None or sums.diagonal):  # an output has no rows of its own
            tile = (p.size, 1)
        acc = Tensor(f"{p.name}:sums", tile, "scratch", ACCUMULATOR, spread="tensor")
        params: dict[int, int | float] = {9: proof.chunk, 10: proof.shift, 11: positions}
        macs = p.size * positions if wire is not None else 0
        if grad is not None:
            joint = self._joint(p, grad, tile[0])
            places = (grad, e, wire, acc, *([] if joint is None else [joint]))
            writes = (0, 3) if joint is None else (0, 3, 4)
            op = Op("gradient_s32", path, places, params, flags, writes)
        else:
            op = self._update(path, p, None, states)
            op.kernel = f"gradient_{op.kernel}_s32"
            op.places = (p, e, wire, acc, *op.places[2:])
            op.params |= params
            op.flags |= flags
            op.writes = (0, 3, *range(4, len(op.places)))
        op.macs, op.note = macs, str(proof)
        kept = 8 * tile[0] * tile[1] if proof.split else 0
        if wire is not None and not sums.diagonal and not kept and self.micro_batches == 1:
            op.tiled = _tile_step(whole, p.shape)
        place = {"gradient_s32": 5, "gradient_update_s32": 6, "gradient_adamw_s32": 7}[op.kernel]
        self._room(op, place, sums, wire, kept)
        return op

    def _room(self, op: Op, place: int, sums: Sums, x: Tensor | None, kept: int) -> None:
        """With a window, scratch for patches of the image, behind sums in 64 bits."""
        if sums.window is None or x is None or x.fmt is None:
            return
        op.window, size = sums.window, x.fmt.element_bits // 8
        channels = x.size // sums.window.in_positions
        op.patches = patch_bytes(sums.window, channels, size, self.batch)
        if kept + op.patches:
            scratch = Tensor(f"{op.used[0].name} patches", (kept + op.patches,), "scratch")
            empty = [None] * (place - len(op.places))
            op.places = (*op.places[:place], *empty, scratch)
            op.writes = (*op.writes, place)

    def _tile(
        self, p: Tensor, formats: list[Format], sums: Sums, fused: bool = False
    ) -> tuple[int, int]:
        """Outputs that are accumulated at a time: as many as fit, in eights, or all where a scale
        spans them. Of a window's gradient for a short batch, and of products that are no sums and
        move a parameter at once, few: RAM is what counts then."""
        out, inner = p.shape[0], p.size // p.shape[0]
        if any(_spans(f, p.shape) for f in formats):
            return out, inner
        terms = self.batch * sums.positions
        alone = fused and terms == 1
        if alone or (sums.window is not None and self.batch < LONG):
            whole = all(f.element_bits % 8 == 0 for f in formats)
            rows = ROW_BYTES[alone] // (4 * inner)
            return min(out, max(1, rows) if whole else max(8, rows // 8 * 8)), inner
        rows = TILE_BYTES[terms >= LONG] // (4 * inner) // 8 * 8
        return min(out, max(8, rows)), inner

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
        by_row = per_tensor(x.fmt) if sums.window else by_matrix_row(x, sums.inner)
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
            columns = 0 if sums.window else sums.inner
            wire = make.widened(wire, path, extra=extra, columns=columns)
        return e, wire, 0

    def _update(self, path: str, p: Tensor, grad: Tensor | None, states: list[Tensor]) -> Op:
        assert self.optimizer is not None
        own = self.optimizer.of(p.name)
        scales = sum(_scales(t) for t in (p, *states))
        scratch = Tensor(f"{p.name} flags", (scales,), "scratch") if scales else None
        flags = ROUNDINGS.index(own.rounding) << ROUNDING_AT
        if isinstance(own, optim.AdamW):
            places: tuple[Tensor | None, ...] = (p, grad, *states, scratch)
            op = Op("adamw", path, places, _adamw_params(own), flags, (0, 2, 3, 4))
        else:
            assert isinstance(own, optim.SGD)
            flags |= NESTEROV if own.nesterov else 0
            places = (p, grad, states[0] if states else None, scratch)
            op = Op("update", path, places, _sgd_params(own), flags, (0, 2, 3))
        ratio = self.optimizer.ratio(p.name)
        if ratio != 1.0:
            op.params[LR_PARAM] = ratio
        return op


def _sgd_params(sgd: optim.SGD) -> dict[int, int | float]:
    c = sgd.coefficients()
    factors = [sgd.momentum, 1.0 - sgd.dampening, sgd.weight_decay]
    factors += map(float, (c.step_v, c.step_g, c.step_w, c.state_w, c.step_g1, c.step_w1))
    return dict(enumerate(factors))


def _adamw_params(adam: optim.AdamW) -> dict[int, int | float]:
    one, two = adam.betas
    floats = (one, 1.0 - one, two, 1.0 - two, adam.eps, adam.weight_decay)
    return {**dict(enumerate(floats)), **dict(enumerate(adam.fixed_betas(), len(floats)))}


def _scales(t: Tensor) -> int:
    assert t.fmt is not None
    return 0 if isinstance(t.fmt, Float32) else t.layout(1).n_scales


def _tile_step(formats: list[Format], shape: tuple[int, ...]) -> int:
    """Outputs that a tile can have more or fewer of: all or nothing where a scale spans them."""
    if any(_spans(f, shape) for f in formats):
        return 0
    return 1 if all(f.element_bits % 8 == 0 for f in formats) else 8


def _spans(fmt: Format, shape: tuple[int, ...]) -> bool:
    """Whether a scale belongs to several outputs."""
    if isinstance(fmt, Float32):
        return False
    if fmt.group is not None:
        return len(shape) < 2
    return not (fmt.axis in (0, -len(shape)) or (fmt.axis == "row" and len(shape) == 2))
