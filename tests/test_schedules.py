"""Schedules: closed forms by hand, composition, what is legal. PyTorch's are in tests/torch."""

import copy
import pickle
from dataclasses import FrozenInstanceError
from math import cos, pi

import numpy as np
import pytest

from pyqfw import optim
from pyqfw.errors import QfwError

ALL = [
    optim.StepLR(3),
    optim.StepLR(3, gamma=0.5),
    optim.ExponentialLR(0.9),
    optim.CosineAnnealingLR(10),
    optim.CosineAnnealingLR(7, eta_min=0.01),
    optim.LinearWarmup(4),
    optim.LinearWarmup(5, start=0, then=optim.CosineAnnealingLR(20)),
]


def test_values_by_hand():
    assert [optim.StepLR(2, 0.5)(8.0, e) for e in range(5)] == [8, 8, 4, 4, 2]
    assert [optim.ExponentialLR(0.5)(8.0, e) for e in range(4)] == [8, 4, 2, 1]
    half = optim.CosineAnnealingLR(2, eta_min=1)
    assert [half(3.0, e) for e in range(5)] == pytest.approx([3, 2, 1, 2, 3], abs=1e-15)
    assert optim.CosineAnnealingLR(9)(1.0, 4) == pytest.approx((1 + cos(pi * 4 / 9)) / 2)
    up = optim.LinearWarmup(4, start=0.5)
    assert [up(2.0, e) for e in range(6)] == [1, 1.25, 1.5, 1.75, 2, 2]
    assert optim.LinearWarmup(3, start=0)(1.0, 0) == 0.0


@pytest.mark.parametrize("then", ALL, ids=repr)
def test_a_warmup_hands_over_at_its_end(then):
    both = optim.LinearWarmup(6, start=0.1, then=then)
    for epoch in range(40):
        alone = optim.LinearWarmup(6, start=0.1)(0.3, epoch)
        assert both(0.3, epoch) == (alone if epoch < 6 else then(0.3, epoch - 6))


@pytest.mark.parametrize("schedule", ALL, ids=repr)
def test_it_is_a_frozen_value_printed_as_the_code_that_makes_it(schedule):
    names = {name: getattr(optim, name) for name in optim.__all__}
    for same in (
        eval(repr(schedule), names),
        copy.deepcopy(schedule),
        pickle.loads(pickle.dumps(schedule)),
    ):
        assert same == schedule
        assert hash(same) == hash(schedule)
    with pytest.raises(FrozenInstanceError):
        schedule.gamma = 1.0
    assert isinstance(schedule(np.float32(0.5), np.int64(3)), float)
    assert schedule(0, 3) >= 0.0


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: optim.StepLR(0), r"StepLR: step_size must be 1\.\."),
        (lambda: optim.StepLR(2.0), r"StepLR: step_size must be an integer"),
        (lambda: optim.StepLR(2, gamma=-1), r"StepLR: gamma must be a finite number >= 0, not -1"),
        (lambda: optim.ExponentialLR(float("nan")), r"ExponentialLR: gamma must be a finite"),
        (lambda: optim.ExponentialLR("0.9"), r"ExponentialLR: gamma must be a finite number"),
        (lambda: optim.CosineAnnealingLR(0), r"CosineAnnealingLR: T_max must be 1\.\."),
        (lambda: optim.CosineAnnealingLR(5, eta_min=10**400), r"eta_min must be a finite number"),
        (lambda: optim.LinearWarmup(0), r"LinearWarmup: epochs must be 1\.\."),
        (lambda: optim.LinearWarmup(True), r"LinearWarmup: epochs must be an integer"),
        (lambda: optim.LinearWarmup(2, start=1.5), r"LinearWarmup: start must be 0\.\.1, not 1\.5"),
        (lambda: optim.LinearWarmup(2, then=0.1), r"then must be None or a schedule, not 0\.1"),
        (lambda: ALL[0](0.1, -1), r"StepLR\(step_size=3, gamma=0\.1\): epoch must be 0\.\."),
        (lambda: ALL[0](0.1, 1.0), r"epoch must be an integer"),
        (lambda: ALL[0](float("inf"), 1), r"lr must be a finite number >= 0, not inf"),
        (lambda: optim.ExponentialLR(2)(1.0, 5000), r"to the power 5000 is no finite"),
    ],
)
def test_what_is_refused(make, text):
    with pytest.raises(QfwError, match=text):
        make()
