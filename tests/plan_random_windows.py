"""Random plans of operations that go over an image, of joins, and of what moves codes."""

from __future__ import annotations

from typing import Any

from plan_bytes import NO_TENSOR, PARAMETER, PICK, ROWS_AXIS, ROWS_OUTER, SCRATCH, STATE
from plan_random import (
    F32,
    FUSED,
    FUSED_ADAMW,
    GRADIENT_F32,
    GRADIENT_S32,
    PRODUCT_F32,
    PRODUCT_S32,
    S8,
    S16,
    S32,
    STORED,
    Fields,
)
from plan_random_norms import Maker

JOIN_S32, JOIN_F32, TRANSPOSE, PART = range(46, 50)
PRODUCT_POOL, PRODUCT_FOLD = 64, 65
PRODUCTS, GRADIENTS = (PRODUCT_S32, PRODUCT_F32), (GRADIENT_S32, GRADIENT_F32, FUSED, FUSED_ADAMW)


class WindowMaker(Maker):
    """A Maker that also knows windows, joins, transposes and parts."""

    def make(self, kernel: int) -> bytes:
        made = {
            JOIN_S32: lambda: self.join(JOIN_S32),
            JOIN_F32: lambda: self.join(JOIN_F32),
            TRANSPOSE: self.transpose,
            PART: self.part,
            PRODUCT_POOL: self.pooled,
            PRODUCT_FOLD: self.folded,
        }
        if kernel in PRODUCTS and self.chance(0.5):
            made[kernel] = lambda: self.convolution(kernel)
        elif kernel in GRADIENTS and self.chance(0.5):
            made[kernel] = lambda: self.convolution_gradient(kernel)
        if kernel not in made:
            return super().make(kernel)
        made[kernel]()
        return self.plan.build()

    # --- windows ----------------------------------------------------------------------------------

    def window(self) -> tuple[int, Fields]:
        """A window, small, mostly one of a convolution; its number plus 1, its fields."""
        high = self.chance(0.4)

        def sizes(name: str, *options: int) -> dict[str, int]:
            given = {f"{name}_h": self.pick(*options) if high else min(options)}
            return {**given, f"{name}_w": self.pick(*options)}

        w = sizes("in", 1, 2, 3, 5) | sizes("kernel", 1, 1, 2, 3) | sizes("stride", 1, 1, 2, 3)
        w |= sizes("pad", 0, 0, 1, 2) | sizes("dilation", 1, 1, 2)
        for axis in "hw":
            size, reach = w[f"in_{axis}"], w[f"dilation_{axis}"] * (w[f"kernel_{axis}"] - 1) + 1
            fits = (size + 2 * w[f"pad_{axis}"] - reach) // w[f"stride_{axis}"] + 1
            w[f"out_{axis}"] = self.pick(1, 2, 4) if self.chance(0.2) else max(1, fits)
        w["groups"] = self.pick(1, 1, 1, 2, 3)
        if self.chance(0.03):
            w[self.pick(*w)] = self.pick(0, 1, 2, 255, 65535)
        number = self.plan.window(**w)
        return number if self.chance(0.98) else number + 1, w

    def channels(self, w: Fields) -> int:
        each = self.pick(1, 1, 2, 3)
        return each * w["groups"] if self.chance(0.98) else each + 1

    def one(self, n: int) -> Fields:
        """One scale, mostly."""
        return self.whole(n) if self.chance(0.95) else {}

    def patches(self, w: Fields, channels: int, slot: int, before: int = 0) -> int:
        """Scratch: room for nothing, a patch or some; behind what is there before."""
        patch = w["kernel_h"] * w["kernel_w"] * (channels // max(w["groups"], 1)) * slot
        room = -(-before // 16) * 16 + patch * self.pick(1, 1, 2, 5) + self.pick(0, 0, 1, 100)
        return NO_TENSOR if self.chance(0.03) else self.plan.scratch(max(room, 1))

    def slot(self, t: int) -> int:
        return int(self.plan.tensors[t]["container"] or self.plan.tensors[t]["bits"]) // 8

    def convolution(self, kernel: int) -> None:
        number, w = self.window()
        back = self.pick(0, 0, 1)
        c, o = self.channels(w), self.channels(w)
        image, made = w["in_h"] * w["in_w"] * c, w["out_h"] * w["out_w"] * o
        from_n, to_n = (made, image) if back else (image, made)
        n, own = (c, o) if back else (o, c)
        positions = max(to_n // n, 1)
        groups = max(w["groups"], 1)
        weights = max(o * w["kernel_h"] * w["kernel_w"] * (c // groups), 1)
        params = {"p0": back, "p3": positions, "p13": number}
        bias, mask = NO_TENSOR, NO_TENSOR
        if self.chance(0.4):
            bias = self.lasting(n, self.pick(*STORED) if kernel == PRODUCT_S32 else F32)
        kinds = (S8, S16) if kernel == PRODUCT_S32 else (F32, F32)
        a = self.ready(max(from_n, 1), self.pick(*kinds), True, **self.one(max(from_n, 1)))
        if self.chance(0.3):
            mask = self.ready(max(to_n, 1), self.pick(F32, S8, S16, S32))
        if kernel == PRODUCT_F32:
            b, acc = self.ready(weights, F32, False), self.new(max(to_n, 1), F32, True)
            scratch = self.patches(w, c, 4)
            places = (acc, a, b, bias, mask, scratch)
            self.plan.op(kernel, *places, flags=self.pick(0, 1), **params)
            return
        folded = self.chance(0.2)
        b = self.weights(weights, o, c // groups, back)
        by_column = bias != NO_TENSOR or (not folded and self.scales(b) != 1)
        terms = w["kernel_h"] * w["kernel_w"] * (own // groups)
        chunk, shift = self.headroom(max(terms, 1), a, b, bias != NO_TENSOR)
        params |= {"p1": chunk, "p2": shift}
        flags = self.pick(0, 1) + 2 * folded
        if self.chance(0.4):
            self.positions = positions
            _, sums, gain = self.tile(n, False, by_column)
            ratios = 16 * n * by_column + 5 * n * (bias != NO_TENSOR)
            scratch = self.patches(w, c, self.slot(a), ratios)
            out = self.coded(n, gain != NO_TENSOR)
            places = (out, a, b, bias, mask, scratch, sums, gain)
            self.plan.op(kernel, *places, flags=flags, **params)
            return
        scratch = self.patches(w, c, self.slot(a), 5 * n * (bias != NO_TENSOR))
        spots = {"outer": positions, "axis": n, "inner": 1, "rows": ROWS_OUTER, "group": 1}
        one = {"outer": 1, "axis": max(to_n, 1), "inner": 1, "group": max(to_n, 1)}
        layout = {**spots, "shared": 1} if by_column else {**one, "rows": ROWS_AXIS, "shared": 0}
        acc = self.new(max(to_n, 1), S32, True, **layout)
        self.plan.op(kernel, acc, a, b, bias, mask, scratch, flags=flags, **params)

    def pooled(self) -> None:
        """A convolution over a line whose sums are pooled: mostly as they should be."""
        c, n, width, kernel = self.pick(1, 2, 3), self.pick(1, 2, 3), self.pick(4, 5, 7), 2
        made = width - kernel + 1
        taps, step = self.pick(1, 2, 3), self.pick(1, 2, 3)
        outs = (made - taps) // step + 1 + (1 if self.chance(0.05) else 0)
        conv = self.plan.window(in_w=width, out_w=made, kernel_w=kernel, pad_w=self.pick(0, 0, 1))
        pool = self.plan.window(in_w=made, out_w=outs, kernel_w=taps, stride_w=step)
        a = self.ready(width * c, S8, True, **self.whole(width * c))
        b = self.lasting(n * kernel * c, S8)
        rows = min(made, max(taps, self.pick(taps, made, 1)))
        tile = {"outer": rows, "axis": n, "inner": 1, "group": 1, "shared": 1}
        bias, gain = self.lasting(n, S8), self.gain()
        acc = self.new(rows * n, S32, False, **tile)
        picks = {"kind": PICK, "bits": 2, "container": 0, "role": SCRATCH, "rows": ROWS_AXIS}
        self.positions = outs
        out = self.coded(n, gain != NO_TENSOR)
        scratch = self.plan.scratch(64 + 32 * n + 2 * kernel * c + self.pick(0, 0, 40))
        pick = self.some(self.plan.tensor(outs * n, **picks))
        params = {"p1": self.pick(100, 1000), "p3": made, "p4": pool, "p13": conv}
        places = (out, a, b, bias, pick, scratch, acc, gain)
        self.plan.op(PRODUCT_POOL, *places, flags=self.pick(0, 1), **params)

    def folded(self) -> None:
        """The way back over a line, its operand widened some positions at a time."""
        c, o, width, kernel = self.pick(1, 2, 3), self.pick(1, 2, 3), self.pick(3, 5, 9), 3
        step, pad = self.pick(1, 2, 3, 4), self.pick(0, 1, 2, 5)
        made = (width + 2 * pad - kernel) // step + 1
        line = self.plan.window(in_w=width, out_w=made, kernel_w=kernel, stride_w=step, pad_w=pad)
        a = self.ready(made * o, S8, True, **self.whole(made * o))
        each = {"outer": 1, "axis": o, "inner": kernel * c, "group": 1, "shared": 0}
        b = self.lasting(o * kernel * c, S8, **each)
        acc = self.new(width * c, S32, True, **self.whole(width * c))
        scratch = self.plan.scratch(16 * o + 2 * o * self.pick(1, 2, 3, 3, 4, made))
        params = {"p0": 1, "p1": 50, "p3": width, "p4": self.pick(9, 12, 15, 16), "p13": line}
        mask = self.some(self.ready(width * c, F32))
        self.plan.op(PRODUCT_FOLD, acc, a, b, NO_TENSOR, mask, scratch, flags=2, **params)

    def weights(self, n: int, o: int, inner: int, back: int) -> int:
        """Weights with one scale, one for each output or input, or any."""
        whole: Fields = {"outer": 1, "axis": n, "inner": 1, "group": n, "shared": 0}
        each: Fields = {"outer": 1, "axis": o, "inner": max(n // o, 1), "group": 1, "shared": 0}
        last: Fields = {"outer": max(n // max(inner, 1), 1), "axis": max(inner, 1), "inner": 1}
        last |= {"group": 1, "shared": 1}
        given = self.pick(whole, whole, last if back else each, {})
        return self.lasting(n, self.pick(S8, S16), **given)

    def convolution_gradient(self, kernel: int) -> None:
        number, w = self.window()
        c, o = self.channels(w), self.channels(w)
        image, positions = w["in_h"] * w["in_w"] * c, max(w["out_h"] * w["out_w"], 1)
        inner = max(w["kernel_h"] * w["kernel_w"] * (c // max(w["groups"], 1)), 1)
        n, terms = o * inner, self.plan.batch * positions
        params = {"p11": positions, "p13": number}
        kinds = (F32, F32) if kernel == GRADIENT_F32 else (S8, S16)
        sizes = (positions * o, max(image, 1))
        error, wire = (self.ready(k, self.pick(*kinds), True, **self.one(k)) for k in sizes)
        rows = self.pick(o, o, int(self.rng.integers(1, o + 1)))
        if kernel == GRADIENT_F32:
            grad = self.pick(self.lasting(n, F32), self.new(n, F32, False))
            tile = self.some(self.plan.tensor(rows * inner), 0.9)
            self.several(0.7)
            self.plan.op(kernel, grad, error, wire, tile, self.patches(w, c, 4), **params)
            return
        role: Fields = {"role": PARAMETER} if kernel in (FUSED, FUSED_ADAMW) else {}
        grad = self.lasting(n, self.pick(*STORED), **role)
        whole = {"outer": 1, "axis": rows * inner, "inner": 1, "group": rows * inner, "shared": 0}
        tile = self.new(rows * inner, S32, False, **whole)
        chunk, shift = self.headroom(terms, error, wire)
        if self.chance(0.3):
            chunk, shift = max(1, min(chunk, self.pick(1, 2, 3))), shift
        split = shift != 0 or chunk < terms
        scratch = self.patches(w, c, self.slot(wire), 8 * rows * inner if split else 0)
        params |= {"p9": chunk, "p10": shift}
        if kernel == GRADIENT_S32:
            joint = self.some(self.plan.scratch(4 * max(self.scales(grad), 1)), 0.9)
            self.several(0.7)
            self.plan.op(kernel, grad, error, wire, tile, joint, scratch, **params)
            return
        states = [self.lasting(n, self.pick(*STORED), role=STATE) for _ in range(2)]
        if kernel == FUSED_ADAMW:
            flags, coefficients = self.moments()
            places = (grad, error, wire, tile, *states, self.flags(grad, *states), scratch)
        else:
            flags, coefficients = self.step()
            state = self.some(states[0])
            places = (grad, error, wire, tile, state, self.flags(grad, state), scratch)
        self.plan.op(kernel, *places, flags=flags, **params, **coefficients)

    # --- joins and moves --------------------------------------------------------------------------

    def join(self, kernel: int) -> None:
        kinds = (S8, S16) if kernel == JOIN_S32 else (F32,)
        beside, count = self.chance(0.5), int(self.rng.integers(1, 8))
        positions = self.pick(1, 2, 3)
        each = [self.pick(1, 2, self.a) if beside else self.a for _ in range(count)]
        sizes = [k * positions if beside else k for k in each]
        read = [self.ready(k, self.pick(*kinds), True, **self.one(k)) for k in sizes]
        if self.chance(0.05):
            read.insert(int(self.rng.integers(count)), NO_TENSOR)
        n = sum(sizes) if beside else self.a
        n = n if self.chance(0.97) else n + 1
        made = self.new(n, S32 if kernel == JOIN_S32 else F32, True, **self.one(n))
        self.plan.op(kernel, made, *read[:7], p0=positions * beside)

    def alike(self, src: int, n: int) -> int:
        """A tensor of src's format."""
        same: dict[str, Any] = {**self.plan.tensors[src], **self.whole(n)}
        for name in ("space", "codes", "scale", "zero_point", "absmax"):
            same[name] = 0
        if self.chance(0.03):
            same |= self.pick({"bits": 8}, {"pow2": 1}, {"rows": ROWS_OUTER}, {"rounding": 1})
        return self.plan.tensor(n, **same)

    def transpose(self) -> None:
        high, wide, more = (self.pick(1, 2, 3, 5) for _ in range(3))
        n = high * wide * more
        src = self.ready(n, self.pick(F32, S8, S16), True, **self.one(n))
        sizes = {"p0": high, "p1": wide} if self.chance(0.95) else {"p0": n, "p1": wide}
        self.plan.op(TRANSPOSE, self.alike(src, n), src, **sizes)

    def part(self) -> None:
        pieces, piece = self.pick(1, 2, 3), self.pick(1, 2, 3, 5)
        begin = int(self.rng.integers(piece))
        size = int(self.rng.integers(1, piece - begin + 1)) + (1 if self.chance(0.05) else 0)
        src = self.ready(pieces * piece, self.pick(F32, S8, S16), True, **self.one(pieces * piece))
        self.plan.op(PART, self.alike(src, pieces * size), src, p0=pieces, p1=begin)
