"""The second opinion on losses besides plain cross-entropy: docs/numerics.md section 23."""

from __future__ import annotations

import numpy as np
import oracle as o
from oracle_product import lift, quot
from oracle_softmax import quotient
from oracle_tensor import Acc, Array, Tensor, quiet, ratios

F = np.float32
JOINED = 13

# ---- MSE -----------------------------------------------------------------------------------------


def joined(t: Tensor, s: np.float32) -> Array:
    """Codes at the scale s 2^-13, towards zero: 2^31 * 2^31 fits int64."""
    assert t.scale is not None
    q, e, down = ratios(t.scale, s, 16)
    m = np.abs(t.codes)
    assert (m << e).max(initial=0) < 2**31
    return np.sign(t.codes) * ((m << e) * q >> 32 + down - JOINED)


def mse(z: Tensor, y: Tensor) -> tuple[Acc, np.float32]:
    """The error and the loss of codes of 16 bits with one scale."""
    assert z.scale is not None
    assert y.scale is not None
    scales = [t.scale for t in (z, y) if t.codes.any() or t.scale != 1]
    s = F(max(scales, default=1))
    d = joined(z, s) - joined(y, s)
    n = F(d.size)
    total = F(float(o.nearest(sum(v * v for v in d.ravel().tolist()))))
    unit = lift(s, -JOINED)
    with quiet():
        loss = F(quotient(total, n) * unit) * unit
    return Acc(d, np.broadcast_to(quot(lift(s, 1 - JOINED), n), d.shape)), F(loss)


def float_mse(z: Array, y: Array) -> tuple[Acc, np.float32]:
    """The same of floats, squares added in ascending order."""
    n = F(z.size)
    total = F(0)
    with quiet():
        d = z - y
        for v in (d * d).ravel():
            total = total + v
        return Acc(d * quotient(2, n)), F(quotient(total, n))
