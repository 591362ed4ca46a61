"""What a session shows is in PyTorch's order, whatever the order of memory; rows and groups, which
have scales of their own, in that of memory."""

import numpy as np
import pytest
from oracle_window import Conv
from step_helpers import Case, same_trace, same_wire

import pyqfw as q
from pyqfw import nn


@pytest.mark.parametrize("shape", [(2, 4), (2, 1, 4), (2, 4, 1), (1, 8), (8, 1)])
@pytest.mark.parametrize("convolves", [False, True])
@pytest.mark.parametrize("policy", [q.Policy.int8(), q.Policy.full_sym(), q.Policy.float32()])
def test_sums_of_a_norm_over_several_axes(policy, convolves, shape):
    """A scale for each column of a matrix whose row is a whole sample."""
    conv = Conv(3, shape[0], (1,) * len(shape[1:]))
    layers = [*([("conv", "c", conv)] if convolves else [])]
    layers += [("norm", "n", shape, 1e-5, True, True), ("relu", "r")]
    layers += [("flatten", "f"), ("linear", "l", 8, 3, True)]
    shape = (3, *shape[1:]) if convolves else shape
    case = Case(layers, policy, shape=shape)
    net, session = case.check()
    same_trace(net, session, *next(case.data()))
    last = Case(layers[:-2], policy, shape=shape, loss=nn.MSELoss())
    net, session = last.check()
    x, _ = next(last.data())
    session.forward(x)
    net.forward(x)
    same_wire(session.wire("r"), net.wires["r"], "r")
    assert np.prod(session.wire("r").shape) == 8 * len(x)
