"""q.data: samples, windows over recordings, splits by group and in time."""

import numpy as np
import pytest

import pyqfw as q
from pyqfw.data import Samples, leave_groups_out, split_recordings, windows

RECORDINGS = [np.arange(2 * n, dtype=np.float64).reshape(n, 2) for n in (10, 3, 7)]


def test_windows_are_what_was_recorded_in_order():
    x, of = windows(RECORDINGS, 4, 2)
    assert (x.shape, x.dtype, x.flags.c_contiguous) == ((6, 2, 4), np.float32, True)
    assert of.tolist() == [0, 0, 0, 0, 2, 2]
    for row, start in zip(x[:4], (0, 2, 4, 6), strict=True):
        np.testing.assert_array_equal(row, RECORDINGS[0][start : start + 4].T)
    np.testing.assert_array_equal(x[5], RECORDINGS[2][2:6].T)
    assert windows(RECORDINGS, 5)[1].tolist() == [0, 0, 2]
    assert len(windows(RECORDINGS, 10)[0]) == 1


BAD_WINDOWS = {
    "too long": ((RECORDINGS, 11), q.QfwError, "no recording has the 11 samples"),
    "none": (([], 2), q.QfwError, "no recording"),
    "one array": ((RECORDINGS[0], 2), q.ShapeError, r"write \[recording\]"),
    "one axis": (([np.arange(9.0)], 2), q.ShapeError, r"recording 0 .*\(time, channels\)"),
    "channels": (([*RECORDINGS, np.zeros((9, 3))], 2), q.ShapeError, r"recording 3 .*\(time, 2\)"),
    "width 0": ((RECORDINGS, 0), q.QfwError, "width must be"),
    "step 0": ((RECORDINGS, 2, 0), q.QfwError, "step must be"),
}


@pytest.mark.parametrize("case", BAD_WINDOWS)
def test_windows_that_cannot_be(case):
    given, kind, message = BAD_WINDOWS[case]
    with pytest.raises(kind, match=message):
        windows(*given)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_group_is_left_out_once(count):
    groups = np.array([5, 3, 3, 9, 5, 7, 3, 9])
    seen = []
    for out, train, test in leave_groups_out(groups, count):
        assert sorted([*train, *test]) == list(range(8))
        assert set(groups[test]) == set(out)
        assert not set(groups[train]) & set(out)
        seen += out
    assert seen == [3, 5, 7, 9]


def test_groups_may_have_names():
    assert [out for out, _, _ in leave_groups_out(["b", "a", "b"])] == [("a",), ("b",)]


def test_groups_that_cannot_be():
    with pytest.raises(q.QfwError, match="none would be left"):
        list(leave_groups_out([1, 1, 1]))
    with pytest.raises(q.ShapeError, match="one group for each row"):
        list(leave_groups_out([[1], [2]]))
    with pytest.raises(q.QfwError, match="count must be"):
        list(leave_groups_out([1, 2], 3))


def test_parts_of_recordings_in_time():
    of = np.array([1] * 10 + [4] + [2] * 5)
    first, rest = split_recordings(of, 0.3, gap=1)
    assert first.tolist() == [0, 1, 2, 11, 12]
    assert rest.tolist() == [4, 5, 6, 7, 8, 9, 10, 14, 15]
    first, rest = split_recordings(of, 0.3)
    assert sorted([*first, *rest]) == list(range(16))
    with pytest.raises(q.QfwError, match="fraction must be"):
        split_recordings(of, 1.5)
    with pytest.raises(q.ShapeError, match="one number for each row"):
        split_recordings([[1]], 0.5)


def test_samples():
    some = Samples(np.zeros((4, 2, 3)), np.arange(4), tuple("abcd"), np.array([1, 1, 2, 2]))
    assert repr(some) == "<Samples 4 of 2x3, 4 classes, 2 groups>"
    part = some[some.groups == 2]
    assert (len(part), part.y.tolist(), part.groups.tolist()) == (2, [2, 3], [2, 2])
    assert part.classes == some.classes
    with pytest.raises(q.ShapeError, match="y must have one number for each of 4 rows"):
        Samples(np.zeros((4, 2)), np.arange(3))
