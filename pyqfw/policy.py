"""Policy: the format of everything that is stored and the arithmetic of everything computed.

`input`, `wires` and `errors` move between layers; `weights`, `bias`, `grads` and `state` (the
optimizer's) stay. `forward`, `weight_grad`, `bias_grad` and `prop` (the error towards the input)
name the arithmetic of a product. The two are independent. `sums` says how a product finds a dynamic
range: its sums are stored until their largest is known, or computed twice, with the same bits.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, TypeAlias

from . import _arrays as arrays
from .errors import QfwError
from .formats import Asym, Float32, Format, Sym, SymInt32

Arithmetic: TypeAlias = Literal["float32", "sym"]
Sums: TypeAlias = Literal["stored", "recomputed"]
Setting: TypeAlias = Format | str

ARITHMETICS = ("float32", "sym")
SUMS = ("stored", "recomputed")
MOVING = ("input", "wires", "errors")
DURABLE = ("weights", "bias", "grads", "state")

_FLOAT32 = Float32()
_FORMATS = "Float32(), Sym(bits) or Asym(bits)"
_PRESETS = ("float32", "full_sym", "int8")
_FEW = 5  # fields that may differ from a preset for a policy to be printed as its variant


@dataclass(frozen=True, kw_only=True, repr=False)
class Policy:
    """What is stored how, and what is computed how. Frozen; all float32 unless told otherwise."""

    input: Format = _FLOAT32
    wires: Format = _FLOAT32
    weights: Format = _FLOAT32
    bias: Format = _FLOAT32
    errors: Format = _FLOAT32
    grads: Format | Literal["fused"] = _FLOAT32
    state: Format = _FLOAT32
    forward: Arithmetic = "float32"
    weight_grad: Arithmetic = "float32"
    bias_grad: Arithmetic = "float32"
    prop: Arithmetic = "float32"
    sums: Sums = "stored"

    def __post_init__(self) -> None:
        for name in FIELDS:
            object.__setattr__(self, name, setting("Policy", name, getattr(self, name)))

    @classmethod
    def float32(cls) -> Policy:
        """Everything in float32: the twin that others are compared with."""
        return cls()

    @classmethod
    def full_sym(cls) -> Policy:
        """12-bit wires and errors, 8-bit weights, integer products; gradients in float32."""
        return cls(
            input=Sym(12, container=16),
            wires=Sym(12, container=16),
            weights=Sym(8, axis=0, rounding="stochastic"),
            errors=Sym(12, container=16, rounding="stochastic"),
            forward="sym",
            weight_grad="sym",
            bias_grad="sym",
            prop="sym",
        )

    @classmethod
    def int8(cls) -> Policy:
        """8 bits for everything but the bias, which has 16; integer products and updates."""
        kept = Sym(8, axis=0, rounding="stochastic")
        return cls(
            input=Sym(8),
            wires=Sym(8),
            weights=kept,
            bias=Sym(16, rounding="stochastic"),
            errors=Sym(8, rounding="stochastic"),
            grads=kept,
            state=kept,
            forward="sym",
            weight_grad="sym",
            bias_grad="sym",
            prop="sym",
        )

    def replace(self, **changes: Any) -> Policy:
        """The same policy with some fields changed."""
        _check_names("Policy", changes)
        return replace(self, **changes)

    def override(self, changes: Mapping[str, Any] | Policy | None) -> Policy:
        """The policy of a layer that has these changes, or a policy of its own, or neither."""
        if changes is None:
            return self
        if isinstance(changes, Policy):
            return changes
        if not isinstance(changes, Mapping):
            raise _no_override("Policy.override", changes)
        _check_names("Policy", changes)
        return replace(self, **changes)

    def __repr__(self) -> str:
        variants = ((name, self._differences(getattr(Policy, name)())) for name in _PRESETS)
        preset, changes = min(variants, key=lambda variant: len(variant[1]))
        if not changes:
            return f"Policy.{preset}()"
        if len(changes) <= _FEW:
            return f"Policy.{preset}().replace({self._settings(changes)})"
        return f"Policy({self._settings(FIELDS)})"

    def _differences(self, other: Policy) -> list[str]:
        return [name for name in FIELDS if getattr(self, name) != getattr(other, name)]

    def _settings(self, names: Iterable[str]) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


FIELDS = tuple(f.name for f in fields(Policy))


class Override(Mapping[str, Setting]):
    """Some fields of a policy, checked and read-only: what one layer wants otherwise."""

    __slots__ = ("_settings",)

    def __init__(self, settings: Mapping[str, Setting]) -> None:
        self._settings = dict(settings)

    def __getitem__(self, name: str) -> Setting:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        return repr(self._settings)


def layer_policy(layer: str, value: object) -> Override | Policy | None:
    """The `policy` argument of a kind of layer, checked. Its `input` is not a layer's to say."""
    if value is None or isinstance(value, Policy):
        return value
    if not isinstance(value, Mapping):
        raise _no_override(f"{layer}: policy", value)
    if "input" in value:
        raise QfwError(
            f"{layer}: policy has 'input', which is the network's: say it in the policy of "
            "compile; what enters a layer has the 'wires' of the layer before it, or is an nn.Quant"
        )
    _check_names(f"{layer}: policy", value, tuple(name for name in FIELDS if name != "input"))
    return Override({name: setting(f"{layer}: policy", name, v) for name, v in value.items()})


