"""Small images: scikit-learn's digits, or Fashion-MNIST from its idx files.

python examples/images.py digits
python examples/images.py fashion                 # where Debian's package has it
python examples/images.py fashion --data FOLDER   # or its four idx files in a folder
"""

from __future__ import annotations

import argparse

import pyqfw as q
from pyqfw import nn
from pyqfw.data import Split, Standardize


def model(side: int, classes: int = 10) -> nn.Sequential:
    """Two convolutions of 8 and 16 channels; each pool halves the image."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(16 * (side // 4) ** 2, classes)),
    )


def train(
    images: Split,
    policy: q.Policy,
    seed: int,
    epochs: int,
    progress: bool | None = None,
    lr: float = 0.02,
) -> tuple[q.Session, q.History]:
    x = images.train.x
    plan = q.compile(
        model(x.shape[-1]),
        input_shape=x.shape[1:],
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(lr=lr, momentum=0.9),
        policy=policy,
        batch=64,
        preprocess=Standardize.fit(x),
        seed=seed,
    )
    net = q.Session(plan)
    test = (images.test.x, images.test.y)
    history = q.fit(net, x, images.train.y, epochs=epochs, validation=test, progress=progress)
    return net, history


def load(name: str, data: str | None) -> Split:
    return q.data.digits() if name == "digits" else q.data.fashion_mnist(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("images", choices=("digits", "fashion"))
    parser.add_argument("--data", help="the folder with Fashion-MNIST's idx files")
    parser.add_argument("--policy", choices=("float32", "full_sym", "int8"), default="int8")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    images = load(args.images, args.data)
    print(f"train {images.train}\ntest  {images.test}")
    policies = dict.fromkeys((getattr(q.Policy, args.policy)(), q.Policy.float32()))
    for policy in policies:
        net, history = train(images, policy, args.seed, args.epochs)
        told = ", ".join(f"{accuracy:.2%}" for accuracy in history.val_accuracy)
        print(f"{policy}: {told} after each epoch; {net.plan.arena_bytes} bytes of RAM")


if __name__ == "__main__":
    main()
