"""`pyqfw report`: a saved net as a page."""

from __future__ import annotations

import argparse
from typing import Any

from .cli_common import add_command, add_data, add_model, labelled, loaded, targets


def add(commands: Any) -> None:
    r = add_command(
        commands,
        "report",
        run,
        help="a page about a saved net",
        description="Writes one self-contained HTML page about a saved net: memory map of a step, "
        "code histograms and quantization errors of its tensors, and with data its confusion "
        "matrix. `pyqfw train --report` adds the curves. Needs the extra `plot`.",
        example="pyqfw report har.safetensors --data har.npz --out report.html",
    )
    add_model(r)
    add_data(r, required=False)
    r.add_argument(
        "--out", metavar="FILE.html", default="report.html", help="(default: %(default)s)"
    )


def run(args: argparse.Namespace) -> int:
    from .report import report

    net = loaded(args.model)
    given: dict[str, Any] = {}
    if args.data is not None:
        test = labelled(args.data, net).test
        given = {"data": (test.x, targets(net, test)), "classes": test.classes}
    print(report(net, args.out, **given))
    return 0
