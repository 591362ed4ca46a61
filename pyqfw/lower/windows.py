"""Windows: how a kernel goes over an image, and the scratch that takes."""

from __future__ import annotations

from typing import NamedTuple

LONG = 8  # rows from which on tiles are made for speed, not for RAM
PATCHES = {False: 1024, True: 16 * 1024}  # bytes of an image's patches, for short and long batches
MOST_LINE = 4096  # bytes of a padded line, for a short batch
MOST_TURNED = 2560  # and of weights that are turned round, with their patches


class Window(NamedTuple):
    """How a kernel goes over an image, in the order of the plan's bytes."""

    in_h: int
    in_w: int
    out_h: int
    out_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int = 1
    stride_w: int = 1
    pad_h: int = 0
    pad_w: int = 0
    dilation_h: int = 1
    dilation_w: int = 1
    groups: int = 1

    def __str__(self) -> str:
        """What a kernel does that a plain one does not; of a line, without its height."""
        line = self.in_h == self.out_h == self.kernel_h == 1

        def sizes(high: int, wide: int) -> str:
            return str(wide) if line else f"{high}x{wide}"

        parts = [f"kernel {sizes(self.kernel_h, self.kernel_w)}"]
        for name, usual in (("stride", 1), ("pad", 0), ("dilation", 1)):
            given = getattr(self, f"{name}_h"), getattr(self, f"{name}_w")
            parts += [f"{name} {sizes(*given)}"] if given != (usual, usual) else []
        return " ".join(parts + [f"groups {self.groups}"] * (self.groups > 1))

    @property
    def taps(self) -> int:
        return self.kernel_h * self.kernel_w

    @property
    def in_positions(self) -> int:
        return self.in_h * self.in_w

    @property
    def out_positions(self) -> int:
        return self.out_h * self.out_w

    @property
    def apart(self) -> bool:
        """Whether no two positions meet one pixel."""
        reach_h = self.dilation_h * (self.kernel_h - 1) + 1
        reach_w = self.dilation_w * (self.kernel_w - 1) + 1
        high = self.out_h == 1 or self.stride_h >= reach_h
        return high and (self.out_w == 1 or self.stride_w >= reach_w)

    @property
    def covered(self) -> bool:
        """Whether every window lies in the image."""
        reach_h = (self.out_h - 1) * self.stride_h + (self.kernel_h - 1) * self.dilation_h
        reach_w = (self.out_w - 1) * self.stride_w + (self.kernel_w - 1) * self.dilation_w
        return max(self.pad_h, self.pad_w) == 0 and reach_h < self.in_h and reach_w < self.in_w

    @property
    def is_inside(self) -> bool:
        """Whether every row of patches can be read in place: a slice of a line of the image."""
        reach = (self.out_w - 1) * self.stride_w + self.kernel_w
        return self.is_line and self.pad_w == 0 and reach <= self.in_w

    @property
    def is_line(self) -> bool:
        """Whether it is a slice of a line, once that is padded."""
        plain = self.kernel_h == self.dilation_w == self.groups == 1 and self.pad_h == 0
        return plain and (self.out_h - 1) * self.stride_h < self.in_h

    def line_bytes(self, channels: int, size: int) -> int:
        """Of a line with its padding."""
        return ((self.out_w - 1) * self.stride_w + self.kernel_w) * channels * size


def patch_bytes(window: Window, channels: int, size: int, batch: int) -> int:
    """Scratch of a window that gathers: a padded line, or some patches; none where all is there."""
    if window.is_inside:
        return 0
    line = window.line_bytes(channels, size)
    if window.is_line and (batch >= LONG or line <= MOST_LINE):
        return line
    patch = window.taps * (channels // window.groups) * size
    rows = min(window.out_positions * batch, max(1, PATCHES[batch >= LONG] // patch))
    return rows * patch


def turned_bytes(window: Window, channels: int, size: int, weights: int, batch: int) -> int:
    """Scratch of a window that scatters and might gather instead: weights turned round and some
    patches, where the image has two axes and that is little or made for speed."""
    if window.kernel_h == 1 or (window.stride_h, window.stride_w, window.groups) != (1, 1, 1):
        return 0
    turned = window._replace(
        in_h=window.out_h,
        in_w=window.out_w,
        out_h=window.in_h,
        out_w=window.in_w,
        pad_h=(window.kernel_h - 1) * window.dilation_h - window.pad_h,
        pad_w=(window.kernel_w - 1) * window.dilation_w - window.pad_w,
    )
    if min(turned.pad_h, turned.pad_w) < 0:
        return 0
    total = -(-weights // 16) * 16 + patch_bytes(turned, channels, size, batch)
    return total if batch >= LONG or total <= MOST_TURNED else 0
