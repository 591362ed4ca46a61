"""Findings: what is worth knowing about a plan that compiles. docs/validator.md lists them.

Each is a function over (request, nodes, program), registered with its code and severity. Widths and
numbers of rows below which something is found were measured; that page says on what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil, log2
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from . import nn
from .formats import Asym, Float32, Format, Sym
from .lower import Node, Op, Program, Tensor
from .lower.context import INSIDE
from .lower.norm import form_of
from .lower.trace import leading

if TYPE_CHECKING:
    from .plan import Request

Severity: TypeAlias = Literal["error", "warning", "note"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
FEW_BITS = 6  # of a parameter: below it, rounding the updates is what decides
FEW_ROWS = 32  # of an update
FEW_WIRE_BITS = 6  # of a wire: up to it, a range over the batch is another network


@dataclass(frozen=True)
class Finding:
    """Something worth knowing about a plan. `layer` is empty where it is about the whole."""

    code: str
    severity: str  # "error", "warning" or "note"
    layer: str
    message: str
    remedy: str

    def __str__(self) -> str:
        named = f"layer '{self.layer}'" if self.layer else ""
        where = "" if self.message.startswith(named) else f"{named}: "
        return f"{self.severity}: {self.code}: {where}{self.message}\n  remedy: {self.remedy}"


@dataclass(frozen=True)
class Case:
    """What is looked at."""

    request: Request
    nodes: list[Node]
    program: Program
    makers: dict[Tensor | None, Op] = field(
        init=False
    )  # a tensor: the operation that wrote it first

    def __post_init__(self) -> None:
        makers: dict[Tensor | None, Op] = {}
        for op in self.program.ops:
            for t in op.written:
                makers.setdefault(t, op)
        object.__setattr__(self, "makers", makers)

    def stored(self) -> Iterator[tuple[str, Tensor, Format]]:
        """The wires that are stored in integers, with the layer that says so, or "input"."""
        for t in self.program.tensors:
            if self.is_stored(t) and isinstance(t.fmt, (Sym, Asym)):
                yield _owner(t), t, t.fmt

    def is_stored(self, t: Tensor) -> bool:
        """Whether values were rounded into it. What a ReLU makes of codes is a wire and was not."""
        op = self.makers.get(t)
        rounds = op is not None and op.kernel.startswith(("convert", "product"))
        return rounds and t.role == "wire" and t.space == "arena"

    def moving(self) -> Iterator[tuple[Tensor, Format]]:
        """The parameters that a step moves and writes back in integers."""
        if self.request.optimizer is not None:
            for t in self.program.parameters.values():
                if t.space == "arena" and isinstance(t.fmt, (Sym, Asym)):
                    yield t, t.fmt


class Fact(NamedTuple):
    """A finding without what all of its code share."""

    layer: str
    message: str
    remedy: str


Find: TypeAlias = Callable[[Case], Iterator[Fact]]


class Rule(NamedTuple):
    code: str
    severity: Severity
    find: Find
    at_compile: bool  # whether `compile` looks for it by itself


RULES: dict[str, Rule] = {}


def _rule(code: str, severity: Severity, *, at_compile: bool = False) -> Callable[[Find], Find]:
    def register(find: Find) -> Find:
        assert code not in RULES
        RULES[code] = Rule(code, severity, find, at_compile)
        return find

    return register


def examine(case: Case, *, at_compile: bool = False) -> list[Finding]:
    """What all rules find, or those of `compile`: rule by rule, in the order of the layers."""
    order = {node.path: i for i, node in enumerate(case.nodes)}
    found: list[Finding] = []
    for rule in RULES.values():
        if rule.at_compile or not at_compile:
            facts = sorted(rule.find(case), key=lambda fact: order.get(fact.layer, -1))
            found += [Finding(rule.code, rule.severity, *fact) for fact in facts]
    return found


# --- wires ----------------------------------------------------------------------------------------


@_rule("double-requantization", "warning")
def _double_requantization(case: Case) -> Iterator[Fact]:
    """A Quant of what was just stored: by a Quant, or as the input in the same width."""
    quants = {node.path for node in case.nodes if isinstance(node.layer, nn.Quant)}
    for path, t, fmt in case.stored():
        source = case.makers[t].places[1]
        if path not in quants or source is None or not case.is_stored(source):
            continue
        before = _owner(source)
        if not isinstance(source.fmt, (Sym, Asym)):
            continue
        if source.fmt.bits != fmt.bits and before not in quants:
            continue
        where = f"layer '{before}'" if before in quants else "the policy's input"
        again = "this copies the codes" if _alike(source, t) else f"{fmt!r} rounds it again"
        message = f"what enters is stored in {source.fmt!r} already, by {where}: {again}"
        yield Fact(path, message, "say the format once: leave out one of the two")


@_rule("mask-not-kept", "warning")
def _mask_not_kept(case: Case) -> Iterator[Fact]:
    """A fixed range that is no Quant's: errors pass where its codes saturated."""
    passed = {case.nodes[i].path for i in leading(case.nodes)}
    if case.request.loss is None:
        return
    for path, t, fmt in case.stored():
        if isinstance(fmt.range, str) or path not in passed:
            continue
        if not any(_masks(op, t) for op in case.program.sections["backward"]):
            yield Fact(
                path,
                f"its wire is {fmt!r} by the policy: codes saturate there, and errors pass all "
                "the same",
                f"nn.Quant({fmt!r}) in that place: its backward is masked where it saturated",
            )


