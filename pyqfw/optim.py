"""Optimizers and schedules: descriptions with PyTorch's names, definitions and defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np

from . import _arrays as arrays
from .errors import QfwError
from .formats import ROUNDINGS, Rounding
from .schedules import CosineAnnealingLR, ExponentialLR, LinearWarmup, Schedule, StepLR

__all__ = [
    "SGD",
    "AdamW",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LinearWarmup",
    "Optimizer",
    "Schedule",
    "StepLR",
]

_FLT_MIN = float(np.finfo(np.float32).tiny)
_FLT_MAX = float(np.finfo(np.float32).max)

Groups: TypeAlias = tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]
_Own = TypeVar("_Own", bound="Optimizer")


class Optimizer(ABC):
    """How gradients move parameters: a frozen description.

    `max_grad_norm` holds the 2-norm of all gradients together: the step takes them times a factor,
    and leaves them as they are. `groups` maps the name of a layer, of a module that layers are in,
    or of a parameter to options that are others there; the longest name that fits wins. A group's
    lr stays in its ratio to the optimizer's, whatever becomes of that.
    """

    lr: float
    rounding: Rounding
    max_grad_norm: float | None
    groups: Mapping[str, Mapping[str, Any]] | Groups | None
    OPTIONS: ClassVar[tuple[str, ...]]  # what a group may have otherwise

    @property
    @abstractmethod
    def states(self) -> tuple[str, ...]:
        """The names of what is kept for each parameter."""

    @property
    def has_state(self) -> bool:
        """Whether something is kept for each parameter."""
        return bool(self.states)

    def of(self: _Own, parameter: str) -> _Own:
        """The optimizer of one parameter, without groups."""
        name = max(filter(lambda n: covers(n, parameter), self.names), key=len, default=None)
        own = {} if name is None else dict(dict(self._groups)[name])
        return replace(self, groups=None, **own)  # type: ignore[type-var]

    def with_lr(self: _Own, lr: float) -> _Own:
        """Another rate and no groups, whose ratios are not to it."""
        return replace(self, lr=lr, groups=None)  # type: ignore[type-var]

    def ratio(self, parameter: str) -> float:
        """What lr is multiplied by for one parameter."""
        own = self.of(parameter).lr
        return 1.0 if own == self.lr else own / self.lr

    @property
    def names(self) -> list[str]:
        """Of the groups."""
        return [name for name, _ in self._groups]

    @property
    def _groups(self) -> Groups:
        return self.groups or ()  # type: ignore[return-value]

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _check(self, *numbers: str) -> None:
        """What all optimizers have, and these numbers."""
        for name in ("lr", *numbers):
            self._set(name, arrays.normal_float32(getattr(self, name), f"{self._name}: {name}"))
        what = f"{self._name}: rounding"
        self._set("rounding", ROUNDINGS[arrays.choice(self.rounding, what, ROUNDINGS)])
        if self.max_grad_norm is not None:
            norm = arrays.normal_float32(self.max_grad_norm, f"{self._name}: max_grad_norm")
            if norm == 0.0:
                raise QfwError(f"{self._name}: max_grad_norm must be None or positive, not 0")
            self._set("max_grad_norm", norm)

    def _freeze_groups(self) -> None:
        """Plain tuples, sorted: the same groups are equal however they were written."""
        if self.groups is None:
            return
        try:
            given = {name: dict(options) for name, options in dict(self.groups).items()}
        except (TypeError, ValueError):
            raise QfwError(
                f"{self._name}: groups must map names to options such as "
                f"{{'0': {{'lr': 0.01}}}}, not {self.groups!r}"
            ) from None
        found = [(name, self._group(name, given[name])) for name in sorted(given, key=str)]
        self._set("groups", tuple(found) or None)

    def _group(self, name: object, options: dict[Any, Any]) -> tuple[tuple[str, Any], ...]:
        what = f"{self._name}: groups[{name!r}]"
        if not isinstance(name, str) or not name:
            raise QfwError(f"{what}: a name must be a layer's or a parameter's")
        for option in options:
            if option not in self.OPTIONS:
                legal = ", ".join(self.OPTIONS)
                raise QfwError(f"{what}: no option {option!r}; there are {legal}")
        try:
            own = replace(self, groups=None, **options)  # type: ignore[type-var]
        except QfwError as error:
            raise QfwError(f"{what}: {error}") from None
        if own.lr != self.lr:
            if self.lr == 0.0 or own.lr == 0.0:
                raise QfwError(
                    f"{what}: lr is kept as a ratio to the optimizer's lr, so neither may be 0; "
                    f"freeze a layer that must not move"
                )
            if not _representable(own.lr / self.lr):
                raise QfwError(f"{what}: lr / {self.lr} must be a normal float32")
        return tuple((option, getattr(own, option)) for option in sorted(options))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def covers(name: str, parameter: str) -> bool:
    """Whether a name is the parameter's, its layer's or a module's that the layer is in."""
    return parameter == name or parameter.startswith(f"{name}.")


def check_names(optimizer: Optimizer, parameters: Iterable[str]) -> None:
    """Every group must have a parameter; the error names what exists."""
    known = list(parameters)
    for name in optimizer.names:
        if not any(covers(name, p) for p in known):
            layers = dict.fromkeys(p.rsplit(".", 1)[0] for p in known)
            legal = ", ".join(map(repr, [*layers, *known])) or "none"
            raise QfwError(
                f"optimizer: groups[{name!r}]: no layer or parameter of that name; there are "
                f"{legal}"
            )


