"""Narrow records: the plan that follows from them is the plan, whatever stands there."""

from __future__ import annotations

import re
from pathlib import Path

import narrow_bytes as nb
import plangold
import pytest
from plan_bytes import ASYM, SYM, PlanBytes
from plan_net import OK, check
from test_format import page_fields

from pyqfw.narrow import LEAST_PLACES, WORDS, has_short_tensors, narrow, places_of
from pyqfw.wire import KERNELS

CSRC = Path(__file__).resolve().parents[1] / "csrc"
MANY = plangold.many_plans()


@pytest.mark.parametrize("name", MANY)
def test_the_plan_follows_from_its_narrow_records(name: str) -> None:
    data = MANY[name].to_bytes()
    wide, made = PlanBytes(data), narrow(data)
    none = len(wide.windows) > 0 or (wide.tensors["kind"] == ASYM).any()
    none |= (wide.tensors["limit"] != 0).any() or len(wide.tensors) >= nb.NO_ID
    none |= any((wide.tensors[f] > 0xFFFF).any() for f in ("axis", "group", "codes", "scale"))
    assert (made is None) == none
    if made is not None:
        assert nb.widened(made) == data
        assert check(nb.widened(made)) == OK
        assert len(made) < len(data) / 2


def test_some_plans_have_them() -> None:
    assert sum(narrow(plan.to_bytes()) is not None for plan in MANY.values()) > 5


@pytest.mark.parametrize("field", ["outer", "axis", "inner", "group", "codes", "scale"])
def test_a_number_that_does_not_fit(field: str) -> None:
    plan = PlanBytes(MANY["fused"].to_bytes())
    plan.tensors[field][0] = 0xFFFF
    assert nb.widened(narrow(plan.sealed()) or b"") == plan.sealed()
    plan.tensors[field][0] = 0x10000
    assert narrow(plan.sealed()) is None


@pytest.mark.parametrize(
    ("field", "value"), [("outer", 1), ("outer", 2), ("group", 1), ("group", 2)]
)
def test_short_tensors(field: str, value: int) -> None:
    plan = PlanBytes(MANY["fused"].to_bytes())
    plan.tensors["outer"] = 1
    plan.tensors["group"] = plan.tensors["axis"]
    plan.tensors[field][0] = value
    made = narrow(plan.sealed()) or b""
    whole = (value in (1, plan.tensors["axis"][0])) if field == "group" else value == 1
    assert has_short_tensors(made) == whole
    assert nb.widened(made) == plan.sealed()


@pytest.mark.parametrize(("field", "sums"), [("absmax", False), ("stream", True)])
def test_a_field_that_has_no_place(field: str, sums: bool) -> None:
    plan = PlanBytes(MANY["fused"].to_bytes())
    kinds = zip(plan.tensors["kind"], plan.tensors["bits"], strict=True)
    at = next(i for i, kind in enumerate(kinds) if (tuple(kind) == (SYM, 32)) == sums)
    plan.tensors[field][at] = 16
    assert narrow(plan.sealed()) is None


def test_a_word_that_no_operation_names() -> None:
    plan = PlanBytes(MANY["fused"].to_bytes())
    first = next(i for i, op in enumerate(plan.ops) if op["kernel"] == KERNELS["convert"])
    plan.ops["param"][first, 1] = 1
    assert narrow(plan.sealed()) is None


def test_places() -> None:
    plan = PlanBytes(MANY["fused"].to_bytes())
    assert places_of(plan.sealed()) >= LEAST_PLACES
    for places in (7, 8):
        plan.ops["tensor"][0, places - 1] = 0
        assert places_of(plan.sealed()) == places
        assert nb.widened(narrow(plan.sealed()) or b"") == plan.sealed()


def test_the_words_are_those_that_the_core_knows() -> None:
    """But for the window, which no such plan has."""
    text = (CSRC / "engine" / "check.c").read_text()
    known = re.findall(r"\[(\d+)\] = \{\w+, (\w+)\}", text)
    words = {int(kernel): (int(mask, 0) & ~(1 << 13)).bit_length() for kernel, mask in known}
    for name, own in WORDS.items():
        assert words.get(KERNELS[name], 0) == own == nb.WORDS[KERNELS[name]]


@pytest.mark.parametrize(
    ("title", "fields"),
    [
        ("Narrow header", nb.HEADER),
        ("Narrow tensors", nb.TENSOR),
        ("Short narrow tensors", nb.SHORT_TENSOR),
    ],
)
def test_the_page_has_the_records(title: str, fields: list[tuple[str, int, str]]) -> None:
    assert page_fields(title) == fields
