"""A net that nine people trained is moved to an emulated Cortex-M and learns from the tenth there.

    python examples/personalise_on_device.py --person 2 --target cortex-m4 --head

The firmware that runs is what `q.export` writes; the same steps on this machine end with the same
bits. With --head the last layer learns alone: the others lie in flash.
"""

from __future__ import annotations

import argparse

import har_watch
import numpy as np

import pyqfw as q
from pyqfw import state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--person", type=int, default=2, choices=range(1, 11))
    parser.add_argument("--target", default="cortex-m4")
    parser.add_argument("--backend", default="unicorn", choices=q.mcu.BACKENDS)
    parser.add_argument("--epochs", type=int, default=20, help="of the nine people")
    parser.add_argument("--tuning", type=int, default=10, help="epochs on the device")
    parser.add_argument("--head", action="store_true", help="only the last layer learns")
    parser.add_argument("--export", metavar="FOLDER", help="write the firmware, too")
    args = parser.parse_args()

    samples = q.data.watch()
    own = samples[samples.groups == args.person]
    first, later = q.data.split_recordings(own.recordings, har_watch.FIRST, har_watch.GAP)
    others = samples[samples.groups != args.person]
    net = har_watch.pretrain(others, q.Policy.int8(), seed=0, epochs=args.epochs)

    device = net.recompile(
        batch=1,  # a window at a time,
        optimizer=q.optim.SGD(lr=0.005),  # without momentum
        policy=net.plan.policy.replace(grads="fused"),  # and without stored gradients
        train=[har_watch.HEAD] if args.head else None,
    )
    x, y = own[first].x, own[first].y
    run = q.mcu.run(
        device, x, y, target=args.target, backend=args.backend, epochs=args.tuning, count_steps=1
    )
    q.fit(device, x, y, epochs=args.tuning)  # the same steps on this machine

    def score(n: q.Session) -> str:
        return f"{np.mean(n.predict(own[later].x).argmax(1) == own[later].y):.1%}"

    same = state.of(run.net).lasting == state.of(device).lasting
    print(run.cost)
    print(f"\nperson {args.person}, later windows: {score(net)} before, {score(run.net)} after")
    print(f"{len(run.losses)} steps; this machine: {'the same bits' if same else 'OTHER BITS'}")
    if args.export:
        q.export(run.net, args.export, target=args.target, overwrite=True)
        print(f"firmware in {args.export}: make run")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
