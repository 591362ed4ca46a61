"""A Session is the oracle's Net, bit for bit: every format in every place, and any mixture."""

import itertools

import pytest
from every_format import CONTAINERS, GRANULARITIES, WIDTHS
from hypothesis import given
from hypothesis import strategies as st
from step_helpers import FLOAT, Case, gradients, mlp, policy, same_trace
from step_strategies import FIELDS, GRAINS, KEPT, MOVING, optimizers
from strategies import fixed

import pyqfw as q
from pyqfw import Asym, Sym, optim

INT8 = q.Policy.int8()
MOMENTUM = optim.SGD(0.05, momentum=0.9, weight_decay=0.01)


def formats(grains, **options):
    """Every width, container and granularity, though not with every other one."""
    found = []
    for kind, widths in WIDTHS.items():
        found += [kind(bits, rounding="stochastic", **options) for bits in widths]
        for bits, box in ((3, 8), (8, 16), (8, 32), (12, 16), (12, 32), (16, 32)):
            found.append(kind(bits, container=box, **options))
        for i, (grain, bits) in enumerate(itertools.product(grains, (4, 8, 16))):
            power = {"scale": "pow2", "rounding": "stochastic"} if (i + (kind is Asym)) % 2 else {}
            found.append(kind(bits, **grain, **power, **options))
        found.append(kind(8, rounding="half_even", **options))
    return found


ALL = [FLOAT, *formats(KEPT)]


def check(rules, sgd=MOMENTUM):
    Case(mlp(9, 6, 4), rules, sgd, batch=3, rows=(3, 2)).check()


@pytest.mark.parametrize("fmt", ALL, ids=repr)
def test_weights(fmt):
    check(INT8.replace(weights=fmt))


@pytest.mark.parametrize("fmt", ALL, ids=repr)
def test_biases(fmt):
    check(INT8.replace(bias=fmt))


@pytest.mark.parametrize(
    "fmt", [FLOAT, *formats(GRAINS), *formats(GRAINS, range=0.5)[::2]], ids=repr
)
@pytest.mark.parametrize("field", ["input", "wires", "errors"])
def test_what_moves(field, fmt):
    check(INT8.replace(**{field: fmt}))


@pytest.mark.parametrize("fmt", ALL, ids=repr)
def test_states(fmt):
    check(INT8.replace(state=fmt))
    check(INT8.replace(state=fmt, grads="fused"), optim.SGD(0.1, momentum=0.5, nesterov=True))


@pytest.mark.parametrize("fmt", [*ALL, *formats(GRAINS, range=0.1)[::2], "fused"], ids=repr)
def test_gradients(fmt):
    check(INT8.replace(grads=fmt))
    check(INT8.replace(grads=fmt), optim.SGD(0.1, rounding="half_away"))


@pytest.mark.parametrize("fmt", [Sym(8, axis=1), Asym(5, axis=1), Sym(12, axis=-2)], ids=repr)
@pytest.mark.parametrize("field", ["weights", "grads", "state"])
def test_axes_that_a_bias_has_not(field, fmt):
    rules = policy(Sym(8), **{field: fmt})
    Case(mlp(9, 6, 4, bias=False), rules, MOMENTUM).check()


WIDE = [kind(bits, **grain) for kind in (Sym, Asym) for bits in (4, 8, 16) for grain in KEPT]


@pytest.mark.parametrize("weights", WIDE, ids=repr)
@pytest.mark.parametrize("moving", [Asym(16, group=4), Sym(16, axis="row"), Asym(7, axis="row")])
def test_both_operands(moving, weights):
    """Where both are widened, or split as well."""
    rules = policy(moving, weights=weights, bias=FLOAT, grads=FLOAT, state=FLOAT)
    check(rules, optim.SGD(0.1))


# ---- any mixture ---------------------------------------------------------------------------------


BETWEEN = st.one_of(
    st.sampled_from([("relu",), ("relu6",), ("sigmoid",), ("tanh",), ("leaky", 0.1)]),
    st.tuples(st.just("quant"), st.one_of(st.none(), MOVING)),
    st.just(()),
)


