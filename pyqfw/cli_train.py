"""`pyqfw train` and `pyqfw eval`: a model of a script on arrays of a file."""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path
from typing import Any

from . import nn, optim
from .cli_common import (
    POLICIES,
    add_command,
    add_data,
    add_json,
    add_model,
    labelled,
    loaded,
    natural,
    positive,
    rate,
    show,
    table,
    targets,
)
from .counters import CounterLog
from .data import Split, Standardize
from .errors import QfwError
from .fit import History, evaluate, fit
from .formats import Sym
from .metrics import confusion
from .plan import compile
from .policy import Policy
from .session import Session

_LOSSES = {"cross_entropy": nn.CrossEntropyLoss, "mse": nn.MSELoss}


def add(commands: Any) -> None:
    _add_train(commands)
    _add_eval(commands)


def _add_train(commands: Any) -> None:
    t = add_command(
        commands,
        "train",
        train,
        help="train a model of a script on arrays of a file",
        description="Trains the model that a function of a script returns, on the arrays of an "
        ".npz, beside its float32 twin if asked, and saves it. With the loss mse the targets are "
        "the rows themselves.",
        example="pyqfw train net.py:make_model --data har.npz --policy int8 --epochs 20 "
        "--out har.safetensors",
    )
    t.add_argument("model", metavar="SCRIPT.py:FUNCTION", help="a function that returns the model")
    add_data(t)
    t.add_argument("--policy", choices=POLICIES, default="int8", help="(default: %(default)s)")
    t.add_argument("--bits", type=positive, metavar="N", help="of the weights")
    t.add_argument("--epochs", type=positive, default=10, metavar="N", help="(default: 10)")
    t.add_argument("--batch", type=positive, default=32, metavar="N", help="(default: 32)")
    t.add_argument("--lr", type=rate, default=0.01, metavar="X", help="(default: 0.01)")
    t.add_argument("--momentum", type=rate, default=0.9, metavar="X", help="(default: 0.9)")
    t.add_argument("--cosine", action="store_true", help="let the learning rate fall to 0")
    t.add_argument(
        "--loss", choices=_LOSSES, default="cross_entropy", help="(default: %(default)s)"
    )
    t.add_argument("--seed", type=natural, default=0, metavar="N", help="(default: 0)")
    t.add_argument("--raw", action="store_true", help="do not standardise the inputs")
    t.add_argument("--twin", action="store_true", help="train the float32 twin too")
    t.add_argument("--out", metavar="MODEL.safetensors", help="where the net is saved")
    t.add_argument("--report", metavar="FILE.html", help="write a report (extra `plot`)")
    add_json(t)


def _add_eval(commands: Any) -> None:
    e = add_command(
        commands,
        "eval",
        evaluated,
        help="loss, accuracy and confusion matrix of a saved net",
        description="Measures a saved net on the test part of a file, or on x and y.",
        example="pyqfw eval har.safetensors --data har.npz --json",
    )
    add_model(e)
    add_data(e)
    add_json(e)


def train(args: argparse.Namespace) -> int:
    data = labelled(args.data)
    net = Session(_plan(args, data))
    nets = {"net": net}
    log = None if args.report is None else CounterLog(net)
    if args.twin:
        nets["twin"] = net.recompile(policy=Policy.float32())
    histories = {
        name: _fitted(n, data, args, log if n is net else None) for name, n in nets.items()
    }
    if args.out is not None:
        net.save(args.out)
    if args.report is not None:
        from .report import report

        test = (data.test.x, targets(net, data.test))
        more: dict[str, Any] = {
            "twin": histories.get("twin"),
            "classes": data.test.classes,
            "counters": log,
        }
        report(net, args.report, history=histories["net"], data=test, **more)
    if args.json:
        show({name: {"scores": _scores(h), **h.to_dict()} for name, h in histories.items()})
    else:
        for name, history in histories.items():
            told = ", ".join(f"{k} {v:.4g}" for k, v in _scores(history).items())
            print(f"{name}: {nets[name].plan.policy}: {told}")
        print(f"{net.plan.arena_bytes} bytes of RAM, {net.plan.flash_bytes} of flash")
        saved = [str(path) for path in (args.out, args.report) if path is not None]
        print(f"written: {', '.join(saved)}" if saved else "not saved: give --out to keep the net")
    return 0


def evaluated(args: argparse.Namespace) -> int:
    net = loaded(args.model)
    test = labelled(args.data, net).test
    y = targets(net, test)
    scores: dict[str, Any] = dict(evaluate(net, test.x, y, progress=False if args.json else None))
    matrix = confusion(net, test.x, y) if y is test.y else None
    if args.json:
        more = {} if matrix is None else {"confusion": matrix.tolist(), "classes": test.classes}
        show({**scores, "rows": len(test), **more})
        return 0
    print(
        ", ".join(f"{name} {value:.4f}" for name, value in scores.items()) + f", {len(test)} rows"
    )
    if matrix is not None:
        names = test.classes or tuple(map(str, range(len(matrix))))
        rows = [("what it was", *("" for _ in names))]
        rows += [(name, *map(str, row)) for name, row in zip(names, matrix.tolist(), strict=True)]
        print("\n" + table(rows, range(1, len(names) + 1)))
    return 0


def _plan(args: argparse.Namespace, data: Split) -> Any:
    policy: Policy = getattr(Policy, args.policy)()
    if args.bits is not None:
        policy = policy.replace(weights=Sym(args.bits, axis=0, rounding="stochastic"))
    return compile(
        made(args.model),
        input_shape=data.train.x.shape[1:],
        loss=_LOSSES[args.loss](),
        optimizer=optim.SGD(lr=args.lr, momentum=args.momentum),
        policy=policy,
        batch=args.batch,
        preprocess=None if args.raw or args.loss == "mse" else Standardize.fit(data.train.x),
        seed=args.seed,
    )


def made(place: str) -> nn.Module:
    """The model that SCRIPT.py:FUNCTION returns."""
    script, _, name = place.rpartition(":")
    if not script or not name.isidentifier():
        raise QfwError(f"{place}: write SCRIPT.py:FUNCTION, as in net.py:make_model")
    if not Path(script).is_file():
        raise QfwError(f"{script}: there is no such file")
    try:
        functions = runpy.run_path(script)
    except (Exception, SystemExit) as e:
        raise QfwError(f"{script}: it does not run: {type(e).__name__}: {e}") from e
    if not callable(functions.get(name)):
        raise QfwError(f"{script}: there is no function {name}")
    try:
        model = functions[name]()
    except Exception as e:
        raise QfwError(f"{place}: {type(e).__name__}: {e}") from e
    if not isinstance(model, nn.Module):
        raise QfwError(f"{place}: it returned a {type(model).__name__}, no model of pyqfw.nn")
    return model


def _fitted(net: Session, data: Split, args: argparse.Namespace, log: CounterLog | None) -> History:
    test = None if data.test is data.train else (data.test.x, targets(net, data.test))
    return fit(
        net,
        data.train.x,
        targets(net, data.train),
        epochs=args.epochs,
        validation=test,
        schedule=optim.CosineAnnealingLR(args.epochs) if args.cosine else None,
        callbacks=[] if log is None else [log],
        progress=False if args.json else None,
    )


def _scores(history: History) -> dict[str, float]:
    """The last epoch's."""
    lists = history.to_dict()
    return {name: values[-1] for name, values in lists.items() if name not in ("lr", "seconds")}
