"""Random plans around BatchNorm and GroupNorm, beside those of plan_random.py."""

from __future__ import annotations

import numpy as np
import plan_random
from plan_bytes import NO_TENSOR, ROWS_AXIS, ROWS_OUTER, STATE
from plan_random import (
    F32,
    NORM_BACK_F32,
    NORM_BACK_S32,
    NORM_F32,
    NORM_S32,
    PRODUCT_S32,
    S8,
    S16,
    S32,
    STORED,
)

BATCH_NORM_S32, BATCH_NORM_F32, BATCH_NORM_BACK_S32, BATCH_NORM_BACK_F32 = range(57, 61)
FOLD_NORM, FOLD_S32, FOLD_F32 = range(61, 64)


class Maker(plan_random.Maker):
    """One that knows these too."""

    def make(self, kernel: int) -> bytes:
        own = {
            BATCH_NORM_S32: self.batch_norm,
            BATCH_NORM_F32: self.batch_norm,
            BATCH_NORM_BACK_S32: self.batch_norm_back,
            BATCH_NORM_BACK_F32: self.batch_norm_back,
            FOLD_NORM: self.fold_norm,
            FOLD_S32: self.fold,
            FOLD_F32: self.fold,
        }
        if kernel not in own:
            return super().make(kernel)
        own[kernel](kernel)
        return self.plan.build()

    def normalize(self, kernel: int) -> None:
        """Now and then in groups."""
        grouped = (NORM_S32, NORM_F32, NORM_BACK_S32, NORM_BACK_F32)
        if kernel not in grouped or self.chance(0.5):
            super().normalize(kernel)
            return
        groups = self.pick(*[d for d in range(1, self.a + 1) if self.a % d == 0])
        groups = self.pick(groups, groups, groups, int(self.rng.integers(9)))
        sym, row = kernel in (NORM_S32, NORM_BACK_S32), self.a * self.positions
        kinds, layout = (S8, S16) if sym else (F32,), {}
        params = {"p1": self.eps(), "p3": self.positions, "p4": groups}
        x = self.ready(row, self.pick(*kinds), True, **self.whole(row) if sym else {})
        if kernel in (NORM_S32, NORM_F32):
            gamma = self.some(self.ready(self.a, self.pick(*kinds), False))
            beta = self.some(self.lasting(self.a, self.pick(*STORED) if sym else F32))
            columns = beta != NO_TENSOR or (gamma != NO_TENSOR and self.scales(gamma) != 1)
            places = [x, gamma, beta, self.plan.scratch(5 * self.a) if sym else NO_TENSOR]
            layout = self.matrix(self.a, False, columns)
            params |= {"p0": self.pick(0, 8, 11, 20)} if sym else {}
        else:
            g = self.ready(row, self.pick(*kinds), True, **self.whole(row) if sym else {})
            places = [g, x, NO_TENSOR if sym else self.some(self.ready(self.a, F32, False))]
            layout = {"outer": 1, "axis": row, "inner": 1, "group": row, "rows": ROWS_OUTER}
            params |= {"p0": self.pick(6, 10, 16), "p2": self.pick(6, 20, 31)} if sym else {}
        out = self.new(
            row,
            S32 if sym else F32,
            True,
            **({**layout, "shared": layout.get("shared", 0)} if sym else {}),
        )
        self.plan.op(kernel, out, *places, **params)

    def eps(self) -> int:
        return int(np.float32(self.pick(0.0, 1e-5, 1.0, 3e38, 2.0**-126)).view(np.uint32))

    def running(self) -> list[int]:
        """The three statistics, or none; seldom some."""
        sizes = (self.a, self.a, 1)
        if self.chance(0.4):
            return [NO_TENSOR] * 3
        made = [self.plan.tensor(n, role=STATE) for n in sizes]
        return [t if self.chance(0.99) else NO_TENSOR for t in made]

    def operand(self, sym: bool) -> int:
        """m x n with one scale, mostly."""
        n = self.a * self.positions
        whole = self.whole(n) if sym and self.chance(0.95) else {}
        return self.ready(n, self.pick(S8, S16) if sym else F32, True, **whole)

    def batch_norm(self, kernel: int) -> None:
        sym, n = kernel == BATCH_NORM_S32, self.a
        kinds = STORED if sym else (F32,)
        x = self.operand(sym)
        gamma, beta = (self.some(self.ready(n, self.pick(*kinds), False), 0.6) for _ in range(2))
        scratch = self.plan.scratch(5 * n) if sym else NO_TENSOR
        columns = NO_TENSOR not in (gamma, beta) or gamma != beta
        layout = self.matrix(n, False, columns) if sym and self.chance(0.95) else {}
        out = self.new(n * self.positions, S32 if sym else F32, True, **layout)
        params = {"p1": self.eps(), "p3": self.positions, "p5": self.factor(), "p6": self.factor()}
        params |= {"p0": self.pick(0, 8, 20, 24)} if sym else {}
        flags = self.pick(0, 1, 2, 3)
        places = (out, x, gamma, beta, scratch, *self.running())
        self.plan.op(kernel, *places, flags=flags, **params)

    def batch_norm_back(self, kernel: int) -> None:
        sym, n = kernel == BATCH_NORM_BACK_S32, self.a
        e, x = self.operand(sym), self.operand(sym)
        gamma = self.some(self.ready(n, self.pick(*STORED) if sym else F32, False), 0.7)
        layout = self.matrix(n, False, True) if sym and self.chance(0.95) else {}
        out = self.new(n * self.positions, S32 if sym else F32, True, **layout)
        params = {"p1": self.eps(), "p3": self.positions}
        params |= {"p0": self.pick(6, 10, 16), "p2": self.pick(8, 20, 31)} if sym else {}
        self.plan.op(kernel, out, e, x, gamma, **params)

    def fold_norm(self, kernel: int) -> None:
        n = self.a
        a, b = (self.new(n, F32, False) for _ in range(2))
        running = [self.lasting(n, F32) for _ in range(2)]
        affine = [self.some(self.lasting(n, self.pick(*STORED)), 0.7) for _ in range(2)]
        self.plan.op(kernel, a, b, *running, *affine, p1=self.eps())

    def fold(self, kernel: int) -> None:
        sym, n = kernel == FOLD_S32, self.a
        a = self.ready(n, F32, False)
        b = self.some(self.ready(n, F32, False), 0.7)
        scratch = self.plan.scratch(5 * n) if sym else NO_TENSOR
        params, flags = {"p3": self.positions}, self.pick(0, 1)
        if sym and self.chance(0.5):
            out = x = self.columns(n)
        elif sym:
            x = self.rows_of(n, (S8, S16))
            layout = self.matrix(n, self.by_rows(x), True) if self.chance(0.95) else {}
            out = self.new(n * self.positions, S32, True, **layout)
        else:
            x = self.ready(n * self.positions, F32)
            out = x if self.chance(0.3) else self.new(n * self.positions, F32, True)
        self.plan.op(kernel, out, x, a, b, scratch, flags=flags, **params)

    def columns(self, n: int) -> int:
        """Accumulators with a scale for each column, or for each element."""
        self.positions, by_row = 1, self.chance(0.4)
        a = self.plan.sym(1, rows=ROWS_OUTER if by_row else ROWS_AXIS)
        self.plan.op(plan_random.CONVERT, a, self.plan.input)
        acc = self.new(n, S32, True, **self.matrix(n, by_row, True))
        b = self.lasting(n, S8, outer=1, axis=n, inner=1, group=n, shared=0)
        self.plan.op(PRODUCT_S32, acc, a, b, p1=1, flags=4)
        return acc
