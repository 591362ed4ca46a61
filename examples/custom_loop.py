"""A training loop by hand: forward, backward and update one after the other, with a look inside.

    python examples/custom_loop.py --epochs 5

`net.step(x, y)` is these three calls and gives the same bits; `q.fit` is a loop of steps.
"""

from __future__ import annotations

import argparse

import numpy as np

import pyqfw as q
from pyqfw import nn


def model() -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()

    train, test = q.data.digits()
    plan = q.compile(
        model(),
        input_shape=train.x.shape[1:],
        loss=nn.CrossEntropyLoss(),
        optimizer=q.optim.SGD(lr=0.05, momentum=0.9),
        policy=q.Policy.int8(),
        batch=32,
    )
    net = q.Session(plan, counters=True)
    order = np.random.default_rng(0)
    warmup = 20
    for epoch in range(args.epochs):
        losses = []
        for rows in np.array_split(order.permutation(len(train)), len(train) // 32 + 1):
            net.lr = 0.05 * min(1.0, (net.steps + 1) / warmup)
            output = net.forward(train.x[rows])  # float32, of the training forward
            losses.append(net.backward(train.y[rows]))
            gradient = net.grad("3.weight")  # a QTensor: codes and scales as they are stored
            if not np.isfinite(output).all() or gradient.numpy().std() > 10:
                raise SystemExit(f"step {net.steps}: it diverges")
            net.update()
        counted = net.counters(reset=True)["1.weight"]
        right = np.mean(net.predict(test.x).argmax(1) == test.y)
        print(
            f"epoch {epoch}: loss {np.mean(losses):.3f}, {right:.1%} of {len(test)} digits; of the "
            f"first weights {counted.zero_update_fraction:.0%} of the updates moved no code"
        )

    print("\none step, operation by operation:")
    for op, made in net.trace(train.x[:32], train.y[:32]):
        told = ", ".join(f"{name} {t.format}" for name, t in made.items())
        print(f"  {op.kernel:<20} {op.layer:<8} {told}")


if __name__ == "__main__":
    main()
