"""Modules with a forward of their own: what they may do, and what is said of what they may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyqfw as q
from pyqfw import nn, optim

SHAPE = (2, 5)
TRAINED = {"loss": nn.MSELoss(), "optimizer": optim.SGD(0.1)}


class Model(nn.Module):
    """Layers by name, and a forward."""

    def __init__(self, forward: Any, /, **layers: nn.Module) -> None:
        self._forward = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Any) -> Any:
        return self._forward(self, x)


def conv(inputs: int = 2, outputs: int = 2, **options: Any) -> nn.Conv1d:
    return nn.Conv1d(inputs, outputs, 1, **options)


def compiled(forward: Any, /, **layers: nn.Module) -> q.Plan:
    return q.compile(Model(forward, **layers), input_shape=SHAPE)


def paths(plan: q.Plan) -> list[str]:
    return [node.path for node in plan.nodes]


# ---- layers called again -------------------------------------------------------------------------


def test_layers_that_keep_nothing_are_called_again() -> None:
    relu = nn.ReLU()
    plan = q.compile(nn.Sequential(conv(), relu, conv(), relu), input_shape=SHAPE)
    assert paths(plan) == ["0", "1", "2", "3"]
    plan = compiled(lambda m, x: m.r(m.b(m.r(m.a(x)))), a=conv(), b=conv(), r=relu)
    assert paths(plan) == ["a", "r", "b", "r_2"]
    plan = compiled(lambda m, x: m.r(m.r_2(m.r(m.a(x)))), a=conv(), r=relu, r_2=nn.Tanh())
    assert paths(plan) == ["a", "r", "r_2", "r_2_"]
    pair = nn.Sequential(relu, nn.Dropout(0.5))
    plan = compiled(lambda m, x: m.p(m.b(m.p(m.a(x)))), a=conv(), b=conv(), p=pair)
    assert paths(plan) == ["a", "p.0", "p.1", "b", "p.0_2", "p.1_2"]
    plan = q.compile(nn.Sequential(conv(), pair, conv(), pair), input_shape=SHAPE)
    assert paths(plan) == ["0", "1.0", "1.1", "2", "3.0", "3.1"]


def test_layers_called_again_train_as_layers_of_their_own(tmp_path: Path) -> None:
    """The same bits, after a file too."""

    def trained(model: nn.Module) -> q.Session:
        net = q.Session(
            q.compile(
                model,
                input_shape=SHAPE,
                loss=nn.MSELoss(),
                optimizer=q.optim.SGD(0.1),
                policy=q.Policy.int8(),
            )
        )
        rng = np.random.default_rng(0)
        for _ in range(3):
            net.step(*(rng.normal(size=(1, *SHAPE)).astype(np.float32) for _ in range(2)))
        return net

    def forward(m: Any, x: Any) -> Any:
        return m.r(m.b(m.r(m.a(x))))

    one = trained(Model(forward, a=conv(), b=conv(), r=nn.ReLU()))
    two = trained(
        Model(lambda m, x: m.r_2(m.b(m.r(m.a(x)))), a=conv(), b=conv(), r=nn.ReLU(), r_2=nn.ReLU())
    )
    assert bytes(one._spaces.lasting()) == bytes(two._spaces.lasting())
    one.save(tmp_path / "net.safetensors")
    loaded = q.Session.load(tmp_path / "net.safetensors")
    assert paths(loaded.plan) == ["a", "r", "b", "r_2"]
    for name in one.state_dict():
        assert loaded.tensor(name).data == one.tensor(name).data


# ---- what is wrong -------------------------------------------------------------------------------

A, TWO = {"a": conv()}, {"a": conv(), "b": conv()}
WRONG: dict[str, tuple[Any, dict[str, nn.Module], str]] = {
    "twice": (lambda m, x: m.a(m.a(x)), A, r"layer 'a', Conv1d.* is called twice: make two"),
    "not called": (lambda m, x: m.a(x), TWO, r"layer 'b', Conv1d.*: forward does not call it"),
    "not used": (lambda m, x: (m.b(x), m.a(x))[1], TWO, r"layer 'b', .*nothing uses what it makes"),
    "not assigned": (
        lambda m, x: conv()(m.a(x)),
        A,
        r"Conv1d.* belongs to no module: assign it in __init__ .*nn\.ModuleList",
    ),
    "a tuple": (lambda m, x: (m.a(x), x), A, r"forward of Model must return one value, not \(<va"),
    "nothing": (lambda m, x: None, A, r"forward of Model must return one value, not None"),
    "two values": (lambda m, x: m.a(x, x), A, r"layer 'a', Conv1d.*, takes one value, not 2"),
    "a list": (
        lambda m, x: m.c([m.a(x), x]),
        {**A, "c": nn.Concat()},
        r"Concat is given a list: values come one by one, as in module\(a, b\)",
    ),
    "one to add": (
        lambda m, x: m.s(m.a(x)),
        {**A, "s": nn.Add()},
        r"layer 's', Add\(\), joins two values or more",
    ),
    "a number added": (lambda m, x: m.a(x) + 1, A, r"a value \+ 1: only values can be added"),
    "added to a number": (lambda m, x: 1 + m.a(x), A, r"1 \+ a value: only values can be added"),
    "a product": (lambda m, x: m.a(x) * 2, A, r"values can be added alone, not \*"),
    "a product from the left": (lambda m, x: 2 * m.a(x), A, r"values can be added alone, not \*"),
    "a difference": (lambda m, x: m.a(x) - x, A, r"values can be added alone, not -"),
    "a quotient": (lambda m, x: m.a(x) / 2, A, r"values can be added alone, not /"),
    "a matrix product": (lambda m, x: m.a(x) @ x, A, r"values can be added alone, not @"),
    "negative": (lambda m, x: -m.a(x), A, r"values can be added alone, not -"),
    "a part": (lambda m, x: m.a(x)[0], A, r"a value has no elements"),
    "elements": (lambda m, x: [m.a(v) for v in x], A, r"a value has no elements"),
    "a condition": (lambda m, x: m.a(x) if x else x, A, r"a forward cannot depend on a value"),
    "eight at once": (
        lambda m, x: m.s(m.a(x), *[x] * 7),
        {**A, "s": nn.Add()},
        r"layer 's': 8 values meet; at most 7 do at a time",
    ),
    "eight side by side": (
        lambda m, x: m.s(m.a(x), *[x] * 7),
        {**A, "s": nn.Concat()},
        r"layer 's': 8 values meet; at most 7 do at a time",
    ),
    "RAW, read twice": (
        lambda m, x: (lambda y: m.q(y) + m.p(y))(m.a(x)),
        {"a": conv(output=nn.RAW), "q": nn.Quant(), "p": nn.Quant()},
        r"layer 'a' has output=RAW, but 'q' and 'p' read it",
    ),
    "RAW, added": (
        lambda m, x: m.a(x) + x,
        {"a": conv(output=nn.RAW)},
        r"layer 'a' has output=RAW, but 'add' \(Add\(\)\) reads it",
    ),
    "RAW, beside": (
        lambda m, x: m.c(m.a(x), x),
        {"a": conv(output=nn.RAW), "c": nn.Concat()},
        r"layer 'a' has output=RAW, but 'c' \(Concat\(dim=1\)\) reads it",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name: str) -> None:
    forward, layers, words = WRONG[name]
    with pytest.raises(q.QfwError, match=words):
        compiled(forward, **layers)


SHAPES: dict[str, tuple[Any, dict[str, nn.Module], str]] = {
    "sums": (lambda m, x: m.a(x) + x, {"a": conv(2, 3)}, r"'add', Add.*\(3, 5\) and \(2, 5\)"),
    "no such axis": (
        lambda m, x: m.c(m.a(x), x),
        {**A, "c": nn.Concat(3)},
        r"layer 'c', Concat\(dim=3\): values have 2 axes and the batch.* 1 to 2, or -1 to -2",
    ),
    "the batch": (lambda m, x: m.c(m.a(x), x), {**A, "c": nn.Concat(0)}, r"dim must be 1 to 2"),
    "another axis": (
        lambda m, x: m.c(m.a(x), x),
        {"a": conv(2, 3), "c": nn.Concat(2)},
        r"\(3, 5\) and \(2, 5\) \(no batch axis\); they may differ in axis 2 alone",
    ),
    "another rank": (
        lambda m, x: m.c(m.f(m.a(x)), x),
        {**A, "f": nn.Flatten(), "c": nn.Concat()},
        r"\(10,\) and \(2, 5\)",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_that_do_not_fit(name: str) -> None:
    forward, layers, words = SHAPES[name]
    with pytest.raises(q.ShapeError, match=words):
        compiled(forward, **layers)


def test_a_module_is_called_in_a_forward_alone() -> None:
    for module in (conv(), nn.Sequential(conv()), nn.Residual(conv()), nn.Add()):
        with pytest.raises(q.QfwError, match="is a description, and is called in a forward alone"):
            module(np.zeros((1, 2, 5)))
    with pytest.raises(q.QfwError, match=r"give the model to q\.compile"):
        conv()()


def test_a_value_belongs_to_one_forward() -> None:
    kept: list[Any] = []
    compiled(lambda m, x: kept.append(x) or m.a(x), a=conv())
    with pytest.raises(q.QfwError, match="which is no value"):
        compiled(lambda m, x: m.s(m.a(x), kept[0]), a=conv(), s=nn.Add())
    with pytest.raises(q.QfwError, match=r"module 'a' is given 3, which is no value"):
        compiled(lambda m, x: m.a(x, 3), a=conv())


def test_what_a_value_has() -> None:
    seen: list[Any] = []
    compiled(lambda m, x: seen.append((x.shape, repr(x))) or m.a(x), a=conv())
    assert seen == [((2, 5), "<value (2, 5)>")]
    with pytest.raises(AttributeError, match=r"has no 'view': it is made of layers \(nn.Flatten"):
        compiled(lambda m, x: m.a(x).view(-1), a=conv())


def test_modules_that_are_none() -> None:
    with pytest.raises(q.QfwError, match="Residual: body must be a module, not 3"):
        nn.Residual(3)  # type: ignore[arg-type]
    with pytest.raises(q.QfwError, match="Residual: shortcut must be a module, not 3"):
        nn.Residual(conv(), 3)  # type: ignore[arg-type]
    with pytest.raises(q.QfwError, match="ModuleList: number 1 must be a module, not 3"):
        nn.ModuleList([conv(), 3])
    with pytest.raises(q.QfwError, match="has no forward: write `def forward"):
        compiled(lambda m, x: m.list(x), list=nn.ModuleList([conv()]))
    with pytest.raises(q.QfwError, match="Graph: its calls must be of its layers"):
        nn.Graph((("a", conv()),), (("b", (-1,)),))
    with pytest.raises(q.QfwError, match="Graph: its calls must be of its layers"):
        nn.Graph((("a", conv()),), (("a", (0,)),))
    with pytest.raises(q.QfwError, match="Graph: its calls must be of its layers"):
        nn.Graph((("a", conv()),), ())


def test_errors_of_more_than_seven_readers_cannot_meet() -> None:
    def forward(m: Any, x: Any) -> Any:
        x = m.a(x)
        y = [layer(x) for layer in m.list]
        return m.first(*y[:4]) + m.second(*y[4:])

    def model() -> Model:
        many = nn.ModuleList([conv() for _ in range(8)])
        return Model(forward, a=conv(), list=many, first=nn.Add(), second=nn.Add())

    q.compile(model(), input_shape=SHAPE)  # which has no errors
    words = r"layer 'a': 8 layers read its output, and their errors are added: at most 7 can be"
    with pytest.raises(q.QfwError, match=words):
        q.compile(model(), input_shape=SHAPE, **TRAINED)
    frozen = model()
    frozen.a.requires_grad_(False)  # type: ignore[attr-defined]
    q.compile(frozen, input_shape=SHAPE, **TRAINED)


# ---- what is right -------------------------------------------------------------------------------


def test_paths_are_those_of_the_attributes() -> None:
    block = Model(lambda m, x: m.relu(m.conv(x)) + x, conv=conv(), relu=nn.ReLU())
    plan = q.compile(nn.Sequential(block, nn.Residual(conv(), conv())), input_shape=SHAPE)
    assert paths(plan) == ["0.conv", "0.relu", "0.add", "1.body", "1.shortcut", "1.add"]
    names = [f"{p}.{n}" for p in ("0.conv", "1.body", "1.shortcut") for n in ("weight", "bias")]
    assert list(q.Session(plan).state_dict()) == names


def test_sums_are_numbered_where_they_stand() -> None:
    twice = Model(lambda m, x: m.a(x) + x + x, a=conv())
    plan = q.compile(nn.Sequential(twice, nn.ReLU(), Model(lambda m, x: m.a(x) + x, a=conv())),
                     input_shape=SHAPE)  # fmt: skip
    assert paths(plan) == ["0.a", "0.add", "0.add1", "1", "2.a", "2.add"]
    named = compiled(lambda m, x: m.add(m.a(x) + x), a=conv(), add=nn.ReLU())
    assert paths(named) == ["a", "add_", "add"]


def test_python_s_sum_adds() -> None:
    def forward(m: Any, x: Any) -> Any:
        return sum([m.a(x), m.b(x), x])

    assert paths(compiled(forward, a=conv(), b=conv())) == ["a", "b", "add", "add1"]


def test_loops_conditions_and_modules_that_return_several() -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            self.left, self.right = conv(), conv()

        def forward(self, x: Any) -> Any:
            return self.left(x), self.right(x)

    def forward(m: Any, x: Any) -> Any:
        a, b = m.split(x)
        for layer in m.list:
            a = layer(a)
        return a + b if len(m.list) > 1 else a

    layers = nn.ModuleList([conv(), nn.ReLU()])
    assert len(layers) == 2
    assert isinstance(layers[1], nn.ReLU)
    plan = compiled(forward, split=Split(), list=layers)
    assert paths(plan) == ["split.left", "split.right", "list.0", "list.1", "add"]


def test_repr_is_pytorch_s() -> None:
    block = nn.Residual(nn.Sequential(conv(), nn.ReLU()))
    text = repr(Model(lambda m, x: x, body=block, cat=nn.Concat(2)))
    assert text == (
        "Model(\n"
        "  (body): Residual(\n"
        "    (body): Sequential(\n"
        "      (0): Conv1d(2, 2, kernel_size=(1,), stride=(1,))\n"
        "      (1): ReLU()\n"
        "    )\n"
        "    (add): Add()\n"
        "  )\n"
        "  (cat): Concat(dim=2)\n"
        ")"
    )
    assert repr(nn.ModuleList()) == "ModuleList()"


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (nn.Conv1d(2, 4, 3), "Conv1d(2, 4, kernel_size=(3,), stride=(1,))"),
        (
            nn.Conv2d(2, 4, (3, 1), stride=2, padding=(1, 0), dilation=2, groups=2, bias=False),
            "Conv2d(2, 4, kernel_size=(3, 1), stride=(2, 2), padding=(1, 0), dilation=(2, 2), "
            "groups=2, bias=False)",
        ),
        (
            nn.Conv1d(2, 4, 3, padding="same"),
            "Conv1d(2, 4, kernel_size=(3,), stride=(1,), padding='same')",
        ),
        (
            nn.ConvTranspose1d(2, 4, 3, stride=2, output_padding=1, output=nn.RAW),
            "ConvTranspose1d(2, 4, kernel_size=(3,), stride=(2,), output_padding=(1,), output=RAW)",
        ),
        (
            nn.ConvTranspose2d(2, 4, 3, policy={"weights": q.Sym(4)}),
            "ConvTranspose2d(2, 4, kernel_size=(3, 3), stride=(1, 1), policy={'weights': Sym(4)})",
        ),
    ],
)  # fmt: skip
def test_repr_of_convolutions(layer: nn.Layer, text: str) -> None:
    assert repr(layer) == text


def test_shapes_parameters_and_freezing_of_modules() -> None:
    block = Model(lambda m, x: m.b(x) + m.a(x), a=conv(2, 3), b=conv(2, 3))
    assert block.out_shape((2, 7)) == (3, 7)
    assert [p.name for p in block.parameters()] == ["a.weight", "a.bias", "b.weight", "b.bias"]
    assert block.requires_grad
    assert block.requires_grad_(False) is block
    assert not block.requires_grad
    block.a.requires_grad_()  # type: ignore[attr-defined]
    assert block.requires_grad
