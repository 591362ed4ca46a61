"""Random plans around one operation: at its places tensors of random format and layout that mostly
fit, and before it what makes them."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from plan_bytes import (
    ASYM,
    CONST,
    ERROR,
    FLOAT32,
    GRADIENT,
    NO_TENSOR,
    PARAMETER,
    ROWS_AXIS,
    ROWS_OUTER,
    SCRATCH,
    STATE,
    SYM,
    WIRE,
    Builder,
    sizes,
)

CONVERT, WIDEN, PRODUCT_S32, PRODUCT_F32, RELU, MASK, LOSS_S16, LOSS_F32 = range(1, 9)
GRADIENT_S32, GRADIENT_F32, UPDATE, FUSED = range(9, 13)
MSE_S16, MSE_F32 = 20, 21
DROPOUT, WEIGHTED_S16, WEIGHTED_F32 = 26, 27, 28
SOFTMAX_S16, SOFTMAX_F32, SOFTMAX_BACK_S32, SOFTMAX_BACK_F32 = range(22, 26)
F32, S8, S16, S32, ODD, ASYMMETRIC = range(6)
STORED = (F32, S8, S16, ODD, ASYMMETRIC)
SYMS = (S8, S16, ODD)
Fields = dict[str, Any]


class Maker:
    """A Builder that rolls dice."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.plan = Builder(batch=self.pick(1, 2, 3, 5))
        self.positions = self.pick(1, 1, 2)
        self.a, self.b = (int(n) for n in self.rng.integers(1, 8, 2))

    def pick(self, *options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def chance(self, of: float) -> bool:
        return bool(self.rng.random() < of)

    # --- tensors ----------------------------------------------------------------------------------

    def format(self, kind: int) -> Fields:
        bits = int(self.rng.integers(2, 17))
        if kind in (F32, S32):
            return {"kind": FLOAT32 if kind == F32 else SYM}
        rules: Fields = {"rounding": self.pick(0, 1, 2), "pow2": int(self.chance(0.2))}
        if self.chance(0.2):
            rules |= {"range": 1, "limit": self.pick(1.0, 0.01, 3e38, 2.0**-126)}
        if kind == ASYMMETRIC:
            boxes = [box for box in (0, 8, 16, 32) if box == 0 or box >= bits]
            return {**rules, "kind": ASYM, "bits": bits, "container": self.pick(*boxes)}
        box = {S8: 8, S16: 16, ODD: self.pick(0, 32)}[kind]
        if kind == S8:
            bits = self.pick(8, int(self.rng.integers(2, 9)))
        if kind == ODD and box == 0 and bits in (8, 16):
            bits -= 1
        return {**rules, "kind": SYM, "bits": bits, "container": box}

    def factors(self, n: int) -> Fields:
        outer = self.pick(*[d for d in range(1, n + 1) if n % d == 0])
        axis = self.pick(*[d for d in range(1, n // outer + 1) if n // outer % d == 0])
        group = int(self.rng.integers(1, axis + 2))
        shape = {"outer": outer, "axis": axis, "inner": n // outer // axis, "group": group}
        return {**shape, "shared": self.pick(0, 1)}

    def layout(self, n: int, rows: bool) -> Fields:
        """Per tensor, per row, per row of a matrix, per column of one, or anything."""
        per_tensor = {"outer": 1, "axis": n, "inner": 1, "group": n}
        columns = max(n // self.positions, 1)
        matrix = {"outer": n // columns, "axis": columns, "inner": 1, "rows": ROWS_OUTER}
        if not rows:
            channel = {"outer": 1, "axis": self.b, "inner": max(n // self.b, 1), "group": 1}
            fits = [per_tensor, *([channel] if n % self.b == 0 else [])]
            return self.pick(*fits, self.factors(n))
        return self.pick(
            {**per_tensor, "rows": ROWS_AXIS},
            {**per_tensor, "rows": ROWS_AXIS},
            {**per_tensor, "rows": ROWS_OUTER},
            {**matrix, "group": columns},
            {**matrix, "group": 1, "shared": self.pick(0, 1)},
            {**self.factors(n), "rows": ROWS_OUTER},
        )

    def new(self, n: int, kind: int, rows: bool, /, **fields: Any) -> int:
        role = {"role": self.pick(WIRE, ERROR, SCRATCH)}
        return self.plan.tensor(
            n, **{**role, **self.format(kind), **self.layout(n, rows), **fields}
        )

    def lasting(self, n: int, kind: int, **fields: Any) -> int:
        return self.new(n, kind, False, **{"role": self.pick(PARAMETER, GRADIENT, STATE), **fields})

    # --- what was made before ---------------------------------------------------------------------

    def ready(self, n: int, kind: int, rows: bool = True, /, **fields: Any) -> int:
        """A tensor that the operation may read."""
        if not rows and kind != S32 and self.chance(0.7):
            const = {"space": CONST, "role": PARAMETER} if self.chance(0.2) else {}
            return self.lasting(n, kind, **const)
        if kind == S32:
            return self.sums(n)
        floats = self.new(n, F32, rows)
        if rows:
            weight = self.lasting(n, F32)
            self.plan.op(PRODUCT_F32, floats, self.plan.input, weight)
        else:
            self.plan.op(CONVERT, floats, self.lasting(n, F32))
        if kind == F32:
            return floats
        made = self.new(n, kind, rows, **fields)
        self.plan.op(CONVERT, made, floats)
        return made

    def sums(self, n: int) -> int:
        """Accumulators with a scale, or one a row."""
        by_row = self.chance(0.5)
        layout = {"rows": ROWS_OUTER if by_row else ROWS_AXIS}
        a = self.plan.sym(1, **layout)
        self.plan.op(CONVERT, a, self.plan.input)
        whole = {"outer": 1, "axis": n, "inner": 1, "group": n, **layout}
        acc = self.new(n, S32, True, **whole)
        b = self.lasting(n, S8, outer=1, axis=n, inner=1, group=n, shared=0)
        self.plan.op(PRODUCT_S32, acc, a, b, p1=1)
        return acc

    # --- the operation ----------------------------------------------------------------------------

    def some(self, place: int, chance: float = 0.5) -> int:
        return place if self.chance(chance) else NO_TENSOR

    def headroom(self, terms: int, a: int, b: int, bias: bool = False) -> tuple[int, int]:
        """chunk and shift, seldom wrong."""
        most = [1 if t == NO_TENSOR else self._largest(t) for t in (a, b)]
        total, limit = terms * most[0] * most[1], 2**30 - 1 if bias else 2**31 - 1
        shift = 0
        while ceil(total / 2**shift) > limit:
            shift += 1
        chunk = terms if shift == 0 else max(1, (2**31 - 1) // (most[0] * most[1]))
        if self.chance(0.1):
            return self.pick(0, 1, 2, 2**31, chunk), self.pick(0, 1, 31, 32, shift)
        return chunk, shift

    def _largest(self, t: int) -> int:
        return int(2 ** (self.plan.tensors[t]["bits"] - 1)) - 1

    def scales(self, t: int) -> int:
        return sizes(self.plan.tensors[t], self.plan.batch)[1]

    def by_rows(self, t: int) -> bool:
        fields = self.plan.tensors[t]
        return fields["rows"] == ROWS_OUTER and not fields["shared"]

    def convert(self) -> None:
        rows, n = self.chance(0.7), self.a * self.positions
        src = self.ready(n, self.pick(*STORED, S32), rows)
        dst = self.new(n, self.pick(*STORED), rows)
        if self.chance(0.2):
            kept = ("kind", "bits", "pow2", "rows", "outer", "axis", "inner", "group", "shared")
            same = {name: self.plan.tensors[src][name] for name in kept}
            dst = self.new(n, S16, rows, **{**same, "range": 0, "limit": 0.0})
        scratch = self.plan.scratch(16 * n * self.plan.batch)
        self.plan.op(CONVERT, dst, src, self.some(scratch))

    def widen(self) -> None:
        rows, columns = self.chance(0.8), self.a
        n = columns * self.positions
        src = self.ready(n, self.pick(*SYMS, ASYMMETRIC), rows)
        mode = self.pick(0, 1, 1, 2, 2)
        by = NO_TENSOR
        if mode == 1:
            each = {"outer": 1, "axis": columns, "inner": self.b, "group": 1}
            by = self.lasting(columns * self.b, self.pick(*SYMS, ASYMMETRIC))
            if self.chance(0.7):
                by = self.lasting(columns * self.b, self.pick(*SYMS), **each)
        elif mode == 2:
            by = self.ready(self.b * self.positions, self.pick(*SYMS, ASYMMETRIC))
        dst = self.new(n, self.pick(S8, S16), rows, pow2=0)
        scratch = self.some(self.plan.scratch(16 * columns))
        self.plan.op(WIDEN, dst, src, by, scratch, p0=mode, p1=self.pick(0, columns, columns))

    def product(self, kernel: int) -> None:
        k, n, kinds = self.a, self.b, (S8, S16) if kernel == PRODUCT_S32 else (F32, F32)
        a = self.ready(k * self.positions, self.pick(*kinds))
        b = self.ready(k * n, self.pick(*kinds), False)
        back, folded = self.pick(0, 1), self.chance(0.3)
        bias, scratch, mask = NO_TENSOR, NO_TENSOR, NO_TENSOR
        if self.chance(0.5):
            bias = self.lasting(n, self.pick(*STORED) if kernel == PRODUCT_S32 else F32)
        if self.chance(0.3):
            mask = self.ready(n * self.positions, self.pick(F32, S8, S16, S32))
        if kernel == PRODUCT_F32:
            acc = self.new(n * self.positions, F32, True)
            params = {"p0": back, "p3": self.positions}
            self.plan.op(kernel, acc, a, b, bias, mask, flags=self.pick(0, 1), **params)
            return
        if bias != NO_TENSOR or self.chance(0.2):
            scratch = self.plan.scratch(5 * n)
        by_row = self.by_rows(a)
        by_column = bias != NO_TENSOR or (not folded and self.scales(b) != 1)
        matrix = {"outer": self.positions, "axis": n, "inner": 1, "rows": ROWS_OUTER, "group": n}
        if by_column:
            matrix |= {"group": 1, "shared": int(not by_row)}
        elif not by_row:
            matrix |= {"outer": 1, "axis": n * self.positions, "rows": ROWS_AXIS}
            matrix["group"] = matrix["axis"]
        acc = self.new(n * self.positions, S32, True, **({} if self.chance(0.1) else matrix))
        chunk, shift = self.headroom(k, a, b, bias != NO_TENSOR)
        flags = self.pick(0, 1) + 2 * folded
        params = {"p0": back, "p1": chunk, "p2": shift, "p3": self.positions}
        self.plan.op(kernel, acc, a, b, bias, mask, scratch, flags=flags, **params)

    def relu(self) -> None:
        src = self.ready(self.a, self.pick(*STORED, S32), self.chance(0.9))
        same = {**self.plan.tensors[src], "role": SCRATCH}
        for name in ("space", "codes", "scale", "zero_point", "absmax"):
            same[name] = 0
        dst = src if self.chance(0.3) else self.plan.tensor(self.a, **same)
        self.plan.op(RELU, dst, src, p0=self.factor())

    def dropout(self) -> None:
        src = self.ready(self.a, self.pick(*STORED, S32), self.chance(0.9))
        same = {**self.plan.tensors[src], "role": SCRATCH, "pow2": 0, "range": 0, "limit": 0.0}
        for name in ("space", "codes", "scale", "zero_point", "absmax"):
            same[name] = 0
        dst = src if self.chance(0.2) else self.plan.tensor(self.a, **same)
        params = {"p0": self.pick(0, 1, 2**31, 2**32 - 1), "p1": self.factor(), "p2": self.a}
        self.plan.op(DROPOUT, dst, src, flags=self.pick(0, 0, 1), **params)

    def mask(self) -> None:
        n = self.a
        error = self.ready(n, self.pick(F32, S32))
        wire, inside = self.ready(n, self.pick(*STORED, S32)), self.pick(0, 0, 1)
        self.plan.op(MASK, error, wire, p0=inside, p1=0 if inside else self.factor())

    def factor(self) -> int:
        """The bits of 0, of a positive normal number, seldom of another."""
        values = [0.0, 0.01, 0.5, 1.0, 7.0, 1e-30, 3e38, 2.0**-126, 2.0**-32]
        value = self.pick(-1.0, 1e-40, np.inf, np.nan) if self.chance(0.03) else self.pick(*values)
        return int(np.array(value, np.float32).view(np.uint32))

    def loss(self, kernel: int) -> None:
        shape = {"outer": 1, "axis": self.a, "inner": 1, "group": self.a, "rows": ROWS_AXIS}
        one = {**shape, "shared": 0} if self.chance(0.9) else {}
        logits = self.ready(self.a, S16 if kernel == LOSS_S16 else F32, True, **one)
        error = self.new(self.a, S32 if kernel == LOSS_S16 else F32, True, **one)
        self.plan.op(kernel, error, logits, self.plan.add_labels(), self.plan.tensor(1))

    def weighted(self, kernel: int) -> None:
        shape = {"outer": 1, "axis": self.a, "inner": 1, "group": self.a}
        one = {**shape, "rows": ROWS_AXIS, "shared": 0} if self.chance(0.9) else {}
        kind = S16 if kernel == WEIGHTED_S16 else F32
        logits = self.ready(self.a, kind, True, **one)
        error = self.new(self.a, S32 if kind == S16 else F32, True, **one)
        per_tensor = {**shape, "shared": 0} if kind == S16 else {}
        weights = NO_TENSOR
        if self.chance(0.3):
            weights = self.lasting(self.a, kind, **per_tensor)
        shares = {"p0": self.pick(0, 2**29, 2**30), "p1": self.pick(0, 2**26)}
        if kind == F32:
            shares = {"p0": self.factor(), "p1": self.factor()}
        places = (error, logits, self.plan.add_labels(), self.plan.tensor(1), weights)
        self.plan.op(kernel, *places, **shares, p2=self.pick(2**32 - 100, 0))

    def mse(self, kernel: int) -> None:
        n, kind = self.a * self.positions, S16 if kernel == MSE_S16 else F32
        shape = {"outer": 1, "axis": n, "inner": 1, "group": n, "rows": ROWS_AXIS, "shared": 0}
        one = shape if self.chance(0.9) else {}
        output = self.ready(n, kind, True, **one)
        targets = self.plan.add_targets(n)
        if kernel == MSE_S16:
            codes = self.new(n, S16, True, **one)
            self.plan.op(CONVERT, codes, targets)
            targets = codes
        error = self.new(n, S32 if kernel == MSE_S16 else F32, True, **one)
        self.plan.op(kernel, error, output, targets, self.plan.tensor(1))

    def softmax(self, kernel: int) -> None:
        n = self.a * self.positions
        shape = {"outer": 1, "axis": n, "inner": 1, "group": n, "rows": ROWS_AXIS, "shared": 0}
        one = shape if self.chance(0.9) else {}
        floats = kernel in (SOFTMAX_F32, SOFTMAX_BACK_F32)
        kinds = (F32,) if floats else (S16,) if kernel == SOFTMAX_S16 else (S8, S16)
        back = kernel in (SOFTMAX_BACK_S32, SOFTMAX_BACK_F32)
        read = [self.ready(n, self.pick(*kinds), True, **one) for _ in range(1 + back)]
        made = self.new(n, F32 if floats else S32, True, **one)
        columns = self.pick(0, self.a, self.a, 1, self.a + 1 if self.chance(0.2) else n)
        self.plan.op(kernel, made, *read, p0=columns)

    def errors_and_wires(self, kinds: tuple[int, int]) -> tuple[int, int]:
        """[terms, out] and [terms, in], both with one scale mostly."""
        found = []
        for n in (self.b * self.positions, self.a * self.positions):
            one = {"outer": 1, "axis": n, "inner": 1, "group": n, "rows": ROWS_AXIS, "shared": 0}
            found.append(
                self.ready(n, self.pick(*kinds), True, **(one if self.chance(0.9) else {}))
            )
        return found[0], self.some(found[1], 0.7)

    def gradient(self, kernel: int) -> None:
        kinds = (F32, F32) if kernel == GRADIENT_F32 else (S8, S16)
        error, wire = self.errors_and_wires(kinds)
        inner = self.a if wire != NO_TENSOR else 1
        n, terms = self.b * inner, self.plan.batch * self.positions
        if kernel == GRADIENT_F32:
            grad = self.pick(self.lasting(n, F32), self.new(n, F32, False))
            self.plan.op(kernel, grad, error, wire, p11=self.positions)
            return
        role = {"role": PARAMETER} if kernel == FUSED else {}
        grad = self.lasting(n, self.pick(*STORED), **role)
        rows = self.pick(self.b, self.b, int(self.rng.integers(1, self.b + 1)))
        whole = {"outer": 1, "axis": rows * inner, "inner": 1, "group": rows * inner, "shared": 0}
        tile = self.new(rows * inner, S32, False, **whole)
        chunk, shift = self.headroom(terms, error, wire)
        params = {"p9": chunk, "p10": shift, "p11": self.positions}
        folded = 4 * self.chance(0.3) if wire != NO_TENSOR else 0
        if kernel == GRADIENT_S32:
            self.plan.op(kernel, grad, error, wire, tile, flags=folded, **params)
            return
        state = self.some(self.lasting(n, self.pick(*STORED), role=STATE))
        flags, coefficients = self.step()
        places = (grad, error, wire, tile, state, self.flags(grad, state))
        self.plan.op(kernel, *places, flags=flags | folded, **params, **coefficients)

    def flags(self, *tensors: int) -> int:
        n = sum(self.scales(t) for t in tensors if t != NO_TENSOR)
        return self.plan.scratch(n) if n else NO_TENSOR

    def step(self) -> tuple[int, dict[str, int]]:
        """Flags and coefficients of an update."""
        values = [0.0, 1.0, 0.9, 1e-4, 1e-30, 3e38, 2.0**-126, 100.0]
        bits = np.array([self.pick(*values) for _ in range(9)], np.float32).view(np.uint32)
        return self.pick(0, 1) | self.pick(0, 8, 16), {f"p{i}": int(v) for i, v in enumerate(bits)}

    def update(self) -> None:
        n = self.a * self.b
        param = self.lasting(n, self.pick(*STORED), role=PARAMETER)
        grad = self.ready(n, self.pick(*STORED), False)
        state = self.some(self.lasting(n, self.pick(*STORED), role=STATE))
        flags, coefficients = self.step()
        places = (param, grad, state, self.flags(param, state))
        self.plan.op(UPDATE, *places, flags=flags, **coefficients)

    def make(self, kernel: int) -> bytes:
        """The plan of operation `kernel`, the last one."""
        {
            CONVERT: self.convert,
            WIDEN: self.widen,
            PRODUCT_S32: lambda: self.product(PRODUCT_S32),
            PRODUCT_F32: lambda: self.product(PRODUCT_F32),
            RELU: self.relu,
            MASK: self.mask,
            LOSS_S16: lambda: self.loss(LOSS_S16),
            LOSS_F32: lambda: self.loss(LOSS_F32),
            GRADIENT_S32: lambda: self.gradient(GRADIENT_S32),
            GRADIENT_F32: lambda: self.gradient(GRADIENT_F32),
            UPDATE: self.update,
            FUSED: lambda: self.gradient(FUSED),
            DROPOUT: self.dropout,
            WEIGHTED_S16: lambda: self.weighted(WEIGHTED_S16),
            WEIGHTED_F32: lambda: self.weighted(WEIGHTED_F32),
            MSE_S16: lambda: self.mse(MSE_S16),
            MSE_F32: lambda: self.mse(MSE_F32),
            SOFTMAX_S16: lambda: self.softmax(SOFTMAX_S16),
            SOFTMAX_F32: lambda: self.softmax(SOFTMAX_F32),
            SOFTMAX_BACK_S32: lambda: self.softmax(SOFTMAX_BACK_S32),
            SOFTMAX_BACK_F32: lambda: self.softmax(SOFTMAX_BACK_F32),
        }[kernel]()
        return self.plan.build()
