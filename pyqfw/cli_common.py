"""What the commands of `pyqfw` share: a parser that says in one sentence what is wrong, types."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from .data import Samples, Split, npz
from .errors import QfwError
from .session import Session

POLICIES = ("float32", "full_sym", "int8")


class Parser(argparse.ArgumentParser):
    """Says in one sentence what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (`{self.prog} --help` shows what is possible)\n")


def add_command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    *,
    help: str,
    description: str,
    example: str,
) -> argparse.ArgumentParser:
    """A command with an example at the end of its help."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help, description=description, epilog=f"example: {example}"
    )
    parser.set_defaults(command=run)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="machine-readable")


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL.safetensors", help="what net.save wrote")


def add_data(parser: argparse.ArgumentParser, required: bool = True) -> None:
    parser.add_argument(
        "--data",
        metavar="FILE.npz",
        required=required,
        help="x_train, y_train and x_test, y_test, or x and y; optional: scale, class_names",
    )


def positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer >= 1, not {text!r}")
    return int(text)


def natural(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"must be an integer >= 0, not {text!r}")
    return int(text)


def rate(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"must be a number >= 0, not {text!r}")
    return value


def loaded(path: str) -> Session:
    """The net in a file."""
    if not Path(path).is_file():
        raise QfwError(f"{path}: there is no such file")
    return Session.load(path)


def labelled(path: str, net: Session | None = None) -> Split:
    """The data, which must fit the net."""
    found = npz(path)
    if net is not None:
        shape = net.plan.request.input_shape
        if found.train.x.shape[1:] != shape:
            raise QfwError(f"{path}: rows of {found.train.x.shape[1:]}; the net takes {shape}")
    return found


def targets(net: Session, samples: Samples) -> Any:
    """Labels; the rows themselves where the loss compares with a whole output."""
    loss = net.plan.request.loss
    shape = None if loss is None else loss.target_shape(net.plan.nodes[-1].out_shape)
    return samples.y if not shape else samples.x


def show(content: object) -> None:
    print(json.dumps(content, indent=2))


def table(rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns as wide as they must be; those in `right` flush right."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            c.rjust(w) if k in right else c.ljust(w)
            for k, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
