"""The numbers on numpy arrays: the affine quantize family, packing, and conversion between formats.

    code = clamp(round(x * (1 / scale)) + zero_point, qmin, qmax)

per tensor, per channel (``axis=k``), per row (``axis="row"``) and per group (``group=n`` along the
last axis), forward and backward, for float32, float64, float16 and bfloat16. `docs/numerics.md`
section 10 defines every bit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, NamedTuple, ParamSpec

import numpy as np
import numpy.typing as npt

from . import _affine as affine
from . import _arrays as arrays
from ._affine import Call, Description, Rules
from ._arrays import Array
from ._core import ffi, lib
from .errors import NonFiniteError, QfwError, ScaleError, ShapeError
from .formats import ROUNDINGS, Axis, Float32, Format, Layout, layout_of

__all__ = [
    "Description",
    "core_info",
    "dequantize_affine",
    "dequantize_affine_backward",
    "describe",
    "draws",
    "fake_quantize_affine",
    "fake_quantize_affine_backward",
    "isa",
    "pack",
    "qparams",
    "quantize_affine",
    "quantize_affine_backward",
    "uniforms",
    "unpack",
]

P = ParamSpec("P")
_STREAM_BYTES = 2**24  # more than a core's caches hold
_REHEARSED_BYTES = range(2**20, 2**25)  # malloc keeps no larger ones: their pages are cleared
_IN_RANGE = ("inclusive", "strict")
_ISAS = ("portable", "avx2", "avx512")
_ERRORS = {
    lib.QFW_E_SIZE: ShapeError,
    lib.QFW_E_GROUP: ShapeError,
    lib.QFW_E_SCALE: ScaleError,
    lib.QFW_E_ZERO_POINT: ScaleError,
    lib.QFW_E_NONFINITE: NonFiniteError,
}


_tables = {name: lib.qfw_host_kernels(i) for i, name in enumerate(_ISAS)}
_available = [name for name, table in _tables.items() if table != ffi.NULL]
_isa: ContextVar[str] = ContextVar("isa", default=_available[-1])


def kernels() -> Any:
    """The table of the ISA in use."""
    return _tables[_isa.get()]


@contextmanager
def isa(name: str) -> Iterator[None]:
    """Use the kernels of this ISA in the block: the same bits, another speed."""
    if name not in _available:
        raise QfwError(f"isa must be one of {', '.join(map(repr, _available))} here, not {name!r}")
    token = _isa.set(name)
    try:
        yield
    finally:
        _isa.reset(token)


class Blocks:
    """Counts how often each block of an emulated program's code runs: `hook` and `user` are the
    addresses of a function and its argument for the emulator."""

    def __init__(self, origin: int, size: int) -> None:
        slots = size // 2
        self.entered = np.zeros(slots, np.uint64)
        self.bytes = np.zeros(slots, np.uint32)
        self._blocks = ffi.new("qfw_host_blocks *", {"origin": origin, "slots": slots})
        self._blocks.entered = ffi.from_buffer("uint64_t[]", self.entered)
        self._blocks.bytes = ffi.from_buffer("uint32_t[]", self.bytes)
        self.hook = int(ffi.cast("uintptr_t", ffi.addressof(lib, "qfw_host_count_block")))
        self.user = int(ffi.cast("uintptr_t", self._blocks))

    @property
    def strays(self) -> int:
        """Blocks that were not counted."""
        return int(self._blocks.strays)


def core_info() -> dict[str, Any]:
    """The core's version and compiler, the ISA in use and those that this CPU can run."""
    return {
        "version": ffi.string(lib.qfw_version()).decode(),
        "compiler": ffi.string(lib.qfw_host_compiler()).decode(),
        "isa": _isa.get(),
        "isas": list(_available),
    }


def _check(status: int, what: str) -> None:
    """A C status as an exception; a caller that knows more about it has raised before."""
    if status != lib.QFW_OK:
        text = ffi.string(lib.qfw_status_text(status)).decode()
        raise _ERRORS.get(status, QfwError)(f"{what}: {text}")


