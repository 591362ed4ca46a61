"""validate: what would go wrong, and what is unwise, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

from . import nn, optim
from .errors import QfwError, ShapeError
from .findings import SEVERITIES, Case, Finding, examine
from .modules import whole
from .plan import Plan, compile

Arguments: TypeAlias = dict[str, Any]


class Asked(NamedTuple):
    """What `compile` is given."""

    model: nn.Module
    arguments: Arguments

    def but(self, **changes: Any) -> Asked:
        return Asked(self.model, {**self.arguments, **changes})

    def given(self, name: str) -> bool:
        return self.arguments.get(name) is not None

    def layer(self, path: str) -> nn.Module | None:
        return dict(nn.named_layers(self.model)).get(path)

    def tried(self) -> Plan | QfwError:
        """The plan, or what `compile` says against it."""
        try:
            return compile(self.model, **self.arguments)
        except QfwError as error:
            return error


def validate(model: nn.Module, **arguments: Any) -> list[Finding]:
    """What is wrong (errors) or unwise (warnings, notes) about what `compile` would be given.

    Takes `compile`'s arguments and raises nothing of what `compile` raises: that comes back as
    errors, in its words. docs/validator.md has the codes.
    """
    errors, plan = _errors(Asked(model, arguments))
    found = [] if plan is None else examine(Case(plan.request, plan.nodes, plan.program))
    return sorted([*errors, *found], key=lambda f: SEVERITIES.index(f.severity))


# --- errors ---------------------------------------------------------------------------------------
#
# `compile` stops at the first error. To see the next one, each is repaired: the repair after which
# `compile` no longer says what it said is what was wrong. So nothing is checked in two places.

Repair: TypeAlias = Callable[[Asked, QfwError, str], Asked | None]


def _no_loss(asked: Asked, error: QfwError, path: str) -> Asked | None:
    return asked.but(loss=None, optimizer=None)


def _no_optimizer(asked: Asked, error: QfwError, path: str) -> Asked | None:
    alone = asked.given("optimizer") and not asked.given("loss")
    return asked.but(optimizer=None) if alone else None


def _shape(asked: Asked, error: QfwError, path: str) -> Asked | None:
    """A loss that does not fit can be left out; a layer cannot."""
    return _no_loss(asked, error, path) if isinstance(error, ShapeError) else None


def _raw(asked: Asked, error: QfwError, path: str) -> Asked | None:
    raw = getattr(asked.layer(path), "output", None) is nn.RAW
    return Asked(_changed(asked.model, path, output=None), asked.arguments) if raw else None


def _nothing_learns(asked: Asked, error: QfwError, path: str) -> Asked | None:
    layers = [layer for _, layer in nn.named_layers(asked.model)]
    learns = any(layer.requires_grad and layer.parameters() for layer in layers)
    return None if learns else _no_loss(asked, error, path)


def _fused(asked: Asked, error: QfwError, path: str) -> Asked | None:
    missing = asked.given("loss") and not asked.given("optimizer")
    return asked.but(optimizer=optim.SGD(momentum=0.9)) if missing else None


def _bias(asked: Asked, error: QfwError, path: str) -> Asked | None:
    biased = getattr(asked.layer(path), "bias", None) is True
    return Asked(_changed(asked.model, path, bias=False), asked.arguments) if biased else None


def _one_row(asked: Asked, error: QfwError, path: str) -> Asked | None:
    one = asked.but(batch=1) if asked.arguments.get("batch", 1) > 1 else None
    return None if one is None or isinstance(one.tried(), QfwError) else one


def _more_rows(asked: Asked, error: QfwError, path: str) -> Asked | None:
    """Two rows in each micro-batch."""
    parts, batch = asked.arguments.get("micro_batches", 1), asked.arguments.get("batch", 1)
    return asked.but(batch=2 * parts) if batch < 2 * parts else None


def _tracked(asked: Asked, error: QfwError, path: str) -> Asked | None:
    untracked = getattr(asked.layer(path), "track_running_stats", None) is False
    changed = {"track_running_stats": True}
    return Asked(_changed(asked.model, path, **changed), asked.arguments) if untracked else None


class Cause(NamedTuple):
    repair: Repair | None
    remedy: str


CAUSES: dict[str, Cause] = {
    "bad-argument": Cause(_no_optimizer, "what the message names as legal"),
    "shape": Cause(_shape, "what the message says of the shape"),
    "raw-wire": Cause(_raw, "an nn.Quant behind it, or no output=RAW"),
    "no-learning": Cause(_nothing_learns, "requires_grad_(True) for a layer, or no loss"),
    "fused-without-optimizer": Cause(_fused, 'an optimizer, or another format than grads="fused"'),
    "bias-overflow": Cause(_bias, "a smaller batch, fewer bits in the errors, or bias=False"),
    "no-running-statistics": Cause(_tracked, "track_running_stats=True, or nn.GroupNorm"),
    "batch-too-small": Cause(
        _more_rows, "two rows or more in a micro-batch, nn.GroupNorm, or requires_grad_(False)"
    ),
    "batch-too-large": Cause(_one_row, "a smaller batch"),
    "refused": Cause(None, "what the message says"),
}


def _errors(asked: Asked) -> tuple[list[Finding], Plan | None]:
    """What `compile` refuses, and the plan of what is left when that is repaired."""
    result = asked.tried()
    if isinstance(result, QfwError) and (found := _bad_arguments(asked)):
        return found, None  # the rest depends on them
    found = []
    while isinstance(result, QfwError):
        path = _named(str(result), asked.model)
        code, repaired = _cause(asked, result, path)
        found.append(Finding(code, "error", path, str(result), CAUSES[code].remedy))
        if repaired is None:
            return found, None
        asked, result = repaired, repaired.tried()
    return found, result


def _cause(asked: Asked, error: QfwError, path: str) -> tuple[str, Asked | None]:
    """The code of an error, and what was asked without it, if that is worth a look."""
    if isinstance(error, ShapeError):
        repaired = _shape(asked, error, path)
        return "shape", repaired if repaired and _cured(asked, repaired, error) else None
    for code, (repair, _) in CAUSES.items():
        repaired = None if repair is None else repair(asked, error, path)
        if repaired is not None and _cured(asked, repaired, error):
            # Findings about another batch would not be about this one.
            return code, None if repair in (_one_row, _more_rows) else repaired
    return "refused", None


def _cured(asked: Asked, repaired: Asked, error: QfwError) -> bool:
    """Whether `compile` no longer says the same of the same layer; numbers may differ."""
    after = repaired.tried()
    return not isinstance(after, QfwError) or _gist(repaired, after) != _gist(asked, error)


def _gist(asked: Asked, error: QfwError) -> tuple[str, str]:
    """The layer and what is said of it, however the layer itself is printed."""
    path, text = _named(str(error), asked.model), str(error)
    return path, re.sub(r"\d+", "#", text.replace(repr(asked.layer(path)), ""))


def _bad_arguments(asked: Asked) -> list[Finding]:
    """What `compile` says of its arguments themselves: such words begin with an argument's name."""
    found: list[str] = []
    result = asked.tried()
    while isinstance(result, QfwError):
        text = str(result)
        name = next((n for n in ("model", *asked.arguments) if re.match(rf"{n}\b", text)), None)
        if name is None or text in found:
            break
        found.append(text)
        asked = _with_good(asked, name)
        result = asked.tried()
    if not found and not _is_model(asked.model):
        found.append(str(result))
    code = "bad-argument"
    return [Finding(code, "error", "", text, CAUSES[code].remedy) for text in found]


