"""Descriptions as JSON and back: models, losses, optimizers, policies, formats.

JSON says which class and which arguments, never code (docs/files.md section 3). Only frozen
dataclasses and enums of pyqfw's own modules are written, and only those are made again; each checks
its arguments as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from math import isfinite, prod
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from . import formats, nn, optim, policy
from ._arrays import Array
from .data.standardize import Standardize
from .errors import QfwError
from .plan import Request

_ROOMS: dict[str, ModuleType | SimpleNamespace] = {
    "nn": nn,
    "optim": optim,
    "formats": formats,
    "policy": policy,
    "data": SimpleNamespace(Standardize=Standardize),
    "plan": SimpleNamespace(Request=Request),
}
_FLOATS = ("inf", "-inf", "nan")


def to_json(value: object, where: str) -> Any:
    """The description of a value; `where` names it in errors."""
    match value:
        case Enum():
            return {"type": _name_of(value, where), "name": value.name}
        case np.generic():
            return to_json(value.item(), where)
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else {"type": "float", "value": str(value)}
        case Mapping():
            pairs = [(to_json(k, where), to_json(v, f"{where}.{k}")) for k, v in value.items()]
            return {"type": "dict", "items": [list(pair) for pair in pairs]}
        case np.ndarray():
            return _array_to_json(value, where)
        case nn.Sequential():
            layers = [[n, to_json(layer, f"{where}.{n}")] for n, layer in value.named_children()]
            return {"type": _name_of(value, where), "layers": layers}
    if type(value) is tuple:
        return [to_json(v, f"{where}[{i}]") for i, v in enumerate(value)]
    if type(value) is list:
        return {"type": "list", "items": to_json(tuple(value), where)}
    return _object_to_json(value, where)


def from_json(given: Any, where: str) -> Any:
    """The value of a description; QfwError for one that `to_json` does not write."""
    match given:
        case None | bool() | int() | float() | str():
            return given
        case list():
            return tuple(from_json(v, f"{where}[{i}]") for i, v in enumerate(given))
        case {"type": "list", "items": list(items)} if len(given) == 2:
            return list(from_json(items, where))
        case {"type": "dict", "items": list(items)} if len(given) == 2:
            return {from_json(k, where): from_json(v, f"{where}.{k}") for k, v in items}
        case {"type": "float", "value": str(text)} if len(given) == 2 and text in _FLOATS:
            return float(text)
        case {"type": "array", "dtype": str(), "shape": list(), "items": list()} if len(given) == 4:
            return _array_from_json(given, where)
        case {"type": str(name)} if "." in name:
            rest = {key: v for key, v in given.items() if key != "type"}
            return _object_from_json(_class_of(name, where), rest, where)
    raise QfwError(f"{where}: {_short(given)} describes nothing")


def _object_to_json(value: object, where: str) -> dict[str, Any]:
    name = _name_of(value, where)
    given = [f.name for f in fields(value) if f.init]  # type: ignore[arg-type]  # a dataclass
    found: dict[str, Any] = {
        "type": name,
        "fields": {n: to_json(getattr(value, n), f"{where}.{n}") for n in given},
    }
    if isinstance(value, nn.Layer) and not value.requires_grad:
        found["requires_grad"] = False
    return found


def _object_from_json(cls: Any, given: dict[str, Any], where: str) -> Any:
    match given:
        case {"name": str(name)} if issubclass(cls, Enum) and len(given) == 1:
            if name in cls.__members__:
                return cls[name]
        case {"layers": list(layers)} if cls is nn.Sequential and len(given) == 1:
            return nn.Sequential({n: from_json(layer, f"{where}.{n}") for n, layer in layers})
        case {"fields": dict(values)} if cls is not nn.Sequential and len(given) == 1:
            return _made(cls, values, where)
        case {"fields": dict(values), "requires_grad": False} if len(given) == 2:
            if issubclass(cls, nn.Layer):
                return _made(cls, values, where).requires_grad_(False)
    raise QfwError(f"{where}: {_short(given)} describes no {cls.__name__}")


def _made(cls: Any, values: dict[str, Any], where: str) -> Any:
    known = [f.name for f in fields(cls) if f.init]
    unknown = [name for name in values if name not in known]
    if unknown:
        raise QfwError(f"{where}: {cls.__name__} has no {_short(unknown[0])}")
    return cls(**{name: from_json(v, f"{where}.{name}") for name, v in values.items()})


def _array_to_json(array: Array, where: str) -> dict[str, Any]:
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise QfwError(f"{where}: an array of {array.dtype} cannot be written; numbers can")
    items = [to_json(v, where) for v in array.reshape(-1).tolist()]
    shape = list(array.shape)
    return {"type": "array", "dtype": array.dtype.name, "shape": shape, "items": items}


def _array_from_json(given: dict[str, Any], where: str) -> Array:
    dtype = np.dtype(given["dtype"])
    items = [from_json(v, where) for v in given["items"]]
    plain = all(isinstance(v, (bool, int, float)) for v in items)
    if dtype.kind not in "fiub" or not plain or prod(given["shape"]) != len(items):
        raise QfwError(f"{where}: {_short(given)} describes no array")
    return np.array(items, dtype).reshape(given["shape"])


def _name_of(value: object, where: str) -> str:
    """The class's name with its room: `nn.Linear`."""
    cls = type(value)
    home = cls.__module__.rpartition(".")[2]
    for room in (home, *_ROOMS):
        if getattr(_ROOMS.get(room), cls.__name__, None) is cls and _is_description(cls):
            return f"{room}.{cls.__name__}"
    raise QfwError(
        f"{where}: a file holds descriptions, no code: {cls.__qualname__} is no class of pyqfw "
        f"that can be written"
    )


def _class_of(name: str, where: str) -> Any:
    room, _, word = name.partition(".")
    cls = None if word.startswith("_") else getattr(_ROOMS.get(room), word, None)
    if cls is None or not _is_description(cls):
        raise QfwError(f"{where}: {_short(name)} is no class that this version of pyqfw can make")
    return cls


def is_description(model: nn.Module) -> bool:
    """Whether a model is made of modules of pyqfw alone, and its forward is not code."""
    return _is_description(type(model)) and all(map(is_description, _children(model)))


def _children(model: nn.Module) -> list[nn.Module]:
    return [child for _, child in model.named_children()]


def _is_description(cls: object) -> bool:
    """A frozen dataclass or an enum of pyqfw: data that check themselves."""
    if not isinstance(cls, type) or not cls.__module__.startswith(f"{__package__}."):
        return False
    params = getattr(cls, "__dataclass_params__", None)
    return issubclass(cls, Enum) or (params is not None and params.frozen)


def _short(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:77]}..."