class float_mode:  # noqa: N801  # used like a function
    """In the block, this thread rounds to nearest and keeps subnormals, whatever the caller set."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = lib.qfw_host_float_enter()

    def __exit__(self, *_: object) -> None:
        lib.qfw_host_float_leave(self._before)


def _run(
    what: str,
    data: Mapping[str, Array | None],
    function: Callable[..., int],
    *args: Any,
    scales: Array | None = None,
) -> None:
    """Calls C; a number that it refuses is traced to its array."""
    status = function(*args)
    if status == lib.QFW_E_NONFINITE:
        _check_all_finite(what, data)
    if status == lib.QFW_E_SCALE and scales is not None:
        arrays.check_scales(scales)
    _check(status, what)


def check_finite(x: Array, what: str, named: Array | None = None) -> None:
    """Names the first number of x that is not finite, as it stands in `named` if that is given."""
    if lib.qfw_check_finite(kernels(), _read(x), x.size, arrays.REALS.index(x.dtype.name)):
        at = np.unravel_index(int(np.argmin(np.isfinite(x))), x.shape)
        place = f"[{', '.join(map(str, at))}]" if x.ndim else ""
        value = (x if named is None else named)[at]
        raise NonFiniteError(f"{what}{place} is {value}: data must be finite in {x.dtype}")


def _check_all_finite(what: str, data: Mapping[str, Array | None]) -> None:
    for name, array in data.items():
        if array is not None and array.dtype.name in arrays.REALS:
            check_finite(array, f"{what}: {name}")


def _read(x: Array | None) -> Any:
    """A pointer to read from, for any element type; x must outlive its use."""
    return ffi.NULL if x is None else ffi.from_buffer(x.reshape(-1).view(np.uint8))


def _write(x: Array | None) -> Any:
    if x is None:
        return ffi.NULL
    return ffi.from_buffer(x.reshape(-1).view(np.uint8), require_writable=True)


def _fill_layout(c: Any, layout: Layout, exact: bool) -> None:
    c.outer, c.axis, c.inner = layout.outer, layout.axis, layout.inner
    c.group = min(layout.group, 2**62)  # beyond any axis, and within int64
    c.shared, c.exact = layout.shared, bool(exact)


def _fill_key(key: Any, seed: int, step: int, stream: int) -> None:
    words = (arrays.word(seed, "seed"), arrays.word(step, "step"), arrays.word(stream, "stream"))
    lib.qfw_make_key(*words, key)


# --- the affine family ---------------------------------------------------------------------------

_OPS = {
    "quantize_affine": lib.QFW_QUANTIZE,
    "dequantize_affine": lib.QFW_DEQUANTIZE,
    "fake_quantize_affine": lib.QFW_FAKE_QUANTIZE,
    "quantize_affine_backward": lib.QFW_QUANTIZE_BACKWARD,
    "dequantize_affine_backward": lib.QFW_DEQUANTIZE_BACKWARD,
    "fake_quantize_affine_backward": lib.QFW_FAKE_QUANTIZE_BACKWARD,
}


def _layout(op: str, shape: tuple[int, ...], rules: Rules) -> tuple[Layout, tuple[int, ...]]:
    """The affine family's layout and the shape of its scales; groups along the last axis."""
    axis = None if rules.group is not None and rules.axis in (-1, len(shape) - 1) else rules.axis
    layout, scale_shape = layout_of(shape, axis, rules.group, last_axis_groups=True, name=op)
    if rules.exact and layout.axis % layout.group:
        raise ShapeError(f"{op}: group={rules.group} does not divide {layout.axis}")
    return layout, scale_shape


def _descriptor(call: Call) -> tuple[Any, tuple[int, ...]]:
    """The C descriptor, checked by C, and the shape of its scales."""
    rules = call.rules
    layout, scale_shape = _layout(call.op, call.shape, rules)
    c = ffi.new("qfw_affine *")
    _fill_layout(c.layout, layout, rules.exact)
    c.op = _OPS[call.op]
    c.real = arrays.REALS.index(call.real.name)
    c.code = arrays.CODES.index(call.code)
    c.rounding = arrays.choice(rules.rounding, "rounding", ROUNDINGS)
    c.in_range = arrays.choice(rules.in_range, "in_range", _IN_RANGE)
    c.qmin, c.qmax = call.qmin, call.qmax
    _fill_key(ffi.addressof(c, "key"), rules.seed, rules.step, rules.stream)
    status = lib.qfw_affine_check(c)
    codes = f"{call.qmin}..{call.qmax}"
    if status == lib.QFW_E_RANGE and call.qmax < call.qmin:
        raise QfwError(f"{call.op}: qmax must be at least qmin, not {codes}")
    if status == lib.QFW_E_RANGE:
        raise QfwError(f"{call.op}: the codes {codes} do not fit {call.code}")
    _check(status, call.op)
    return c, scale_shape


