"""What provokes each finding of q.validate, and what is much like it and does not."""

from dataclasses import replace

import pyqfw as q
from pyqfw import nn

INT8, F32, LOSS = q.Policy.int8(), q.Policy.float32(), nn.CrossEntropyLoss()
PLAIN, MOMENTUM = q.optim.SGD(0.05), q.optim.SGD(0.05, momentum=0.9)
ADAMW = q.optim.AdamW(0.01)
NEAREST = replace(MOMENTUM, rounding="half_away")
RAW = {"output": q.RAW}


def chain(*layers, first=None):
    """Linear(12, 9), layers, Linear(9, 4)."""
    return nn.Sequential(nn.Linear(12, 9, **(first or {})), *layers, nn.Linear(9, 4))


def asked(model=None, **changes):
    """What validate and compile take. Nothing is to be found about it as it is."""
    given = {"loss": LOSS, "optimizer": MOMENTUM, "policy": INT8, "batch": 32, **changes}
    return {"model": chain(nn.ReLU()) if model is None else model, "input_shape": 12, **given}


def integers(**changes):
    return asked(policy=INT8.replace(**changes))


def four_bits(**changes):
    return asked(policy=INT8.replace(weights=q.Sym(4, axis=0)), **changes)


def frozen(model):
    return model.requires_grad_(False)


