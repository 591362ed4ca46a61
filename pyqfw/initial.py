"""What parameters and running statistics begin with, and what may be loaded into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt

import numpy as np
import numpy.typing as npt

from . import feed, quant
from ._arrays import REALS, Array
from .errors import DTypeError, QfwError, ShapeError
from .lower.ir import stream_of
from .modules import Buffer, Parameter
from .plan import Plan

MOST_TRACKED = 2**24  # batches


def entries(plan: Plan) -> dict[str, Parameter | Buffer]:
    """What a state_dict has, by PyTorch's names and in its order."""
    found: dict[str, Parameter | Buffer] = {}
    for node in plan.nodes:
        found |= {f"{node.path}.{p.name}": p for p in node.layer.parameters()}
        found |= {f"{node.path}.{b.name}": b for b in node.layer.buffers()}
    return found


def values(plan: Plan) -> dict[str, Array]:
    """U(-b, b), b = 1 / sqrt(fan in), as PyTorch's; a function of the seed and the name alone."""
    found = {}
    for name, entry in entries(plan).items():
        if isinstance(entry, Buffer) or entry.value is not None:
            found[name] = np.full(entry.shape, entry.value, np.float32)
            continue
        n = int(np.prod(entry.shape))
        words = quant.draws(n, seed=plan.seed, stream=stream_of(name, "init"))
        unit = (2.0 * words.astype(np.float64) + 1.0) / 2.0**32 - 1.0
        found[name] = (unit / sqrt(entry.fan_in)).astype(np.float32).reshape(entry.shape)
    return found


def checked(plan: Plan, given: Mapping[str, npt.ArrayLike], strict: bool) -> dict[str, Array]:
    """Values for parameters and statistics, by name, shape and type; nothing is taken unless all
    are right."""
    known = entries(plan)
    if not isinstance(given, Mapping):
        raise QfwError(
            f"state_dict must be a mapping to arrays, of {', '.join(map(repr, known))}, not "
            f"{type(given).__name__}"
        )
    missing = [name for name in known if name not in given]
    extra = [name for name in given if name not in known]
    if strict and (missing or extra):
        parts = [f"missing {', '.join(map(repr, missing))}"] if missing else []
        parts += [f"unknown {', '.join(map(repr, extra))}"] if extra else []
        raise QfwError(f"state_dict: {'; '.join(parts)} (strict=False takes what fits)")
    found = {}
    for name, entry in known.items():
        if name not in given:
            continue
        array = feed.as_array(given[name], f"state_dict['{name}']")
        shape = entry.shape
        if array.dtype.kind not in "fiu" and array.dtype.name not in REALS:
            raise DTypeError(f"state_dict['{name}'] must hold real numbers, not {array.dtype}")
        if array.shape != shape:
            raise ShapeError(f"state_dict['{name}'] must have the shape {shape}, not {array.shape}")
        with quant.float_mode(), np.errstate(over="ignore"):
            found[name] = np.array(array, np.float32, order="C")
            quant.check_finite(found[name], f"state_dict['{name}']", named=array)
        if isinstance(entry, Buffer):
            found[name] = _statistic(name, entry, found[name])
    return found


def _statistic(name: str, entry: Buffer, values: Array) -> Array:
    """A variance is not negative; a count is whole, and stops where floats are no longer exact."""
    if entry.name == "running_var" and (values < 0).any():
        raise QfwError(f"state_dict['{name}'] must not be negative, as {values.min()} is")
    if not entry.integer:
        return values
    if values < 0 or values != np.floor(values):
        raise QfwError(f"state_dict['{name}'] must be a whole number >= 0, not {values}")
    return np.minimum(values, np.float32(MOST_TRACKED))


def trained(plan: Plan, names: object) -> tuple[str, ...]:
    """The layers that shall learn, each of which there must be."""
    paths = [node.path for node in plan.nodes]
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise QfwError(f"train must be a list of layers such as {paths[-1:]}, not {names!r}")
    for name in names:
        if not any(path == name or path.startswith(f"{name}.") for path in paths):
            raise QfwError(f"train: there is no layer {name!r}; there are {', '.join(paths)}")
    return tuple(names)
