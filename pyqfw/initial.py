"""What parameters begin with, and what may be loaded into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
import numpy.typing as npt

from . import feed, quant
from ._arrays import REALS, Array
from .errors import DTypeError, QfwError, ShapeError
from .lower.ir import stream_of
from .plan import Plan


def values(plan: Plan) -> dict[str, Array]:
    """U(-b, b), b = 1 / sqrt(fan in), as PyTorch's; a function of the seed and the name alone."""
    found = {}
    for node in plan.nodes:
        for p in node.layer.parameters():
            name = f"{node.path}.{p.name}"
            if p.value is not None:
                found[name] = np.full(p.shape, p.value, np.float32)
                continue
            n = int(np.prod(p.shape))
            words = quant.draws(n, seed=plan.seed, stream=stream_of(name, "init"))
            unit = (2.0 * words.astype(np.float64) + 1.0) / 2.0**32 - 1.0
            found[name] = (unit / sqrt(p.fan_in)).astype(np.float32).reshape(p.shape)
    return found


def checked(plan: Plan, given: Mapping[str, npt.ArrayLike], strict: bool) -> dict[str, Array]:
    """Values for parameters, by name, shape and type; nothing is taken unless all are right."""
    parameters = plan.program.parameters
    if not isinstance(given, Mapping):
        raise QfwError(
            f"state_dict must be a mapping to arrays, of {', '.join(map(repr, parameters))}, not "
            f"{type(given).__name__}"
        )
    missing = [name for name in parameters if name not in given]
    extra = [name for name in given if name not in parameters]
    if strict and (missing or extra):
        parts = [f"missing {', '.join(map(repr, missing))}"] if missing else []
        parts += [f"unknown {', '.join(map(repr, extra))}"] if extra else []
        raise QfwError(f"state_dict: {'; '.join(parts)} (strict=False takes what fits)")
    found = {}
    for name in parameters:
        if name not in given:
            continue
        array = feed.as_array(given[name], f"state_dict['{name}']")
        shape = parameters[name].shape
        if array.dtype.kind not in "fiu" and array.dtype.name not in REALS:
            raise DTypeError(f"state_dict['{name}'] must hold real numbers, not {array.dtype}")
        if array.shape != shape:
            raise ShapeError(f"state_dict['{name}'] must have the shape {shape}, not {array.shape}")
        with quant.float_mode(), np.errstate(over="ignore"):
            found[name] = np.array(array, np.float32, order="C")
            quant.check_finite(found[name], f"state_dict['{name}']", named=array)
    return found


def trained(plan: Plan, names: object) -> tuple[str, ...]:
    """The layers that shall learn, each of which there must be."""
    paths = [node.path for node in plan.nodes]
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise QfwError(f"train must be a list of layers such as {paths[-1:]}, not {names!r}")
    for name in names:
        if not any(path == name or path.startswith(f"{name}.") for path in paths):
            raise QfwError(f"train: there is no layer {name!r}; there are {', '.join(paths)}")
    return tuple(names)