def setting(owner: str, name: str, value: object) -> Setting:
    """The value of a field if it is legal there."""
    if name == "sums":
        return SUMS[arrays.choice(value, f"{owner}: {name}", SUMS)]
    if name not in MOVING and name not in DURABLE:
        return ARITHMETICS[arrays.choice(value, f"{owner}: {name}", ARITHMETICS)]
    if name == "grads" and isinstance(value, str) and value == "fused":
        return "fused"
    fmt = _storage(owner, name, value)
    if name in MOVING:
        _check_moving(owner, name, fmt)
    else:
        _check_durable(owner, name, fmt)
    return fmt


def wire_format(owner: str, name: str, value: object) -> Format:
    """A format for what moves between layers."""
    fmt = _storage(owner, name, value)
    _check_moving(owner, name, fmt)
    return fmt


def _storage(owner: str, name: str, value: object) -> Format:
    """Float32, Sym or Asym."""
    if isinstance(value, SymInt32):
        why = (
            "never storage: it costs what Float32 costs and keeps less"
            if name in DURABLE
            else "and an accumulator travels by output=RAW and nn.Quant, not as a wire"
        )
        raise QfwError(
            f"{owner}: {name}={value!r}: SymInt32 is a compute format, {why}; choose {_FORMATS}"
        )
    if not isinstance(value, (Float32, Sym, Asym)):
        legal = "Float32(), Sym(bits), Asym(bits) or 'fused'" if name == "grads" else _FORMATS
        raise QfwError(f"{owner}: {name} must be {legal}, not {value!r}")
    return value


def _check_moving(owner: str, name: str, fmt: Format) -> None:
    """A tensor with a batch axis: its integer axes are no property of a layer."""
    if isinstance(fmt.axis, int):
        raise QfwError(
            f"{owner}: {name}={fmt!r}: axis={fmt.axis} counts the axes of a whole batch; choose "
            "axis=None, axis='row' or group=n"
        )


def _check_durable(owner: str, name: str, fmt: Format) -> None:
    """The scale of a parameter or state follows its codes; a gradient's may also be fixed."""
    if fmt.range == "dynamic" or (name == "grads" and not isinstance(fmt.range, str)):
        return
    legal = "range='dynamic' or a number" if name == "grads" else "range='dynamic'"
    raise QfwError(
        f"{owner}: {name}={fmt!r}: range={fmt.range!r} is not for what is kept between steps; "
        f"choose {legal}"
    )


def _check_names(owner: str, names: Iterable[object], legal: tuple[str, ...] = FIELDS) -> None:
    for name in names:
        if name not in legal:
            close = difflib.get_close_matches(str(name), legal, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise QfwError(f"{owner} has no field {name!r}{hint}; legal are {', '.join(legal)}")


def _no_override(owner: str, value: object) -> QfwError:
    return QfwError(
        f"{owner} must be a Policy, or a mapping of its fields such as {{'weights': Sym(4)}}, "
        f"not {value!r}"
    )
