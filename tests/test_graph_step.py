"""A Session of a branched network is the oracle's Net, bit for bit."""

import pytest
from conv_cases import MOMENTUM, RANDOM
from oracle_window import Conv
from step_helpers import FLOAT, Case, policy, same_trace

import pyqfw as q
from pyqfw import Asym, Sym, nn, optim

INT8, FULL_SYM, FLOAT32 = q.Policy.int8(), q.Policy.full_sym(), q.Policy.float32()
HINDSIGHT = Sym(8, range="hindsight", **RANDOM)
POLICIES = {
    "float32": FLOAT32,
    "full_sym": FULL_SYM,
    "int8": INT8,
    "floats": policy(),
    "fused": INT8.replace(grads="fused"),
    "rows": INT8.replace(wires=Asym(7, axis="row"), errors=Sym(10, axis="row", **RANDOM)),
    "groups": INT8.replace(wires=Sym(6, group=4), errors=Asym(9, group=5, **RANDOM)),
    "packed": INT8.replace(wires=Sym(4), errors=Sym(5, **RANDOM), weights=Sym(4, axis=0)),
    "zero points": INT8.replace(wires=Asym(8), errors=Asym(8, **RANDOM)),
    "fixed": INT8.replace(wires=Sym(8, range=2.0), errors=Sym(8, range=0.5, **RANDOM)),
    "hindsight": INT8.replace(wires=HINDSIGHT, errors=HINDSIGHT),
    "float forward": FLOAT32.replace(weight_grad="sym", bias_grad="sym", prop="sym"),
    "float way back": INT8.replace(prop="float32", errors=FLOAT, weight_grad="float32"),
    "16 bits": policy(Sym(16), weights=Sym(16, axis=0), bias=FLOAT),
}
END = [("flatten", "f"), ("linear", "l", 20, 3, True)]
A, B = ("conv", "a", Conv(2, 4, (3,), padding=(1,))), ("conv", "b", Conv(4, 4, (3,), padding=(1,)))
C = ("conv", "c", Conv(4, 4, (1,)))
GRAPHS = {
    "residual": ([A, ("relu", "r"), B, ("add", "s"), ("relu", "t"), *END], {"s": ("b", "r")}),
    "shortcut": ([A, ("relu", "r"), B, C, ("add", "s"), *END], {"c": ("r",), "s": ("b", "c")}),
    "two residuals": (
        [A, B, ("add", "s"), ("relu", "r"), C, ("add", "t"), *END],
        {"s": ("b", "a"), "t": ("r", "c")},
    ),
    "added twice": ([A, ("add", "s"), *END], {"s": ("a", "a")}),
    "three and one": ([A, B, C, ("add", "s"), *END], {"c": ("a",), "s": ("a", "b", "c", "b")}),
    "input is added": (
        [("conv", "a", Conv(4, 4, (1,))), ("add", "s"), *END],
        {"s": ("a", "input")},
    ),
    "input is first": (
        [("conv", "a", Conv(4, 4, (1,))), ("add", "s"), *END],
        {"s": ("input", "a")},
    ),
    "sums past a leak": (
        [A, B, ("add", "s"), ("leaky", "k", 0.1), *END],
        {"s": ("b", "a")},
    ),
    "a leak before the sum": (
        [A, ("leaky", "k", 0.1), B, ("leaky", "m", 0.2), ("add", "s"), *END],
        {"s": ("m", "k")},
    ),
    "masks of both": (
        [A, ("relu", "r"), B, ("relu", "u"), ("add", "s"), *END],
        {"s": ("u", "r")},
    ),
    "ranges of both": (
        [A, ("quant", "q", Sym(6, range=0.5)), B, ("quant", "p", None), ("add", "s"), *END],
        {"s": ("p", "q")},
    ),
    "drops": (
        [A, ("dropout", "d", 0.3), B, ("dropout", "e", 0.5), ("add", "s"), *END],
        {"s": ("e", "d")},
    ),
    "activations of one": (
        [A, ("relu", "r"), ("leaky", "k", 0.3), ("add", "s"), *END],
        {"k": ("a",), "s": ("r", "k")},
    ),
    "no layer between": ([A, ("relu", "r"), ("add", "s"), *END], {"s": ("r", "a")}),
}
WIDE = [("flatten", "f"), ("linear", "l", 40, 3, True)]
GRAPHS |= {
    "beside": ([A, B, ("concat", "s", 1), *WIDE], {"s": ("a", "b")}),
    "behind": ([A, B, ("concat", "s", 2), *WIDE], {"s": ("b", "a")}),
    "last axis": ([A, B, ("concat", "s", -1), *WIDE], {"s": ("b", "a")}),
    "of other sizes": (
        [
            *(A, ("conv", "b", Conv(4, 3, (1,))), ("concat", "s", 1), ("relu", "r")),
            *(("flatten", "f"), ("linear", "l", 35, 3, True)),
        ],
        {"s": ("b", "a")},
    ),
    "with the input": (
        [A, ("concat", "s", 1), ("conv", "b", Conv(6, 4, (1,))), *END],
        {"s": ("a", "input")},
    ),
    "twice the same": ([A, ("concat", "s", 1), *WIDE], {"s": ("a", "a")}),
    "dense": (
        [
            *(A, B, ("concat", "s", 1), ("conv", "c", Conv(8, 2, (1,)))),
            *(("concat", "t", 1), ("relu", "r"), ("flatten", "f"), ("linear", "l", 30, 3, True)),
        ],
        {"s": ("a", "b"), "t": ("a", "c")},
    ),
    "heads": (
        [
            *(A, ("flatten", "f"), ("linear", "g", 20, 5, True), ("flatten", "h")),
            *(("concat", "s", 1), ("linear", "l", 25, 3, True)),
        ],
        {"h": ("a",), "s": ("g", "h")},
    ),
    "autoencoder": (
        [
            *(("conv", "a", Conv(2, 4, (3,), stride=(2,), padding=(1,))), ("relu", "r")),
            *(("conv", "b", Conv(4, 4, (3,), stride=(2,), padding=(1,))), ("relu", "t")),
            *(("conv", "c", Conv(4, 4, (3,), stride=(2,), padding=(1,), transposed=True)),),
            *(("concat", "s", 1), ("relu", "u")),
            *(("conv", "d", Conv(8, 2, (3,), stride=(2,), padding=(1,), transposed=True)),),
        ],
        {"s": ("c", "r")},
    ),
    "transposes": (  # a Linear along the last axis, a norm and a softmax, convolutions between
        [
            *(A, ("linear", "p", 5, 5, True), ("add", "s"), B),
            *(("norm", "n", (5,), 1e-5, True, True), C, ("softmax", "m", -1), *END),
        ],
        {"s": ("a", "p")},
    ),
    "order of the first": (
        [A, ("linear", "p", 5, 5, True), ("add", "s"), B, *END],
        {"s": ("p", "a")},
    ),
}
NUMBERS = ("autoencoder",)


