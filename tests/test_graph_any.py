"""Any graph of layers under any policy is the oracle's Net, bit for bit."""

from dataclasses import replace

from graph_strategies import graph_cases
from hypothesis import given
from hypothesis import strategies as st
from step_helpers import same_trace
from strategies import fixed

import pyqfw as q

RANDOM = {"rounding": "stochastic"}
RANGED = [
    q.Sym(8, range="hindsight", **RANDOM),
    q.Asym(8, range="hindsight"),
    q.Sym(5, range="hindsight", scale="pow2"),
    q.Sym(12, container=16, range="hindsight", **RANDOM),
    q.Sym(16, range="hindsight"),
]
MOVING = st.sampled_from([*RANGED, *RANGED, q.Float32(), q.Sym(8), q.Asym(6, range=1.0)])
STAYING = st.sampled_from([q.Sym(8, axis=0), q.Sym(4), q.Asym(7, group=4), q.Float32()])
ARITHMETIC = st.sampled_from(["sym", "sym", "sym", "float32"])
FIELDS = {
    **dict.fromkeys(("wires", "errors"), MOVING),
    **{"weights": STAYING, "forward": ARITHMETIC, "prop": ARITHMETIC},
}
HINDSIGHT = st.fixed_dictionaries(FIELDS).map(lambda f: q.Policy.int8().replace(**f))


def check(case):
    net, session = case.check()
    if case.micro_batches == 1:
        same_trace(net, session, *next(case.data()))


@given(graph_cases(), st.sampled_from(q.quant.core_info()["isas"]))
@fixed
def test_any_mixture(case, isa):
    with q.quant.isa(isa):
        check(case)


@given(graph_cases(HINDSIGHT))
@fixed
def test_ranges_of_earlier_steps(case):
    layers = [(*layer[:2], None) if layer[0] == "quant" else layer for layer in case.layers]
    case = replace(case, layers=layers)
    try:
        check(case)
    except q.QfwError as error:
        if "a hindsight range follows the one scale" not in str(error):
            raise
