"""One pool operation of the core over data of our own: a plan made by hand that makes its operands,
whose bytes are then replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from oracle_pool import Geometry, pick_bits
from oracle_tensor import Array
from plan_bytes import NO_TENSOR, PARAMETER, PICK, ROWS_AXIS, ROWS_OUTER, SYM, Builder, part_sizes
from plan_net import OK, Net, check

from pyqfw import quant

CONVERT, PRODUCT_S32, PRODUCT_F32 = 1, 3, 4
MAX_POOL, MAX_POOL_BACK = 50, 51
AVG_POOL_S32, AVG_POOL_F32, AVG_POOL_BACK_S32, AVG_POOL_BACK_F32 = range(52, 56)
PADDING_COUNTS, ADAPTIVE = 1, 2
TYPES = {"f32": np.float32, "s8": np.int8, "s16": np.int16, "s32": np.int32, "columns": np.int32}
SYMS = {"s8": (8, 8), "s16": (16, 16), "s32": (32, 32), "columns": (32, 32)}


@dataclass
class Data:
    """An image or what a pool made of one: [rows][high][wide][channels], scales, absmax."""

    kind: str  # of TYPES, or "pick"
    values: Array
    scale: Array | float = 1.0
    absmax: Array | None = None
    bits: int = 0  # 0: those of the slots


class Machine:
    """A window over an image of so many channels, for at most `batch` rows."""

    def __init__(self, g: Geometry, channels: int, batch: int) -> None:
        self.g, self.channels, self.batch = g, channels, batch
        self.plan = Builder(batch, gap=64)
        kernel, stride = g.kernel, g.stride
        self.window = self.plan.window(
            **{"in_h": g.size[0], "in_w": g.size[1], "out_h": g.out[0], "out_w": g.out[1]},
            **{"kernel_h": kernel[0], "kernel_w": kernel[1]},
            **{"stride_h": stride[0], "stride_w": stride[1]},
            **{"pad_h": g.padding[0], "pad_w": g.padding[1]},
            **{"dilation_h": g.dilation[0], "dilation_w": g.dilation[1]},
        )

    def tensor(self, kind: str, positions: int, bits: int = 0) -> int:
        """A tensor of a row's positions, with rows."""
        n = positions * self.channels
        if kind == "pick":
            fields = {"kind": PICK, "bits": pick_bits(self.g), "container": 0}
            return self.plan.tensor(n, rows=ROWS_AXIS, **fields)
        if kind == "f32":
            return self.plan.tensor(n, rows=ROWS_AXIS)
        usual, container = SYMS[kind]
        layout: dict[str, int] = {"rows": ROWS_AXIS}
        if kind == "columns":
            layout = {"rows": ROWS_OUTER, "outer": positions, "axis": self.channels}
            layout |= {"group": 1, "shared": 1}
        fields = {"kind": SYM, "bits": bits or usual, "container": container}
        return self.plan.tensor(n, **fields, **layout)

    def made(self, kind: str, positions: int, bits: int = 0) -> int:
        """One that an operation wrote."""
        t, n = self.tensor(kind, positions, bits), positions * self.channels
        plan = self.plan
        if kind == "pick":
            image = self.made("f32", self.g.size[0] * self.g.size[1])
            plan.op(MAX_POOL, self.tensor("f32", positions), image, t, p13=self.window)
            return t
        columns = kind == "columns"
        width = positions if columns else 1 if kind == "s32" else n
        floats = t if kind == "f32" else plan.tensor(width, rows=ROWS_AXIS)
        plan.op(PRODUCT_F32, floats, plan.input, plan.tensor(width, role=PARAMETER))
        if kind in ("s8", "s16"):
            plan.op(CONVERT, t, floats)
        elif kind != "f32":
            a = plan.sym(width, rows=ROWS_AXIS)
            plan.op(CONVERT, a, floats)
            b = plan.sym(n // width, role=PARAMETER)
            bias = plan.tensor(self.channels, role=PARAMETER)
            more = (bias, NO_TENSOR, plan.scratch(5 * self.channels)) if columns else ()
            plan.op(PRODUCT_S32, t, a, b, *more, p1=1, p3=width)
        return t

    def run(
        self,
        table: Any,
        kernel: int,
        rows: int,
        result: tuple[str, int, int],
        operands: list[Data],
        *,
        picks: bool = False,
        over: bool = False,
        flags: int = 0,
        **params: int,
    ) -> list[Data]:
        """What the operation writes: the result (kind, positions, bits) and, asked for, picks.
        over: it takes the place of the first operand."""
        sizes = [prod_positions(d.values) for d in operands]
        ids = [self.made(d.kind, n, d.bits) for d, n in zip(operands, sizes, strict=True)]
        out = self.tensor(*result)
        written = [out, *([self.tensor("pick", result[1])] if picks else [])]
        if over:
            self._lay_over(out, ids[0])
        places = [out, ids[0], *ids[1:], *written[1:]]
        self.plan.op(kernel, *places, flags=flags, p13=self.window, **params)
        data = self.plan.build()
        assert check(data) == OK
        net = Net(data, table)
        before = len(net.plan.ops) - 1
        x = np.ones(rows, np.float32)
        with quant.float_mode():
            assert net.open() == "OK"
            assert net.walk(0, before, rows, x=x) == "OK"
            for t, d in zip(ids, operands, strict=True):
                self._write(net, t, d)
            guard = net.arena.copy()
            assert net.walk(before, 1, rows, x=x) == "OK"
        self._check_untouched(net, guard, written)
        return [self._read(net, t, rows) for t in written]

    def _lay_over(self, out: int, image: int) -> None:
        """The result begins where the image's codes do, its scales behind its own codes."""
        t = self.plan.tensors[out]
        at = self.plan.tensors[image]["codes"]
        for name, size in part_sizes(t, self.batch).items():
            if size:
                t[name] = at
                at += -(-size // 16) * 16

    def _parts(self, net: Net, t: int, rows: int) -> dict[str, Array]:
        """Views of a tensor's parts over so many rows."""
        fields = self.plan.tensors[t]
        sizes = part_sizes(fields, rows)
        return {n: net.arena[fields[n] : fields[n] + size] for n, size in sizes.items() if size}

    def _write(self, net: Net, t: int, d: Data) -> None:
        parts = self._parts(net, t, len(d.values))
        if d.kind == "pick":
            bits = pick_bits(self.g)
            each = d.values.reshape(-1, 1) >> np.arange(bits) & 1
            parts["codes"][:] = np.packbits(each.astype(np.uint8), bitorder="little")
            return
        codes = d.values.astype(TYPES[d.kind])
        np.testing.assert_array_equal(codes, d.values)
        parts["codes"][:] = codes.reshape(-1).view(np.uint8)
        if "scale" in parts:
            parts["scale"].view(np.float32)[:] = d.scale

    def _read(self, net: Net, t: int, rows: int) -> Data:
        fields, parts = self.plan.tensors[t], self._parts(net, t, rows)
        positions = int(fields["outer"]) * int(fields["axis"]) // self.channels
        shape = (rows, positions, self.channels)
        if fields["kind"] == PICK:
            return Data("pick", parts["codes"].copy())
        kind = np.float32
        if fields["kind"] == SYM:
            kind = {8: np.int8, 16: np.int16, 32: np.int32}[fields["container"]]
        values = parts["codes"].copy().view(kind).reshape(shape)
        scale = parts["scale"].copy().view(np.float32) if "scale" in parts else 1.0
        absmax = parts["absmax"].copy().view(np.uint32) if "absmax" in parts else None
        return Data("", values, scale, absmax)

    def _check_untouched(self, net: Net, before: Array, written: list[int]) -> None:
        """Nothing but what it is said to write was written, at most `batch` rows of it."""
        changed = net.arena != before
        changed[:128] = False  # the core's own
        for t in written:
            for part in self._parts(net, t, self.batch).values():
                start = part.ctypes.data - net.arena.ctypes.data
                changed[start : start + part.size] = False
        assert not changed.any()


def prod_positions(values: Array) -> int:
    """Positions of a row of [rows][high][wide][channels]."""
    return int(values.shape[1] * values.shape[2])
