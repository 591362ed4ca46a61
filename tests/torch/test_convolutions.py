"""Convolutions in float32 against PyTorch: outputs and every gradient, over any geometry."""

import json

import numpy as np
import pytest
import torch
import torch_vectors as vectors
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pyqfw as q
from pyqfw import nn

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'.*:UserWarning")
NEAR = 1e-5  # relative, norm-wise per tensor
DRAWN = settings(derandomize=True, deadline=None, database=None, max_examples=60)


def near(ours, theirs, what):
    a, b = (np.asarray(t, np.float64) for t in (ours, theirs))
    assert a.shape == b.shape, what
    assert np.linalg.norm(a - b) <= NEAR * np.linalg.norm(b), what


@st.composite
def geometries(draw, dims, transposed):
    """Arguments of a layer and the sizes of its image: kernels beyond it, odd strides, groups."""

    def each(least, most):
        return tuple(draw(st.integers(least, most)) for _ in range(dims))

    groups = draw(st.sampled_from([1, 1, 2, 3]))
    inputs, outputs = (groups * draw(st.integers(1, 3)) for _ in range(2))
    if draw(st.integers(0, 3)) == 0:
        outputs = groups = inputs
    args = {"kernel_size": each(1, 5), "dilation": each(1, 3), "groups": groups}
    args["bias"] = draw(st.booleans())
    args["stride"], args["padding"] = each(1, 4), each(0, 4)
    if transposed:
        tops = [max(s, d) - 1 for s, d in zip(args["stride"], args["dilation"], strict=True)]
        args["output_padding"] = tuple(draw(st.integers(0, top)) for top in tops)
    elif draw(st.integers(0, 3)) == 0:
        args |= {"padding": draw(st.sampled_from(["same", "valid"])), "stride": (1,) * dims}
    return (inputs, outputs), args, each(1, 8)


def torch_makes_nothing(model, shape):
    """An error, or a tensor without elements."""
    try:
        return model(torch.zeros(1, *shape)).numel() == 0
    except RuntimeError:
        return True


def check(kind, channels, args, sizes):
    """One step behind a pointwise layer, whose gradient tells the error of the layer's input."""
    plain = "Conv1d" if len(sizes) == 1 else "Conv2d"
    shape = (2, *sizes)

    def made(lib):
        return lib.Sequential(
            getattr(lib, plain)(2, channels[0], 1), getattr(lib, kind)(*channels, **args)
        )

    try:
        out_shape = made(nn).out_shape(shape)
    except q.ShapeError:
        assert torch_makes_nothing(made(torch.nn), shape)
        assume(False)
    assume(np.prod(out_shape) <= 600)
    net = q.Session(q.compile(made(nn), input_shape=shape, loss=nn.MSELoss(), batch=3))
    model = made(torch.nn)
    model.load_state_dict({n: torch.from_numpy(w) for n, w in net.state_dict().items()})
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, *shape)).astype(np.float32)
    out = model(torch.from_numpy(x))
    assert tuple(out.shape[1:]) == out_shape
    y = rng.normal(size=out.shape).astype(np.float32)
    near(net.predict(x), out.detach().numpy(), "prediction")
    near(net.forward(x), out.detach().numpy(), "output")
    value = torch.nn.functional.mse_loss(out, torch.from_numpy(y))
    value.backward()
    near(net.backward(y), value.item(), "loss")
    for name, p in model.named_parameters():
        theirs = p.grad.numpy()
        if not theirs.any():  # what no tap of any position meets
            assert not net.grad(name).numpy().any(), name
            continue
        near(net.grad(name).numpy(), theirs, f"gradient {name}")


@given(geometries(1, False))
@DRAWN
def test_conv1d(drawn):
    check("Conv1d", *drawn)


@given(geometries(2, False))
@DRAWN
def test_conv2d(drawn):
    check("Conv2d", *drawn)


@given(geometries(1, True))
@DRAWN
def test_conv_transpose1d(drawn):
    check("ConvTranspose1d", *drawn)


@given(geometries(2, True))
@DRAWN
def test_conv_transpose2d(drawn):
    check("ConvTranspose2d", *drawn)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dims", [1, 2])
