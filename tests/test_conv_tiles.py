"""Convolutions whose sums are split, whose image is gathered a line or a patch at a time, whose
gradient is made some outputs at a time: the oracle's bits, and that path was taken."""

import numpy as np
import pytest
from conv_cases import MOMENTUM, RANDOM
from oracle_window import Conv
from step_helpers import FLOAT, Case, policy, same_trace

import pyqfw as q
from pyqfw import Asym, Sym, optim

INT8, FULL_SYM, FLOAT32 = q.Policy.int8(), q.Policy.full_sym(), q.Policy.float32()
WIDE = policy(Sym(16, **RANDOM), weights=Sym(16, axis=0, **RANDOM), bias=FLOAT)
WIDE12 = policy(Sym(12, container=16), grads=FLOAT, bias=FLOAT, state=FLOAT)


def case(shape, *convs, rules=INT8, sgd=MOMENTUM, **options):
    """Convolutions in a row, and a Linear."""
    layers = [("conv", f"c{i}", conv) for i, conv in enumerate(convs)]
    layers += [("flatten", "f")]
    made = Case(layers, rules, sgd, shape=shape, **options)
    features = made.model().out_shape(shape)[0]
    made.layers = [*layers, ("linear", "l", features, 3, True)]
    return made


def ops_of(session, kernel, layer):
    return [op for op in session.plan.ops if op.kernel == kernel and op.layer == layer]


# ---- sums that leave int32 -----------------------------------------------------------------------

SPLIT = {
    "line": ((3, 5), [Conv(3, 4, (3,), padding=(1,)), Conv(4, 3, (3,), stride=(2,))]),
    "groups": ((4, 5), [Conv(4, 6, (3,), groups=2), Conv(6, 4, (2,), padding=(1,), groups=2)]),
    "each channel": ((3, 5), [Conv(3, 3, (3,), groups=3), Conv(3, 3, (2,), groups=3)]),
    "plane": ((2, 3, 3), [Conv(2, 3, (2, 2), padding=(1, 1)), Conv(3, 2, (3, 3))]),
    "transposed": (
        (3, 4),
        [Conv(3, 4, (3,), stride=(2,), transposed=True), Conv(4, 3, (2,), transposed=True)],
    ),
    "many channels": ((2, 2), [Conv(2, 70, (1,)), Conv(70, 3, (2,), padding=(1,))]),
    "many outputs": ((2, 3), [Conv(2, 2, (1,)), Conv(2, 37, (2,), transposed=True)]),
}


@pytest.mark.parametrize("rules", [WIDE, WIDE.replace(weights=Sym(16)), WIDE.replace(wires=Sym(8))])
@pytest.mark.parametrize("batch", [1, 3, 9])
@pytest.mark.parametrize("name", SPLIT)
def test_sixteen_bits_everywhere(name, batch, rules):
    """Every sum of three terms or more is split."""
    shape, convs = SPLIT[name]
    made = case(shape, *convs, rules=rules, batch=batch, rows=(batch, 1))
    net, session = made.check()
    same_trace(net, session, *next(made.data()))
    if rules is WIDE:
        assert sum("split" in op.note for op in session.plan.ops) >= 4


@pytest.mark.parametrize("conv", [Conv(2, 3, (3,)), Conv(3, 3, (3,), groups=3)], ids=["", "each"])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_more_than_512_terms(conv, transposed):
    """int12 x int12, in int32 chunks of 512: whole ones, and the rest."""
    conv = Conv(**{**vars(conv), "transposed": transposed})
    made = case((conv.inputs, 70), conv, rules=FULL_SYM, batch=9, rows=(9, 8, 1))
    _, session = made.check()
    (op,) = (o for o in ops_of(session, "gradient_s32", "c0") if o.places[2] is not None)
    assert op.params[9] == 512
    assert op.params[10] > 0
    assert op.note.startswith("split")


def test_sums_that_only_all_chunks_together_leave():
    """Codes at their ends: each chunk is near 2^31."""
    made = case((1, 600), Conv(1, 2, (3,)), rules=WIDE12, batch=1, rows=(1,))
    net, session = made.check()
    x = np.ones((1, 1, 600), np.float32)
    values = {n: np.full(v.shape, 1.0, np.float32) for n, v in session.state_dict().items()}
    session.load_state_dict(values)
    net.load(values)
    assert session.forward(x).tobytes() == net.forward(x).tobytes()
    loss = session.backward([1])
    assert np.float32(loss) == net.backward(np.array([1]))
    name = "c0.weight"
    assert session.grad(name).codes.tobytes() == net.shown(name, net.grads[name], "grad").data()


# ---- patches -------------------------------------------------------------------------------------

