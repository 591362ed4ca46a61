"""A session as a file: docs/files.md."""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from . import quant
from ._arrays import Array
from ._files import replace_file
from .describe import from_json, is_description, to_json
from .errors import FileError, QfwError
from .formats import Float32, Format
from .graph import graph_of
from .lower import Tensor
from .plan import Plan, Request, build
from .quant import Stored
from .tensor import QTensor

if TYPE_CHECKING:
    from .session import Session

PathName: TypeAlias = str | PathLike[str]

VERSION = 1
PROGRESS = ("step", "updates", "lr", "micro")  # of qfw_progress
_MARK = rb'"pyqfw":"{\"sha256\":\"'  # stands in the header once; the digest follows it
_BLANK = b"0" * 64
_HOSTILE = (  # what a description that no `save` wrote can run into
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    SafetensorError,
)


@dataclass(frozen=True)
class Saved:
    """What a file holds."""

    plan: Plan
    progress: dict[str, Any]
    epochs: int
    tensors: dict[str, QTensor]
    source: dict[str, Array]  # the floats that parameters were made of, until an update


def of(net: Session) -> Saved:
    """What a session is made of, between two steps."""
    now = net._get()
    if now.micro:
        raise QfwError(
            "save: gradients of micro-batches wait for their update, and are not saved; call "
            "update() first"
        )
    progress = {name: getattr(now, name) for name in PROGRESS}
    tensors = {t.name: net._spaces.read(t, 1) for t in kept(net.plan)}
    return Saved(net.plan, progress, net.epochs, tensors, net._source)


def kept(plan: Plan) -> list[Tensor]:
    """What lasts and is no gradient, which every backward makes anew."""
    return [t for t in plan.program.tensors if t.lasts and t.role != "gradient"]


# --- writing --------------------------------------------------------------------------------------


def write(path: PathName, saved: Saved) -> None:
    """The file, whole, or the one that was there."""
    replace_file(path, _sealed(_content(saved), _arrays(saved)))


def _content(saved: Saved) -> dict[str, Any]:
    plan = saved.plan
    request = to_json(_as_compiled(plan), "request")
    if to_json(from_json(request, "request"), "request") != request:
        raise QfwError("save: the description of this net is not read back as it is")
    return {
        "version": VERSION,
        "request": request,
        "plan": zlib.crc32(plan.to_bytes()),
        "progress": saved.progress,
        "epochs": saved.epochs,
        "tensors": {
            t.name: [to_json(t.storage_format, t.name), list(t.storage_shape)] for t in kept(plan)
        },
        "source": sorted(saved.source),
    }


def _as_compiled(plan: Plan) -> Request:
    """The request; layers that were frozen or thawed since are as they were, and a forward that is
    code is the calls that it made."""
    request = plan.request
    if not is_description(request.model):
        request = replace(request, model=graph_of([node.call for node in plan.nodes]))
    moving = [n for n in plan.nodes if n.layer.keeps]
    if request.train is not None or all(n.frozen != n.layer.requires_grad for n in moving):
        return request
    return replace(request, train=tuple(n.path for n in moving if not n.frozen))


def _arrays(saved: Saved) -> dict[str, Array]:
    found: dict[str, Array] = {}
    if len(saved.tensors) != len(kept(saved.plan)):
        raise QfwError("save: two tensors of this net have one name")
    for name, t in saved.tensors.items():
        _check(name, t)
        fmt, shape, codes, scale, zero = t._stored
        dtype, sizes = _codes_of(fmt, shape)
        parts = {name: codes.view(dtype).reshape(sizes)}
        parts |= {} if scale is None else {f"{name}:scale": scale}
        parts |= {} if zero is None else {f"{name}:zero_point": zero}
        found |= parts
    for name, values in saved.source.items():
        if not isinstance(saved.tensors[name].format, Float32):  # those are their own source
            found[f"{name}:source"] = values
    return found


def _sealed(content: dict[str, Any], arrays: dict[str, Array]) -> bytes:
    """The bytes of the file: the digest is of all of them, with zeros in its own place."""
    text = json.dumps({"sha256": _BLANK.decode(), **content}, separators=(",", ":"))
    plain = {name: np.require(array, requirements="C") for name, array in arrays.items()}
    data = bytearray(safetensors.save(plain, {"pyqfw": text}))
    at = data.index(_MARK) + len(_MARK)
    data[at : at + len(_BLANK)] = _digest(data, at)
    return bytes(data)


def _digest(data: bytes | bytearray, at: int) -> bytes:
    found = sha256(data[:at])
    found.update(_BLANK)
    found.update(memoryview(data)[at + len(_BLANK) :])
    return found.hexdigest().encode()


# --- reading --------------------------------------------------------------------------------------


@contextmanager
def blamed(path: PathName) -> Iterator[None]:
    """What goes wrong in the block is the file's fault: a FileError that names it."""
    try:
        yield
    except _HOSTILE as e:
        known = isinstance(e, QfwError)
        raise FileError(f"{path}: {e}" if known else f"{path}: {type(e).__name__}: {e}") from e


