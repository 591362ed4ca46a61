"""Steps that stand beside ours: torch in its default and its fastest form, torch with fake-quant,
and NumPy by hand. All make whole steps with cross-entropy and SGD."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

Step: TypeAlias = Callable[[Any, Any], object]


def torch_step(torch: Any, model: Any, lr: float, momentum: float) -> Step:
    """zero_grad, forward, loss, backward and SGD, fused where torch has that."""
    loss = torch.nn.CrossEntropyLoss()
    sgd = partial(torch.optim.SGD, model.parameters(), lr=lr, momentum=momentum)
    try:
        optimizer = sgd(fused=True)
    except (TypeError, RuntimeError):  # before torch 2.4 there is none for the CPU
        optimizer = sgd()

    def step(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        loss(model(x), y).backward()
        optimizer.step()

    return step


# --- channels last -------------------------------------------------------------------------------


def channels_last(torch: Any, layers: list[Any]) -> tuple[Any, Callable[[Any], Any]]:
    """The layers as two-dimensional ones with channels last, and what their input becomes."""
    model = torch.nn.Sequential(*(_two_dimensional(torch.nn, layer) for layer in layers))
    last = torch.channels_last

    def lay_out(x: Any) -> Any:
        return (x if x.ndim == 4 else x.unsqueeze(2)).contiguous(memory_format=last)

    return model.to(memory_format=last), lay_out


def _two_dimensional(nn: Any, layer: Any) -> Any:
    """A layer along one axis as one along the second of two, the first being 1 long."""
    if isinstance(layer, nn.Conv1d):
        (kernel,), (pad,) = layer.kernel_size, layer.padding
        return nn.Conv2d(layer.in_channels, layer.out_channels, (1, kernel), padding=(0, pad))
    if isinstance(layer, nn.MaxPool1d):
        return nn.MaxPool2d((1, layer.kernel_size))
    if isinstance(layer, nn.AdaptiveAvgPool1d):
        return nn.AdaptiveAvgPool2d((1, layer.output_size))
    return layer


def keep_freed_memory() -> bool:
    """Tells glibc not to give freed memory back to the system; whether there is one to tell.

    Else every large activation of torch's begins with a page fault for each of its pages.
    """
    path = ctypes.util.find_library("c")
    mallopt = getattr(ctypes.CDLL(path), "mallopt", None) if path else None
    if mallopt is None:
        return False
    trim, pad, mmap = -1, -2, -3  # M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD
    return all(
        mallopt(key, size) == 1 for key, size in ((mmap, 2**30), (trim, 2**30), (pad, 2**26))
    )


# --- fake-quant ----------------------------------------------------------------------------------


def fake_quant(torch: Any, layers: list[Any]) -> Any:
    """The layers with weights, activations and the errors between layers as if in 8 bits.

    Weights have a scale a channel, the others one; scales are dynamic, from the largest element.
    """
    functional = torch.nn.functional
    zero = torch.zeros(1, dtype=torch.int32)

    def per_tensor(x: Any) -> Any:
        scale = x.detach().abs().amax().clamp(min=1e-30).reshape(1) / 127
        return torch.fake_quantize_per_tensor_affine(x, scale, zero, -127, 127)

    def per_channel(w: Any) -> Any:
        scale = w.detach().abs().flatten(1).amax(1).clamp(min=1e-30) / 127
        zeros = torch.zeros(len(w), dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(w, scale, zeros, 0, -127, 127)

    class Wire(torch.autograd.Function):  # type: ignore[misc]
        """Quantized on the way there and on the way back."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return per_tensor(x)

        @staticmethod
        def backward(ctx: Any, error: Any) -> Any:
            return per_tensor(error)

    class Quantized(torch.nn.Sequential):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            x = per_tensor(x)
            for layer in self:
                if isinstance(layer, torch.nn.Conv1d):
                    weight = per_channel(layer.weight)
                    x = functional.conv1d(x, weight, layer.bias, padding=layer.padding)
                elif isinstance(layer, torch.nn.Linear):
                    x = functional.linear(x, per_channel(layer.weight), layer.bias)
                else:
                    x = layer(x)
                    continue
                x = Wire.apply(x)
            return x

    return Quantized(*layers)


# --- NumPy ---------------------------------------------------------------------------------------


def numpy_mlp(sizes: tuple[int, ...], lr: float, momentum: float) -> Step:
    """Linear layers with ReLU between them, forward, backward and update written out."""
    rng = np.random.default_rng(0)
    f32 = np.float32
    pairs = list(zip(sizes[1:], sizes[:-1], strict=True))
    weights = [rng.uniform(-(n**-0.5), n**-0.5, (m, n)).astype(f32) for m, n in pairs]
    biases = [np.zeros(m, f32) for m, _ in pairs]
    parameters = [*weights, *biases]
    states = [np.zeros_like(p) for p in parameters]

    def step(x: Any, y: Any) -> float:
        wires = [x]
        for w, b in zip(weights, biases, strict=True):
            z = wires[-1] @ w.T
            z += b
            if w is not weights[-1]:
                np.maximum(z, 0, out=z)
            wires.append(z)
        logits, rows = wires.pop(), np.arange(len(y))
        error = np.exp(logits - logits.max(1, keepdims=True))
        error /= error.sum(1, keepdims=True)
        loss = -float(np.log(error[rows, y]).mean())
        error[rows, y] -= 1
        error *= f32(1 / len(y))
        steps: list[Any] = [None] * len(parameters)
        for k in reversed(range(len(weights))):
            steps[k] = error.T @ wires[k]
            steps[len(weights) + k] = error.sum(0)
            if k:
                error = error @ weights[k]
                error *= wires[k] > 0
        for p, v, g in zip(parameters, states, steps, strict=True):
            v *= f32(momentum)
            v += g
            p -= f32(lr) * v
        return loss

    return step