@_rule("batch-granularity", "warning")
def _batch_granularity(case: Case) -> Iterator[Fact]:
    """Few bits whose range is that of a whole batch in training, and of a row in inference."""
    rows = case.program.batch
    if case.request.loss is None or rows == 1:
        return
    for path, _, fmt in case.stored():
        one = fmt.axis is None and fmt.group is None and fmt.range == "dynamic"
        if one and fmt.bits <= FEW_WIRE_BITS:
            yield Fact(
                path,
                f"{fmt!r} has one range for {rows} rows in a step and one for each row in predict: "
                "with so few bits their outputs differ",
                'axis="row": the range in training that there is in inference',
            )


@_rule("softmax-before-cross-entropy", "warning")
def _softmax_before_cross_entropy(case: Case) -> Iterator[Fact]:
    last = _logits(case)
    if last is not None and isinstance(last.layer, nn.Softmax):
        yield Fact(
            last.path,
            "CrossEntropyLoss takes logits and has a softmax of its own: after this one no class "
            "can be more than e times as likely as another, and gradients are small",
            "leave this layer out; softmax what predict returns, where probabilities are wanted",
        )


@_rule("bounded-logits", "warning")
def _bounded_logits(case: Case) -> Iterator[Fact]:
    last = _logits(case)
    if last is not None and isinstance(last.layer, (nn.Sigmoid, nn.Tanh)):
        most = "e" if isinstance(last.layer, nn.Sigmoid) else "e^2"
        yield Fact(
            last.path,
            f"CrossEntropyLoss takes logits of any size: behind this layer no class can be more "
            f"than {most} times as likely as another",
            "leave this layer out, or take MSELoss",
        )


def _logits(case: Case) -> Node | None:
    """The layer that makes what a cross-entropy reads; Quant and Flatten change nothing of that."""
    if not isinstance(case.request.loss, nn.CrossEntropyLoss):
        return None
    through = (nn.Quant, nn.Flatten)
    return next((n for n in reversed(case.nodes) if not isinstance(n.layer, through)), None)


@_rule("norm-of-one", "warning")
def _norm_of_one(case: Case) -> Iterator[Fact]:
    """What is normalised by itself is 0, and then the bias."""
    for node in case.nodes:
        if isinstance(node.layer, (nn.LayerNorm, nn.GroupNorm)) and form_of(node).length == 1:
            yield Fact(
                node.path,
                f"{node.layer} normalises each element of {node.in_shape} by itself: what comes "
                "out is its bias, or 0, whatever goes in",
                "fewer groups, or more axes: something to compare with",
            )