def read(path: PathName) -> Saved:
    """What `write` wrote; anything else is an error of `blamed`."""
    content, arrays = _opened(Path(path).read_bytes())
    request = from_json(content["request"], "request")
    if not isinstance(request, Request):
        _refuse("the description is not that of a net")
    plan = build(request)
    _compare(plan, content["tensors"])
    _compare_arrays(_wanted(plan, content["source"]), arrays)
    if content["plan"] != zlib.crc32(plan.to_bytes()):
        warnings.warn(
            f"{path}: this version of pyqfw makes another plan of the same net: training goes on, "
            f"but not with the bits it would have had",
            stacklevel=3,
        )
    tensors = {t.name: _tensor(t, arrays) for t in kept(plan)}
    own = plan.program.parameters
    source = {name: _source(own[name], tensors[name], arrays) for name in content["source"]}
    epochs = content["epochs"]
    if type(epochs) is not int or epochs < 0:
        _refuse(f"epochs must be a number >= 0, not {epochs!r}")
    return Saved(plan, dict(content["progress"]), epochs, tensors, source)


def _opened(data: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """Description and arrays of a file whose every byte is as it was written."""
    at = data.find(_MARK) + len(_MARK)
    if at < len(_MARK):
        _refuse("this is no file that Session.save wrote, or its beginning is lost")
    if data[at : at + len(_BLANK)] != _digest(data, at):
        _refuse("the file is damaged: it is cut, or has bytes that were not written so")
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    content = json.loads(header["__metadata__"]["pyqfw"], parse_constant=_refuse)
    if content["version"] != VERSION:
        _refuse(f"version {content['version']}: this pyqfw reads version {VERSION}")
    return content, safetensors.load(data)


def _compare(plan: Plan, stored: dict[str, Any]) -> None:
    """The tensors that the description leads to must be those that were stored."""
    wanted = {t.name: t for t in kept(plan)}
    if stored.keys() != wanted.keys():
        name = sorted(stored.keys() ^ wanted.keys())[0]
        _refuse(f"'{name}' is {'not in the net' if name in stored else 'missing'}")
    for name, t in wanted.items():
        fmt, shape = stored[name]
        own = (t.storage_format, t.storage_shape)
        if (from_json(fmt, name), tuple(shape)) != own:
            _refuse(f"'{name}' has another format or shape than the net: {own[0]} {own[1]}")


def _wanted(plan: Plan, source: list[str]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Type and shape of every array that a file of this plan has."""
    found = {}
    for t in kept(plan):
        fmt, shape = t.storage_format, t.storage_shape
        assert fmt is not None
        found[t.name] = _codes_of(fmt, shape)
        if not isinstance(fmt, Float32):
            found[f"{t.name}:scale"] = ("float32", fmt.scale_shape(shape))
        if fmt.asymmetric:
            found[f"{t.name}:zero_point"] = ("uint16", fmt.scale_shape(shape))
    for name in source:
        t = plan.program.parameters[name]
        if not isinstance(t.fmt, Float32):
            found[f"{name}:source"] = ("float32", t.shape)
    return found


def _compare_arrays(
    wanted: dict[str, tuple[str, tuple[int, ...]]], arrays: dict[str, Array]
) -> None:
    if wanted.keys() != arrays.keys():
        name = sorted(wanted.keys() ^ arrays.keys())[0]
        _refuse(f"the array '{name}' is {'missing' if name in wanted else 'not in the net'}")
    for name, (dtype, shape) in wanted.items():
        found = arrays[name]
        if (found.dtype.name, found.shape) != (dtype, shape):
            _refuse(f"the array '{name}' must be {dtype} {shape}, not {found.dtype} {found.shape}")


def _tensor(t: Tensor, arrays: dict[str, Array]) -> QTensor:
    fmt = t.storage_format
    assert fmt is not None
    codes = arrays[t.name].reshape(-1).view(np.uint8)
    points = (arrays.get(f"{t.name}:{part}") for part in ("scale", "zero_point"))
    made = QTensor(Stored(fmt, t.storage_shape, codes, *points))
    _check(t.name, made)
    return made


def _source(t: Tensor, stored: QTensor, arrays: dict[str, Array]) -> Array:
    if isinstance(stored.format, Float32):
        return t.from_storage(stored.codes).copy()
    values = arrays[f"{t.name}:source"].copy()
    quant.check_finite(values, f"'{t.name}:source'")
    return values


# --- both -----------------------------------------------------------------------------------------


def _codes_of(fmt: Format, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """Type and shape of the array that holds a tensor's codes; packed ones are bytes."""
    if fmt.container == "packed" and fmt.bits not in (8, 16):
        return "uint8", (fmt.codes_nbytes(shape),)
    return fmt.code_dtype, shape


def _check(name: str, t: QTensor) -> None:
    """Finite floats; codes, scales and zero points that the format has."""
    if isinstance(t.format, Float32):
        quant.check_finite(t.codes, f"'{name}'")
        return
    try:
        QTensor.from_codes(t.codes, t.format, t.scale, t.zero_point)
    except QfwError as e:
        raise type(e)(f"'{name}': {e}") from e


def _refuse(why: str) -> NoReturn:
    raise FileError(why)
