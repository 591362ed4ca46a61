"""PyTorch's modules as ours. Whoever has one has torch: it is not imported here."""

from __future__ import annotations

import sys
from typing import Any

from . import nn
from .errors import QfwError
from .plan import compile
from .session import Session

_CONV = (
    *("in_channels", "out_channels", "kernel_size", "stride", "padding"),
    *("dilation", "groups", "bias", "padding_mode"),
)

# A class of torch.nn and the arguments that its layers keep as attributes. Ours has the same name.
_MAX_POOL = ("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
_AVG_POOL = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
_LAYERS = {
    "AdaptiveAvgPool1d": ("output_size",),
    "AdaptiveAvgPool2d": ("output_size",),
    "AvgPool1d": _AVG_POOL,
    "AvgPool2d": (*_AVG_POOL, "divisor_override"),
    "BatchNorm1d": ("num_features", "eps", "momentum", "affine", "track_running_stats", "bias"),
    "BatchNorm2d": ("num_features", "eps", "momentum", "affine", "track_running_stats", "bias"),
    "Conv1d": _CONV,
    "Conv2d": _CONV,
    "ConvTranspose1d": (*_CONV, "output_padding"),
    "ConvTranspose2d": (*_CONV, "output_padding"),
    "Dropout": ("p",),
    "Flatten": ("start_dim", "end_dim"),
    "GroupNorm": ("num_groups", "num_channels", "eps", "affine", "bias"),
    "LayerNorm": ("normalized_shape", "eps", "elementwise_affine", "bias"),
    "LeakyReLU": ("negative_slope",),
    "Linear": ("in_features", "out_features", "bias"),
    "MaxPool1d": _MAX_POOL,
    "MaxPool2d": _MAX_POOL,
    "ReLU": ("inplace",),
    "ReLU6": ("inplace",),
    "Sigmoid": (),
    "Softmax": ("dim",),
    "Tanh": (),
}


def from_torch(module: Any, *, input_shape: Any, **arguments: Any) -> Session:
    """A session of a torch.nn.Sequential of layers that we have, with its weights.

    `input_shape` (without the batch axis) and the rest are `q.compile`'s. Names are PyTorch's, so
    `state_dict` goes back; an Identity is left out. A frozen layer stays frozen; a BatchNorm then
    takes its running statistics in a step too.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise QfwError(f"from_torch takes a torch.nn.Sequential, not {type(module).__name__}")
    if not _is_sequential(module, torch):
        raise QfwError(
            f"from_torch takes a torch.nn.Sequential of layers, not {type(module).__name__}, whose "
            f"forward is code; for one layer write torch.nn.Sequential(layer)"
        )
    _check_shared(module)
    net = Session(compile(_sequential(module, "", torch), input_shape=input_shape, **arguments))
    net.load_state_dict(module.state_dict())
    return net


def _sequential(module: Any, path: str, torch: Any) -> nn.Sequential:
    _check_hooks(path, module)
    layers: dict[str, nn.Module] = {}
    for name, child in module._modules.items():  # named_children leaves out what comes twice
        where = f"{path}.{name}" if path else name
        if _is_sequential(child, torch):
            layers[name] = _sequential(child, where, torch)
        elif type(child) is not torch.nn.Identity:
            layers[name] = _layer(child, where, torch)
    return nn.Sequential({name: layer for name, layer in layers.items() if not _empty(layer)})


def _layer(layer: Any, path: str, torch: Any) -> nn.Module:
    name = type(layer).__name__
    ours = getattr(nn, name, None) if name in _LAYERS else None
    if ours is None or type(layer) is not getattr(torch.nn, name):
        known = ", ".join(n for n in _LAYERS if hasattr(nn, n))
        raise QfwError(
            f"from_torch: layer '{path}' is a {type(layer).__module__}.{name}; known are {known}, "
            f"Identity and Sequential"
        )
    _check_hooks(path, layer)
    given = {argument: _argument(layer, argument) for argument in _LAYERS[name]}
    try:
        made: nn.Module = ours(**given)
    except QfwError as e:
        raise type(e)(f"from_torch: layer '{path}': {e}") from e
    learns = {p.requires_grad for p in layer.parameters()}
    if len(learns) > 1:
        raise QfwError(
            f"from_torch: layer '{path}', {name}: some of its parameters require a gradient and "
            f"some do not; here a layer learns or is frozen as a whole"
        )
    return made.requires_grad_(learns != {False})


def _argument(layer: Any, name: str) -> Any:
    """An argument of a layer; a bias that it was made without, or had no weight to go with."""
    if name != "bias":
        return getattr(layer, name)
    return layer.bias is not None or layer.weight is None


def _is_sequential(module: Any, torch: Any) -> bool:
    """Sequential, or a subclass that has just other ways to be made."""
    sequential = torch.nn.Sequential
    return isinstance(module, sequential) and type(module).forward is sequential.forward


def _check_hooks(path: str, module: Any) -> None:
    if module._forward_hooks or module._forward_pre_hooks:
        raise QfwError(
            f"from_torch: layer '{path}', {type(module).__name__}, has hooks on its forward, which "
            f"are code: remove them"
        )


def _check_shared(module: Any) -> None:
    seen: dict[int, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        first = seen.setdefault(id(parameter), name)
        if first != name:
            raise QfwError(
                f"from_torch: '{first}' and '{name}' are one parameter: make two, shared weights "
                f"are not supported yet"
            )


def _empty(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Sequential) and len(layer) == 0