# --- parameters and state -------------------------------------------------------------------------


@_rule("dead-zone", "warning")
def _dead_zone(case: Case) -> Iterator[Fact]:
    """Round to nearest loses what is below half a step, each time anew."""
    optimizer = case.request.optimizer
    rounding = "stochastic" if optimizer is None else optimizer.rounding
    for t, fmt in case.moving():
        if rounding != "stochastic":
            yield Fact(
                _owner(t),
                f"{t.name} is {fmt!r} and is written back {rounding}: an update below 1 in "
                f"{2 * fmt.qmax} of its range is lost, however often it comes",
                'rounding="stochastic" in the optimizer',
            )


@_rule("state-dead-zone", "note")
def _state_dead_zone(case: Case) -> Iterator[Fact]:
    """round(beta v) is v itself where (1 - beta) |v| is below a half."""
    for t in case.program.tensors:
        if t.role != "state" or not isinstance(t.fmt, (Sym, Asym)):
            continue
        beta = float(getattr(case.request.optimizer, "momentum", 0.0))
        if t.fmt.rounding == "stochastic" or not 0.5 < beta < 1.0:
            continue
        largest = t.fmt.qmax // (2 if t.fmt.asymmetric else 1)
        stuck = min(ceil(round(0.5 / (1.0 - beta), 6)) - 1, largest)
        yield Fact(
            _owner(t),
            f"{t.name} is {t.fmt!r}: with momentum={beta} its codes up to {stuck} of {largest} "
            "never decay",
            'rounding="stochastic" in the policy\'s state, or more bits',
        )


@_rule("write-back-noise", "warning")
def _write_back_noise(case: Case) -> Iterator[Fact]:
    """Rounding an update costs the same whatever it is worth: a few rows are not worth it."""
    optimizer, batch = case.request.optimizer, case.request.batch
    if optimizer is None or optimizer.rounding != "stochastic":
        return
    enough = 2 if optimizer.has_state else FEW_ROWS
    for t, fmt in case.moving():
        if fmt.bits < FEW_BITS and batch < enough:
            rows = "one row" if batch == 1 else f"{batch} rows"
            means = "" if optimizer.has_state else " and no momentum"
            yield Fact(
                _owner(t),
                f"{t.name} has {fmt.bits} bits, an update {rows}{means}: what rounding adds "
                "outweighs what is learned",
                f"{FEW_ROWS} rows or more an update, with momentum; or {FEW_BITS} bits or more",
            )


@_rule("scale-per-tensor", "note")
def _scale_per_tensor(case: Case) -> Iterator[Fact]:
    for t, fmt in case.moving():
        one = fmt.axis is None and fmt.group is None
        if one and len(t.shape) > 1 and t.shape[0] > 1 and fmt.bits < FEW_BITS:
            yield Fact(
                _owner(t),
                f"{t.name} is {fmt!r}: one scale for {t.shape[0]} outputs, at {fmt.bits} bits",
                "axis=0: a scale for each output",
            )


# --- errors and gradients -------------------------------------------------------------------------


@_rule("range-too-wide", "warning")
def _range_too_wide(case: Case) -> Iterator[Fact]:
    """The error of a mean cross-entropy is at most 1 / rows: less than half a step, it may be."""
    loss = case.request.loss
    if not isinstance(loss, nn.CrossEntropyLoss) or loss.weight is not None:
        return
    rows = case.program.batch
    bound = 1.0 / rows
    for op in case.program.sections["backward"]:
        if not op.kernel.startswith("convert"):
            continue
        t, source = op.places[:2]
        maker = case.makers.get(source)
        if maker is None or not maker.kernel.startswith("cross_entropy"):
            continue
        if t is None or t.role != "error" or t.fmt is None or isinstance(t.fmt.range, str):
            continue
        step = _step(t.fmt, t.fmt.range)
        if step > 2 * bound:
            chance = t.fmt.rounding == "stochastic"
            yield Fact(
                op.layer,
                f"its errors are {t.fmt!r}, in steps of {step:.2g}, and those of a loss over "
                f"{rows} rows are at most {bound:.2g}: "
                + ("a code is 0, or 1 by chance" if chance else "every code is 0"),
                f'range="dynamic", or at most {bound:.2g}, the largest error',
            )