def made(name, rules, **options):
    layers, sources = GRAPHS[name]
    shape = (4, 5) if layers[0] == ("conv", "a", Conv(4, 4, (1,))) else (2, 5)
    loss = {"loss": nn.MSELoss()} if name in NUMBERS else {}
    own = {}
    if name == "transposes":  # a norm's sums have no one scale for a hindsight range to follow
        own = {"n": {"wires": Sym(8)}, "b": {"errors": Sym(8, **RANDOM)}}
    given = {"sgd": MOMENTUM, "batch": 3, "rows": (3, 2), "own": own} | options
    return Case(layers, rules, shape=shape, sources=sources, **loss, **given)


@pytest.mark.parametrize("rules", POLICIES)
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name, rules):
    case = made(name, POLICIES[rules])
    net, session = case.check()
    same_trace(net, session, *next(case.data()))


@pytest.mark.parametrize("rules", ["float32", "full_sym", "int8", "groups"])
@pytest.mark.parametrize("name", ["residual", "drops", "dense", "autoencoder", "transposes"])
def test_batches(name, rules):
    for batch in (1, 9):
        made(name, POLICIES[rules], batch=batch, rows=(batch, 1)).check()
    for parts in (2, 5):
        made(name, POLICIES[rules], batch=5, rows=(5, 3), micro_batches=parts).check()


OPTIMIZERS = [
    optim.AdamW(0.01, max_grad_norm=1.0),
    optim.SGD(0.1, max_grad_norm=0.05),
    optim.SGD(1.0),
]


@pytest.mark.parametrize("rules", ["float32", "full_sym", "int8", "rows"])
@pytest.mark.parametrize("sgd", OPTIMIZERS, ids=["adamw", "clipped", "fast"])
def test_optimizers(sgd, rules):
    for name in ("residual", "dense"):
        made(name, POLICIES[rules], sgd=sgd).check()


@pytest.mark.parametrize("rules", ["float32", "int8", "zero points"])
@pytest.mark.parametrize("frozen", ["a", "b", "c", "ab", "bc", "l", "abc"])
def test_frozen_branches(frozen, rules):
    """No gradient of them, and no error below the deepest layer that learns in each."""
    for name in ("shortcut", "two residuals"):
        net, session = made(name, POLICIES[rules], frozen=list(frozen)).check()
        program = session.plan.program
        assert {n[0] for n in program.gradients} == {"a", "b", "c", "l"} - set(frozen)
        frozen_ones = {n for n in program.parameters if n[0] in frozen}
        assert {n for n, t in program.parameters.items() if t.space == "const"} == frozen_ones
        back = {op.layer for op in program.sections["backward"]}
        assert back - {"loss"} == set(net.wanted) & back


def test_operations_of_frozen_branches():
    """What lies below the last layer that learns is not gone through."""

    def layers_back(name, frozen):
        case = made(name, INT8, frozen=list(frozen))
        ops = case.plan().program.sections["backward"]
        return {op.layer for op in ops} - {"loss"}, {
            op.layer for op in ops if op.kernel.startswith("product")
        }

    assert layers_back("shortcut", "a") == ({"b", "c", "s", "l"}, {"l"})
    assert layers_back("shortcut", "ab") == ({"c", "s", "l"}, {"l"})
    assert layers_back("shortcut", "abc") == ({"l"}, set())
    assert layers_back("shortcut", "bc") == ({*"arbcsl"}, {"b", "c", "l"})
    assert layers_back("two residuals", "ab") == ({"c", "t", "l"}, {"l"})


def test_layers_with_policies_of_their_own():
    own = {
        "a": {"weights": Sym(4), "wires": Sym(6), "errors": Asym(5), "grads": Sym(8)},
        "b": {"weights": FLOAT, "state": FLOAT, "forward": "float32", "weight_grad": "float32"},
        "l": {"bias": FLOAT, "errors": FLOAT, "grads": Sym(7), "prop": "float32"},
    }
    for base in ("int8", "full_sym", "float32", "rows"):
        for name in ("residual", "beside", "three and one", "transposes"):
            made(name, POLICIES[base], own=own).check()


@pytest.mark.parametrize("size", [0, 1e-30, 1e-12, 1e4, 1e9])
@pytest.mark.parametrize("rules", ["float32", "int8", "groups", "16 bits"])
def test_data_of_any_size(size, rules):
    for name in ("residual", "beside"):
        made(name, POLICIES[rules], sgd=optim.SGD(1e-3, momentum=0.5), size=size).check()