def test_the_draws_are_many_and_odd(dims, transposed):
    """At least 40 of each kind are compared; each kind of oddness is among them."""
    kind, seen = f"Conv{'Transpose' if transposed else ''}{dims}d", []

    @given(geometries(dims, transposed))
    @DRAWN
    def note(drawn):
        channels, args, sizes = drawn
        try:
            out = getattr(nn, kind)(*channels, **args).out_shape((channels[0], *sizes))
        except q.ShapeError:
            assume(False)
        assume(np.prod(out) <= 600)
        seen.append(drawn)

    note()
    assert len(seen) >= 40
    assert any(a["groups"] == c[0] == c[1] > 1 for c, a, _ in seen)
    assert any(max(a["stride"]) >= 3 and max(a["dilation"]) >= 2 for _, a, _ in seen)
    assert any(k > n for _, a, s in seen for k, n in zip(a["kernel_size"], s, strict=True))
    assert not transposed or any(max(a["output_padding"]) > 0 for _, a, _ in seen)


# ---- errors --------------------------------------------------------------------------------------

REFUSED = {
    "groups of inputs": (lambda m: m.Conv1d(3, 4, 3, groups=2), "in_channels must be divisible"),
    "groups of outputs": (lambda m: m.Conv2d(4, 3, 3, groups=2), "out_channels must be divisible"),
    "groups, transposed": (lambda m: m.ConvTranspose1d(3, 4, 3, groups=2), "must be divisible"),
    "no groups": (lambda m: m.Conv1d(3, 4, 3, groups=0), "groups"),
    "same with strides": (lambda m: m.Conv1d(3, 4, 3, stride=2, padding="same"), "needs stride 1"),
    "another padding": (lambda m: m.Conv2d(3, 4, 3, padding="full"), "'same' or 'valid'"),
    "another mode": (lambda m: m.Conv1d(3, 4, 3, padding_mode="odd"), "must be 'zeros'"),
    "mode, transposed": (
        lambda m: m.ConvTranspose1d(3, 4, 3, padding_mode="reflect"),
        "must be 'zeros'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_neither_makes(case):
    make, words = REFUSED[case]
    with pytest.raises(ValueError):  # noqa: PT011  # whatever its words are
        make(torch.nn)
    with pytest.raises(q.QfwError, match=words):
        make(nn)


MISFITS = {
    "a kernel beyond the image": (lambda m: m.Conv1d(3, 4, 5), (3, 4), "an axis has 4.*reaches 5"),
    "dilated beyond it": (
        lambda m: m.Conv1d(3, 4, 3, dilation=3),
        (3, 6),
        "an axis has 6.*reaches 7",
    ),
    "other channels": (lambda m: m.Conv1d(3, 4, 3), (4, 6), "it has 4 channels, not 3"),
    "other channels, transposed": (
        lambda m: m.ConvTranspose2d(3, 4, 3),
        (2, 6, 6),
        "it has 2 channels, not 3",
    ),
    "one axis too few": (lambda m: m.Conv2d(3, 4, 3), (6,), r"must be \(3, height, width\)"),
    "nothing comes out": (
        lambda m: m.ConvTranspose1d(3, 4, 1, padding=2),
        (3, 3),
        r"would be \(-1,\)",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_what_fits_neither(case):
    """Ours is found by `compile`, and the layer named."""
    make, shape, words = MISFITS[case]
    with pytest.raises((RuntimeError, ValueError)):
        torch.nn.Sequential(make(torch.nn))(torch.zeros(2, *shape))
    with pytest.raises(q.ShapeError, match=rf"layer 'conv', Conv.*{words}"):
        q.compile(nn.Sequential({"conv": make(nn)}), input_shape=shape)


def test_output_padding_is_below_stride_or_dilation():
    """torch finds it when it runs, ours when it is made."""
    for args in ({"stride": 2, "output_padding": 2}, {"dilation": 3, "output_padding": 3}):
        with pytest.raises((RuntimeError, ValueError), match="output padding must be smaller"):
            torch.nn.ConvTranspose1d(2, 2, 3, **args)(torch.zeros(1, 2, 4))
        with pytest.raises(q.QfwError, match="output_padding must be smaller"):
            nn.ConvTranspose1d(2, 2, 3, **args)


def test_the_vectors_are_what_torch_says():
    """Written once; a newer torch may round otherwise."""
    stored = json.loads(vectors.FILE.read_text())
    for old, new in zip(stored, vectors.generate(), strict=True):
        for key, value in new.items():
            if isinstance(value, list) and key != "sizes":
                assert old[key][0] == value[0]
                near(np.array(old[key][1]), np.array(value[1]), key)
