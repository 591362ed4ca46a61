"""Policies and optimizers to try."""

from __future__ import annotations

from typing import Any

from every_format import CONTAINERS, WIDTHS
from hypothesis import strategies as st
from step_helpers import ARITHMETICS, FLOAT

from pyqfw import Asym, Format, Sym, optim

GRAINS = ({}, {"axis": "row"}, {"group": 1}, {"group": 4}, {"group": 64})  # of what moves
KEPT = (*GRAINS, {"axis": 0}, {"axis": -1})  # of what stays


@st.composite
def a_format(draw: Any, kept: bool) -> Format:
    """Any legal one but "hindsight"."""
    kind = draw(st.sampled_from([FLOAT, Sym, Sym, Sym, Asym, Asym]))
    if kind is FLOAT:
        return FLOAT
    bits = draw(st.sampled_from([8, 4, 12, 16, *WIDTHS[kind]]))
    boxes = [box for box in CONTAINERS if box == "packed" or box >= bits]
    grains = KEPT if kept else GRAINS
    made: Format = kind(
        bits,
        container=draw(st.sampled_from(boxes)),
        scale=draw(st.sampled_from(["float", "pow2"])),
        rounding=draw(st.sampled_from(["stochastic", "half_away", "half_even"])),
        range="dynamic" if kept else draw(st.sampled_from(["dynamic", "dynamic", 0.5, 2])),
        **draw(st.sampled_from([{}, *grains])),
    )
    return made


MOVING, STAYING = a_format(False), a_format(True)
FIELDS: dict[str, Any] = {
    **dict.fromkeys(("wires", "errors"), MOVING),
    **dict.fromkeys(("weights", "bias", "state"), STAYING),
    "grads": st.one_of(STAYING, STAYING, MOVING, st.just("fused")),
    **dict.fromkeys(ARITHMETICS, st.sampled_from(["sym", "sym", "float32"])),
}


@st.composite
def optimizers(draw: Any) -> optim.SGD:
    momentum = draw(st.sampled_from([0, 0.9, 0.5]))
    nesterov = bool(momentum) and draw(st.booleans())
    return optim.SGD(
        draw(st.sampled_from([0.1, 0.01, 1.0])),
        momentum=momentum,
        dampening=0 if nesterov or not momentum else draw(st.sampled_from([0, 0.3, 1])),
        nesterov=nesterov,
        weight_decay=draw(st.sampled_from([0, 0.1])),
        rounding=draw(st.sampled_from(["stochastic", "half_away", "half_even"])),
    )
