"""Which elements share a scale, and what that costs in bytes."""

import itertools

import numpy as np
import pytest
from every_format import EVERY, SHAPES

from pyqfw.formats import BFP, Asym, Float32, Layout, Sym, SymInt32, layout_of

# --- bytes ---------------------------------------------------------------------------------


def hand_counted_nbytes(fmt, shape):
    """Bytes by counting: bits of the codes one by one, scales through the cells they cover."""
    n = 1
    for size in shape:
        n *= size
    if isinstance(fmt, Float32):
        return n * 4
    if isinstance(fmt, SymInt32):
        return n * 4 + 4
    width = fmt.bits if fmt.container == "packed" else fmt.container
    whole, rest = divmod(n * width, 8)
    codes = whole + (rest > 0)
    if fmt.group is not None:
        rows = shape[0] if len(shape) >= 2 else 1
        length = 1
        for size in shape[1:] if len(shape) >= 2 else shape:
            length *= size
        scales = rows * len(range(0, length, fmt.group))
    elif fmt.axis is None:
        scales = 1
    elif fmt.axis == "row":
        scales = 1
        for size in shape[:-1]:
            scales *= size
    else:
        scales = shape[fmt.axis]
    each = 1 if fmt.scale == "pow2" else 4
    if isinstance(fmt, Asym):
        each += 2
    return codes + scales * each


def fits(fmt, shape):
    """Whether the format's axis exists."""
    if fmt.axis is None:
        return True
    return len(shape) > (0 if fmt.axis in ("row", -1) else fmt.axis)


def test_nbytes():
    # Neither range nor rounding is stored.
    stored = [f for f in EVERY if f.range == "dynamic" and f.rounding == "half_away"]
    for fmt, shape in itertools.product(stored, SHAPES):
        if fits(fmt, shape):
            assert fmt.nbytes(shape) == hand_counted_nbytes(fmt, shape), (fmt, shape)
            scales = fmt.layout(shape).n_scales * fmt.scale_nbytes
            assert fmt.codes_nbytes(shape) == fmt.nbytes(shape) - scales


@pytest.mark.parametrize(
    ("fmt", "shape", "nbytes"),
    [
        (Float32(), (3, 5), 60),
        (Float32(), (), 4),
        (Float32(), (0,), 0),
        (SymInt32(), (3, 5), 64),
        (SymInt32(32), (0,), 4),
        (Sym(8), (0,), 4),
        (Sym(8), (3, 5), 15 + 4),
        (Sym(3), (3, 5), 6 + 4),
        (Sym(12), (3, 5), 23 + 4),
        (Sym(12, container=16), (3, 5), 30 + 4),
        (Sym(12, container=32), (3, 5), 60 + 4),
        (Sym(8, axis=0), (3, 5), 15 + 12),
        (Asym(8, axis=-1), (3, 5), 15 + 20 + 10),
        (Asym(1, axis="row"), (3, 5), 2 + 12 + 6),
        (Sym(8, axis="row"), (5,), 5 + 4),
        (BFP(4, 32), (8, 3, 3, 8), 288 + 8 * 3),
        (Asym(5, group=2, scale="pow2"), (5,), 4 + 3 * (1 + 2)),
        (Sym(8, group=4), (), 1 + 4),
    ],
)
def test_nbytes_examples(fmt, shape, nbytes):
    assert fmt.nbytes(shape) == nbytes


def test_nbytes_of_huge_shapes_is_exact():
    n = 2**62 + 1
    assert Sym(3).nbytes((n,)) == (n * 3 + 7) // 8 + 4
    assert Float32().nbytes((n, n)) == 4 * n * n


# --- layouts -------------------------------------------------------------------------------


