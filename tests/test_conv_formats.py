"""A Session with convolutions is the oracle's Net, bit for bit: every format in every place."""

import itertools

import pytest
from conv_cases import MOMENTUM, RANDOM, case
from step_helpers import FLOAT, policy, same_trace

import pyqfw as q
from pyqfw import Asym, Sym, optim

INT8 = q.Policy.int8()
GRAINS = ({}, {"axis": "row"}, {"group": 1}, {"group": 4}, {"group": 64})  # of what moves
KEPT = (*GRAINS, {"axis": 0}, {"axis": 1}, {"axis": 2}, {"axis": -1}, {"axis": -3})  # of what stays
NAMES = ("padded", "groups", "each channel", "transposed, strides", "transposed, groups")
PLANES = ("plane, padded", "plane, each channel", "plane, transposed")


def formats(grains):
    """Widths, containers, roundings and scales of every granularity, though not every pair."""
    found = [FLOAT]
    for i, (kind, grain, bits) in enumerate(itertools.product((Sym, Asym), grains, (4, 8, 13, 16))):
        box = ("packed", "packed", 16, 32)[i % 4]
        power = {"scale": "pow2"} if i % 3 == 0 else {}
        rounding = ("stochastic", "half_away", "half_even")[i % 3]
        found.append(kind(bits, container=box, rounding=rounding, **grain, **power))
    return found


@pytest.mark.parametrize("fmt", formats(KEPT), ids=repr)
def test_weights(fmt):
    """Bias, of one axis, has a format of its own; a Linear of two has the axes that fit."""
    own = {"out": {"weights": Sym(8, axis=0)}}
    for name in NAMES if fmt.axis != -1 else PLANES:
        made = case(name, INT8.replace(weights=fmt), own=own)
        net, session = made.check()
    same_trace(net, session, *next(made.data()))


@pytest.mark.parametrize("fmt", [Sym(5, axis=k, **RANDOM) for k in (0, 1, 2, 3, -1, -2)], ids=repr)
@pytest.mark.parametrize("name", PLANES)
def test_weights_of_planes(name, fmt):
    own = {"out": {"weights": Sym(8, axis=0)}}
    case(name, INT8.replace(weights=fmt, grads=FLOAT, state=FLOAT), own=own).check()


@pytest.mark.parametrize("fmt", [*formats(GRAINS), Sym(8, range=0.5), Asym(8, range=2)], ids=repr)
@pytest.mark.parametrize("field", ["input", "wires", "errors"])
def test_what_moves(field, fmt):
    for name in (*NAMES[:4], PLANES[0]):
        made = case(name, INT8.replace(**{field: fmt}))
        net, session = made.check()
    same_trace(net, session, *next(made.data()))


@pytest.mark.parametrize("fmt", formats(KEPT[:-2]), ids=repr)
@pytest.mark.parametrize("field", ["grads", "state"])
def test_what_follows_a_weight(field, fmt):
    own = {path: {field: fmt} for path in ("in", "c")}
    if fmt.axis in (1, 2, -1):  # which a bias has not
        own["in"] = {}
        made = [case(name, INT8, own=own) for name in ("to one channel", "transposed, more")]
    else:
        made = [case(name, INT8, own=own) for name in NAMES]
    for one in made:
        one.check()


@pytest.mark.parametrize("fmt", [Sym(8, axis=2), Asym(5, axis=1), Sym(4, axis=-1)], ids=repr)
def test_an_optimizer_s_moments(fmt):
    own = {"c": {"state": fmt, "weights": fmt}, "in": {}}
    for name in ("to one channel", "transposed, more"):
        case(name, INT8, sgd=optim.AdamW(0.01), own=own).check()
        fused = {"c": own["c"] | {"grads": "fused"}, "in": {}}
        case(name, INT8, sgd=MOMENTUM, own=fused).check()


MOVING = [Asym(16, group=4), Sym(16, axis="row"), Asym(7, axis="row"), Sym(8, group=3)]
WEIGHTS = [kind(bits, **grain) for kind in (Sym, Asym) for bits in (4, 16) for grain in KEPT]


@pytest.mark.parametrize("weights", WEIGHTS, ids=repr)
@pytest.mark.parametrize("moving", MOVING, ids=repr)
def test_both_operands(moving, weights):
    """Where both are widened, or split as well."""
    rules = policy(moving, weights=weights, bias=FLOAT, grads=FLOAT, state=FLOAT)
    own = {"out": {"weights": Sym(8)}}
    names = ("strides and padding", "transposed, groups", "each channel")
    for name in names if weights.axis != -1 else PLANES[1:]:
        case(name, rules, sgd=optim.SGD(0.1), own=own).check()


@pytest.mark.parametrize("bits", [(8, 12), (12, 8), (16, 8), (8, 16), (3, 16)], ids=repr)
def test_slots_of_either_width(bits):
    """int8 and int16 slots of wires, errors and weights, each with the other."""
    one, two = (Sym(b) if b in (8, 16) else Sym(b, container=8 if b < 8 else 16) for b in bits)
    for rules in (policy(one, weights=two), policy(one, errors=two), policy(two, errors=one)):
        for name in ("padded", "each channel", "transposed, each channel", "plane, groups"):
            case(name, rules.replace(bias=FLOAT, grads=FLOAT, state=FLOAT)).check()