PADDED = Conv(16, 8, (3,), padding=(1,))
IMAGES = {  # shape, convolution, batch, and what the forward's scratch is for
    "padded line": ((16, 60), PADDED, 1, "line"),
    "long line, short batch": ((16, 90), PADDED, 1, "patches"),
    "long line, long batch": ((16, 90), PADDED, 8, "line"),
    "one patch at a time": ((40, 12), Conv(40, 4, (9,), padding=(4,), dilation=(2,)), 1, "one"),
    "some patches": ((3, 6, 6), Conv(3, 4, (3, 3), padding=(1, 1)), 1, "patches"),
    "all patches": ((3, 4, 4), Conv(3, 4, (3, 3), padding=(1, 1)), 8, "all"),
    "in place": ((4, 6, 8), Conv(4, 4, (1, 3), stride=(2, 2)), 2, "nothing"),
    "the image itself": ((4, 3, 5), Conv(4, 4, (1, 1)), 2, "nothing"),
    "lines of a plane": ((2, 4, 9), Conv(2, 3, (1, 3), padding=(0, 1), stride=(2, 1)), 2, "line"),
    "groups have patches": ((4, 6), Conv(4, 4, (3,), groups=2), 2, "all"),
}


@pytest.mark.parametrize("rules", [FLOAT32, FULL_SYM], ids=["float32", "full_sym"])
@pytest.mark.parametrize("name", IMAGES)
def test_what_a_forward_gathers(name, rules):
    shape, conv, batch, what = IMAGES[name]
    made = case(shape, Conv(shape[0], conv.inputs, (1,) * len(conv.kernel)), conv, rules=rules)
    made.batch, made.rows = batch, (batch, max(1, batch - 1))
    made.sgd = optim.SGD(0.01)
    _, session = made.check()
    op = next(o for o in session.plan.ops if o.layer == "c1" and "product" in o.kernel)
    if rules is not FLOAT32:
        return  # half the bytes: other numbers of the same
    window = op.window
    reach = (window.out_w - 1) * window.stride_w + window.kernel_w
    patch = 4 * window.taps * (conv.inputs // conv.groups)
    most = patch * window.out_positions * batch
    if what == "patches":
        assert patch < op.patches < most
        assert op.patches % patch == 0
    else:
        sizes = {"line": 4 * reach * conv.inputs, "nothing": 0, "one": patch, "all": most}
        assert op.patches == sizes[what]


# ---- tiles of gradients and of codes -------------------------------------------------------------

TILED = {
    "floats": INT8.replace(grads=FLOAT, state=FLOAT),
    "outputs": INT8,
    "packed": INT8.replace(grads=Asym(5, axis=0, **RANDOM)),
    "groups": INT8.replace(grads=Sym(8, group=50, **RANDOM)),
    "whole": INT8.replace(grads=Sym(8)),
    "fused": INT8.replace(grads="fused", weights=Asym(5, group=64), state=Asym(9, axis=0)),
    "fused whole": INT8.replace(grads="fused", weights=Sym(4), state=Sym(8, axis=0)),
}


@pytest.mark.parametrize("kind", ["plain", "groups", "each channel", "transposed"])
@pytest.mark.parametrize("rules", TILED)
def test_gradients_in_tiles(rules, kind):
    """Of a short batch some outputs at a time, across the bounds of groups too."""
    convs = {
        "plain": Conv(40, 11, (9,), padding=(4,)),
        "groups": Conv(60, 18, (17,), padding=(8,), groups=2),
        "each channel": Conv(37, 37, (60,), padding=(30,), groups=37),
        "transposed": Conv(11, 40, (9,), padding=(4,), transposed=True),
    }
    conv = convs[kind]
    made = case((2, 5), Conv(2, conv.inputs, (1,)), conv, rules=TILED[rules], batch=2, rows=(2, 1))
    _, session = made.check()
    tile = next(t for t in session.plan.program.tensors if t.name == "c1.weight:sums")
    rows, inner = conv.weight_shape[0], int(np.prod(conv.weight_shape[1:]))
    few = max(1, 1024 // inner)
    if rules in ("packed", "fused"):  # whole bytes
        few = max(8, few // 8 * 8)
    assert tile.shape == (rows if "whole" in rules else min(rows, few), inner)


@pytest.mark.parametrize("batch", [1, 9])
@pytest.mark.parametrize("fmt", [Sym(8, range="hindsight"), Sym(16, range=4.0)], ids=repr)
def test_codes_at_once_a_tile_that_ends_in_a_line(fmt, batch):
    """Some positions at a time, which are no whole lines of the result."""
    rules = INT8.replace(wires=fmt, errors=fmt)
    convs = [Conv(2, 24, (3, 3), padding=(1, 1)), Conv(24, 24, (3, 3), padding=(1, 1), groups=24)]
    convs += [Conv(24, 24, (3, 3), padding=(1, 1), groups=2), Conv(24, 3, (3, 2), transposed=True)]
    made = case((2, 5, 7), *convs, rules=rules, batch=batch, rows=(batch,))
    net, session = made.check()
    tiles = [op.places[6] for op in session.plan.ops if len(op.places) > 6 and op.window]
    assert len(tiles) >= 6
    assert any(t.shape[0] % 7 for t in tiles)
    same_trace(net, session, *next(made.data()))
