"""Networks as people write them, on real data, from the same weights in the same order: integers
learn as well as floats.

A score is the mean over the last three epochs: accuracy in percent, or the reconstruction error.
"""

from functools import cache

import numpy as np
import pytest
from real_data import digits, watch

import pyqfw as q
from pyqfw import nn
from pyqfw.optim import SGD, CosineAnnealingLR

SEEDS, POINTS, PERCENT = range(3), 1.5, 5.0
POLICIES = {"full_sym": q.Policy.full_sym(), "int8": q.Policy.int8()}


class Norm(nn.Module):
    """A convolution and its BatchNorm."""

    def __init__(self, inputs, outputs, kernel, stride=1, groups=1):
        pad = kernel // 2
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, pad, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return self.bn(self.conv(x))


class Block(nn.Module):
    """Of a ResNet."""

    def __init__(self, inputs, outputs, stride):
        self.first = Norm(inputs, outputs, 3, stride)
        self.second = Norm(outputs, outputs, 3)
        self.short = None if inputs == outputs else Norm(inputs, outputs, 1, stride)
        self.relu = nn.ReLU()

    def forward(self, x):
        y = self.second(self.relu(self.first(x)))
        return self.relu(y + (x if self.short is None else self.short(x)))


def resnet():
    """ResNet-8: a convolution, three blocks of two, one that reads classes."""
    return nn.Sequential(
        *(Norm(1, 8, 3), nn.ReLU(), Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)),
    )


def ds_cnn():
    """A convolution, then each channel by itself and a pointwise one, three times."""

    def separable(inputs, outputs, stride=1):
        depthwise = Norm(inputs, inputs, 3, stride, groups=inputs)
        return [depthwise, nn.ReLU(), Norm(inputs, outputs, 1), nn.ReLU()]

    return nn.Sequential(
        *(Norm(1, 16, 3), nn.ReLU(), *separable(16, 24), *separable(24, 32, 2), *separable(32, 32)),
        *(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(32, 10)),
    )


def autoencoder():
    """768 numbers of a window through 64."""
    return nn.Sequential(
        *(nn.Conv1d(6, 16, 7, stride=2, padding=3), nn.ReLU()),
        *(nn.Conv1d(16, 16, 5, stride=2, padding=2), nn.ReLU()),
        nn.Conv1d(16, 4, 5, stride=2, padding=2),
        *(nn.ConvTranspose1d(4, 16, 4, stride=2, padding=1), nn.ReLU()),
        *(nn.ConvTranspose1d(16, 16, 4, stride=2, padding=1), nn.ReLU()),
        nn.ConvTranspose1d(16, 6, 4, stride=2, padding=1),
    )


NETS = {"ResNet-8": (resnet, 15), "DS-CNN": (ds_cnn, 20)}


def learned(model, seed, policy, epochs, lr, batch, loss, train, test):
    plan = q.compile(
        model(),
        input_shape=train[0].shape[1:],
        loss=loss,
        optimizer=SGD(lr=lr, momentum=0.9),
        policy=policy,
        batch=batch,
        seed=seed,
    )
    schedule = CosineAnnealingLR(epochs)
    return q.fit(
        q.Session(plan), *train, epochs=epochs, validation=test, schedule=schedule, progress=False
    )


@cache
def accuracies(name, policy):
    model, epochs = NETS[name]
    loss = nn.CrossEntropyLoss()
    runs = [learned(model, s, policy, epochs, 0.05, 32, loss, *digits()) for s in SEEDS]
    return [100 * np.mean(run.val_accuracy[-3:]) for run in runs]


@cache
def distances(policy):
    """Reconstruction errors."""
    train, test = ((x, x) for x, _ in watch())
    runs = [learned(autoencoder, s, policy, 30, 0.1, 64, nn.MSELoss(), train, test) for s in SEEDS]
    return [np.mean(run.val_loss[-3:]) for run in runs]


@pytest.mark.parametrize("name", NETS)
def test_float32_learns(name):
    """Else there is nothing to be compared with."""
    assert np.mean(accuracies(name, None)) > 95


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NETS)
def test_integers_learn_as_well(name, policy):
    ours, twin = accuracies(name, POLICIES[policy]), accuracies(name, None)
    assert np.mean(twin) - np.mean(ours) <= POINTS, f"{ours} against {twin}"


def test_the_autoencoder_learns():
    """The windows have a variance of 1."""
    assert np.mean(distances(None)) < 0.35


@pytest.mark.parametrize("policy", POLICIES)
def test_integers_reconstruct_as_well(policy):
    ours, twin = distances(POLICIES[policy]), distances(None)
    ratios = np.divide(ours, twin)
    assert np.mean(ratios) <= 1 + PERCENT / 100, f"{ours} against {twin}"
