"""q.validate on networks with branches and convolutions: what is found, and of which layer."""

from __future__ import annotations

from typing import Any

import pytest

import pyqfw as q
from pyqfw import nn, optim

INT8 = q.Policy.int8()
GIVEN = {"input_shape": (2, 5), "loss": nn.CrossEntropyLoss(), "batch": 32}
GIVEN |= {"optimizer": optim.SGD(0.05, momentum=0.9)}


class Branched(nn.Module):
    """a, then b and c of it, whose sum goes to the classes."""

    def __init__(self, **options: Any) -> None:
        self.a, self.b = nn.Conv1d(2, 3, 3, padding=1), nn.Conv1d(3, 3, 1, **options)
        self.c, self.relu = nn.Conv1d(3, 3, 1), nn.ReLU()
        self.flat, self.out = nn.Flatten(), nn.Linear(15, 4)

    def forward(self, x: Any) -> Any:
        x = self.relu(self.a(x))
        return self.out(self.flat(self.b(x) + self.c(x)))


def found(model: nn.Module, policy: q.Policy = INT8, **changes: Any) -> list[tuple[str, str]]:
    findings = q.validate(model, policy=policy, **{**GIVEN, **changes})
    assert all(f.message and f.remedy for f in findings)
    return [(f.code, f.layer) for f in findings]


def test_nothing_is_found_of_what_is_right() -> None:
    for policy in (INT8, q.Policy.full_sym(), q.Policy.float32()):
        assert found(Branched(), policy) == []


def test_a_raw_wire_into_a_sum() -> None:
    """Found in the user's own module, and repaired there to look further."""
    policy = INT8.replace(weights=q.Sym(4))
    codes = found(Branched(output=q.RAW), policy)
    assert codes[0] == ("raw-wire", "b")
    assert ("scale-per-tensor", "a") in codes


def test_errors_of_a_forward_come_back() -> None:
    class Twice(Branched):
        def forward(self, x: Any) -> Any:
            return self.a(self.a(x))

    class Narrow(Branched):
        def forward(self, x: Any) -> Any:
            return self.a(x) + x

    for model, code, layer in ((Twice(), "refused", "a"), (Narrow(), "shape", "")):
        with pytest.raises(q.QfwError) as caught:
            q.compile(model, policy=INT8, **GIVEN)
        (finding,) = q.validate(model, policy=INT8, **GIVEN)
        assert (finding.code, finding.layer, finding.message) == (code, layer, str(caught.value))


def test_a_range_that_no_error_passes_needs_no_mask() -> None:
    """b's error ends there if a is frozen, whatever learns beside it."""

    class Other(Branched):
        def forward(self, x: Any) -> Any:
            x = self.relu(self.a(x))
            return self.out(self.flat(self.c(x) + self.b(x)))

    ranged = {"policy": {"wires": q.Sym(8, range=1.0)}}
    assert ("mask-not-kept", "b") in found(Other(**ranged))
    frozen = Other(**ranged)
    for layer in (frozen.a, frozen.b):
        layer.requires_grad_(False)
    assert ("mask-not-kept", "b") not in found(frozen)


def test_errors_that_meet_are_those_of_a_layer() -> None:
    """a+1 is no layer."""
    policy = INT8.replace(errors=q.Asym(8, range=1.0))
    layers = {layer for code, layer in found(Branched(), policy) if code == "range-one-sided"}
    assert layers <= {"a", "b", "c", "add", "relu", "out"}
    assert "relu" in layers


def test_splits_name_the_convolution() -> None:
    plan = q.compile(Branched(), policy=q.Policy.full_sym(), **{**GIVEN, "batch": 128})
    split = {f.layer for f in plan.findings if f.code == "split-accumulation"}
    assert split == {"a", "b", "c"}  # 640 positions of int12 x int12


def test_residuals_and_graphs_are_repaired_too() -> None:
    body = nn.Sequential(nn.Conv1d(2, 2, 1, output=q.RAW), nn.ReLU())
    model = nn.Sequential(nn.Residual(body), nn.Flatten(), nn.Linear(10, 4))
    assert found(model)[0] == ("raw-wire", "0.body.0")
    layers = (("a", nn.Conv1d(2, 2, 1, output=q.RAW)), ("s", nn.Add()), ("f", nn.Flatten()))
    calls = (("a", (-1,)), ("s", (0, -1)), ("f", (1,)), ("l", (2,)))
    graph = nn.Graph((*layers, ("l", nn.Linear(10, 4))), calls)
    assert found(graph)[0] == ("raw-wire", "a")
    listed = nn.ModuleList([nn.Conv1d(2, 2, 1, output=q.RAW)])

    class Listed(nn.Module):
        def __init__(self) -> None:
            self.list, self.flat, self.out = listed, nn.Flatten(), nn.Linear(10, 4)

        def forward(self, x: Any) -> Any:
            return self.out(self.flat(self.list[0](x) + x))

    assert found(Listed())[0] == ("raw-wire", "list.0")