@dataclass(frozen=True)
class Coefficients:
    """The update as a linear map, without the learning rate: float32, each 0 or normal.

        w' = w - lr (step_v v + step_g g + step_w w)
        v' = state_v v + state_g g + state_w w

    v, g and w are the old ones. The first update has the factors that end in 1, and v = 0.
    """

    step_v: np.float32
    step_g: np.float32
    step_w: np.float32
    state_v: np.float32
    state_g: np.float32
    state_w: np.float32
    step_g1: np.float32
    step_w1: np.float32
    state_g1: np.float32
    state_w1: np.float32


@dataclass(frozen=True)
class SGD(Optimizer):
    """g' = g + weight_decay w;  v' = momentum v + (1 - dampening) g';  w' = w - lr v'

    The first update has v' = g'. Without momentum: w' = w - lr g'; with `nesterov`:
    w' = w - lr (g' + momentum v'). `rounding` is how an integer parameter is written back.
    """

    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    _: KW_ONLY
    rounding: Rounding = "stochastic"
    max_grad_norm: float | None = None
    groups: Mapping[str, Mapping[str, Any]] | Groups | None = None
    OPTIONS: ClassVar[tuple[str, ...]] = (
        *("lr", "momentum", "dampening", "weight_decay", "nesterov"),
    )

    def __post_init__(self) -> None:
        self._check("momentum", "dampening", "weight_decay")
        if self.dampening > 1.0:
            raise QfwError(f"SGD: dampening must be 0..1, not {self.dampening}")
        if not isinstance(self.nesterov, (bool, np.bool_)):
            raise QfwError(f"SGD: nesterov must be True or False, not {self.nesterov!r}")
        self._set("nesterov", bool(self.nesterov))
        if self.nesterov and (self.momentum == 0.0 or self.dampening != 0.0):
            raise QfwError(
                "SGD: nesterov needs momentum > 0 and dampening = 0, not "
                f"momentum={self.momentum} and dampening={self.dampening}"
            )
        for f, value in zip(fields(Coefficients), self._factors(), strict=True):
            if not _representable(value):
                raise QfwError(
                    f"{self}: the factor {f.name} = {value} (docs/numerics.md section 17) must be "
                    "0 or a normal float32"
                )
        self._freeze_groups()

    @property
    def states(self) -> tuple[str, ...]:
        """A momentum, where there is one."""
        return ("momentum",) if self.momentum != 0.0 else ()

    def coefficients(self) -> Coefficients:
        """The factors of `docs/numerics.md` section 17, each rounded to float32 once."""
        return Coefficients(*map(np.float32, self._factors()))

    def _factors(self) -> tuple[float, ...]:
        """The same in float64, in the order of Coefficients."""
        kappa = 1.0 - self.dampening
        beta = self.momentum
        wd = self.weight_decay
        if not self.has_state:
            return (0.0, 1.0, wd, 0.0, 0.0, 0.0, 1.0, wd, 0.0, 0.0)
        if self.nesterov:
            v, g, g1 = beta * beta, 1.0 + beta * kappa, 1.0 + beta
        else:
            v, g, g1 = beta, kappa, 1.0
        return (v, g, g * wd, beta, kappa, kappa * wd, g1, g1 * wd, 1.0, wd)


@dataclass(frozen=True)
class AdamW(Optimizer):
    """m' = beta1 m + (1 - beta1) g;  v' = beta2 v + (1 - beta2) g^2
    w' = w - lr weight_decay w - lr m^ / (sqrt(v^) + eps)

    m^ = m' / (1 - beta1^t) and v^ = v' / (1 - beta2^t) in update number t = 1, 2, ... The moments
    have the policy's `state`; `rounding` is how an integer parameter is written back.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    _: KW_ONLY
    rounding: Rounding = "stochastic"
    max_grad_norm: float | None = None
    groups: Mapping[str, Mapping[str, Any]] | Groups | None = None
    OPTIONS: ClassVar[tuple[str, ...]] = ("lr", "betas", "eps", "weight_decay")

    def __post_init__(self) -> None:
        self._check("eps", "weight_decay")
        if self.eps == 0.0:
            raise QfwError("AdamW: eps must be positive: it is what a step is divided by at least")
        pair = self.betas if isinstance(self.betas, (tuple, list)) else ()
        if len(pair) != 2:
            raise QfwError(f"AdamW: betas must be a pair of numbers, not {self.betas!r}")
        self._set("betas", tuple(arrays.normal_float32(beta, "AdamW: betas") for beta in pair))
        if max(map(_fixed, self.betas)) >= 1 << 32:
            raise QfwError(f"AdamW: betas must be 0..1 - 2^-32, not {self.betas}")
        self._freeze_groups()

    @property
    def states(self) -> tuple[str, ...]:
        """The two moments."""
        return ("exp_avg", "exp_avg_sq")

    def fixed_betas(self) -> tuple[int, int]:
        """In units of 2^-32."""
        return _fixed(self.betas[0]), _fixed(self.betas[1])


def _fixed(beta: float) -> int:
    return round(min(beta, 2.0) * 2.0**32)


def _representable(value: float) -> bool:
    return value == 0.0 or _FLT_MIN <= value <= _FLT_MAX