def _perform(call: Call, describe: bool = False) -> Any:
    """Runs a call: the result, or (result, mask). Or only says what would run."""
    with float_mode():
        c, scale_shape = _descriptor(call)
        if call.scale is None and call.needs_scale:
            raise QfwError(f"{call.op} needs scale")
        precision = arrays.compute_dtype(call.real)
        s = None if call.scale is None else arrays.scales(call.scale, scale_shape, precision)
        z = arrays.zero_points(call.zero_point, scale_shape)
        inputs = {**call.data, "mask": call.mask, "scale": s, "zero_point": z}
        y = arrays.output(call.out, call.shape, call.result, inputs)
        bits = np.empty((y.size + 7) // 8, np.uint8) if call.return_mask else None
        d = ffi.new("qfw_affine_data *")
        keep = [_read(call.x), _read(call.dy), _read(call.mask), _read(s), _read(z)]
        d.x, d.dy, d.mask_in, d.scale = keep[:4]
        d.zero_point = ffi.cast("int32_t *", keep[4])
        rehearsed = _is_rehearsed(call, y)
        made = np.empty_like(y) if rehearsed else y
        d.out, d.mask_out = out = _write(made), _write(bits)
        d.stream = call.out is not None and not rehearsed and y.nbytes >= _STREAM_BYTES
        if describe:
            return _description(call, c, d, s, made.nbytes if rehearsed else 0)
        if call.out is not None and not rehearsed:
            _check_all_finite(call.op, call.data)
        _run(call.op, call.data, lib.qfw_affine_run, kernels(), c, d, scales=s)
    if rehearsed:
        np.copyto(y, made)
    del keep, out  # they held the buffers
    return y if bits is None else (y, bits)


def _is_rehearsed(call: Call, y: Array) -> bool:
    """Whether codes are made in memory of their own and copied when x is known to be finite.

    A caller's array is not touched by a call that fails. Beyond the caches that takes less than
    reading x twice, where x is much larger than its codes.
    """
    much_larger = call.op == "quantize_affine" and call.real.itemsize >= 4 * y.itemsize
    return call.out is not None and much_larger and y.nbytes in _REHEARSED_BYTES


def _description(call: Call, c: Any, d: Any, scales: Array | None, room: int) -> Description:
    if scales is not None:
        arrays.check_scales(scales)
    kernel = ffi.string(lib.qfw_affine_kernel(kernels(), c, d)).decode()
    workspace = ffi.new("size_t *")
    _check(lib.qfw_affine_workspace(c, workspace), call.op)
    ran = "portable" if kernel.endswith("_scalar") else _isa.get()
    precision = arrays.compute_dtype(call.real).name
    return Description(call.op, kernel, ran, precision, int(workspace[0]) + room)


def _performed(make: Callable[P, Call]) -> Callable[P, Array]:
    """The function that performs the calls which `make` makes."""

    @wraps(make, assigned=("__doc__", "__name__", "__qualname__"))
    def function(*args: P.args, **keywords: P.kwargs) -> Any:
        return _perform(make(*args, **keywords))

    signature = inspect.signature(make)
    masked = "return_mask" in signature.parameters
    result = "Array | tuple[Array, Array]" if masked else "Array"
    function.__signature__ = signature.replace(return_annotation=result)  # type: ignore[attr-defined]
    function.__annotations__ = {**make.__annotations__, "return": result}
    return function


# With return_mask=True these two return (result, mask), which only their caller knows.
quantize_affine: Callable[..., Any] = _performed(affine.quantize_affine)
fake_quantize_affine: Callable[..., Any] = _performed(affine.fake_quantize_affine)
dequantize_affine = _performed(affine.dequantize_affine)
quantize_affine_backward = _performed(affine.quantize_affine_backward)
fake_quantize_affine_backward = _performed(affine.fake_quantize_affine_backward)
dequantize_affine_backward = _performed(affine.dequantize_affine_backward)


def describe(op: str | Callable[..., Any] | Array, *args: Any, **keywords: Any) -> Description:
    """What a call of `op` (a function of this family or its name) with these arguments would run.

    Arguments are checked as the call checks them. Left out, op is quantize_affine, scale 1, the
    codes are -128..127 and a backward's x is its dy.
    """
    if isinstance(op, np.ndarray):
        op, args = "quantize_affine", (op, *args)
    name = op if isinstance(op, str) else getattr(op, "__name__", repr(op))
    if name not in _OPS:
        raise QfwError(f"op must be one of {', '.join(_OPS)}, not {name!r}")
    make = getattr(affine, name)
    signature = inspect.signature(make)
    given = signature.bind_partial(*args, **keywords).arguments
    usual = {"scale": 1.0, "zero_point": None, "qmin": -128, "qmax": 127}
    if "mask" not in given and "dy" in given:
        usual["x"] = given["dy"]
    call = {k: v for k, v in usual.items() if k in signature.parameters} | given
    found: Description = _perform(make(**call), describe=True)
    return found


def qparams(
    x: npt.ArrayLike,
    bits: int,
    *,
    axis: Axis = None,
    group: int | None = None,
    symmetric: bool = True,
    exact: bool = False,
) -> tuple[Array, Array]:
    """(scale, zero_point) that just hold x: for codes -Q..Q, or 0..2^bits - 1 if not symmetric."""
    given = arrays.reals(x, "x")
    width = arrays.integer(bits, "bits", 2 if symmetric else 1, 16)
    layout, shape = _layout("qparams", given.shape, Rules(axis, group, exact))
    scale, zero = np.empty(shape, arrays.compute_dtype(given.dtype)), np.empty(shape, np.int32)
    c = ffi.new("qfw_layout *")
    _fill_layout(c, layout, exact)
    real = arrays.REALS.index(given.dtype.name)
    zp = _write(zero)
    pointers = (_read(given), _write(scale), ffi.cast("int32_t *", zp))
    args = (kernels(), c, real, width, bool(symmetric))
    with float_mode():
        _run("qparams", {"x": given}, lib.qfw_affine_params, *args, *pointers)
    return scale, zero


# --- packing, draws, conversion ------------------------------------------------------------------


def pack(codes: npt.ArrayLike, bits: int, *, out: Array | None = None) -> Array:
    """Integers to a bit string of exactly `bits` bits each, LSB first: ceil(n * bits / 8) bytes."""
    width = arrays.integer(bits, "bits", 1, 16)
    data = arrays.codes_of_bits(codes, width)
    shape = ((data.size * width + 7) // 8,)
    packed = arrays.output(out, shape, np.dtype(np.uint8), {"codes": data})
    source, target = _read(data), _write(packed)
    _check(lib.qfw_pack(source, width > 8, data.size, width, target), "pack")
    return packed


def unpack(
    data: npt.ArrayLike, bits: int, n: int, *, signed: bool = True, out: Array | None = None
) -> Array:
    """The n codes of a bit string: int8 or int16 (uint8, uint16 if not signed)."""
    width = arrays.integer(bits, "bits", 1, 16)
    count = arrays.integer(n, "n", 0, 2**60)
    given = arrays.contiguous(np.asarray(data))
    shape = ((count * width + 7) // 8,)
    if given.dtype != np.uint8 or given.shape != shape:
        raise ShapeError(f"data must be uint8 {shape}, not {given.dtype} {given.shape}")
    name = f"{'int' if signed else 'uint'}{8 if width <= 8 else 16}"
    codes = arrays.output(out, (count,), np.dtype(name), {"data": given})
    source, target = _read(given), _write(codes)
    _check(lib.qfw_unpack(source, count, width, signed, width > 8, target), "unpack")
    return codes


def _words(function: Callable[..., None], first: int, n: int, key: tuple[int, int, int]) -> Array:
    k = ffi.new("qfw_key *")
    _fill_key(k, *key)
    out = np.empty(arrays.integer(n, "n", 0, 2**60), np.uint32)
    target = _write(out)
    function(k, first, out.size, ffi.cast("uint32_t *", target))
    return out


def draws(n: int, *, seed: int = 0, step: int = 0, stream: int = 0, first: int = 0) -> Array:
    """n independent 32-bit words: draw(first), draw(first + 1), ..."""
    return _words(lib.qfw_draws, arrays.word(first, "first"), n, (seed, step, stream))


def uniforms(n: int, *, seed: int = 0, step: int = 0, stream: int = 0, first: int = 0) -> Array:
    """The 32-bit words that stochastic rounding adds to the elements first, first + 1, ..."""
    start = arrays.integer(first, "first", 0, 2**60)
    return _words(lib.qfw_uniforms, start, n, (seed, step, stream))


class Stored(NamedTuple):
    """A tensor as it is stored: bytes of codes, float32 scales, uint16 zero points."""

    format: Format
    shape: tuple[int, ...]
    codes: Array
    scale: Array | None
    zero_point: Array | None


def _tensor(t: Stored, writable: bool) -> tuple[Any, list[Any]]:
    c = ffi.new("qfw_tensor *")
    kind = lib.QFW_ASYM if t.format.asymmetric else lib.QFW_SYM
    c.format.kind = lib.QFW_FLOAT32 if isinstance(t.format, Float32) else kind
    c.format.bits, c.format.pow2 = t.format.bits, t.format.pow2
    c.format.container = 0 if t.format.container == "packed" else t.format.container
    if c.format.container == 0 and t.format.bits in (8, 16):
        c.format.container = t.format.bits
    _fill_layout(c.layout, t.format.layout(t.shape), False)
    keep = [(_write if writable else _read)(a) for a in (t.codes, t.scale, t.zero_point)]
    c.codes = keep[0]
    c.scale, c.zero_point = ffi.cast("float *", keep[1]), ffi.cast("uint16_t *", keep[2])
    return c, keep


def convert(
    src: Stored, dst: Stored, *, dynamic: bool, rounding: str, key: tuple[int, int, int]
) -> int:
    """Encodes src into dst's arrays, in a block of float_mode; returns how many codes saturated."""
    c_src, keep_src = _tensor(src, writable=False)
    c_dst, keep_dst = _tensor(dst, writable=True)
    how = ffi.new("qfw_encoding *")
    how.rounding = arrays.choice(rounding, "rounding", ROUNDINGS)
    how.dynamic = dynamic
    _fill_key(ffi.addressof(how, "key"), *key)
    saturated = ffi.new("uint64_t *")
    data = {}
    if isinstance(src.format, Float32):
        data["x"] = src.codes.view(np.float32).reshape(src.shape)
    args = (kernels(), c_src, c_dst, how, saturated)
    _run(f"{src.format} to {dst.format}", data, lib.qfw_convert, *args)
    del keep_src, keep_dst  # they held the buffers
    return int(saturated[0])


def peak(bits: int, rounds: int) -> int:
    """Runs the CPU's fastest loop of multiply-accumulates of so many bits, by the instructions in
    use; returns how many it made, 0 where there is no such loop."""
    return int(lib.qfw_host_peak(_ISAS.index(_isa.get()), bits, rounds))


def product(a: Array, b: Array, out: Array) -> None:
    """out = a b^T for int8 and int16 into int32, or for float32: what layers are made of.

    a is m x k, b is n x k, out m x n, all in C order.
    """
    (m, k), (n, _) = a.shape, b.shape
    gemm = ffi.new("qfw_gemm *")
    gemm.a, gemm.b = _read(a), _read(b)
    gemm.a_width, gemm.b_width = 8 * a.itemsize, 8 * b.itemsize
    gemm.m, gemm.n, gemm.k = m, n, k
    gemm.a_row, gemm.a_col, gemm.b_row, gemm.b_col = k, 1, 1, k
    floats = a.dtype == np.float32
    pointer = ffi.cast("float *" if floats else "int32_t *", _write(out))
    _check((lib.qfw_gemm_f32 if floats else lib.qfw_gemm_s32)(kernels(), gemm, pointer), "product")
