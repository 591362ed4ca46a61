"""A step of a session, operation by operation: each pool beside the oracle, from its operands as
they stand in memory before it runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import oracle_pool as pool
from oracle_pool import Geometry
from oracle_tensor import Array

import pyqfw as q
from pyqfw.lower import Op, Tensor

POOLS = ("max_pool", "avg_pool")


def is_pool(op: Op) -> bool:
    return op.kernel.startswith(POOLS)


def walk(net: q.Session, x: Array, y: Array) -> Counter[str]:
    """Traces a step; what each pool makes is the oracle's. How often each kind of pool ran."""
    plan, seen = net.plan, Counter[str]()
    ops, rows = plan.ops, plan.rows
    ahead = range(plan.section("update").start)
    numbers = [i for _ in range(0, len(x), rows) for i in ahead] + list(plan.section("update"))
    parts = [len(x[at : at + rows]) for at in range(0, len(x), rows) for _ in ahead]
    parts += [parts[-1]] * (len(numbers) - len(parts))
    held: dict[int, Any] = {}
    for step, (op, _) in enumerate(net.trace(x, y)):
        assert op is ops[numbers[step]]
        n = parts[step]
        if is_pool(op):
            seen[_name(op)] += 1
            _check(net, op, n, held)
        held = {}
        if step + 1 < len(numbers) and is_pool(ops[numbers[step + 1]]):
            after = ops[numbers[step + 1]]
            read = [
                t for i, t in enumerate(after.places) if t is not None and i not in after.writes
            ]
            held = {id(t): _bytes(net, t, parts[step + 1]) for t in read}
    return seen


def _name(op: Op) -> str:
    target = op.places[0]
    assert target is not None
    return f"{op.kernel} {'raw' if target.raw else 'stored'}"


def _bytes(net: q.Session, t: Tensor, rows: int) -> tuple[Array, Array]:
    """Elements in the order of memory, and scales."""
    codes, scale, _ = (part.copy() for part in net._spaces.parts(t, rows))
    if t.fmt is None:
        return codes, scale
    kinds: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32}
    kind = np.float32 if isinstance(t.fmt, q.Float32) else kinds[t.fmt.element_bits]
    return codes.view(kind), scale


def _check(net: q.Session, op: Op, rows: int, held: dict[int, Any]) -> None:
    node = next(n for n in net.plan.nodes if n.path == op.layer)
    g, channels = Geometry.of(node.layer, node.in_shape[1:]), node.in_shape[0]
    assert g.out == ((1, *node.out_shape[1:]) if len(node.out_shape) == 2 else node.out_shape[1:])
    target, source = op.places[:2]
    assert target is not None
    assert source is not None
    image, result = (rows, *g.size, channels), (rows, *g.out, channels)
    back = "back" in op.kernel
    given, scale = held[id(source)]
    given = given.reshape(result if back else image)
    floats = given.dtype == np.float32
    given = given if floats else given.astype(np.int64)
    codes, sigma = _bytes(net, target, rows)
    codes = codes.reshape(image if back else result)
    bits = 0 if source.fmt is None else source.fmt.bits
    wanted: Any = scale
    if op.kernel == "max_pool":
        expected, pick = pool.max_pool(given, g)
        if op.places[2] is not None:
            found = pool.unpacked(_bytes(net, op.places[2], rows)[0], pool.pick_bits(g), pick.shape)
            np.testing.assert_array_equal(found, pick, str(op))
    elif op.kernel == "max_pool_back":
        assert op.places[2] is not None
        picked = pool.unpacked(held[id(op.places[2])][0], pool.pick_bits(g), result)
        expected = pool.max_back(given, picked, g)
        assert floats or g.never_meet == (not target.raw)
    elif floats:
        expected = (pool.float_avg_back if back else pool.float_avg_pool)(given, g)
    elif back:
        expected, wanted, alike = pool.avg_back(given, scale[0], bits, g)
        assert alike == (not target.raw)
    else:
        expected, wanted = pool.avg_pool(given, scale[0], bits, g)
    np.testing.assert_array_equal(codes, expected, str(op))
    if not floats:
        np.testing.assert_array_equal(sigma, wanted, str(op))
