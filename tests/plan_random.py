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
from plan_pools import POOLS, random_pool

CONVERT, WIDEN, PRODUCT_S32, PRODUCT_F32, RELU, MASK, LOSS_S16, LOSS_F32 = range(1, 9)
GRADIENT_S32, GRADIENT_F32, UPDATE, FUSED = range(9, 13)
NORM_S32, NORM_F32, NORM_BACK_S32, NORM_BACK_F32, COLUMNS_S32 = range(13, 18)
SQUARE_SUM, CLIP_FACTOR, ADAMW, FUSED_ADAMW = range(30, 34)
COMMIT = 35
ACCUMULATE = 37
MSE_S16, MSE_F32 = 20, 21
DROPOUT, WEIGHTED_S16, WEIGHTED_F32 = 26, 27, 28
SOFTMAX_S16, SOFTMAX_F32, SOFTMAX_BACK_S32, SOFTMAX_BACK_F32 = range(22, 26)
SIGMOID_S32, SIGMOID_F32, TANH_S32, TANH_F32, SIGMOID_BACK, TANH_BACK = range(38, 44)
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
        scratch = self.some(self.plan.scratch(16 * n * self.plan.batch))
        if self.plan.tensors[dst]["kind"] in (SYM, ASYM) and self.chance(0.3):
            self.plan.tensors[dst] |= {"range": 2, "limit": 0.0}
            follows = self.some(self.ready(self.a, S8, True, **self.whole(self.a)))
            self.plan.op(CONVERT, dst, src, scratch, self.gain(), follows)
            return
        self.plan.op(CONVERT, dst, src, scratch)

    def gain(self) -> int:
        """Now and then none."""
        made = self.plan.tensor(2 if self.chance(0.95) else 1, role=STATE)
        return made if self.chance(0.95) else NO_TENSOR

    def whole(self, n: int) -> Fields:
        """One scale."""
        layout = {"outer": 1, "axis": n, "inner": 1, "group": n, "rows": ROWS_AXIS, "shared": 0}
        return {**layout, "role": SCRATCH}

    def commit(self) -> None:
        made = [self.gain() for _ in range(int(self.rng.integers(1, 9)))]
        self.plan.op(COMMIT, *[t for t in made if t != NO_TENSOR] or [self.plan.tensor(2)])

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
        chunk, shift = self.headroom(k, a, b, bias != NO_TENSOR)
        flags = self.pick(0, 1) + 2 * folded
        params = {"p0": back, "p1": chunk, "p2": shift, "p3": self.positions}
        if self.chance(0.5):
            places = (a, b, bias, mask, *self.tile(n, by_row, by_column))
            out = self.coded(n, places[-1] != NO_TENSOR)
            self.plan.op(kernel, out, *places, flags=flags, **params)
            return
        acc = self.new(n * self.positions, S32, True, **({} if self.chance(0.1) else matrix))
        self.plan.op(kernel, acc, a, b, bias, mask, scratch, flags=flags, **params)

    def tile(self, n: int, by_row: bool, by_column: bool) -> tuple[int, int, int]:
        """Scratch, sums of some rows, a gain."""
        rows = 1 if by_row else self.pick(1, 2, self.plan.batch * self.positions)
        one = {"outer": 1, "axis": rows * n, "inner": 1, "group": rows * n, "shared": 0}
        columns = {"outer": rows, "axis": n, "inner": 1, "group": 1, "shared": 1}
        sums = self.new(rows * n, S32, False, **(columns if by_column else one))
        scratch = self.plan.scratch(21 * n) if self.chance(0.95) else NO_TENSOR
        return scratch, sums, NO_TENSOR if by_row or self.chance(0.5) else self.gain()

    def coded(self, n: int, gained: bool) -> int:
        """What a product writes: at a fixed range, or at one in hindsight, which has a gain."""
        known = (
            {"range": 2, "limit": 0.0} if gained else {"range": 1, "limit": self.pick(1.0, 1e-9)}
        )
        return self.new(
            n * self.positions, self.pick(S8, S16), True, **self.whole(n * self.positions), **known
        )

    def relu(self) -> None:
        src = self.ready(self.a, self.pick(*STORED, S32), self.chance(0.9))
        same = {**self.plan.tensors[src], "role": SCRATCH}
        for name in ("space", "codes", "scale", "zero_point", "absmax"):
            same[name] = 0
        dst = src if self.chance(0.3) else self.plan.tensor(self.a, **same)
        self.plan.op(RELU, dst, src, p0=self.factor(), p1=self.factor())

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
        params = {} if inside else {"p1": self.factor(), "p2": self.factor()}
        self.plan.op(MASK, error, wire, p0=inside, **params)

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

    def squash(self, kernel: int) -> None:
        n, floats = self.a * self.positions, kernel in (SIGMOID_F32, TANH_F32)
        source = self.ready(n, F32 if floats else self.pick(*STORED, S32), self.chance(0.95))
        if kernel in (SIGMOID_BACK, TANH_BACK):
            made = self.ready(n, self.pick(F32, S32, S32))
        elif floats:
            made = self.new(n, F32, True)
        else:
            made = self.new(n, S32, True, **(self.whole(n) if self.chance(0.9) else {}))
        self.plan.op(kernel, made, source)

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
            rows = int(self.rng.integers(1, self.b + 1))
            tile = self.some(self.plan.tensor(rows * inner), 0.9)
            self.several(0.7)
            self.plan.op(kernel, grad, error, wire, tile, p11=self.positions)
            return
        role = {"role": PARAMETER} if kernel in (FUSED, FUSED_ADAMW) else {}
        grad = self.lasting(n, self.pick(*STORED), **role)
        rows = self.pick(self.b, self.b, int(self.rng.integers(1, self.b + 1)))
        whole = {"outer": 1, "axis": rows * inner, "inner": 1, "group": rows * inner, "shared": 0}
        tile = self.new(rows * inner, S32, False, **whole)
        chunk, shift = self.headroom(terms, error, wire)
        params = {"p9": chunk, "p10": shift, "p11": self.positions}
        folded = 4 * self.chance(0.3) if wire != NO_TENSOR else 0
        if kernel == GRADIENT_S32:
            joint = self.some(self.plan.scratch(4 * max(self.scales(grad), 1)), 0.9)
            self.several(0.7)
            self.plan.op(kernel, grad, error, wire, tile, joint, flags=folded, **params)
            return
        if kernel == FUSED_ADAMW:
            one, two = (self.lasting(n, self.pick(*STORED), role=STATE) for _ in range(2))
            flags, coefficients = self.moments()
            places = (grad, error, wire, tile, one, two, self.flags(grad, one, two))
            self.plan.op(kernel, *places, flags=flags | folded, **params, **coefficients)
            return
        state = self.some(self.lasting(n, self.pick(*STORED), role=STATE))
        flags, coefficients = self.step()
        places = (grad, error, wire, tile, state, self.flags(grad, state))
        self.plan.op(kernel, *places, flags=flags | folded, **params, **coefficients)

    def several(self, chance: float) -> None:
        """Micro-batches in a step, perhaps."""
        self.plan.header["micro_batches"] = self.pick(2, 3, 7) if self.chance(chance) else 0

    def accumulate(self) -> None:
        n = self.a * self.b
        role = {"role": GRADIENT} if self.chance(0.9) else {}
        grad = self.lasting(n, self.pick(S8, S16, ODD, ASYMMETRIC), **role)
        sums = self.plan.tensor(n)
        self.plan.op(CONVERT, sums, self.lasting(n, F32))
        self.several(0.9)
        self.plan.op(ACCUMULATE, grad, sums)

    def flags(self, *tensors: int) -> int:
        n = sum(self.scales(t) for t in tensors if t != NO_TENSOR)
        return self.plan.scratch(n) if n else NO_TENSOR

    def step(self) -> tuple[int, dict[str, int]]:
        """Flags and coefficients of an update."""
        values = [0.0, 1.0, 0.9, 1e-4, 1e-30, 3e38, 2.0**-126, 100.0]
        bits = np.array([self.pick(*values) for _ in range(10)], np.float32).view(np.uint32)
        params = {f"p{i if i < 9 else 12}": int(v) for i, v in enumerate(bits)}
        return self.pick(0, 1) | self.pick(0, 8, 16), params

    def update(self) -> None:
        n = self.a * self.b
        param = self.lasting(n, self.pick(*STORED), role=PARAMETER)
        grad = self.ready(n, self.pick(*STORED), False)
        state = self.some(self.lasting(n, self.pick(*STORED), role=STATE))
        flags, coefficients = self.step()
        places = (param, grad, state, self.flags(param, state), self.some(self.number()))
        self.plan.op(UPDATE, *places, flags=flags, **coefficients)

    def matrix(self, n: int, by_row: bool, by_column: bool) -> Fields:
        """The layout of accumulators with such scales."""
        fields = {"outer": self.positions, "axis": n, "inner": 1, "rows": ROWS_OUTER, "group": n}
        if by_column:
            return {**fields, "group": 1, "shared": int(not by_row)}
        if by_row:
            return {**fields, "shared": 0}
        whole = n * self.positions
        return {**fields, "outer": 1, "axis": whole, "rows": ROWS_AXIS, "group": whole}

    def rows_of(self, n: int, kinds: tuple[int, ...]) -> int:
        """m x n, with a scale or one a row mostly."""
        by_row = self.matrix(n, self.chance(0.5), False)
        fields = by_row if self.chance(0.9) else {}
        return self.ready(n * self.positions, self.pick(*kinds), True, **fields)

    def normalize(self, kernel: int) -> None:
        n, sym = self.a, kernel in (NORM_S32, NORM_BACK_S32, COLUMNS_S32)
        kinds = (S8, S16) if sym else (F32,)
        eps = np.float32(self.pick(0.0, 1e-5, 1.0, 3e38, 2.0**-126)).view(np.uint32)
        params = {"p1": int(eps), "p3": self.positions}
        a = self.rows_of(n, kinds)
        by_row = self.by_rows(a)
        if kernel in (NORM_BACK_S32, NORM_BACK_F32):
            x, gamma = self.rows_of(n, kinds), NO_TENSOR
            if sym:
                params |= {"p0": self.pick(6, 10, 16, 16, 17), "p2": self.pick(0, 1, 6, 31, 31)}
                by_row = True
            else:
                gamma = self.some(self.ready(n, F32, False))
            places = [a, x, gamma]
        else:
            gamma = self.some(self.ready(n, self.pick(*kinds), False), 0.8)
            beta = self.some(self.lasting(n, self.pick(*STORED) if sym else F32))
            if kernel == COLUMNS_S32:
                gamma = self.ready(n, self.pick(*kinds), False)
                params.pop("p1")
                places = [a, gamma]
            else:
                by_row = False
                params |= {"p0": self.pick(0, 8, 11, 20, 24)} if sym else {}
                places = [a, gamma, beta, self.plan.scratch(5 * n) if sym else NO_TENSOR]
        columns = False
        if sym and kernel != NORM_BACK_S32:
            columns = kernel == NORM_S32 and beta != NO_TENSOR
            columns = columns or (gamma != NO_TENSOR and self.scales(gamma) != 1)
        layout = self.matrix(n, by_row, columns) if self.chance(0.9) and sym else {}
        out = self.new(n * self.positions, S32 if sym else F32, True, **layout)
        flags = self.pick(0, 1) if kernel in (NORM_S32, NORM_F32) else 0
        self.plan.op(kernel, out, *places, flags=flags, **params)

    # --- clipping and AdamW -----------------------------------------------------------------------

    def number(self) -> int:
        """One float: what an operation made, or whatever lies in memory."""
        if self.chance(0.5):
            return self.lasting(1, F32)
        made = self.new(1, F32, False)
        self.plan.op(SQUARE_SUM, made, self.lasting(self.a, self.pick(*STORED)))
        return made

    def square_sum(self) -> None:
        gradient = self.ready(self.a * self.b, self.pick(*STORED), False)
        self.plan.op(SQUARE_SUM, self.new(1, F32, False), gradient, self.some(self.number()))

    def clip_factor(self) -> None:
        bits = int(np.float32(self.pick(1.0, 1e-30, 3e38, 0.1)).view(np.uint32))
        self.plan.op(CLIP_FACTOR, self.new(1, F32, False), self.number(), p0=bits)

    def moments(self) -> tuple[int, dict[str, int]]:
        """Flags and coefficients of a step of AdamW."""
        values = [0.0, 1.0, 0.9, 1e-4, 1e-30, 3e38, 2.0**-126, 100.0]
        floats = [self.pick(*values) for _ in range(7)]
        floats[4] = floats[4] or 1e-8
        bits = [int(v) for v in np.array(floats, np.float32).view(np.uint32)]
        betas = [self.pick(0, 1, 2**31, 2**32 - 1, int(0.999 * 2**32)) for _ in range(2)]
        params = {f"p{i}": v for i, v in enumerate([*bits[:6], *betas])}
        return self.pick(0, 8, 16), {**params, "p12": bits[6]}

    def adamw(self) -> None:
        n = self.a * self.b
        param = self.lasting(n, self.pick(*STORED), role=PARAMETER)
        grad = self.ready(n, self.pick(*STORED), False)
        one, two = (self.lasting(n, self.pick(*STORED), role=STATE) for _ in range(2))
        flags, coefficients = self.moments()
        places = (param, grad, one, two, self.flags(param, one, two), self.some(self.number()))
        self.plan.op(ADAMW, *places, flags=flags, **coefficients)

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
            **{
                k: (lambda k=k: self.normalize(k))
                for k in (NORM_S32, NORM_F32, NORM_BACK_S32, NORM_BACK_F32, COLUMNS_S32)
            },
            SQUARE_SUM: self.square_sum,
            CLIP_FACTOR: self.clip_factor,
            ADAMW: self.adamw,
            FUSED_ADAMW: lambda: self.gradient(FUSED_ADAMW),
            COMMIT: self.commit,
            ACCUMULATE: self.accumulate,
            DROPOUT: self.dropout,
            WEIGHTED_S16: lambda: self.weighted(WEIGHTED_S16),
            WEIGHTED_F32: lambda: self.weighted(WEIGHTED_F32),
            MSE_S16: lambda: self.mse(MSE_S16),
            MSE_F32: lambda: self.mse(MSE_F32),
            SOFTMAX_S16: lambda: self.softmax(SOFTMAX_S16),
            SOFTMAX_F32: lambda: self.softmax(SOFTMAX_F32),
            SOFTMAX_BACK_S32: lambda: self.softmax(SOFTMAX_BACK_S32),
            SOFTMAX_BACK_F32: lambda: self.softmax(SOFTMAX_BACK_F32),
            **{k: (lambda k=k: self.squash(k)) for k in range(SIGMOID_S32, TANH_BACK + 1)},
            **{k: (lambda k=k: random_pool(self, k)) for k in POOLS},
        }[kernel]()
        return self.plan.build()