@st.composite
def networks(draw):
    """(layers, the input's shape)"""
    layers, features = [], draw(st.sampled_from([1, 5, 9]))

    def between():
        for extra in draw(st.lists(BETWEEN, max_size=2)):
            if extra:
                layers.append((extra[0], f"x{len(layers)}", *extra[1:]))

    def linear():
        nonlocal features
        outputs = draw(st.sampled_from([1, 3, 6]))
        layers.append(("linear", f"l{len(layers)}", features, outputs, draw(st.booleans())))
        features = outputs

    positions = draw(st.sampled_from([0, 0, 1, 3]))
    shape = (positions, features) if positions else (features,)
    between()
    if positions:
        if draw(st.booleans()):
            linear()
            between()
        layers.append(("flatten", "f"))
        features *= positions
        between()
    for _ in range(draw(st.integers(1, 3))):
        linear()
        between()
    return layers, shape


@st.composite
def cases(draw):
    layers, shape = draw(networks())
    linear = [path for kind, path, *_ in layers if kind == "linear"]
    some = st.sampled_from(sorted(FIELDS)).flatmap(
        lambda name: st.tuples(st.just(name), FIELDS[name])
    )
    batch = draw(st.sampled_from([1, 2, 5]))
    return Case(
        layers,
        q.Policy(**draw(st.fixed_dictionaries(FIELDS | {"input": MOVING}))),
        draw(optimizers()),
        draw(st.dictionaries(st.sampled_from(linear), st.lists(some, max_size=3).map(dict))),
        draw(st.lists(st.sampled_from(linear), max_size=len(linear) - 1)),
        shape,
        batch,
        rows=draw(st.lists(st.integers(1, batch), min_size=2, max_size=3)),
        seed=draw(st.integers(0, 2**32 - 1)),
        size=draw(st.sampled_from([1.0, 1.0, 1e-3, 1e3, 1e-20, 0.0])),
    )


@given(cases(), st.sampled_from(q.quant.core_info()["isas"]))
@fixed
def test_any_mixture(case, isa):
    with q.quant.isa(isa):
        net, session = case.check()
        same_trace(net, session, *next(case.data()))


# ---- gradients -----------------------------------------------------------------------------------


def allocated():
    """Every format that a gradient can have, in all but its rounding."""
    yield FLOAT
    for kind, widths in WIDTHS.items():
        for bits, box, grain, scale, fixed_range in itertools.product(
            widths, CONTAINERS, GRANULARITIES, ("float", "pow2"), ("dynamic", 0.1)
        ):
            if box == "packed" or box >= bits:
                yield kind(bits, container=box, **grain, scale=scale, range=fixed_range)


def test_a_gradient_is_allocated_in_the_format_of_the_policy():
    """For every parameter and format, each arithmetic, and where a layer has its own."""
    count = 0
    for i, fmt in enumerate(allocated()):
        layers = mlp(5, 4, 3, bias=fmt.axis != 1)
        rules = policy(Sym(8), ("sym", "float32")[i % 2], grads=fmt if i % 3 else Sym(6))
        own = {} if i % 3 else {path: {"grads": fmt} for path in ("l0", "l1")}
        plan = Case(layers, rules, own=own).plan()
        grads, parameters = plan.program.gradients, plan.program.parameters
        assert grads.keys() == parameters.keys()
        for name, t in grads.items():
            assert t.fmt == fmt, name
            assert t.shape == parameters[name].shape
            codes, scales, zeros, _ = t.parts(plan.batch)
            assert codes == fmt.codes_nbytes(t.shape)
            runs = 0 if fmt == FLOAT else fmt.layout(t.shape).n_scales
            assert (scales, zeros) == (4 * runs, 2 * runs if fmt.asymmetric else 0)
            count += 1
    assert count > 10_000


@pytest.mark.parametrize("fmt", ALL, ids=repr)
@pytest.mark.parametrize("momentum", [0, 0.9])
def test_an_update_writes_no_gradient(fmt, momentum):
    sgd = optim.SGD(0.1, momentum=momentum, weight_decay=0.1)
    case = Case(mlp(9, 6, 4), INT8.replace(grads=fmt), sgd)
    session = q.Session(case.plan())
    x, y = next(case.data())
    session.forward(x)
    session.backward(y)
    before = gradients(session)
    assert len(before) == 4
    assert all(session.grad(name).format == fmt for name in before)
    for _ in range(3):
        weight = bytes(session.tensor("l0.weight").data)
        session.update()
        assert gradients(session) == before
        assert bytes(session.tensor("l0.weight").data) != weight