def _with_good(asked: Asked, name: str) -> Asked:
    """Something that `compile` takes in the place of one argument, whatever the others are."""
    good: Arguments = {
        "input_shape": 1,
        "loss": nn.CrossEntropyLoss(),
        "optimizer": optim.SGD(),
        "batch": 2**20,
    }
    if name == "model":
        return Asked(nn.Linear(1, 1), asked.arguments)
    others = {n: value for n, value in asked.arguments.items() if n != name}
    return Asked(asked.model, {**others, **({name: good[name]} if name in good else {})})


def _is_model(model: nn.Module) -> bool:
    try:
        nn.named_layers(model)
    except QfwError:
        return False
    return True


def _named(message: str, model: nn.Module) -> str:
    """The layer that an error names."""
    paths = dict(nn.named_layers(model))
    return next((p for p in re.findall(r"layer '([^']*)'", message) if p in paths), "")


def _changed(model: nn.Module, path: str, **changes: Any) -> nn.Module:
    """A copy of a model in which one layer is other."""

    def copied(module: nn.Module, here: str) -> nn.Module:
        if isinstance(module, nn.Layer):
            changed = replace(module, **changes) if here == path else module
            return changed.requires_grad_(module.requires_grad)
        children = {n: copied(m, f"{here}.{n}".strip(".")) for n, m in module.named_children()}
        if isinstance(module, nn.Sequential):
            return nn.Sequential(children)
        if isinstance(module, nn.ModuleList):
            return nn.ModuleList(children.values())
        if isinstance(module, nn.Graph):
            layers = ((n, m) for n, m in children.items() if isinstance(m, nn.Layer))
            return replace(module, layers=tuple(layers))
        twin = copy(module)
        for name, child in children.items():
            object.__setattr__(twin, name, child)
        return twin

    return copied(whole(model), "")
