"""Networks as users of PyTorch write them, for either library: `lib` is torch.nn or pyqfw.nn.

`concat` joins along an axis: torch has a function for that, pyqfw a layer.
"""

from __future__ import annotations

from typing import Any


def resnet(lib: Any, concat: Any) -> Any:
    """Two residual blocks, the second with a stride and a shortcut of its own."""

    class Block(lib.Module):  # type: ignore[misc]
        def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
            super().__init__()
            self.conv1 = lib.Conv2d(inputs, outputs, 3, stride=stride, padding=1)
            self.relu1 = lib.ReLU()
            self.conv2 = lib.Conv2d(outputs, outputs, 3, padding=1, bias=False)
            self.relu2 = lib.ReLU()
            same = inputs == outputs and stride == 1
            self.down = None if same else lib.Conv2d(inputs, outputs, 1, stride=stride)

        def forward(self, x: Any) -> Any:
            y = self.conv2(self.relu1(self.conv1(x)))
            return self.relu2(y + (x if self.down is None else self.down(x)))

    class ResNet(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = lib.Sequential(lib.Conv2d(1, 4, 3, padding=1), lib.ReLU())
            self.blocks = lib.ModuleList([Block(4, 4), Block(4, 6, stride=2)])
            self.head = lib.Sequential(lib.Flatten(), lib.Linear(54, 4))

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    return ResNet()


def ds_cnn(lib: Any, concat: Any) -> Any:
    """Keyword spotting: a convolution, then depthwise and pointwise ones in turn."""

    def separable(inputs: int, outputs: int, stride: int) -> Any:
        return lib.Sequential(
            lib.Conv2d(inputs, inputs, 3, stride=stride, padding=1, groups=inputs),
            lib.ReLU(),
            lib.Conv2d(inputs, outputs, 1),
            lib.ReLU(),
        )

    return lib.Sequential(
        lib.Conv2d(1, 6, (4, 3), stride=(2, 2), padding=(1, 1)),
        lib.ReLU(),
        separable(6, 6, 1),
        separable(6, 8, 2),
        lib.Flatten(),
        lib.Linear(48, 4),
    )


def autoencoder(lib: Any, concat: Any) -> Any:
    """Down and up again, each half beside the other."""

    class UNet(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.down1 = lib.Sequential(lib.Conv1d(2, 6, 5, stride=2, padding=2), lib.ReLU())
            self.down2 = lib.Sequential(lib.Conv1d(6, 8, 3, stride=2, padding=1), lib.ReLU())
            self.up2 = lib.ConvTranspose1d(8, 6, 3, stride=2, padding=1, output_padding=1)
            self.act = lib.LeakyReLU(0.1)
            self.beside = concat(1)
            self.up1 = lib.ConvTranspose1d(12, 2, 4, stride=2, padding=1)

        def forward(self, x: Any) -> Any:
            a = self.down1(x)
            b = self.act(self.up2(self.down2(a)))
            return self.up1(self.beside(b, a)) + x

    return UNet()


def dense(lib: Any, concat: Any) -> Any:
    """Each layer reads all before it; a norm, and Linear layers along a line."""

    class Dense(lib.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = lib.Conv1d(2, 3, 3, padding=1)
            self.layers = lib.ModuleList(  # the norm takes away what a last bias adds
                [lib.Conv1d(3 * (i + 1), 3, 3, padding=1, bias=i == 0) for i in range(2)]
            )
            self.joins = lib.ModuleList([concat(1) for _ in range(2)])
            self.norm = lib.LayerNorm(8)
            self.along = lib.Linear(8, 5)
            self.flat = lib.Flatten()
            self.head = lib.Linear(45, 4)

        def forward(self, x: Any) -> Any:
            x = self.first(x)
            for layer, join in zip(self.layers, self.joins, strict=True):
                x = join(x, layer(x))
            return self.head(self.flat(self.along(self.norm(x))))

    return Dense()


BLOCKS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "resnet": (resnet, (1, 6, 6)),
    "ds_cnn": (ds_cnn, (1, 8, 12)),
    "autoencoder": (autoencoder, (2, 12)),
    "dense": (dense, (2, 8)),
}