@_rule("range-one-sided", "warning")
def _range_one_sided(case: Case) -> Iterator[Fact]:
    """A fixed range of Asym begins at 0; errors and gradients have both signs."""
    for t in case.program.tensors:
        fixed = isinstance(t.fmt, Asym) and not isinstance(t.fmt.range, str)
        if fixed and t.role in ("error", "gradient"):
            yield Fact(
                _owner(t),
                f"{t.name} is {t.fmt!r}: that is 0 to the range, and whatever is below 0 becomes 0",
                "Sym with that range, or Asym with a dynamic one",
            )


@_rule("stored-gradients", "note")
def _stored_gradients(case: Case) -> Iterator[Fact]:
    """A gradient that is read once, right after it was written."""
    optimizer = case.request.optimizer
    if optimizer is None or optimizer.has_state or case.request.batch > 1:
        return
    if optimizer.max_grad_norm is not None:
        return
    kept = [t for t in case.program.gradients.values() if isinstance(t.fmt, Float32)]
    if kept:
        yield Fact(
            "",
            f"{sum(t.nbytes(1) for t in kept)} bytes of Float32 gradients are kept from backward "
            "to update, for one row and plain SGD",
            'grads="fused" in the policy: backward updates at once and keeps none',
        )


@_rule("split-accumulation", "note", at_compile=True)
def _split_accumulation(case: Case) -> Iterator[Fact]:
    for op in case.program.ops:
        if op.note.startswith("split"):
            yield Fact(
                op.layer,
                f"{op.kernel}: {op.note}",
                "fewer bits in an operand, or shorter sums, keep it in one int32",
            )


@_rule("second-moment-bits", "note", at_compile=True)
def _second_moment_bits(case: Case) -> Iterator[Fact]:
    for t in case.program.states.values():
        if t.name.endswith(":exp_avg_sq") and t.fmt is not None and t.fmt.bits < 16:
            yield Fact(
                _owner(t),
                f"'{t.name}' is {t.fmt!r}: second moments below half a step of their scale "
                f"count as half a step, and these parameters move less",
                "state=Float32(), Sym(16) or Asym(16) keeps more of them apart",
            )


# --- what they share ------------------------------------------------------------------------------


def _owner(t: Tensor) -> str:
    """The layer of a parameter ("0.weight"), its gradient or state, of a wire ("0:wire") or of an
    error, which may be one of several ("0+1:error")."""
    name = t.name.partition(":")[0]
    name = re.sub(r"\+\d+$", "", name) if t.role == "error" else name
    return name.rpartition(".")[0] if t.lasts else name


def _masks(op: Op, wire: Tensor) -> bool:
    return op.kernel == "mask" and op.places[1] is wire and op.params.get(0) == INSIDE


def _alike(a: Tensor, b: Tensor) -> bool:
    """Whether codes carry over bit for bit: but for container and rounding the same format."""
    x, y = a.fmt, b.fmt
    assert x is not None
    assert y is not None
    same = all(getattr(x, f) == getattr(y, f) for f in ("bits", "axis", "group", "scale", "range"))
    whole = x.axis is None and x.group is None
    return same and type(x) is type(y) and (whole or a.shape == b.shape)


def _step(fmt: Format, reach: float) -> float:
    """The scale of a fixed range."""
    step = reach / fmt.qmax
    return float(2.0 ** ceil(log2(step))) if fmt.pow2 else step