# Of each code: what provokes it, in which layers, and what is much like it and does not.
CASES = {
    "double-requantization": [
        (asked(chain(nn.Quant(), nn.Quant())), ["2"], asked(chain(nn.Quant(), nn.ReLU()))),
        (
            asked(chain(nn.Quant(), nn.Flatten(), nn.Quant(q.Sym(8, axis="row")))),
            ["3"],
            asked(chain(nn.Quant(), nn.ReLU(), nn.Quant(q.Sym(8, axis="row")))),
        ),
        (
            asked(chain(nn.Quant(q.Sym(12)), nn.Quant(q.Sym(8)), nn.Quant())),
            ["2", "3"],
            asked(chain(nn.ReLU(), nn.Quant(q.Sym(12)))),
        ),
        (  # the first layer: the input is stored already
            asked(nn.Sequential(nn.Quant(), nn.Linear(12, 4))),
            ["0"],
            asked(
                nn.Sequential(nn.Quant(), nn.Linear(12, 4)),
                policy=INT8.replace(input=q.Sym(6, axis="row")),
            ),
        ),
        (
            asked(nn.Sequential(nn.Quant(q.Sym(8, range=4.0)), nn.Linear(12, 4))),
            ["0"],
            asked(
                nn.Sequential(nn.Quant(q.Sym(8)), nn.Linear(12, 4)),
                policy=INT8.replace(input=q.Float32()),
            ),
        ),
    ],
    "mask-not-kept": [
        (integers(wires=q.Sym(8, range=4.0)), ["0"], integers(input=q.Sym(8, range=4.0))),
        (
            integers(wires=q.Asym(8, range=4.0)),
            ["0"],
            asked(chain(nn.ReLU(), nn.Quant()), policy=INT8.replace(wires=q.Asym(8, range=4.0))),
        ),
        (
            asked(
                chain(nn.ReLU(), nn.Linear(9, 9)), policy=INT8.replace(wires=q.Sym(8, range=4.0))
            ),
            ["0", "2"],
            asked(
                nn.Sequential(frozen(nn.Linear(12, 9)), nn.Linear(9, 4)),
                policy=INT8.replace(wires=q.Sym(8, range=4.0)),
            ),
        ),
        (
            asked(policy=INT8.replace(wires=q.Sym(8, range=4.0)), optimizer=None),
            ["0"],
            asked(policy=INT8.replace(wires=q.Sym(8, range=4.0)), optimizer=None, loss=None),
        ),
    ],
    "batch-granularity": [
        (integers(wires=q.Sym(6)), ["0"], integers(wires=q.Sym(7))),
        (integers(wires=q.Sym(4)), ["0"], integers(wires=q.Sym(4, axis="row"))),
        (integers(wires=q.Asym(4)), ["0"], integers(wires=q.Asym(4, group=9))),
        (integers(input=q.Sym(5)), ["input"], integers(input=q.Sym(5, range=1.0))),
        (asked(chain(nn.Quant(q.Sym(4)))), ["1"], asked(chain(nn.Quant(q.Sym(4))), batch=1)),
        (
            integers(wires=q.Sym(4)),
            ["0"],
            asked(policy=INT8.replace(wires=q.Sym(4)), loss=None, optimizer=None),
        ),
    ],
    "dead-zone": [
        (asked(optimizer=NEAREST), ["0", "0", "2", "2"], asked(optimizer=NEAREST, policy=F32)),
        (
            asked(optimizer=replace(PLAIN, rounding="half_even"), policy=q.Policy.full_sym()),
            ["0", "2"],  # the biases are Float32
            asked(optimizer=PLAIN, policy=q.Policy.full_sym()),
        ),
        (
            asked(nn.Sequential(frozen(nn.Linear(12, 9)), nn.Linear(9, 4)), optimizer=NEAREST),
            ["1", "1"],
            asked(optimizer=None),
        ),
    ],
    "state-dead-zone": [
        (integers(state=q.Sym(8)), ["0", "0", "2", "2"], asked()),
        (
            asked(policy=INT8.replace(state=q.Asym(8, rounding="half_even"))),
            ["0", "0", "2", "2"],
            asked(policy=INT8.replace(state=q.Asym(8)), optimizer=replace(MOMENTUM, momentum=0.4)),
        ),
        (integers(state=q.Sym(16)), ["0", "0", "2", "2"], integers(state=q.Float32())),
    ],
    "write-back-noise": [
        (four_bits(optimizer=PLAIN, batch=31), ["0", "2"], four_bits(optimizer=PLAIN, batch=32)),
        (four_bits(optimizer=PLAIN, batch=2), ["0", "2"], four_bits(batch=2)),
        (four_bits(batch=1), ["0", "2"], four_bits(batch=1, optimizer=None)),
        (
            asked(policy=INT8.replace(weights=q.Asym(5, group=4)), optimizer=PLAIN, batch=1),
            ["0", "2"],
            asked(policy=INT8.replace(weights=q.Sym(6, axis=0)), optimizer=PLAIN, batch=1),
        ),
    ],
    "scale-per-tensor": [
        (integers(weights=q.Sym(4)), ["0", "2"], integers(weights=q.Sym(4, axis=0))),
        (integers(weights=q.Asym(5)), ["0", "2"], integers(weights=q.Sym(6))),
        (
            integers(weights=q.Sym(4), bias=q.Sym(4)),
            ["0", "2"],
            integers(weights=q.BFP(4, 4), bias=q.Sym(4)),
        ),
    ],
    "range-too-wide": [
        # 1 / 32 is the largest error; 127 steps of 2 / 32 are 7.9
        (integers(errors=q.Sym(8, range=8.0)), ["2"], integers(errors=q.Sym(8, range=7.9))),
        (
            integers(errors=q.Sym(8, range=8.0, rounding="stochastic")),
            ["2"],
            asked(policy=INT8.replace(errors=q.Sym(8, range=8.0)), batch=31),
        ),
        (  # 7 / 127 is below 1 / 16, and 1 / 16 is not more than twice 1 / 32
            integers(errors=q.Sym(8, range=8.0, scale="pow2")),
            ["2"],
            integers(errors=q.Sym(8, range=7.0, scale="pow2")),
        ),
    ],
    "range-one-sided": [
        (integers(errors=q.Asym(8, range=0.1)), ["0", "2"], integers(errors=q.Asym(8))),
        (
            integers(grads=q.Asym(8, range=1.0)),
            ["0", "0", "2", "2"],
            integers(grads=q.Sym(8, range=1.0), wires=q.Asym(8, range=4.0)),
        ),
    ],
    "stored-gradients": [
        (
            asked(policy=F32, optimizer=PLAIN, batch=1),
            [""],
            asked(policy=F32, optimizer=PLAIN, batch=2),
        ),
        (asked(policy=F32, optimizer=PLAIN, batch=1), [""], asked(policy=F32, batch=1)),
        (
            asked(policy=q.Policy.full_sym(), optimizer=PLAIN, batch=1),
            [""],
            asked(policy=q.Policy.full_sym().replace(grads="fused"), optimizer=PLAIN, batch=1),
        ),
        (asked(policy=F32, optimizer=PLAIN, batch=1), [""], asked(optimizer=PLAIN, batch=1)),
    ],
    "softmax-before-cross-entropy": [
        (
            asked(nn.Sequential(nn.Linear(12, 4), *layers)),
            ["1"],
            asked(nn.Sequential(nn.Linear(12, 9), nn.Softmax(), nn.Linear(9, 4), *layers[1:])),
        )
        for layers in ([nn.Softmax()], [nn.Softmax(), nn.Quant()], [nn.Softmax(), nn.Flatten()])
    ],
    "bounded-logits": [
        (
            asked(nn.Sequential(nn.Linear(12, 4), *layers)),
            ["1"],
            asked(nn.Sequential(nn.Linear(12, 9), layers[0], nn.Linear(9, 4), *layers[1:])),
        )
        for layers in ([nn.Sigmoid()], [nn.Tanh(), nn.Quant()], [nn.Tanh(), nn.Flatten()])
    ],
    "second-moment-bits": [
        (
            asked(optimizer=ADAMW),
            ["0", "0", "2", "2"],
            asked(policy=INT8.replace(state=q.Float32()), optimizer=ADAMW),
        ),
    ],
    "split-accumulation": [
        (
            integers(weights=q.Sym(16), errors=q.Sym(16)),
            ["2"],
            integers(weights=q.Sym(16)),
        ),
    ],
    "bad-argument": [
        (asked(batch=0), [""], asked(batch=1)),
        (asked(seed=-1, batch=0, policy="int8", loss=3), [""] * 4, asked(seed=1)),
        (asked(loss=None), [""], asked(loss=None, optimizer=None)),
        (asked(nn.Sequential()), [""], asked()),
        (asked(micro_batches=0, optimizer="sgd"), [""] * 2, asked(micro_batches=1)),
        ({**asked(), "input_shape": 0}, [""], asked()),
        ({**asked(), "model": 3}, [""], asked()),
    ],
    "shape": [
        (asked(nn.Linear(11, 4)), ["0"], asked(nn.Linear(12, 4))),
        (asked(chain(nn.Linear(8, 9))), ["1"], asked(chain(nn.Linear(9, 9)))),
        (
            {**asked(), "input_shape": (3, 12)},
            [""],
            {
                **asked(chain(nn.Flatten(), first={}), loss=None, optimizer=None),
                "input_shape": (12,),
            },
        ),
    ],
    "raw-wire": [
        (asked(chain(first=RAW)), ["0"], asked(chain(nn.Quant(), first=RAW))),
        (asked(chain(nn.ReLU(), first=RAW)), ["0"], asked(chain(nn.ReLU(), nn.Quant(), first=RAW))),
        (
            asked(nn.Sequential(chain(first=RAW), nn.Sequential(nn.Linear(4, 4, output=q.RAW)))),
            ["0.0", "1.0"],
            asked(nn.Sequential(chain(nn.Quant(), first=RAW), nn.Sequential(nn.Linear(4, 4)))),
        ),
        (asked(nn.Linear(12, 4, output=q.RAW)), ["0"], asked(nn.Linear(12, 4))),
    ],
    "no-learning": [
        (asked(frozen(chain())), [""], asked(frozen(chain()), loss=None, optimizer=None)),
        (asked(nn.ReLU()), [""], asked(nn.Linear(12, 4))),
    ],
    "fused-without-optimizer": [
        (
            asked(policy=INT8.replace(grads="fused"), optimizer=None),
            ["0"],
            asked(policy=INT8.replace(grads="fused")),
        ),
    ],
    "bias-overflow": [
        (
            asked(policy=INT8.replace(errors=q.Sym(16)), batch=65539),
            ["2", "0"],
            asked(policy=INT8.replace(errors=q.Sym(16)), batch=65538),
        ),
        (
            asked(nn.Linear(12, 4), policy=INT8.replace(errors=q.Sym(16)), batch=65539),
            ["0"],
            asked(nn.Linear(12, 4, bias=False), policy=INT8.replace(errors=q.Sym(16)), batch=65539),
        ),
    ],
    "norm-of-one": [
        (asked(chain(nn.GroupNorm(9, 9))), ["1"], asked(chain(nn.GroupNorm(3, 9)))),
        (
            asked(nn.Sequential(nn.Linear(12, 1), nn.LayerNorm(1), nn.Linear(1, 4))),
            ["1"],
            asked(nn.Sequential(nn.Linear(12, 2), nn.LayerNorm(2), nn.Linear(2, 4))),
        ),
    ],
    "no-running-statistics": [
        (
            asked(chain(nn.BatchNorm1d(9, track_running_stats=False))),
            ["1"],
            asked(chain(nn.BatchNorm1d(9))),
        ),
    ],
    "batch-too-small": [
        (
            asked(chain(nn.BatchNorm1d(9)), batch=1),
            ["1"],
            asked(chain(frozen(nn.BatchNorm1d(9))), batch=1),
        ),
        (
            asked(chain(nn.BatchNorm1d(9)), batch=32, micro_batches=32),
            ["1"],
            asked(chain(nn.BatchNorm1d(9)), batch=32, micro_batches=16),
        ),
    ],
    "batch-too-large": [(asked(policy=F32, batch=2**24), [""], asked(policy=F32, batch=2**22))],
    "refused": [
        (
            {**asked(nn.Linear(2**15, 2**15), policy=F32, batch=1), "input_shape": 2**15},
            [""],
            {**asked(nn.Linear(2**15, 2**10), policy=F32, batch=1), "input_shape": 2**15},
        )
    ],
}