def cell_of(index, shape, axis, group, last_axis_groups):
    """Which scale an element has, read off docs/numerics.md section 2."""
    if group is not None:
        if last_axis_groups:
            return (*index[:-1], (index[-1] if index else 0) // group)
        if len(shape) < 2:
            return ((index[0] if index else 0) // group,)
        along = 0
        for i, size in zip(index[1:], shape[1:], strict=True):
            along = along * size + i
        return (index[0], along // group)
    if axis is None:
        return ()
    return index[:-1] if axis == "row" else (index[axis],)


def scale_number(layout, i):
    """Which scale storage element i has, read off the layout."""
    outer, rest = divmod(i, layout.axis * layout.inner)
    run = rest // layout.inner // layout.group
    runs = len(range(0, layout.axis, layout.group))
    return run if layout.shared else outer * runs + run


@pytest.mark.parametrize("last_axis_groups", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_layout_gives_every_element_its_scale(shape, last_axis_groups):
    grains = [(None, None), *((None, g) for g in (1, 2, 3, 4, 7, 100))]
    if shape:
        grains += [(k, None) for k in (*range(-len(shape), len(shape)), "row")]
    for axis, group in grains:
        layout, scale_shape = layout_of(shape, axis, group, last_axis_groups=last_axis_groups)
        strides = [1]
        for size in scale_shape[::-1]:
            strides.insert(0, strides[0] * size)
        assert layout.n_scales == strides[0]
        indices = list(itertools.product(*map(range, shape)))
        assert layout.n_elements == len(indices)
        seen = set()
        for i, index in enumerate(indices):
            cell = cell_of(index, shape, axis, group, last_axis_groups)
            assert len(cell) == len(scale_shape)
            number = sum(c * stride for c, stride in zip(cell, strides[1:], strict=True))
            assert scale_number(layout, i) == number, (axis, group, index)
            seen.add(number)
        if indices:
            assert seen == set(range(layout.n_scales)), "a scale without elements"
        assert layout.group >= 1


def test_formats_use_that_layout():
    for fmt in EVERY:
        if fmt.range != "dynamic" or fmt.rounding != "half_away":
            continue
        for shape in SHAPES:
            if fits(fmt, shape):
                expected = layout_of(shape, fmt.axis, fmt.group, last_axis_groups=False)
                assert (fmt.layout(shape), fmt.scale_shape(shape)) == expected


@pytest.mark.parametrize(
    ("axis", "group", "shape", "layout", "scale_shape"),
    [
        (None, None, (2, 3, 4), Layout(1, 24, 1, 24, False), ()),
        (None, None, (), Layout(1, 1, 1, 1, False), ()),
        (0, None, (2, 3, 4), Layout(1, 2, 12, 1, True), (2,)),
        (1, None, (2, 3, 4), Layout(2, 3, 4, 1, True), (3,)),
        (-1, None, (2, 3, 4), Layout(6, 4, 1, 1, True), (4,)),
        ("row", None, (2, 3, 4), Layout(6, 4, 1, 4, False), (2, 3)),
        ("row", None, (4,), Layout(1, 4, 1, 4, False), ()),
        (None, 5, (2, 3, 4), Layout(2, 12, 1, 5, False), (2, 3)),
        (None, 5, (12,), Layout(1, 12, 1, 5, False), (3,)),
        (None, 5, (), Layout(1, 1, 1, 5, False), (1,)),
    ],
)
def test_layout_examples(axis, group, shape, layout, scale_shape):
    fmt = Sym(8, axis=axis, group=group)
    assert fmt.layout(shape) == layout
    assert fmt.scale_shape(shape) == scale_shape


def test_group_along_the_last_axis():
    layout = layout_of((2, 3, 4), None, 3, last_axis_groups=True)
    assert layout == (Layout(6, 4, 1, 3, False), (2, 3, 2))
    assert layout_of((), None, 3, last_axis_groups=True) == (Layout(1, 1, 1, 3, False), (1,))


@pytest.mark.parametrize(
    ("axis", "shape", "n_scales", "scale_shape"),
    [
        (None, (0,), 1, ()),
        (None, (3, 0), 1, ()),
        ("row", (3, 0), 3, (3,)),
        ("row", (0, 3), 0, (0,)),
        ("row", (0,), 1, ()),
        (0, (0, 3), 0, (0,)),
        (1, (0, 3), 3, (3,)),
    ],
)
def test_scales_of_empty_tensors(axis, shape, n_scales, scale_shape):
    layout = Sym(8, axis=axis).layout(shape)
    assert (layout.n_elements, layout.n_scales) == (0, n_scales)
    assert Sym(8, axis=axis).scale_shape(shape) == scale_shape


def test_no_groups_in_an_empty_tensor():
    assert Sym(8, group=4).scale_shape((3, 0)) == (3, 0)
    assert Sym(8, group=4).scale_shape((0, 3)) == (0, 1)
    assert Sym(8, group=4).layout((3, 0)).n_scales == Sym(8, group=4).layout((0, 3)).n_scales == 0


@pytest.mark.parametrize(
    ("axis", "shape", "legal"),
    [
        (2, (3, 5), "-2 to 1"),
        (-3, (3, 5), "-2 to 1"),
        (1, (5,), "-1 to 0"),
        (0, (), "legal for a scalar is None"),
        ("row", (), "legal for a scalar is None"),
    ],
)
def test_an_axis_that_the_shape_lacks(axis, shape, legal):
    for ask in (Sym(8, axis=axis).layout, Asym(8, axis=axis).nbytes, Sym(8, axis=axis).scale_shape):
        with pytest.raises(ValueError, match=r"axis=.* on the shape \(.*legal") as error:
            ask(shape)
        assert legal in str(error.value)


@pytest.mark.parametrize("bad", [(-1,), (3, -1), (2.0,), (True,), "3", None, 1.5, -1, ("a",), True])
def test_bad_shapes(bad):
    for ask in (Sym(8).nbytes, Float32().nbytes, SymInt32().codes_nbytes, Sym(8, group=2).layout):
        with pytest.raises(ValueError, match="shape must be a tuple of integers >= 0"):
            ask(bad)


def test_shapes_may_be_lists_numpy_integers_or_one_size():
    assert Sym(8).layout([2, np.int64(3)]) == Sym(8).layout((2, 3))
    assert Sym(8).nbytes(10) == Sym(8).nbytes((10,)) == 14


def test_layout_of_checks_what_it_is_given():
    with pytest.raises(ValueError, match="group must be None or an integer >= 1"):
        layout_of((4,), None, 0, last_axis_groups=True)
    with pytest.raises(ValueError, match="axis must be None, an integer or 'row'"):
        layout_of((4,), "col", None, last_axis_groups=True)
    with pytest.raises(ValueError, match="exclude each other"):
        layout_of((4,), 0, 2, last_axis_groups=True)
